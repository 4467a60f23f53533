//! The registered eventfd. Kernel counterpart: `io_uring/eventfd.c`.

use core::sync::atomic::Ordering::Relaxed;

use rustix::fd::AsRawFd;

use crate::ctx::Ctx;
use crate::fds::{InternalFd, adopt_internal, dup_visible};
use crate::sys::borrow;
use crate::user;
use softring_uapi::errno::{Errno, Result};

/// An eventfd that is signalled when CQEs are posted.
#[derive(Debug)]
pub struct EventFd {
    pub fd: InternalFd,
    /// Only for completions that workers post (`IORING_REGISTER_EVENTFD_ASYNC`).
    pub only_async: bool,
    /// The CQ's tail that was told of, or is about to be.
    tail: u32,
    /// CQEs behind it that workers post, each by itself.
    by_workers: u32,
    /// Signals for what is in front of it.
    due: u32,
}

impl EventFd {
    /// Signals as often as the kernel would.
    pub fn signal(&self, times: u32) {
        crate::fds::check_now_and_then();
        let _ = rustix::io::write(&self.fd, &u64::from(times).to_ne_bytes());
    }

    /// A worker of the kernel's posts by itself; with `skipped` it posts nothing.
    pub fn worker_posts(&mut self, skipped: bool) {
        self.by_workers += u32::from(self.only_async || !skipped);
    }

    /// What was posted up to `tail` is flushed: signals once for all, and once for each CQE that a
    /// worker posts (`io_commit_cqring_flush`).
    pub fn flushed(&mut self, tail: u32) {
        if self.only_async && self.by_workers == 0 {
            return;
        }
        let posted = tail.wrapping_sub(core::mem::replace(&mut self.tail, tail));
        let alone = core::mem::take(&mut self.by_workers).min(posted);
        self.due += alone + u32::from(posted > alone && !self.only_async);
    }

    /// Signals due.
    pub fn take_due(&mut self) -> u32 {
        core::mem::take(&mut self.due)
    }
}

/// `IORING_REGISTER_EVENTFD`: signals an eventfd whenever completions are posted.
///
/// # Errors
/// `EINVAL` for a count other than 1 or a descriptor that is no eventfd, `EBUSY` if there is one,
/// `EFAULT`, `EBADF`.
pub(crate) fn register(ctx: &mut Ctx, addr: u64, nr: u32) -> Result<usize> {
    attach(ctx, addr, nr, false)
}

/// `IORING_REGISTER_EVENTFD_ASYNC`: the same, only for completions that workers post.
///
/// # Errors
/// As [`register`].
pub(crate) fn register_async(ctx: &mut Ctx, addr: u64, nr: u32) -> Result<usize> {
    attach(ctx, addr, nr, true)
}

fn attach(ctx: &mut Ctx, addr: u64, nr: u32, only_async: bool) -> Result<usize> {
    if nr != 1 {
        return Err(Errno::EINVAL);
    }
    if ctx.eventfd.is_some() {
        return Err(Errno::EBUSY);
    }
    let given = ctx.unlocked(|| user::read(addr))?;
    let fd = dup_visible(given)?;
    if !is_eventfd(fd.as_raw_fd()) {
        return Err(Errno::EINVAL);
    }
    let tail = ctx.mem.control.cq_tail().load(Relaxed);
    ctx.eventfd = Some(EventFd { fd, only_async, tail, by_workers: 0, due: 0 });
    Ok(0)
}

/// `IORING_UNREGISTER_EVENTFD`.
///
/// # Errors
/// `ENXIO` if there is none.
pub(crate) fn unregister(ctx: &mut Ctx, _: u64, _: u32) -> Result<usize> {
    ctx.eventfd.take().map(|_| 0).ok_or(Errno::ENXIO)
}

/// Is it an eventfd? Without /proc, any anonymous inode passes: all of them share the one that an
/// eventfd has.
pub(crate) fn is_eventfd(fd: i32) -> bool {
    let link = format!("/proc/thread-self/fd/{fd}");
    if let Ok(target) = rustix::fs::readlink(link, Vec::new()) {
        return target.as_bytes() == b"anon_inode:[eventfd]";
    }
    let one = crate::substitute::eventfd().map(adopt_internal);
    let inode = |s: rustix::fs::Stat| (s.st_dev, s.st_ino);
    let ours = one.ok().and_then(|one| rustix::fs::fstat(one).ok()).map(inode);
    ours.is_some() && borrow(fd).and_then(|fd| rustix::fs::fstat(fd).ok()).map(inode) == ours
}
