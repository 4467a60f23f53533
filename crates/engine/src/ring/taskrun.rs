//! Task work of a ring with DEFER_TASKRUN, which only its program's enter does, and the signal that
//! there is some (IORING_SQ_TASKRUN, the eventfd). Kernel counterpart: `io_req_local_work_add`.

use softring_host::os::fd::AsRawFd;

use crate::resources::eventfd::EventFd;
use crate::ring::ctx::Ctx;
use crate::ring::turn::{Drives, Turn};
use softring_host::sys;
use softring_uapi::{IORING_SETUP_TASKRUN_FLAG, IORING_SQ_TASKRUN};

impl Ctx {
    /// Returns whether an enter would do anything. Called while nobody drives.
    pub(crate) fn has_work(&mut self) -> bool {
        self.has_work_in_memory() || self.poll_set_has_work()
    }

    /// Checks the part of [`has_work`](Self::has_work) that costs no system call.
    pub(crate) fn has_work_in_memory(&mut self) -> bool {
        self.work.any()
            || !self.drive.transports.stash.is_empty()
            || self.next_event_in() == Some(0)
    }

    /// Returns whether the poll set has an event that a request waits for. Drops events for no
    /// request: some numbers stay in the set when nobody waits there (`io::persistent`).
    pub(crate) fn poll_set_has_work(&mut self) -> bool {
        let Some(set) = self.drive.transports.epoll_fd() else { return false };
        if sys::poll_now(set, sys::POLLIN) != 0 {
            self.poll_aside();
        }
        let mut stash = core::mem::take(&mut self.drive.transports.stash);
        stash.retain(|ev| self.awaited(ev));
        self.drive.transports.stash = stash;
        !self.drive.transports.stash.is_empty()
    }

    /// Tells the program that something is ready which only its enter may post (DEFER_TASKRUN).
    pub(crate) fn set_taskrun(&mut self) {
        self.set_taskrun_by(false);
    }

    /// Does the same as [`set_taskrun`](Self::set_taskrun); `worker`: a worker brings the event.
    pub(crate) fn set_taskrun_by(&mut self, worker: bool) {
        if self.setup.flags & IORING_SETUP_TASKRUN_FLAG != 0 {
            self.mem.sq_flag(IORING_SQ_TASKRUN, true);
        }
        // An eventfd signal that the program has not taken yet tells it already.
        let pending = |e: &EventFd| sys::poll_now(e.fd.as_raw_fd(), sys::POLLIN) != 0;
        if self.completion.eventfd.as_ref().is_some_and(pending) {
            return;
        }
        self.signal_task_work(worker);
    }

    /// Turns the ring behind a call that has completed something. With DEFER_TASKRUN task work
    /// waits for the program.
    pub(crate) fn turn_behind_call(&mut self) {
        self.turn(if self.defers() { Turn::Publish } else { Turn::Work });
    }

    /// Turns the ring as each call of the kernel runs task work, unless a thread waits for just
    /// that.
    pub(crate) fn post_ready(&mut self) {
        if self.in_flight() && !self.drive.driver.active {
            self.turn(Turn::All);
        }
    }
}
