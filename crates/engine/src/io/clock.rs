//! Ends the sleep of the driving thread when CLOCK_REALTIME was set or the machine was suspended:
//! deadlines on CLOCK_REALTIME and CLOCK_BOOTTIME then move relative to the sleep. Kernel
//! counterpart: `clock_was_set`, which moves the timers.
//!
//! A timer that never fires is cancelled by either (TFD_TIMER_CANCEL_ON_SET): the kernel compares
//! the offset of CLOCK_REALTIME to CLOCK_MONOTONIC, which also grows by the length of a suspension.

use softring_host::os::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};

use super::Transports;
use super::poll::PollSet;
use softring_host::sys;
use softring_uapi::errno::Result;

/// Event data of the timer; no request has this name.
pub(crate) const CLOCK_DATA: u64 = u64::MAX - 1;

/// A time that does not come, in seconds: in the year 2242.
const NEVER: i64 = 1 << 33;

impl PollSet {
    /// Makes a step of the clock end a wait on the set.
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
        // Edge-triggered: the kernel reports each step, even if no one has read the one before.
        softring_host::substitute::epoll_add(
            self.fd(),
            &fd,
            CLOCK_DATA,
            sys::EPOLLIN | sys::EPOLLET,
        )?;
        self.clock = Some(fd);
        Ok(())
    }

    /// Returns whether the set may have an event to take.
    pub(crate) fn tells(&self) -> bool {
        self.armed() > 0 || self.clock.is_some()
    }
}

impl Transports {
    /// Ends sleeps when a clock jumps, because a deadline is on such a clock. Without a free
    /// descriptor, the sleep ends as late as it would without the jump.
    pub(crate) fn watch_clock(&mut self) {
        if let Ok(set) = self.poll_set() {
            let _ = set.watch_clock();
        }
    }
}
