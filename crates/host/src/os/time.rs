//! Timers.
#![allow(unsafe_code)]

use core::time::Duration;

use super::fd::{AsFd, AsRawFd};
use super::kernel;
use softring_uapi::errno::Result;
use softring_uapi::flag_set;

flag_set! {
    /// Flags of timerfd_settime(2).
    pub struct TimerfdTimerFlags: u32 {
        const ABSTIME = 1;
        const CANCEL_ON_SET = 2;
    }
}

/// `struct timespec`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Timespec {
    pub tv_sec: i64,
    pub tv_nsec: i64,
}

impl Timespec {
    /// Converts a time; `None` if it is too long for the kernel.
    pub fn of(time: Duration) -> Option<Timespec> {
        let tv_sec = i64::try_from(time.as_secs()).ok()?;
        Some(Timespec { tv_sec, tv_nsec: time.subsec_nanos().into() })
    }
}

/// `struct itimerspec`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Itimerspec {
    pub it_interval: Timespec,
    pub it_value: Timespec,
}

/// Calls timerfd_settime(2).
///
/// # Errors
/// As the call.
pub fn timerfd_settime(fd: impl AsFd, flags: TimerfdTimerFlags, at: &Itimerspec) -> Result<()> {
    let (fd, at) = (fd.as_fd().as_raw_fd(), core::ptr::from_ref(at).expose_provenance());
    // SAFETY: the kernel reads the times.
    unsafe { kernel!(__NR_timerfd_settime, fd, flags.bits(), at, 0) }.map(drop)
}
