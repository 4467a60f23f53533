//! Journal of the requests that a forked child has in flight on its parent's ring. When the child
//! ends, its parent takes them over.
//!
//! A request lives in the process that submitted it, and ends with that process. So at the end of
//! each batch a child writes down what it has in flight, on the engine's page of the ring, and has
//! its parent's reactor watch the child ([`Children`]). When the child has ended, by whatever
//! cause, the parent goes by the journal: the child's timeouts go on, and all else is cancelled. On
//! the kernel, too, timeouts go on, and what would run in the child's name ends with ECANCELED. If
//! the child execs instead, its timeouts are cancelled as well; a pipe that exec closes shows every
//! exec, however it is called. Kernel counterpart: `io_uring_cancel_generic`,
//! `io_fallback_req_func`.
//!
//! The page is written and read under the uring lock. It has room for [`SLOTS`] requests.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZero;
use core::sync::atomic::Ordering::Relaxed;

use softring_host::os::fd::{AsFd, AsRawFd};
use softring_host::os::fs::{Mode, OFlags};
use softring_host::os::pipe::PipeFlags;

use crate::drive::reactor;
use crate::io::token::ReqId;
use crate::memory::lock::Control;
use crate::memory::sqe::Sqe;
use crate::ops::table::{self, OPS};
use crate::ops::timeout::{clock_named, with_clock};
use crate::process::remote_cancel;
use crate::ring::ctx::{Ctx, Requests, Ring};
use crate::ring::inherited::Inherits;
use crate::ring::request::{Phase, Req, ReqFlags, Timer};
use crate::ring::turn::{Drives, Turn};
use softring_host::fd::InternalFd;
use softring_host::fork::AtFork;
use softring_host::sync::real::Mutex;
use softring_host::sys;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

/// Number of requests, of all children together, that the page has room for.
pub(crate) const SLOTS: usize = 96;
/// Words of a slot: its owner (0: nobody), its kind, then its `user_data`, deadline and period, its
/// shots, and its pipe.
const WORDS: usize = 10;
const OWNER: usize = 0;
const WHAT: usize = 1;
const NAME: usize = 2;
const DEADLINE: usize = 4;
const PERIOD: usize = 6;
const SHOTS: usize = 8;
/// Number of the pipe that shows an exec, in its process.
const PIPE: usize = 9;
/// Bits of the kind: the flags of the SQE, and above them these and the flags of a timeout.
const FOLLOWS: u32 = 1 << 8;
const TIMEOUT: u32 = 1 << 9;
const OP_FLAGS: u32 = 16;
/// SQE flags that concern who is told of the request's end.
const CARRIED_FLAGS: u8 = IOSQE_IO_LINK | IOSQE_IO_HARDLINK | IOSQE_CQE_SKIP_SUCCESS;

/// A request in the journal.
#[derive(Clone, Copy, Debug, Default)]
struct Left {
    what: u32,
    user_data: u64,
    timer: Timer,
}

impl Left {
    fn of(req: &Req, follows: bool) -> Left {
        let sqe = req.call.sqe();
        let mut what = u32::from(sqe.flags & CARRIED_FLAGS) | if follows { FOLLOWS } else { 0 };
        let mut timer = Timer::default();
        if let (IORING_OP_TIMEOUT, Phase::Timer(t)) = (req.opcode(), &req.phase) {
            what |= TIMEOUT | with_clock(sqe.op_flags, t.clock) << OP_FLAGS;
            timer = *t;
        }
        Left { what, user_data: req.user_data, timer }
    }

    fn write(&self, page: &Control, slot: usize, owner: u32) {
        let wide = |at: usize, value: u64| {
            page.left(slot * WORDS + at).store(value as u32, Relaxed);
            page.left(slot * WORDS + at + 1).store((value >> 32) as u32, Relaxed);
        };
        wide(NAME, self.user_data);
        wide(DEADLINE, self.timer.deadline);
        wide(PERIOD, self.timer.period);
        page.left(slot * WORDS + SHOTS).store(self.timer.shots, Relaxed);
        page.left(slot * WORDS + PIPE).store(exec_pipe(), Relaxed);
        page.left(slot * WORDS + WHAT).store(self.what, Relaxed);
        page.left(slot * WORDS + OWNER).store(owner, Relaxed);
    }

