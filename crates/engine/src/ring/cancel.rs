//! Cancellation of waiting requests. Kernel counterpart: `io_uring/cancel.c`.
//!
//! The search covers, in this order: workers (queued or running), the poll set, the timeout queue.
//! As in the kernel, the search does not find requests that are linked behind another, behind a
//! drain barrier, or with the kernel's aio.

pub(crate) mod protocol;

use alloc::sync::Arc;
use alloc::vec::Vec;

use softring_host::os::fd::AsRawFd;

use self::protocol::{Punted, Sleeping};
use crate::io::token::ReqId;
use crate::ring::ctx::Ctx;
use crate::ring::request::{OnWorker, Phase, Req};
use softring_host::fd::InternalFd;
use softring_host::sys;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

/// The flags of a cancellation (`CANCEL_FLAGS`).
pub(crate) const CANCEL_FLAGS: u32 = (1 << 6) - 1;
const MANY: u32 = IORING_ASYNC_CANCEL_ALL | IORING_ASYNC_CANCEL_ANY;

/// Kinds of requests, in the order of the search; 0 is workers, 1 the poll set.
const CHILDREN: u8 = 2;
const FUTEXES: u8 = 3;
const TIMEOUTS: u8 = 4;

/// Search order of a request: its kind, then its position within that kind.
type Order = (u8, (bool, u64, u64));

/// Criteria of a cancellation (`struct io_cancel_data`).
#[derive(Debug)]
pub(crate) struct Wanted {
    flags: u32,
    user_data: u64,
    opcode: u8,
    file: Option<File>,
}

/// The file that a match must work on.
#[derive(Debug)]
enum File {
    Plain(i32),
    Owned(Arc<InternalFd>),
}

impl File {
    fn fd(&self) -> i32 {
        match self {
            File::Plain(fd) => *fd,
            File::Owned(fd) => fd.as_raw_fd(),
        }
    }
}

impl Wanted {
    /// # Errors
    /// `EBADF` if a file is wanted and is not open.
    pub(crate) fn new(ctx: &Ctx, user_data: u64, flags: u32, fd: i32, opcode: u8) -> Result<Self> {
        let file = if flags & IORING_ASYNC_CANCEL_FD == 0 {
            None
        } else if flags & IORING_ASYNC_CANCEL_FD_FIXED != 0 {
            let slot = u32::try_from(fd).map_err(|_| Errno::EBADF)?;
            Some(File::Owned(ctx.resources.files.get(slot)?.share()))
        } else {
            softring_host::fd::check_visible(fd)?;
            Some(File::Plain(fd))
        };
        Ok(Wanted { flags, user_data, opcode, file })
    }

    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Same as [`Self::new`] for a plain descriptor that the caller holds.
    pub(crate) fn with_file(user_data: u64, flags: u32, fd: Arc<InternalFd>, opcode: u8) -> Self {
        Wanted { flags, user_data, opcode, file: Some(File::Owned(fd)) }
    }

    /// Returns whether `user_data` decides.
    fn by_name(&self) -> bool {
        let narrow = IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_OP;
        let named = self.has(IORING_ASYNC_CANCEL_USERDATA) || !self.has(narrow);
        named && !self.has(IORING_ASYNC_CANCEL_ANY)
    }

    /// Returns whether a cancellation that runs on a worker would find itself.
    pub(crate) fn itself(&self, req: &Req) -> bool {
        let named = !self.by_name() || req.user_data == self.user_data;
        let op = !self.has(IORING_ASYNC_CANCEL_OP) || req.opcode() == self.opcode;
        !self.has(MANY) && named && op
    }

    /// Returns whether the request matches, apart from its `user_data` (`io_cancel_req_match`).
    fn matches(&self, req: &Req) -> bool {
        // Only SYNC_CANCEL takes ANY together with a file or an opcode, which are then ignored.
        if self.has(IORING_ASYNC_CANCEL_ANY) {
            return true;
        }
        let op = !self.has(IORING_ASYNC_CANCEL_OP) || req.opcode() == self.opcode;
        let file = |f: &File| {
            let fd = match req.phase {
                Phase::Worker(OnWorker { fd, .. }) => fd,
                _ => req.call.file.poll_fd(),
            };
            fd >= 0 && same_file(fd, f.fd())
        };
        op && self.file.as_ref().is_none_or(file)
    }

