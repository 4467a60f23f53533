//! The registered eventfd. Kernel counterpart: `io_uring/eventfd.c`.

use core::cell::Cell;

use softring_host::fd::InternalFd;

/// An eventfd that is signalled when CQEs are posted.
#[derive(Debug)]
pub(crate) struct EventFd {
    pub(crate) fd: InternalFd,
    /// Flag, true if only CQEs that workers post are signalled (`IORING_REGISTER_EVENTFD_ASYNC`).
    pub(crate) only_async: bool,
    /// CQ tail up to which CQEs were signalled, or are about to be.
    tail: u32,
    /// CQEs after `tail` that workers post, each signalled by itself.
    by_workers: u32,
    /// Signals due for CQEs before `tail`.
    due: u32,
    /// Flag, set once a multishot poll of the ring's own may wait for the eventfd.
    polled: Cell<bool>,
    /// Flag, set if the ring has signalled since the poller last took this.
    signalled: Cell<bool>,
}

impl EventFd {
    /// Creates it with the CQ's `tail`; only later CQEs are signalled.
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

    /// Records that a multishot poll of the ring's own is armed, which earlier signals do not wake.
    pub(crate) fn is_to_be_polled(&self) {
        self.polled.set(true);
        self.signalled.set(false);
    }

    /// Returns whether a multishot poll of the ring's own may wait for the eventfd.
    pub(crate) fn may_be_polled(&self) -> bool {
        self.polled.get()
    }

    /// Returns whether the ring has signalled since the last call.
    pub(crate) fn take_signalled(&self) -> bool {
        self.signalled.take()
    }

    /// Counts a CQE that a kernel worker posts by itself; with `skipped` the worker posts none.
    pub(crate) fn worker_posts(&mut self, skipped: bool) {
        self.by_workers += u32::from(self.only_async || !skipped);
    }

    /// Returns whether a worker's signal, or any other, is pending. The worker may have posted no
    /// CQE.
    pub(crate) fn awaits_commit(&self) -> bool {
        self.by_workers > 0 || self.due > 0
    }

    /// Counts the signals for the CQEs posted up to `tail`: one for all, and one for each CQE that
    /// a worker posts (`io_commit_cqring_flush`).
    pub(crate) fn flushed(&mut self, tail: u32) {
        if self.only_async && self.by_workers == 0 {
            return;
        }
        let posted = tail.wrapping_sub(core::mem::replace(&mut self.tail, tail));
        let by_workers = core::mem::take(&mut self.by_workers).min(posted);
        self.due += by_workers + u32::from(posted > by_workers && !self.only_async);
    }

    /// Takes the number of signals due.
    pub(crate) fn take_due(&mut self) -> u32 {
        core::mem::take(&mut self.due)
    }
}
