//! Waiting for events of several descriptors.
#![allow(unsafe_code)]

use core::marker::PhantomData;

use super::fd::{AsRawFd, BorrowedFd};
use super::kernel;
use crate::raw::nr;
use softring_uapi::errno::Result;
use softring_uapi::flag_set;

pub use super::time::Timespec;

flag_set! {
    /// Events of poll(2).
    pub struct PollFlags: u16 {
        const IN = nr::POLLIN;
        const OUT = nr::POLLOUT;
        const ERR = nr::POLLERR;
        const HUP = nr::POLLHUP;
    }
}

/// `struct pollfd`
#[derive(Clone, Debug)]
#[repr(C)]
pub struct PollFd<'a> {
    fd: i32,
    events: PollFlags,
    revents: PollFlags,
    _fd: PhantomData<BorrowedFd<'a>>,
}

impl<'a> PollFd<'a> {
    pub fn from_borrowed_fd(fd: BorrowedFd<'a>, events: PollFlags) -> PollFd<'a> {
        PollFd { fd: fd.as_raw_fd(), events, revents: PollFlags::empty(), _fd: PhantomData }
    }

    /// Returns the events that have come.
    pub fn revents(&self) -> PollFlags {
        self.revents
    }
}

/// Calls ppoll(2) without a mask; waits for ever without a time.
///
/// # Errors
/// As the call.
pub fn poll(fds: &mut [PollFd<'_>], timeout: Option<&Timespec>) -> Result<usize> {
    // The kernel writes what is left of the time.
    let mut left = timeout.copied();
    let left = left.as_mut().map_or(0, |left| core::ptr::from_mut(left).expose_provenance());
    // SAFETY: the list is the caller's, and the kernel is told how long it is; the time is ours.
    unsafe { kernel!(__NR_ppoll, fds.as_mut_ptr().expose_provenance(), fds.len(), left, 0, 8) }
}
