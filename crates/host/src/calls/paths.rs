//! Calls that take names: directories, opening, status, extended attributes. The paths, names and
//! values that the kernel reads are the copies that requests keep.
#![allow(unsafe_code)]

use super::{ReadPtr, UserPtr, calls};
use crate::os::fd::OwnedFd;
use crate::sys::{owned, sys};
use softring_uapi::errno::Result;

calls! {
    /// Calls renameat2(2).
    fn renameat2(from: i32, old: ReadPtr, to: i32, new: ReadPtr, flags: u32) = __NR_renameat2;
    /// Calls unlinkat(2).
    fn unlinkat(dir: i32, path: ReadPtr, flags: u32) = __NR_unlinkat;
    /// Calls mkdirat(2).
    fn mkdirat(dir: i32, path: ReadPtr, mode: u32) = __NR_mkdirat;
    /// Calls symlinkat(2).
    fn symlinkat(target: ReadPtr, dir: i32, path: ReadPtr) = __NR_symlinkat;
    /// Calls linkat(2).
    fn linkat(from: i32, old: ReadPtr, to: i32, new: ReadPtr, flags: u32) = __NR_linkat;
    /// Calls statx(2).
    fn statx(dir: i32, path: ReadPtr, flags: u32, mask: u32, to: UserPtr) = __NR_statx;
    /// Calls fgetxattr(2).
    fn fgetxattr(fd: i32, name: ReadPtr, to: UserPtr, len: u32) = __NR_fgetxattr;
    /// Calls getxattr(2).
    fn getxattr(path: ReadPtr, name: ReadPtr, to: UserPtr, len: u32) = __NR_getxattr;
    /// Calls fsetxattr(2).
    fn fsetxattr(fd: i32, name: ReadPtr, value: ReadPtr, len: u32, flags: u32) = __NR_fsetxattr;
    /// Calls setxattr(2).
    fn setxattr(path: ReadPtr, name: ReadPtr, value: ReadPtr, len: u32, flags: u32) =
        __NR_setxattr;
}

/// Calls openat(2).
///
/// # Errors
/// As the call.
pub fn openat(dir: i32, path: ReadPtr, flags: u64, mode: u64) -> Result<OwnedFd> {
    // SAFETY: the kernel reads there; the answer is a descriptor.
    unsafe { owned(sys!(__NR_openat, dir, path.0, flags, mode)) }
}

/// Calls openat2(2); `how` has the words of `struct open_how`.
///
/// # Errors
/// As the call.
pub fn openat2(dir: i32, path: ReadPtr, how: [u64; 3]) -> Result<OwnedFd> {
    let at = how.as_ptr().expose_provenance();
    // SAFETY: the kernel reads there; the answer is a descriptor.
    unsafe { owned(sys!(__NR_openat2, dir, path.0, at, size_of_val(&how))) }
}
