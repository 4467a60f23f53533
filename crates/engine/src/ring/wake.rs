//! The wake-up of the threads that wait for a ring's CQEs: its driver, other waiters, pollers of
//! its descriptor. Kernel counterpart: `io_cqring_wake`.

use crate::memory::lock::Control;
use crate::ring::ctx::{Completion, Ctx, Driving, Guard, Ring};
use crate::ring::waiters::Driver;
use crate::ring::wakeup::{Lock, Waits};
use softring_host::sys;

impl Ctx {
    /// Wakes the threads that wait for the CQEs just published.
    #[inline]
    pub(crate) fn wake(&mut self) {
        self.published();
        self.completion.wakes = self.completion.wakes.wrapping_add(1);
        self.completion.signal_poll_fd();
    }

    /// Makes every passive waiter check again once the lock is released.
    #[inline]
    pub(crate) fn wake_waiters(&mut self) {
        self.recheck();
    }

    /// Gives the driver's role back, unless a signal handler has taken it over.
    pub(crate) fn end_drive(&mut self) {
        self.give_back(sys::thread());
    }
}

impl Completion {
    /// Makes the ring's stand-in readable: its pollers see new CQEs.
    fn signal_poll_fd(&mut self) {
        if self.poll_fd.is_some() {
            softring_host::fd::check_now_and_then();
        }
        if let Some(e) = self.poll_fd.map(softring_host::fd::now).and_then(sys::borrow) {
            let _ = softring_host::os::io::write(e, &1u64.to_ne_bytes());
            self.signalled = Some(true);
        }
    }
}

impl Waits for Ctx {
    type Sequence = Control;

    #[inline(always)]
    fn sequence(&self) -> &Control {
        &self.mem.control
    }

    #[inline(always)]
    fn driver(&self) -> &Driver {
        &self.drive.driver
    }

    #[inline(always)]
    fn driver_mut(&mut self) -> &mut Driver {
        &mut self.drive.driver
    }

    #[inline(always)]
    fn ready(&self) -> u32 {
        self.mem.cq_ready()
    }

    fn signal_driver(&mut self) {
        self.drive.wake_driver();
    }

    #[inline(always)]
    fn signal_waiters(&mut self) {
        self.drive.wakes.waiters = true;
    }
}

impl Lock for Ring {
    type Guard<'a> = Guard<'a>;

    fn lock_now(&self) -> Guard<'_> {
        self.lock_now()
    }
}

impl Driving {
    /// Takes the role for the calling thread, about to sleep until `until` for `want` CQEs.
    pub(crate) fn begin_drive(&mut self, want: u32, until: u64) {
        self.driver.begin(sys::thread(), want, until);
    }

    /// Clears the wake-up of a driver that is back. One that has yet to come back finds it: it may
    /// be asleep still, and would sleep on.
    ///
    /// ```text
    /// driver                      who posts                  who takes events
    /// sleeps
    ///                             woken = true, signals
    ///                                                        finds the signal, clears it
    /// runs, finds no event,       has woken it already
    /// and sleeps on
    /// ```
    pub(crate) fn clear_wake(&self) {
        if let Some(p) = self.transports.poll.as_ref().filter(|_| !self.driver.is_awaited()) {
            p.clear_wake();
        }
    }

    /// Ends the driver's sleep once the lock is released.
    pub(crate) fn wake_driver(&mut self) {
        if let Some(p) = &self.transports.poll
            && self.driver.wake()
        {
            self.wakes.driver = Some(p.wake_fd().clone());
        }
    }
}
