//! The calls for the registered eventfd ([`crate::resources::eventfd`]). Kernel counterpart:
//! `io_eventfd_register` in `io_uring/eventfd.c`.

use core::sync::atomic::Ordering::Relaxed;

use softring_host::os::fd::AsRawFd;

use crate::resources::eventfd::EventFd;
use crate::ring::ctx::Ctx;
use crate::ring::request::{Phase, Req};
use softring_host::fd::dup_visible;
use softring_host::fd::probe::is_eventfd;
use softring_host::user;
use softring_host::user::UserPtr;
use softring_uapi::errno::{Errno, Result};

/// `IORING_REGISTER_EVENTFD`: registers an eventfd, which is signalled when completions are posted.
///
/// # Errors
/// `EINVAL` for a count other than 1 or a descriptor that is no eventfd, `EBUSY` if there is one,
/// `EFAULT`, `EBADF`.
pub(super) fn register(ctx: &mut Ctx, addr: UserPtr, nr: u32) -> Result<usize> {
    attach(ctx, addr, nr, false)
}

/// `IORING_REGISTER_EVENTFD_ASYNC`: registers an eventfd only for completions that workers post.
///
/// # Errors
/// Same as [`register`].
pub(super) fn register_async(ctx: &mut Ctx, addr: UserPtr, nr: u32) -> Result<usize> {
    attach(ctx, addr, nr, true)
}

fn attach(ctx: &mut Ctx, addr: UserPtr, nr: u32, only_async: bool) -> Result<usize> {
    if nr != 1 {
        return Err(Errno::EINVAL);
    }
    if ctx.completion.eventfd.is_some() {
        return Err(Errno::EBUSY);
    }
    let given = ctx.unlocked(|| user::read(addr.addr()))?;
    let fd = dup_visible(given)?;
    if !is_eventfd(fd.as_raw_fd()) {
        return Err(Errno::EINVAL);
    }
    let tail = ctx.mem.control.cq_tail().load(Relaxed);
    let eventfd = EventFd::new(fd, only_async, tail);
    if let Some(ring) = ctx.ring.upgrade() {
        crate::drive::poller::has_eventfd(&ring, given);
    }
    let polls_many = |req: &Req| matches!(req.phase, Phase::Polling(p) if p.tells_each());
    if ctx.reqs.slab.iter().any(|(_, req)| polls_many(req)) {
        eventfd.is_to_be_polled();
    }
    ctx.completion.eventfd = Some(eventfd);
    Ok(0)
}

/// `IORING_UNREGISTER_EVENTFD`.
///
/// # Errors
/// `ENXIO` if there is none.
pub(super) fn unregister(ctx: &mut Ctx, _: UserPtr, _: u32) -> Result<usize> {
    if let Some(ring) = ctx.ring.upgrade() {
        crate::drive::poller::has_eventfd(&ring, -1);
    }
    ctx.completion.eventfd.take().map(|_| 0).ok_or(Errno::ENXIO)
}