    fn read(page: &Control, slot: usize) -> Left {
        let word = |at: usize| page.left(slot * WORDS + at).load(Relaxed);
        let wide = |at: usize| u64::from(word(at)) | u64::from(word(at + 1)) << 32;
        let what = word(WHAT);
        let clock = clock_named(what >> OP_FLAGS);
        let (deadline, period, shots) = (wide(DEADLINE), wide(PERIOD), word(SHOTS));
        let timer = Timer { clock, deadline, period, shots, ..Timer::default() };
        Left { what, user_data: wide(NAME), timer }
    }

    /// Makes the request that stands for this one here: a NOP, if it is no timeout.
    fn request(&self) -> Req {
        let timeout = self.what & TIMEOUT != 0;
        let sqe = Sqe::without_addresses(io_uring_sqe {
            opcode: if timeout { IORING_OP_TIMEOUT } else { table::ENDS },
            flags: self.what as u8,
            op_flags: if timeout { self.what >> OP_FLAGS } else { 0 },
            user_data: self.user_data,
            ..io_uring_sqe::default()
        });
        let mut req = Req::new(sqe, &OPS[sqe.opcode as usize]);
        req.flags |= ReqFlags::ORPHAN;
        req
    }
}

/// Process-wide state of the journal.
#[derive(Debug)]
struct OfProcess {
    /// Pipe that this process alone has open, and that exec closes: it hangs up when the process
    /// execs or ends. Its ends: to read, to write.
    exec_pipe: Mutex<Option<[InternalFd; 2]>>,
}

static PROCESS: OfProcess = OfProcess { exec_pipe: Mutex::new(None) };

pub(crate) const AT_FORK: AtFork = AtFork::new(|_| PROCESS.in_child());

impl OfProcess {
    fn in_child(&self) {
        let Self { exec_pipe } = self;
        // The pipe is the parent's. Nobody holds the lock, which is taken only under a ring's lock.
        *exec_pipe.lock() = None;
    }
}

/// Returns the number of the pipe's end to read; 0: none is free.
fn exec_pipe() -> u32 {
    let mut pipe = PROCESS.exec_pipe.lock();
    if pipe.is_none() {
        let made = softring_host::os::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK);
        *pipe = made.ok().map(|(r, w)| [r, w].map(softring_host::fd::make_internal));
    }
    pipe.as_ref().map_or(0, |[read, _]| read.as_raw_fd().cast_unsigned())
}

