//! The fast path of O_DIRECT: a plain read or write of a file that is known to be O_DIRECT, and of
//! one piece of memory, joins the aio batch straight from its SQE, without a request. Nothing can
//! refer to it meanwhile: no link, no drain, no buffer of the ring, and in the kernel, too, a
//! cancellation finds nothing there. A reference stored with the SQE keeps a registered file open.

use alloc::boxed::Box;
use alloc::rc::Rc;

use crate::io::aio;
use crate::io::iov::{MAX_RW_COUNT, import_one, one_part};
use crate::memory::cq::Cqe;
use crate::memory::sqe::Sqe;
use crate::ops::rw;
use crate::ops::table::OPS;
use crate::resources::files::FileNode;
use crate::ring::ctx::{Ctx, Resources};
use crate::ring::direct::DirectSqe;
use crate::ring::request::{FileRef, OpState, Req, Rw, Transfer};
use crate::stats::trace::Step;
use softring_host::calls::Part;
use softring_host::fd::kind::Kind;
use softring_host::user::in_user;
use softring_uapi::errno::Errno;
use softring_uapi::*;

impl Ctx {
    /// Queues a READ or WRITE, or one with a vector of one part, for the next batch; false if it
    /// must take the slow path, as with any flag but FIXED_FILE.
    pub(crate) fn queue_direct(&mut self, sqe: &Sqe) -> bool {
        let registered = sqe.flags == IOSQE_FIXED_FILE;
        let plain = (sqe.flags == 0 || registered) && sqe.op_flags == 0 && sqe.pad2 == 0;
        let ranges = sqe.off.cast_signed() >= 0;
        let file = if plain && registered { self.resources.direct_file(sqe) } else { None };
        let direct = file.is_some() || !registered && self.submit.is_direct_in_batch(sqe.fd);
        // A forked child's requests in flight must be known.
        if !plain || !ranges || !direct || self.setup.inherited.has_parent || !self.aio_ready() {
            return false;
        }
        let eventfd = self.aio_signal();
        if eventfd.is_none() && !self.setup.polls() {
            return false;
        }
        let write = rw::writes(sqe.opcode);
        let meant =
            match file.as_ref().map(|node| &node.history).or(crate::io::kinds::history(sqe.fd)) {
                Some(history) if history.refusals.none() => history.file(),
                Some(history) if history.refusals.expected(write) => return false,
                Some(history) => {
                    history.refusals.tried(write);
                    history.file()
                }
                None => 0,
            };
        let part = if self.is_last_vector(sqe) {
            None
        } else {
            let Some(part) = self.direct_part(sqe) else { return false };
            Some(part)
        };
        let trace = self.trace_submit(&OPS, sqe);
        if trace != 0 {
            self.trace_step(Step::Aio, (&**sqe).into(), trace, 0);
        }
        let Some(aio) = &mut self.drive.transports.aio else { return false };
        let fd = file.as_ref().map_or(sqe.fd, |node| node.fd());
        let start = self.reqs.slab.now();
        let kept = DirectSqe { sqe: *sqe, part, writes: write, file, trace, meant, start };
        let data = self.reqs.direct.put(kept);
        let off = sqe.off.cast_signed();
        let iocb = match part {
            Some(part) => {
                let op = if write { aio::WRITE } else { aio::READ };
                aio::rw(op, fd, part.base(), part.len, off, aio::RWF_NOWAIT, data)
            }
            None => {
                let op = if write { aio::WRITEV } else { aio::READV };
                aio::rw_unread(op, fd, sqe.addr(), off, data)
            }
        };
        let _token = aio.prep(match eventfd {
            Some(fd) => iocb.with_resfd(fd),
            None => iocb,
        });
        self.drive.transports.aio_queued = true;
        self.reqs.nr_reqs += 1;
        true
    }

