//! Ends the sleep of whoever drives a ring when CLOCK_REALTIME was set or the machine was
//! suspended: deadlines on that clock and on CLOCK_BOOTTIME are nearer or farther then than the
//! sleep is long. Kernel counterpart: `clock_was_set`, which moves the timers.
//!
//! It is a timer that never fires but is cancelled by either (TFD_TIMER_CANCEL_ON_SET): the kernel
//! compares what CLOCK_REALTIME is ahead of CLOCK_MONOTONIC, and that grows by the length of a
//! suspension, too.

use softring_host::os::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};

use super::Transports;
use super::poll::PollSet;
use softring_host::sys;
use softring_uapi::errno::Result;

/// Event data of that timer; no request is named so.
pub(crate) const CLOCK_DATA: u64 = u64::MAX - 1;

/// A time that does not come, in seconds: in the year 2242.
const NEVER: i64 = 1 << 33;

impl PollSet {
    /// From now on a step of the clock ends a wait on the set.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`, `ENOSPC`.
    fn watch_clock(&mut self) -> Result<()> {
        if self.clock.is_some() {
            return Ok(());
        }
        let fd = softring_host::fd::make_internal(softring_host::substitute::timerfd()?);
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let at = Itimerspec { it_interval: zero, it_value: Timespec { tv_sec: NEVER, tv_nsec: 0 } };
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        timerfd_settime(&fd, flags, &at)?;
        // The kernel tells of each step, also if nobody has read of the one before.
        softring_host::substitute::epoll_add(
            self.fd(),
            &fd,
            CLOCK_DATA,
            sys::EPOLLIN | sys::EPOLLET,
        )?;
        self.clock = Some(fd);
        Ok(())
    }

    /// May there be something in the set to take?
    pub(crate) fn tells(&self) -> bool {
        self.armed() > 0 || self.clock.is_some()
    }
}

impl Transports {
    /// A deadline is on a clock that may jump: a thread that sleeps is to be told of a jump. Where
    /// no descriptor is free for that, the sleep ends when it would have ended without the jump.
    pub(crate) fn watch_clock(&mut self) {
        if let Ok(set) = self.poll_set() {
            let _ = set.watch_clock();
        }
    }
}