/// Returns whether a child whose pipe is closed lives on after an exec; false if nothing tells.
fn lives_on(pid: u32) -> bool {
    const PF_EXITING: u32 = 4;
    const FLAGS: usize = 6;
    let stat = softring_host::files::proc_text(&format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let flags = after_name.split(' ').nth(FLAGS).and_then(|flags| flags.parse::<u32>().ok());
    flags.is_some_and(|flags| flags & PF_EXITING == 0)
}

fn owner(page: &Control, slot: usize) -> u32 {
    page.left(slot * WORDS + OWNER).load(Relaxed)
}

impl Inherits for Ctx {
    #[cold]
    fn write_down(&mut self) {
        if self.reqs.slab.is_empty() && self.setup.inherited.written == 0 {
            return;
        }
        let has_parent = !self.defers() && reactor::parent().is_some();
        let left = if has_parent { self.reqs.in_order() } else { Vec::new() };
        let (me, page) = (softring_host::fork::pid(), self.mem.control.clone());
        let before = core::mem::take(&mut self.setup.inherited.written);
        let mut used = [false; SLOTS];
        let free = (0..SLOTS).filter(|&slot| [0, me].contains(&owner(&page, slot)));
        for (slot, left) in free.zip(&left) {
            left.write(&page, slot, me);
            used[slot] = true;
            self.setup.inherited.written += 1;
        }
        // Clears stale slots: other children's slots may lie between.
        if before > 0 {
            let stale = (0..SLOTS).filter(|&slot| !used[slot] && owner(&page, slot) == me);
            stale.for_each(|slot| page.left(slot * WORDS).store(0, Relaxed));
        }
        self.setup.inherited.has_parent = has_parent;
        if self.setup.inherited.written > 0
            && !core::mem::replace(&mut self.setup.inherited.watched, true)
        {
            page.journal_writes().fetch_add(1, Relaxed);
            reactor::wake_parent();
        }
    }

    fn may_ask_parent(&self, sqe: &io_uring_sqe) -> bool {
        remote_cancel::may_ask_parent(self, sqe)
    }
}

impl Ctx {
    /// Takes over what `child` has written down, and clears it. If the child has called exec, its
    /// timeouts end, too.
    fn take_over(&mut self, child: u32, end: End) -> bool {
        let page = self.mem.control.clone();
        let mut chain: Vec<Left> = Vec::new();
        let mut any = false;
        for slot in (0..SLOTS).filter(|&slot| owner(&page, slot) == child) {
            let mut left = Left::read(&page, slot);
            page.left(slot * WORDS).store(0, Relaxed);
            if end == End::Exec {
                left.what &= !TIMEOUT;
            }
            if left.what & FOLLOWS == 0 {
                self.resume_chain(&core::mem::take(&mut chain));
            }
            chain.push(left);
            any = true;
        }
        self.resume_chain(&chain);
        any
    }

    /// Resumes one chain.
    fn resume_chain(&mut self, chain: &[Left]) {
        let Some((head, rest)) = chain.split_first() else { return };
        let mut next = None;
        for left in rest.iter().rev() {
            next = Some(self.reqs.slab.add(Req { link: next, ..left.request() }));
        }
        self.reqs.nr_reqs += chain.len() as u32;
        let mut req = Req { link: next, ..head.request() };
        if head.what & TIMEOUT != 0 {
            let id = self.reqs.slab.add(req);
            self.timeouts_insert(id, head.timer);
        } else {
            // Requests that are linked to it end with it.
            req.flags.remove(ReqFlags::HARDLINK);
            req.fail(Errno::ECANCELED);
            let req = self.reqs.slab.boxed(req);
            self.finish(req);
        }
    }
}

/// Returns whether a child has called since the reactor last checked.
pub(crate) fn is_called(ring: &Ring) -> bool {
    ring.control.journal_writes().load(Relaxed) != ring.journal_writes.load(Relaxed)
}

/// End of a child's time with the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Exit,
    Exec,
}

/// A child that is watched.
#[derive(Debug)]
struct Child {
    pid: u32,
    process: InternalFd,
    /// Read end of the child's pipe, opened once more.
    pipe: Option<InternalFd>,
}

/// Children of this process that its reactor watches.
#[derive(Debug, Default)]
pub(crate) struct Children(Vec<Child>);

impl Children {
    /// Mark of a child in the reactor's event data; no ring has such an id.
    const MARK: u64 = 1 << 63;
    /// Mark of a pipe that shows a child's exec.
    const EXEC: u64 = 1 << 62;

