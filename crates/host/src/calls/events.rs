//! Calls of eventfds, timers, files in memory and epoll sets: what has no name.
#![allow(unsafe_code)]

use super::UserPtr;
use crate::sys::{owned, sys};
use rustix::fd::OwnedFd;
use softring_uapi::epoll_event;
use softring_uapi::errno::{Result, check};

/// eventfd2(2), of a counter of 0.
///
/// # Errors
/// As the call; `ENOSYS`.
pub fn eventfd2(flags: u32) -> Result<OwnedFd> {
    // SAFETY: numbers; the answer is a descriptor.
    unsafe { owned(sys!(__NR_eventfd2, 0, flags)) }
}

/// eventfd(2), which knows no flags.
///
/// # Errors
/// As the call; `ENOSYS`.
pub fn eventfd() -> Result<OwnedFd> {
    // SAFETY: as above.
    unsafe { owned(sys!(__NR_eventfd, 0)) }
}

/// timerfd_create(2).
///
/// # Errors
/// As the call; `ENOSYS`.
pub fn timerfd_create(clock: u32, flags: u32) -> Result<OwnedFd> {
    // SAFETY: numbers; the answer is a descriptor.
    unsafe { owned(sys!(__NR_timerfd_create, clock, flags)) }
}

/// memfd_create(2); the last byte of the name is 0.
///
/// # Errors
/// As the call; `ENOSYS`.
pub fn memfd_create(name: &[u8; 32], flags: u32) -> Result<OwnedFd> {
    // SAFETY: the kernel reads there, up to a zero; the answer is a descriptor.
    unsafe { owned(sys!(__NR_memfd_create, name.as_ptr().expose_provenance(), flags)) }
}

/// epoll_create1(2).
///
/// # Errors
/// As the call; `ENOSYS`.
pub fn epoll_create1(flags: u32) -> Result<OwnedFd> {
    // SAFETY: numbers; the answer is a descriptor.
    unsafe { owned(sys!(__NR_epoll_create1, flags)) }
}

/// epoll_create(2), which knows no flags.
///
/// # Errors
/// As the call; `ENOSYS`.
pub fn epoll_create() -> Result<OwnedFd> {
    // SAFETY: as above.
    unsafe { owned(sys!(__NR_epoll_create, 1)) }
}

/// epoll_wait(2) that does not wait.
///
/// # Errors
/// As the call; `ENOSYS`.
pub fn epoll_wait_now(epoll: i32, to: &mut [epoll_event]) -> Result<usize> {
    let at = to.as_mut_ptr().expose_provenance();
    // SAFETY: the events are the caller's, and the kernel is told how many.
    check(unsafe { sys!(__NR_epoll_wait, epoll, at, to.len(), 0) })
}

/// epoll_pwait(2) that does not wait.
///
/// # Errors
/// As the call; `ENOSYS`.
pub fn epoll_pwait_now(epoll: i32, to: &mut [epoll_event]) -> Result<usize> {
    let at = to.as_mut_ptr().expose_provenance();
    // SAFETY: as above.
    check(unsafe { sys!(__NR_epoll_pwait, epoll, at, to.len(), 0, 0, 8) })
}

/// The same for the program.
///
/// # Errors
/// As the call.
pub fn epoll_pwait_of_program(epoll: i32, to: UserPtr, max: u32) -> Result<usize> {
    // SAFETY: the program's memory.
    check(unsafe { sys!(__NR_epoll_pwait, epoll, to.0, max, 0, 0, 8) })
}
