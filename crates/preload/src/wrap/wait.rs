//! Time limits and signal masks of poll(2) and ppoll(2).
#![allow(unsafe_code)]

use crate::gate::watched;
use core::ffi::c_int;
use core::ptr::with_exposed_provenance;
use libc::{sigset_t, timespec};
use softring_engine::fds;
use softring_host::time::Clock;
use softring_host::user::{self, UserPtr};
use softring_uapi::errno::{Errno, Result};

/// Time limit of a poll, and the signal mask meanwhile.
#[derive(Clone, Copy)]
pub struct Limit {
    /// Time in ns; none: no end.
    pub ns: Option<u64>,
    pub mask: Option<u64>,
    /// Flag, true if libc must poll: there is no ring, the kernel refuses the time, or a pointer is
    /// bad.
    pub bad: bool,
}

impl Limit {
    pub fn of_poll(ms: c_int) -> Limit {
        let ns = u64::try_from(ms).ok().map(|ms| ms * 1_000_000);
        Limit { ns, mask: None, bad: false }
    }

    /// Reads the time and the mask of a call of the program's.
    ///
    /// # Safety
    /// The time may be read, or is null.
    pub unsafe fn of_ppoll(timeout: *const timespec, mask: *const sigset_t) -> Limit {
        let bad = Limit { ns: None, mask: None, bad: true };
        // Time and mask matter to us only if there is a ring.
        let at = mask.expose_provenance() as u64;
        if !watched() || (at != 0 && user::check_readable(at, 8).is_err()) {
            return bad;
        }
        // SAFETY: readable a moment ago; the kernel's mask is the first word of libc's.
        let mask = (at != 0).then(|| unsafe { mask.cast::<u64>().read_unaligned() });
        let none = Limit { ns: None, mask, bad: false };
        if timeout.is_null() {
            return none;
        }
        // SAFETY: the caller's.
        let t = unsafe { timeout.read_unaligned() };
        let (Ok(s), Ok(ns @ 0..1_000_000_000)) =
            (u64::try_from(t.tv_sec), u64::try_from(t.tv_nsec))
        else {
            return bad;
        };
        Limit { ns: Some(s.saturating_mul(1_000_000_000).saturating_add(ns)), ..none }
    }

    /// Reads the time, the mask and its size, by their addresses, of a system call.
    pub fn of_call(timeout: usize, mask: usize, size: usize) -> Limit {
        let unread =
            timeout != 0 && user::check_readable(timeout as u64, size_of::<timespec>()).is_err();
        // SAFETY: readable a moment ago, or null.
        let limit = unsafe {
            let time = if unread { 0 } else { timeout };
            Limit::of_ppoll(with_exposed_provenance(time), with_exposed_provenance(mask))
        };
        Limit { bad: limit.bad || unread || mask != 0 && size != 8, ..limit }
    }

    /// Returns the end of the poll in ns of CLOCK_MONOTONIC; none: never, or at once.
    pub fn deadline(&self) -> Option<u64> {
        self.ns.filter(|&ns| ns > 0).map(|ns| Clock::Monotonic.now().saturating_add(ns))
    }

    /// Repeats `pass` until it finds something, fails, or the time is over, and answers as the
    /// kernel does. Returns `None` if a pass does. A pass gets the deadline, and the count of
    /// cancellations from before the thread checked for its own. `cancelled` is what the function
    /// of libc does as a cancellation point.
    pub fn repeat(
        &self,
        cancelled: fn(),
        mut pass: impl FnMut(Option<u64>, u32) -> Option<Result<usize>>,
    ) -> Option<isize> {
        let deadline = self.deadline();
        loop {
            let cancels = fds::cancels();
            cancelled();
            let e = match pass(deadline, cancels)? {
                Ok(0) if !self.is_over(deadline) => continue,
                Ok(found) => return Some(found as isize),
                Err(e) => e,
            };
            if e == Errno::EINTR {
                // A cancellation may have ended the sleep.
                cancelled();
            }
            return Some(e.ret());
        }
    }

    fn is_over(&self, deadline: Option<u64>) -> bool {
        self.ns == Some(0) || deadline.is_some_and(|at| Clock::Monotonic.now() >= at)
    }
}

/// Writes the time that is left until a deadline, as the calls do that the functions of libc hide.
///
/// # Errors
/// The time cannot be written.
pub fn leave(deadline: u64, timeout: UserPtr) -> Result<()> {
    let left = deadline.saturating_sub(Clock::Monotonic.now());
    user::write_slice(timeout, &[left / 1_000_000_000, left % 1_000_000_000])
}
