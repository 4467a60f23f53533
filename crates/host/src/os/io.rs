//! Bytes of files.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ops::Deref;

use super::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use super::kernel;
use softring_uapi::errno::Result;
use softring_uapi::flag_set;
use softring_uapi::iovec;

pub use softring_uapi::errno::Errno;

const F_GETFD: u32 = 1;
const F_SETFD: u32 = 2;
const F_DUPFD_CLOEXEC: u32 = 1030;

flag_set! {
    /// Flags of a descriptor.
    pub struct FdFlags: u32 {
        const CLOEXEC = 1;
    }
}

/// Bytes to send, as a part of a vector.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct IoSlice<'a>(iovec, PhantomData<&'a [u8]>);

impl<'a> IoSlice<'a> {
    pub fn new(bytes: &'a [u8]) -> IoSlice<'a> {
        let base = bytes.as_ptr().expose_provenance() as u64;
        IoSlice(iovec { base, len: bytes.len() as u64 }, PhantomData)
    }
}

/// Room for bytes to receive, as a part of a vector.
#[derive(Debug)]
#[repr(transparent)]
pub struct IoSliceMut<'a>(iovec, PhantomData<&'a mut [u8]>);

impl<'a> IoSliceMut<'a> {
    pub fn new(bytes: &'a mut [u8]) -> IoSliceMut<'a> {
        let base = bytes.as_mut_ptr().expose_provenance() as u64;
        IoSliceMut(iovec { base, len: bytes.len() as u64 }, PhantomData)
    }
}

impl Deref for IoSlice<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let at = core::ptr::with_exposed_provenance(self.0.base as usize);
        // SAFETY: the bytes that it was made of, which are borrowed as long as it lives.
        unsafe { core::slice::from_raw_parts(at, self.0.len as usize) }
    }
}

/// Calls read(2).
///
/// # Errors
/// As the call.
#[inline]
pub fn read(fd: impl AsFd, to: &mut [u8]) -> Result<usize> {
    let (fd, at) = (fd.as_fd().as_raw_fd(), to.as_mut_ptr().expose_provenance());
    // SAFETY: the bytes are the caller's, and the kernel is told how many.
    unsafe { kernel!(__NR_read, fd, at, to.len()) }
}

/// Calls pread(2).
///
/// # Errors
/// As the call.
pub fn pread(fd: impl AsFd, to: &mut [u8], offset: u64) -> Result<usize> {
    let (fd, at) = (fd.as_fd().as_raw_fd(), to.as_mut_ptr().expose_provenance());
    // SAFETY: as above.
    unsafe { kernel!(__NR_pread64, fd, at, to.len(), offset) }
}

/// Calls write(2).
///
/// # Errors
/// As the call.
#[inline]
pub fn write(fd: impl AsFd, from: &[u8]) -> Result<usize> {
    let (fd, at) = (fd.as_fd().as_raw_fd(), from.as_ptr().expose_provenance());
    // SAFETY: the kernel reads there.
    unsafe { kernel!(__NR_write, fd, at, from.len()) }
}

/// Duplicates a descriptor to the lowest free number from `low` on, which exec(2) closes.
///
/// # Errors
/// As fcntl(2).
pub fn fcntl_dupfd_cloexec(fd: impl AsFd, low: i32) -> Result<OwnedFd> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: numbers; the answer is a descriptor for us.
    unsafe { made(kernel!(__NR_fcntl, fd, F_DUPFD_CLOEXEC, low)) }
}

/// Returns the flags of a descriptor.
///
/// # Errors
/// As fcntl(2).
pub(crate) fn fcntl_getfd(fd: impl AsFd) -> Result<FdFlags> {
    // SAFETY: numbers.
    let flags = unsafe { kernel!(__NR_fcntl, fd.as_fd().as_raw_fd(), F_GETFD) };
    flags.map(|flags| FdFlags::from_bits_retain(flags as u32))
}

/// Sets the flags of a descriptor.
///
/// # Errors
/// As fcntl(2).
pub fn fcntl_setfd(fd: impl AsFd, flags: FdFlags) -> Result<()> {
    // SAFETY: numbers.
    unsafe { kernel!(__NR_fcntl, fd.as_fd().as_raw_fd(), F_SETFD, flags.bits()) }.map(drop)
}

/// Takes over the descriptor that a system call has made.
///
/// # Safety
/// The answer is that of a call which makes a descriptor for us.
pub(super) unsafe fn made(answer: Result<usize>) -> Result<OwnedFd> {
    // SAFETY: the caller's.
    answer.map(|fd| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