    /// Returns where the kernel's search finds a request; `None` if it is not cancelable.
    fn order(&self, req: &Req) -> Option<Order> {
        let waiting = req.row.waiting.is_some();
        match &req.phase {
            // A request that a device has cannot be cancelled.
            Phase::Worker(OnWorker { due: Some(_), .. }) => None,
            Phase::Queued => Some((0, (false, 0, 0))),
            Phase::Worker(_) => Some((0, (true, 0, 0))),
            Phase::Sleeping(_) if !waiting => Some((FUTEXES, (false, 0, 0))),
            Phase::Sleeping(_) => Some((CHILDREN, (false, 0, 0))),
            Phase::Polling(_) if waiting => Some((CHILDREN, (false, 0, 0))),
            Phase::Polling(_) | Phase::Cancelled => Some((1, (false, 0, 0))),
            Phase::Timer(t) => {
                let found = req.opcode() == IORING_OP_TIMEOUT && self.file.is_none();
                // An expired timeout is gone, as if a timer's interrupt had taken it.
                (found && !t.is_over()).then(|| (TIMEOUTS, t.order()))
            }
            _ => None,
        }
    }
}

/// Returns the bucket of the kernel's hash for a `user_data`. The hash has one bucket for each 32
/// CQEs, up to 256 (`io_alloc_hash_table`, `hash_long`).
fn bucket(user_data: u64, cq_entries: u32) -> u64 {
    const GOLDEN_RATIO: u64 = 0x61c8_8646_80b5_83eb;
    let bits = cq_entries.max(1).ilog2().saturating_sub(5).clamp(1, 8);
    user_data.wrapping_mul(GOLDEN_RATIO) >> (64 - bits)
}

/// Returns whether two internal descriptors mean the same open file.
pub(crate) fn same_file(a: i32, b: i32) -> bool {
    if a == b {
        return true;
    }
    // Without an answer of the kernel's, the inodes and the open flags are compared.
    sys::same_open_file(a, b).unwrap_or_else(|| same_inode(a, b).unwrap_or(false))
}

fn same_inode(a: i32, b: i32) -> Option<bool> {
    let id = |fd| {
        let stat = softring_host::os::fs::fstat(sys::borrow(fd)?).ok()?;
        let flags = sys::file_flags(fd)?;
        Some((stat.st_dev, stat.st_ino, flags))
    };
    Some(id(a)? == id(b)?)
}

impl Ctx {
    /// Cancels the requests that match: returns 0, or with ALL or ANY their number.
    ///
    /// # Errors
    /// `ENOENT` if there is nothing to cancel, `EALREADY` if it runs already (it is told to stop).
    pub(crate) fn cancel(&mut self, wanted: &Wanted) -> Result<u32> {
        let mut found: Vec<_> = if wanted.by_name() {
            let named = self.reqs.slab.named(wanted.user_data);
            named.filter_map(|(id, r)| Some((wanted.order(r)?, id))).collect()
        } else {
            self.reqs.slab.iter().filter_map(|(id, r)| Some((wanted.order(r)?, id))).collect()
        };
        found.retain(|&(_, id)| self.reqs.slab.get(id).is_some_and(|r| wanted.matches(r)));
        for (order, id) in &mut found {
            self.refine(order, *id);
        }
        found.sort_by_key(|&(order, _)| order);
        if wanted.has(MANY) {
            Ok(self.cancel_many(&found, wanted.has(IORING_ASYNC_CANCEL_ALL)))
        } else {
            self.cancel_first(&found)
        }
    }

    /// Refines the order of a request within its kind. Polls go by the buckets of the kernel's
    /// hash; within a bucket, and among waits for children or for futexes, the newest comes first.
    fn refine(&self, order: &mut Order, id: ReqId) {
        let age = u64::from(self.reqs.slab.age(id));
        match (order.0, self.reqs.slab.get(id)) {
            (1, Some(req)) => {
                let bucket = bucket(req.user_data, self.mem.geo.cq_entries);
                order.1 = (false, bucket, age);
            }
            (CHILDREN | FUTEXES, _) => order.1 = (false, 0, age),
            _ => {}
        }
    }

