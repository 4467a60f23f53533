//! Calls of open files: positions, data, sizes, hints, pipes.
#![allow(unsafe_code)]

use super::{Parts, ReadPtr, UserPtr, calls};
use crate::os::fd::OwnedFd;
use crate::sys::{own, owned, sys};
use softring_uapi::errno::{Result, check};
use softring_uapi::iovec;

const F_DUPFD: u32 = 0;
const F_GETFD: u32 = 1;
const F_SETFD: u32 = 2;
const FD_CLOEXEC: u32 = 1;
const F_SETFL: u32 = 4;
const F_DUPFD_CLOEXEC: u32 = 1030;
const SEEK_SET: u32 = 0;
const SEEK_CUR: u32 = 1;

calls! {
    /// Calls close(2) on a number of the program's.
    fn close(fd: i32) = __NR_close;
    /// Calls close_range(2).
    fn close_range(first: i32, last: i32, flags: u32) = __NR_close_range;
    /// Calls dup2(2).
    fn dup2(from: i32, to: i32) = __NR_dup2;
    /// Calls fsync(2).
    fn fsync(fd: i32) = __NR_fsync;
    /// Calls fdatasync(2).
    fn fdatasync(fd: i32) = __NR_fdatasync;
    /// Calls sync_file_range(2).
    fn sync_file_range(fd: i32, offset: u64, len: u64, flags: u32) = __NR_sync_file_range;
    /// Calls fallocate(2).
    fn fallocate(fd: i32, mode: u32, offset: u64, len: u64) = __NR_fallocate;
    /// Calls ftruncate(2).
    fn ftruncate(fd: i32, len: u64) = __NR_ftruncate;
    /// Calls posix_fadvise(2).
    fn fadvise(fd: i32, offset: u64, len: u64, advice: u32) = __NR_fadvise64;
    /// Calls lseek(2).
    fn lseek(fd: i32, offset: i64, whence: u32) = __NR_lseek;
    /// Calls pread(2).
    fn pread(fd: i32, to: UserPtr, len: usize, offset: u64) = __NR_pread64;
    /// Calls pwrite(2).
    fn pwrite(fd: i32, from: ReadPtr, len: usize, offset: u64) = __NR_pwrite64;
    /// Calls tee(2).
    fn tee(from: i32, to: i32, len: usize, flags: u32) = __NR_tee;
}

/// Returns the position of an open file; `ESPIPE` for a stream.
///
/// # Errors
/// As lseek(2).
pub fn position(fd: i32) -> Result<u64> {
    lseek(fd, 0, SEEK_CUR).map(|at| at as u64)
}

/// Sets the position of an open file.
///
/// # Errors
/// As lseek(2).
pub fn set_position(fd: i32, at: u64) -> Result<()> {
    lseek(fd, at.cast_signed(), SEEK_SET).map(drop)
}

/// Moves the position of an open file.
///
/// # Errors
/// As lseek(2).
pub fn move_position(fd: i32, by: i64) -> Result<()> {
    lseek(fd, by, SEEK_CUR).map(drop)
}

/// Sets the flags of an open file (`F_SETFL`).
///
/// # Errors
/// As fcntl(2).
pub fn set_flags(fd: i32, flags: u64) -> Result<()> {
    // SAFETY: numbers.
    check(unsafe { sys!(__NR_fcntl, fd, F_SETFL, flags) }).map(drop)
}

/// Makes exec(2) close the number (`F_SETFD`).
///
/// # Errors
/// As fcntl(2).
pub(crate) fn close_on_exec(fd: i32) -> Result<usize> {
    // SAFETY: numbers.
    check(unsafe { sys!(__NR_fcntl, fd, F_SETFD, FD_CLOEXEC) })
}

/// Returns the flags of a number (`F_GETFD`).
///
/// # Errors
/// As fcntl(2): `EBADF`.
pub(crate) fn number_flags(fd: i32) -> Result<usize> {
    // SAFETY: numbers.
    check(unsafe { sys!(__NR_fcntl, fd, F_GETFD) })
}

/// Duplicates an open file to the lowest free number from `low` on.
///
/// # Errors
/// As fcntl(2).
pub fn duplicate(fd: i32, low: i32, close_on_exec: bool) -> Result<OwnedFd> {
    let how = if close_on_exec { F_DUPFD_CLOEXEC } else { F_DUPFD };
    // SAFETY: numbers; the answer is a descriptor.
    unsafe { owned(sys!(__NR_fcntl, fd, how, low)) }
}

/// `struct flock`
#[repr(C)]
#[derive(Debug, Default)]
pub struct Flock {
    pub kind: i16,
    pub whence: i16,
    pub start: i64,
    pub len: i64,
    pub pid: i32,
}

/// Operation on a lock of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Lock {
    /// `F_GETLK`: replaces the structure by a conflicting POSIX lock of another process.
    Get = 5,
    /// `F_SETLK`
    Set = 6,
    /// `F_OFD_GETLK`: the same with any lock but those of the open file description.
    GetOfOthers = 36,
}

