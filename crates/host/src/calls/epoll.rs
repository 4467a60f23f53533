//! Calls of epoll sets.
#![allow(unsafe_code)]

use crate::sys::{sleeps, sys};
use softring_uapi::epoll_event;
use softring_uapi::errno::{Result, check};

pub const EPOLL_CTL_ADD: usize = 1;
pub const EPOLL_CTL_DEL: usize = 2;
pub const EPOLL_CTL_MOD: usize = 3;

/// Calls `epoll_ctl(2)` with the event mask as raw bits.
pub fn epoll_ctl(ep: i32, op: usize, fd: i32, ev: &epoll_event) -> Result<()> {
    let ev = core::ptr::from_ref(ev).expose_provenance();
    // SAFETY: the kernel reads the event.
    check(unsafe { sys!(__NR_epoll_ctl, ep, op, fd, ev) }).map(|_| ())
}

/// Calls `epoll_pwait2(2)`: nanosecond timeout.
pub fn epoll_pwait2(
    ep: i32,
    buf: &mut [epoll_event],
    timeout_ns: Option<u64>,
    sigmask: Option<u64>,
) -> Result<usize> {
    let ts = timeout_ns.map(|ns| [ns / 1_000_000_000, ns % 1_000_000_000]);
    let ts = ts.as_ref().map_or(0, |t| t.as_ptr().expose_provenance());
    let mask = sigmask.as_ref().map_or(0, |m| core::ptr::from_ref(m).expose_provenance());
    let ev = buf.as_mut_ptr().expose_provenance();
    // SAFETY: the events are the caller's, and the kernel is told how many; the rest it reads.
    check(unsafe { sleeps!(__NR_epoll_pwait2, ep, ev, buf.len(), ts, mask, 8) })
}

fn millis(timeout_ns: Option<u64>) -> i64 {
    timeout_ns.map_or(-1, |ns| ns.div_ceil(1_000_000).min(i32::MAX as u64) as i64)
}

/// Calls `epoll_wait(2)`: millisecond timeout, rounded up.
pub fn epoll_wait(ep: i32, buf: &mut [epoll_event], timeout_ns: Option<u64>) -> Result<usize> {
    let ev = buf.as_mut_ptr().expose_provenance();
    // SAFETY: the events are the caller's, and the kernel is told how many.
    check(unsafe { sleeps!(__NR_epoll_wait, ep, ev, buf.len(), millis(timeout_ns)) })
}

/// Calls `epoll_pwait(2)`: millisecond timeout, rounded up, for hosts without `epoll_pwait2`.
pub fn epoll_pwait(
    ep: i32,
    buf: &mut [epoll_event],
    timeout_ns: Option<u64>,
    sigmask: Option<u64>,
) -> Result<usize> {
    let mask = sigmask.as_ref().map_or(0, |m| core::ptr::from_ref(m).expose_provenance());
    let ev = buf.as_mut_ptr().expose_provenance();
    // SAFETY: as in `epoll_pwait2`.
    check(unsafe { sleeps!(__NR_epoll_pwait, ep, ev, buf.len(), millis(timeout_ns), mask, 8) })
}
