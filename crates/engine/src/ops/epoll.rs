//! EPOLL_CTL and EPOLL_WAIT. Kernel counterpart: `io_uring/epoll.c`.
//!
//! A ring cannot be a member of an epoll set itself; its stand-in is looked up when our own ring's
//! lock is free.

use crate::ops::{answer, zero};
use crate::ring::ctx::Ctx;
use crate::ring::opdef::{Outcome, Try};
use crate::ring::request::{Call, OpState, Req, ReqFlags};
use crate::ring::work::{EpollChange, Pending, What};
use softring_host::calls::{epoll, events};
use softring_host::fd::kind::Kind;
use softring_host::fd::sets;
use softring_host::user;
use softring_uapi::epoll_event;
use softring_uapi::errno::{Errno, Result};

/// Checks an EPOLL_CTL and copies its event (`io_epoll_ctl_prep`).
pub(crate) fn ctl_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let s = *req.call.sqe();
    zero(&[u64::from(s.buf_index), u64::from(s.file_index)])?;
    // The change may concern a ring in the set, or put a set into it.
    polls_set(ctx, req, s.fd);
    if s.len as usize != epoll::EPOLL_CTL_DEL {
        let mut event = [0u32; 3];
        ctx.unlocked(|| user::read_slice(s.addr, &mut event))?;
        let data = u64::from(event[1]) | u64::from(event[2]) << 32;
        req.call.state = OpState::Epoll(epoll_event { events: event[0], data });
    }
    Ok(())
}

/// Changes an epoll set.
pub(crate) fn ctl(ctx: &mut Ctx, req: &mut Req) -> Outcome {
    let s = req.call.sqe();
    let event = if let OpState::Epoll(e) = req.call.state { e } else { epoll_event::default() };
    let [epoll, fd] = [s.fd, s.off as i32].map(softring_host::fd::visible);
    let change = EpollChange { epoll, op: s.len, fd, event };
    if softring_host::fd::numbers::is_ring(change.fd)
        && crate::io::kinds::kind(change.fd) == Kind::Memory
    {
        ctx.work.pend(Pending { from: None, what: What::Epoll(change) });
        return Outcome::Elsewhere;
    }
    Outcome::Done(change.apply(change.fd))
}

/// Prepares for a request that waits for `fd`, which may be an epoll set with rings.
pub(crate) fn polls_set(ctx: &mut Ctx, req: &Req, fd: i32) {
    if !req.flags.contains(ReqFlags::FIXED_FILE) {
        match sets::is_quiet(fd) {
            true => ctx.unlocked(|| sets::share(fd)),
            false => sets::share(fd),
        }
    } else if sets::any_quiet() {
        // The slot may hold a duplicate of any set.
        ctx.unlocked(sets::reveal_all);
    }
}

/// Checks an EPOLL_WAIT (`io_epoll_wait_prep`).
pub(crate) fn wait_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let s = *req.call.sqe();
    polls_set(ctx, req, s.fd);
    zero(&[s.off, u64::from(s.op_flags), u64::from(s.buf_index), u64::from(s.file_index)])
}

/// Takes events of the set; if there are none, waits for its descriptor to be readable.
pub(crate) fn wait(call: &mut Call, how: Try) -> Outcome {
    let s = call.sqe();
    match answer(events::epoll_pwait_of_program(call.file.fd(), s.addr(), s.len)) {
        Outcome::Done(0) if how == Try::Nonblock => Outcome::Retry,
        // The kernel's worker does not wait for events.
        Outcome::Done(0) => Outcome::Done(Errno::EAGAIN.res()),
        done => done,
    }
}

/// Returns whether an EPOLL_WAIT fails so that its issue function returns the failure.
pub(crate) fn issue_fails(_: &Req, res: i32) -> bool {
    res == Errno::EAGAIN.res()
}
