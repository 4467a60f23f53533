//! Calls of devices and the like: ioctl(2).
#![allow(unsafe_code)]

use crate::sys::sys;
use crate::user::Plain;
use softring_uapi::errno::{Errno, Result, check};

/// Bytes in a socket: to be read, or not yet sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Queue {
    /// `SIOCINQ`
    Received = 0x541b,
    /// `SIOCOUTQ`
    Unsent = 0x5411,
}

/// Returns the number of bytes in a queue.
///
/// # Errors
/// As ioctl(2): `ENOTTY` if the file has no such queue.
pub fn queued(fd: i32, queue: Queue) -> Result<i32> {
    let mut bytes = 0i32;
    let to = (&raw mut bytes).expose_provenance();
    // SAFETY: both requests write an int, which is ours.
    check(unsafe { sys!(__NR_ioctl, fd, queue as u32, to) }).map(|_| bytes)
}

/// Returns whether the next byte of a stream is urgent.
///
/// # Errors
/// As ioctl(2).
pub fn is_at_mark(fd: i32) -> Result<bool> {
    const SIOCATMARK: u32 = 0x8905;
    let mut there = 0i32;
    let to = (&raw mut there).expose_provenance();
    // SAFETY: the request writes an int, which is ours.
    check(unsafe { sys!(__NR_ioctl, fd, SIOCATMARK, to) }).map(|_| there != 0)
}

/// Returns whether the file is a terminal.
pub fn is_terminal(fd: i32) -> bool {
    const TCGETS: u32 = 0x5401;
    let mut termios = [0u32; 16];
    // SAFETY: a `struct termios` has 36 bytes, and these are ours.
    unsafe { sys!(__NR_ioctl, fd, TCGETS, (&raw mut termios).expose_provenance()) == 0 }
}

/// Makes a request that reads a structure and writes it back.
///
/// # Errors
/// As ioctl(2); `EINVAL` for a request of another size.
///
/// # Safety
/// Addresses in the structure at which the request writes are the program's ([`super::UserPtr`]).
pub unsafe fn exchange<T: Plain>(fd: i32, request: u32, value: &mut T) -> Result<usize> {
    /// `_IOC_SIZE`
    const fn size(request: u32) -> usize {
        (request >> 16 & 0x3fff) as usize
    }
    if size(request) != size_of::<T>() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the structure is the caller's, as long as the request says, and takes any bytes; what
    // it names is as our caller says.
    check(unsafe { sys!(__NR_ioctl, fd, request, core::ptr::from_mut(value).expose_provenance()) })
}
