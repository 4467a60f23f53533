//! How long poll(2), epoll_wait(2) and their like wait, and how a thread sleeps that drives rings
//! meanwhile: by libc's ppoll(2).
#![allow(unsafe_code)]

use crate::raw::next;
use core::ffi::c_int;
use libc::{nfds_t, pollfd, sigset_t, timespec};
use softring_host::time::Clock;

/// How long a poll may take, and the signal mask meanwhile.
#[derive(Clone, Copy)]
pub struct Limit {
    /// In ns; none: no end.
    pub ns: Option<u64>,
    pub mask: *const sigset_t,
    /// The kernel refuses the time, or it cannot be read.
    pub bad: bool,
}

impl Limit {
    pub fn of_poll(ms: c_int) -> Limit {
        let ns = u64::try_from(ms).ok().map(|ms| ms * 1_000_000);
        Limit { ns, mask: core::ptr::null(), bad: false }
    }

    pub fn of_ppoll(timeout: *const timespec, mask: *const sigset_t) -> Limit {
        let none = Limit { ns: None, mask, bad: false };
        if timeout.is_null() {
            return none;
        }
        let bad = Limit { bad: true, ..none };
        // SAFETY: libc's ppoll reads it there as well.
        let t = unsafe { timeout.read_unaligned() };
        let (Ok(s), Ok(ns @ 0..1_000_000_000)) =
            (u64::try_from(t.tv_sec), u64::try_from(t.tv_nsec))
        else {
            return bad;
        };
        Limit { ns: Some(s.saturating_mul(1_000_000_000).saturating_add(ns)), ..none }
    }

    /// When it is over, in ns of CLOCK_MONOTONIC; none: never, or at once.
    pub fn deadline(&self) -> Option<u64> {
        self.ns.filter(|&ns| ns > 0).map(|ns| Clock::Monotonic.now().saturating_add(ns))
    }

    /// How long to sleep where the rings have something to do at `until`; none: no end.
    pub fn left(&self, ready: bool, deadline: Option<u64>, until: Option<u64>) -> Option<u64> {
        if ready || self.ns == Some(0) {
            return Some(0);
        }
        let at = until.into_iter().chain(deadline).min()?;
        Some(at.saturating_sub(Clock::Monotonic.now()))
    }

    pub fn is_over(&self, deadline: Option<u64>) -> bool {
        self.ns == Some(0) || deadline.is_some_and(|at| Clock::Monotonic.now() >= at)
    }
}

/// So many ns, for libc.
pub fn timespec_of(ns: Option<u64>) -> Option<timespec> {
    ns.map(|ns| timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    })
}

pub type Ppoll =
    unsafe extern "C" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;

/// libc's ppoll(2), which is a cancellation point.
pub fn ppoll() -> Option<Ppoll> {
    next!(c"ppoll", fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int)
}
