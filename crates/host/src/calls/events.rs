//! Calls on files without a name: eventfds, timers, files in memory and epoll sets.
#![allow(unsafe_code)]

use super::UserPtr;
use crate::os::fd::OwnedFd;
use crate::sys::{owned, sys};
use softring_uapi::epoll_event;
use softring_uapi::errno::{Result, check};

/// Makes an eventfd with a count of 0: eventfd2(2).
///
/// # Errors
/// As the call; `ENOSYS`.
pub(crate) fn eventfd2(flags: u32) -> Result<OwnedFd> {
    // SAFETY: numbers; the answer is a descriptor.
    unsafe { owned(sys!(__NR_eventfd2, 0, flags)) }
}

/// Makes an eventfd: eventfd(2), which knows no flags.
///
/// # Errors
/// As the call; `ENOSYS`.
pub fn eventfd() -> Result<OwnedFd> {
    // SAFETY: as above.
    unsafe { owned(sys!(__NR_eventfd, 0)) }
}

/// Calls timerfd_create(2).
///
/// # Errors
/// As the call; `ENOSYS`.
pub fn timerfd_create(clock: u32, flags: u32) -> Result<OwnedFd> {
    // SAFETY: numbers; the answer is a descriptor.
    unsafe { owned(sys!(__NR_timerfd_create, clock, flags)) }
}

/// Calls memfd_create(2); the last byte of the name is 0.
///
/// # Errors
/// As the call; `ENOSYS`.
pub fn memfd_create(name: &[u8; 32], flags: u32) -> Result<OwnedFd> {
    // SAFETY: the kernel reads there, up to a zero; the answer is a descriptor.
    unsafe { owned(sys!(__NR_memfd_create, name.as_ptr().expose_provenance(), flags)) }
}

/// Calls epoll_create1(2).
///
/// # Errors
/// As the call; `ENOSYS`.
pub fn epoll_create1(flags: u32) -> Result<OwnedFd> {
    // SAFETY: numbers; the answer is a descriptor.
    unsafe { owned(sys!(__NR_epoll_create1, flags)) }
}

/// Calls epoll_create(2), which knows no flags.
///
/// # Errors
/// As the call; `ENOSYS`.
pub fn epoll_create() -> Result<OwnedFd> {
    // SAFETY: as above.
    unsafe { owned(sys!(__NR_epoll_create, 1)) }
}

/// Calls epoll_wait(2) without waiting.
///
/// # Errors
/// As the call; `ENOSYS`.
pub(crate) fn epoll_wait_now(epoll: i32, to: &mut [epoll_event]) -> Result<usize> {
    let at = to.as_mut_ptr().expose_provenance();
    // SAFETY: the events are the caller's, and the kernel is told how many.
    check(unsafe { sys!(__NR_epoll_wait, epoll, at, to.len(), 0) })
}

/// Calls epoll_pwait(2) without waiting.
///
/// # Errors
/// As the call; `ENOSYS`.
pub(crate) fn epoll_pwait_now(epoll: i32, to: &mut [epoll_event]) -> Result<usize> {
    let at = to.as_mut_ptr().expose_provenance();
    // SAFETY: as above.
    check(unsafe { sys!(__NR_epoll_pwait, epoll, at, to.len(), 0, 0, 8) })
}

/// Calls epoll_pwait(2) for the program, without waiting.
///
/// # Errors
/// As the call.
pub fn epoll_pwait_of_program(epoll: i32, to: UserPtr, max: u32) -> Result<usize> {
    // SAFETY: the program's memory.
    check(unsafe { sys!(__NR_epoll_pwait, epoll, to.0, max, 0, 0, 8) })
}
