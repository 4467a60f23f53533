//! The registered eventfd. Kernel counterpart: `io_uring/eventfd.c`.

use core::cell::Cell;

use softring_host::fd::InternalFd;

/// An eventfd that is signalled when CQEs are posted.
#[derive(Debug)]
pub(crate) struct EventFd {
    pub(crate) fd: InternalFd,
    /// Only for completions that workers post (`IORING_REGISTER_EVENTFD_ASYNC`).
    pub(crate) only_async: bool,
    /// The CQ's tail that was told of, or is about to be.
    tail: u32,
    /// CQEs behind it that workers post, each by itself.
    by_workers: u32,
    /// Signals for what is in front of it.
    due: u32,
    /// A multishot poll of the ring's own may wait for it.
    polled: Cell<bool>,
    /// The ring has signalled it since who polls it was last told.
    signalled: Cell<bool>,
}

impl EventFd {
    /// `tail`: the CQ's, behind which is told of.
    pub(crate) fn new(fd: InternalFd, only_async: bool, tail: u32) -> Self {
        let (polled, signalled) = (Cell::new(false), Cell::new(false));
        EventFd { fd, only_async, tail, by_workers: 0, due: 0, polled, signalled }
    }

    /// Signals as often as the kernel would.
    pub(crate) fn signal(&self, times: u32) {
        softring_host::fd::check_now_and_then();
        self.signalled.set(true);
        let _ = softring_host::os::io::write(&self.fd, &u64::from(times).to_ne_bytes());
    }

    /// A multishot poll of the ring's own is armed, which what was signalled before does not wake.
    pub(crate) fn is_to_be_polled(&self) {
        self.polled.set(true);
        self.signalled.set(false);
    }

    /// May a multishot poll of the ring's own wait for it?
    pub(crate) fn may_be_polled(&self) -> bool {
        self.polled.get()
    }

    /// Has the ring signalled it since this was last asked?
    pub(crate) fn take_signalled(&self) -> bool {
        self.signalled.take()
    }

    /// A worker of the kernel's posts by itself; with `skipped` it posts nothing.
    pub(crate) fn worker_posts(&mut self, skipped: bool) {
        self.by_workers += u32::from(self.only_async || !skipped);
    }

    /// Has a worker something to tell of, or is a signal due? It may have posted nothing itself.
    pub(crate) fn awaits_commit(&self) -> bool {
        self.by_workers > 0 || self.due > 0
    }

    /// What was posted up to `tail` is flushed: signals once for all, and once for each CQE that a
    /// worker posts (`io_commit_cqring_flush`).
    pub(crate) fn flushed(&mut self, tail: u32) {
        if self.only_async && self.by_workers == 0 {
            return;
        }
        let posted = tail.wrapping_sub(core::mem::replace(&mut self.tail, tail));
        let alone = core::mem::take(&mut self.by_workers).min(posted);
        self.due += alone + u32::from(posted > alone && !self.only_async);
    }

    /// Signals due.
    pub(crate) fn take_due(&mut self) -> u32 {
        core::mem::take(&mut self.due)
    }
}