    /// Returns whether the SQE has a vector, and is the last of its batch: kernel aio reads the
    /// vector at once, and nothing else is done before that. So it need not be checked. (An SQ
    /// thread's program runs meanwhile.)
    #[inline]
    fn is_last_vector(&self, sqe: &Sqe) -> bool {
        let at_once = self.submit.left == 0 && self.setup.flags & IORING_SETUP_SQPOLL == 0;
        rw::vectored(sqe.opcode) && at_once
    }

    /// Notes what the vector of a fast path's SQE says, which only the kernel has checked so far.
    pub(crate) fn direct_vector(&mut self, data: u64, vector: iovec) {
        let Some(kept) = self.reqs.direct.get_mut(data) else { return };
        let part = one_part(vector).ok();
        kept.part = part.map(|part| part.first(u64::from(MAX_RW_COUNT)));
    }

    /// Returns the memory that an SQE names, directly or as the one part of its vector; none if the
    /// slow path must look at it.
    #[inline]
    fn direct_part(&mut self, sqe: &Sqe) -> Option<Part> {
        if !rw::vectored(sqe.opcode) {
            let len = u64::from(sqe.len);
            return in_user(sqe.addr, len).is_ok().then(|| Part::new(sqe.addr(), len));
        }
        let part = self.unlocked(|| import_one(sqe.addr())).ok()?;
        let transfers = (1..=u64::from(MAX_RW_COUNT)).contains(&part.len);
        // Other threads may have used up the room meanwhile.
        (transfers && self.aio_ready()).then_some(part)
    }

    /// Completes a fast path's SQE.
    #[inline]
    pub(crate) fn direct_done(&mut self, kept: &DirectSqe, res: i32) {
        let DirectSqe { sqe, writes, trace, start, .. } = kept;
        if *writes && let Some(history) = kept.history().filter(|_| res >= 0) {
            history.refusals.written();
        }
        if res < 0 {
            self.stats.count_error(sqe.opcode);
        }
        self.count_bytes(&OPS[sqe.opcode as usize], res);
        if *start != 0 {
            self.count_waited(sqe.opcode, *start);
        }
        if *trace != 0 {
            self.trace_step(Step::Done, (&**sqe).into(), *trace, res);
        }
        self.post(Cqe { user_data: sqe.user_data, res, ..Cqe::default() });
        self.reqs.nr_ended += 1;
    }

    /// Passes the rest of a transfer that the kernel's aio refused, or did in part, to a worker.
    pub(crate) fn direct_fallback(
        &mut self,
        DirectSqe { sqe, file, trace, start, .. }: DirectSqe,
        part: Part,
        done: u64,
    ) {
        let mut req = Req { trace, start, ..Req::new(sqe, &OPS[sqe.opcode as usize]) };
        req.call.file = file.map_or(FileRef::Plain(sqe.fd), FileRef::Fixed);
        let io = Transfer { done, ..Transfer::of(&sqe) };
        let vector = rw::vectored(sqe.opcode).then(|| Box::new([part]) as Box<[Part]>);
        req.call.state = OpState::Rw(Rw { io, vector, by_worker: false });
        let req = self.reqs.slab.boxed(req);
        self.punt(req);
    }

    /// Handles a fast path's SQE that was refused at submission.
    pub(crate) fn direct_refused(&mut self, kept: DirectSqe, e: Errno) {
        let part = kept.part.map_or_else(|| self.unlocked(|| import_one(kept.sqe.addr())), Ok);
        let part = match part {
            Ok(part) => part,
            Err(bad) => return self.direct_done(&kept, bad.res()),
        };
        if !aio::nowait::is_for_worker(e) {
            return self.direct_done(&kept, e.res());
        }
        kept.refused(e);
        self.direct_fallback(kept, part, 0);
    }
}

impl Resources {
    /// Returns the registered file of an SQE, if kernel aio can have it.
    fn direct_file(&self, sqe: &io_uring_sqe) -> Option<Rc<FileNode>> {
        let node = self.files.peek(sqe.fd.cast_unsigned())?;
        (node.kind == Kind::Direct && node.model.is_none()).then(|| node.clone())
    }
}