/// Calls fcntl(2) for a lock.
///
/// # Errors
/// As the call.
pub fn lock(fd: i32, how: Lock, lock: &mut Flock) -> Result<()> {
    let at = core::ptr::from_mut(lock).expose_provenance();
    // SAFETY: the structure is the caller's, and takes any bytes.
    check(unsafe { sys!(__NR_fcntl, fd, how as u32, at) }).map(drop)
}

/// Calls pwrite(2) with bytes of ours.
///
/// # Errors
/// As the call.
pub(crate) fn pwrite_of(fd: i32, from: &[u8], offset: u64) -> Result<usize> {
    // SAFETY: the kernel reads there.
    check(unsafe { sys!(__NR_pwrite64, fd, from.as_ptr().expose_provenance(), from.len(), offset) })
}

/// Calls pwritev(2) with parts that the kernel only reads, wherever they lie.
///
/// # Errors
/// As the call.
pub fn gather(fd: i32, from: &[iovec], offset: u64) -> Result<usize> {
    let at = from.as_ptr().expose_provenance();
    // SAFETY: the kernel reads there.
    check(unsafe { sys!(__NR_pwritev, fd, at, from.len(), offset, 0) })
}

/// Makes a pipe by pipe2(2): the read end, the write end.
///
/// # Errors
/// As pipe2(2).
pub fn pipe(flags: u64) -> Result<[OwnedFd; 2]> {
    let mut fds = [-1i32; 2];
    // SAFETY: the array is ours, and as long as the kernel takes it to be.
    check(unsafe { sys!(__NR_pipe2, fds.as_mut_ptr().expose_provenance(), flags) })?;
    // SAFETY: made this moment, for us.
    Ok(fds.map(|fd| unsafe { own(fd) }))
}

/// Calls splice(2); an offset of `None` is the file's own position.
///
/// # Errors
/// As splice(2).
pub fn splice(
    from: (i32, Option<&mut u64>),
    to: (i32, Option<&mut u64>),
    len: usize,
    flags: u32,
) -> Result<usize> {
    let address = |offset: Option<&mut u64>| {
        offset.map_or(0, |offset| core::ptr::from_mut(offset).expose_provenance())
    };
    let (at, dest) = (address(from.1), address(to.1));
    // SAFETY: the offsets are the caller's, and nobody else's meanwhile.
    check(unsafe { sys!(__NR_splice, from.0, at, to.0, dest, len, flags) })
}

/// Calls read(2) or write(2) with no bytes; the file may still refuse.
///
/// # Errors
/// As the call.
pub fn transfer_nothing(writes: bool, fd: i32) -> Result<usize> {
    // SAFETY: numbers.
    check(unsafe {
        match writes {
            true => sys!(__NR_write, fd, 0, 0),
            false => sys!(__NR_read, fd, 0, 0),
        }
    })
}

/// Calls readv(2).
///
/// # Errors
/// As the call.
pub fn readv(fd: i32, to: Parts<'_>) -> Result<usize> {
    // SAFETY: the parts are the program's memory.
    check(unsafe { sys!(__NR_readv, fd, to.at, to.count) })
}

/// Calls writev(2).
///
/// # Errors
/// As the call.
pub fn writev(fd: i32, from: Parts<'_>) -> Result<usize> {
    // SAFETY: the kernel reads there.
    check(unsafe { sys!(__NR_writev, fd, from.at, from.count) })
}

/// Calls preadv(2).
///
/// # Errors
/// As the call.
pub(crate) fn preadv(fd: i32, to: Parts<'_>, offset: u64) -> Result<usize> {
    // SAFETY: the parts are the program's memory.
    check(unsafe { sys!(__NR_preadv, fd, to.at, to.count, offset, 0) })
}

/// Calls pwritev(2).
///
/// # Errors
/// As the call.
pub(crate) fn pwritev(fd: i32, from: Parts<'_>, offset: u64) -> Result<usize> {
    // SAFETY: the kernel reads there.
    check(unsafe { sys!(__NR_pwritev, fd, from.at, from.count, offset, 0) })
}

/// Calls preadv2(2); `u64::MAX` is the file's own position.
///
/// # Errors
/// As the call.
#[inline]
pub fn preadv2(fd: i32, to: Parts<'_>, offset: u64, flags: u32) -> Result<usize> {
    // SAFETY: the parts are the program's memory.
    check(unsafe { sys!(__NR_preadv2, fd, to.at, to.count, offset, high(offset), flags) })
}

/// Calls pwritev2(2); `u64::MAX` is the file's own position.
///
/// # Errors
/// As the call.
#[inline]
pub(crate) fn pwritev2(fd: i32, from: Parts<'_>, offset: u64, flags: u32) -> Result<usize> {
    // SAFETY: the kernel reads there.
    check(unsafe { sys!(__NR_pwritev2, fd, from.at, from.count, offset, high(offset), flags) })
}

/// Returns the upper half of a position, which 64-bit kernels ignore except in −1.
fn high(offset: u64) -> u64 {
    if offset == u64::MAX { u64::MAX } else { 0 }
}