    /// Watches children that have called and are not known. Returns those whose time is over.
    pub(crate) fn update(&mut self, set: impl AsFd, rings: &[Arc<Ring>]) -> Vec<(u32, End)> {
        let mut ended: Vec<(u32, End)> = Vec::new();
        for ring in rings {
            let calls = ring.control.journal_writes().load(Relaxed);
            if ring.journal_writes.swap(calls, Relaxed) == calls {
                continue;
            }
            let ctx = ring.lock();
            for slot in 0..SLOTS {
                let pid = owner(&ctx.mem.control, slot);
                let known = self.0.iter().any(|c| c.pid == pid) || ended.iter().any(|e| e.0 == pid);
                if pid == 0 || pid == softring_host::fork::pid() || known {
                    continue;
                }
                let pipe = ctx.mem.control.left(slot * WORDS + PIPE).load(Relaxed);
                match self.watch(&set, pid, pipe) {
                    Err(Errno::ESRCH) => ended.push((pid, End::Exit)),
                    // Retried at the next check.
                    Err(_) => ring.journal_writes.store(calls.wrapping_sub(1), Relaxed),
                    Ok(end) => ended.extend(end.map(|end| (pid, end))),
                }
            }
        }
        ended
    }

    /// Watches a child whose pipe has this number. The child may have called execve(2) meanwhile.
    fn watch(&mut self, set: impl AsFd, pid: u32, number: u32) -> Result<Option<End>> {
        let child = NonZero::new(pid.cast_signed()).ok_or(Errno::ESRCH)?.get();
        let process =
            softring_host::fd::make_internal(softring_host::substitute::pidfd_open(child)?);
        softring_host::substitute::epoll_add(
            &set,
            &process,
            Self::MARK | u64::from(pid),
            sys::EPOLLIN,
        )?;
        // Without the pipe, an exec shows only when the process ends.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let path = format!("/proc/{pid}/fd/{number}");
        let opened = softring_host::os::fs::open(path, flags, Mode::empty());
        let closed = number != 0 && opened.as_ref().err() == Some(&Errno::ENOENT);
        let pipe = opened.ok().map(softring_host::fd::make_internal).filter(|pipe| {
            softring_host::substitute::epoll_add(
                &set,
                pipe,
                Self::MARK | Self::EXEC | u64::from(pid),
                0,
            )
            .is_ok()
        });
        self.0.push(Child { pid, process, pipe });
        Ok((closed && lives_on(pid)).then_some(End::Exec))
    }

    /// Returns the child whose end an event of the reactor reports, and which end. A child that has
    /// ended is not watched any more.
    pub(crate) fn ended(&mut self, set: impl AsFd, data: u64) -> Option<(u32, End)> {
        let pid = (data & Self::MARK != 0).then_some(data as u32)?;
        let at = self.0.iter().position(|child| child.pid == pid)?;
        if data & Self::EXEC != 0 {
            let pipe = self.0[at].pipe.take()?;
            let _ = softring_host::substitute::epoll_delete(&set, pipe);
            return lives_on(pid).then_some((pid, End::Exec));
        }
        let child = self.0.swap_remove(at);
        let _ = softring_host::substitute::epoll_delete(&set, &child.process);
        if let Some(pipe) = child.pipe {
            let _ = softring_host::substitute::epoll_delete(&set, pipe);
        }
        Some((pid, End::Exit))
    }
}

/// Takes over what a child had in flight on a ring; false if it had nothing.
pub(crate) fn take_over(ring: &Arc<Ring>, child: u32, end: End) -> bool {
    let mut ctx = ring.lock();
    if ring.dead.load(Relaxed) || !ctx.take_over(child, end) {
        return false;
    }
    ctx.turn(Turn::Memory);
    ctx.wake_waiters();
    true
}

impl Requests {
    /// Returns what is in flight, as far as there is room for it: each chain from its head on.
    fn in_order(&self) -> Vec<Left> {
        let few = || self.slab.iter().take(SLOTS);
        let followers: Vec<ReqId> = few().filter_map(|(_, req)| req.link).collect();
        let next = |id: &ReqId| self.slab.get(*id).and_then(|req| req.link);
        let chain = |head| core::iter::successors(Some(head), next).map(move |id| (head, id));
        let heads = few().map(|(id, _)| id).filter(|id| !followers.contains(id));
        let left = |(head, id)| Some(Left::of(self.slab.get(id)?, id != head));
        heads.flat_map(chain).filter_map(left).take(SLOTS).collect()
    }
}