    fn cancel_first(&mut self, found: &[(Order, ReqId)]) -> Result<u32> {
        let mut result = Err(Errno::ENOENT);
        for &((kind, _), id) in found {
            match self.cancel_now(id) {
                // For these kinds the kernel returns a count.
                Ok(()) => return Ok(u32::from(matches!(kind, CHILDREN | FUTEXES))),
                // A running request is told to stop, and the search goes on.
                Err(Errno::EALREADY) => result = Err(Errno::EALREADY),
                Err(_) => {}
            }
        }
        result
    }

    /// Cancels all and returns the count. All requests queued for workers count as one, or as none
    /// if any matching request ran already. With ALL, waits for children also count as one, and so
    /// do waits for futexes.
    fn cancel_many(&mut self, found: &[(Order, ReqId)], all: bool) -> u32 {
        let (mut queued, mut running, mut n) = (false, false, 0);
        let mut counted = 0;
        for &((kind, _), id) in found {
            match self.cancel_now(id) {
                Ok(()) if kind == 0 => queued = true,
                Ok(()) if all && matches!(kind, CHILDREN | FUTEXES) => {
                    n += u32::from(kind != counted);
                    counted = kind;
                }
                Ok(()) => n += 1,
                Err(Errno::EALREADY) => running = true,
                Err(_) => {}
            }
        }
        n + u32::from(queued && !running)
    }

    /// Cancels one waiting request for the program; see [`Self::cancel_one`].
    fn cancel_now(&mut self, id: ReqId) -> Result<()> {
        let done = self.cancel_one(id);
        if self.faults.is_some() && done != Err(Errno::ENOENT) {
            self.faults_cancelled(id);
        }
        done
    }

    /// Cancels one waiting request; its CQE (ECANCELED) comes with the next task work.
    ///
    /// # Errors
    /// `ENOENT` if it is not there or not cancelable, `EALREADY` if it is already being executed.
    pub(crate) fn cancel_one(&mut self, id: ReqId) -> Result<()> {
        let req = self.reqs.slab.get(id).ok_or(Errno::ENOENT)?;
        match req.phase {
            Phase::Polling(_) => {
                self.poll_leave(id, false);
                if let Some(req) = self.reqs.slab.get(id)
                    && let Some(waiting) = req.row.waiting
                {
                    let res = (waiting.cancel)(&req.call);
                    self.end_soon(id, res);
                    return Ok(());
                }
                self.end_soon(id, Errno::ECANCELED.res());
                if let Some(req) = self.reqs.slab.get_mut(id) {
                    req.phase = Phase::Cancelled;
                }
            }
            Phase::Timer(_) => {
                self.reqs.timeouts_disarm(id);
                self.end_soon(id, Errno::ECANCELED.res());
            }
            Phase::Queued => {
                self.work.leave_iowq(id);
                self.end_soon(id, Errno::ECANCELED.res());
            }
            Phase::Worker(_) if req.is_with_device() => return Err(Errno::ENOENT),
            Phase::Worker(_) => return self.cancel_punted(id),
            Phase::Cancelled => {}
            Phase::Sleeping(_) => return self.cancel_futex_wait(id),
            Phase::Aio(_) | Phase::Modelled | Phase::Elsewhere => return Err(Errno::ENOENT),
            Phase::Held => return Err(Errno::ENOENT),
            Phase::Prepped | Phase::Drained | Phase::Expired { .. } => return Err(Errno::ENOENT),
        }
        Ok(())
    }

    /// Drops everything at the ring's end; posts nothing.
    pub(crate) fn cancel_everything(&mut self) {
        self.reqs.abandon_futex_waiters();
        self.forget_in_flight();
    }

    /// Drops every request.
    pub(crate) fn forget_in_flight(&mut self) {
        self.reqs.slab.clear();
        self.work = crate::ring::work::Work::default();
        (self.reqs.nr_reqs, self.reqs.nr_ended) = (0, 0);
        self.reqs.drain = crate::ring::barrier::Drain::default();
        self.reqs.timeouts = crate::ring::timer_queue::Timeouts::default();
        self.submit = crate::ring::batch::SubmitState::default();
        self.reqs.exclusive = crate::ring::exclusive_queues::ExclusiveQueues::default();
    }
}
