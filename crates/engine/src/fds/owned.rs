//! Descriptors of the engine's own: out of the program's way, and marked, so that the entry points
//! can refuse to close them.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicI32, AtomicU64};

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};

use crate::errno::{Errno, Result};
use crate::sys::{EngineFd, borrow};

/// The engine's own descriptors, one bit each.
static INTERNAL: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

/// A descriptor of the engine's own: out of the program's way, and marked, so that the doors can
/// refuse to close it.
#[derive(Debug)]
pub struct InternalFd(EngineFd);

impl AsFd for InternalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for InternalFd {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

impl Drop for InternalFd {
    fn drop(&mut self) {
        mark_internal(self.0.as_raw_fd(), false);
        crate::transport::socket::forget(self.0.as_raw_fd());
    }
}

/// Was `fd` opened with `O_PATH`, or is it not open? Such a number names no file to work on.
pub fn is_path_only(fd: i32) -> bool {
    let flags = borrow(fd).map(rustix::fs::fcntl_getfl);
    !matches!(flags, Some(Ok(fl)) if !fl.contains(rustix::fs::OFlags::PATH))
}

/// Is `fd` one of the engine's own descriptors, which the program must not close?
pub fn is_internal(fd: i32) -> bool {
    let Ok(fd) = usize::try_from(fd) else { return false };
    INTERNAL.get(fd / 64).is_some_and(|w| w.load(Relaxed) >> (fd % 64) & 1 == 1)
}

fn mark_internal(fd: i32, on: bool) {
    let Ok(fd) = usize::try_from(fd) else { return };
    let Some(word) = INTERNAL.get(fd / 64) else { return };
    if on {
        word.fetch_or(1 << (fd % 64), Relaxed);
    } else {
        word.fetch_and(!(1 << (fd % 64)), Relaxed);
    }
}

/// Lowest number for the engine's own descriptors: out of the way of programs that count on small
/// numbers.
fn floor() -> i32 {
    static FLOOR: AtomicI32 = AtomicI32::new(0);
    let known = FLOOR.load(Relaxed);
    if known != 0 {
        return known;
    }
    let soft = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let soft = soft.unwrap_or(1024).min(65_536) as i32;
    let floor = (soft / 2).clamp(3, 512);
    FLOOR.store(floor, Relaxed);
    floor
}

/// Takes a duplicate of the program's descriptor for a request that outlives `enter`.
///
/// # Errors
/// `EBADF` if it is not open, `EMFILE` if no number is free.
pub fn dup_internal(fd: i32) -> Result<InternalFd> {
    let fd = borrow(fd).ok_or(Errno::EBADF)?;
    match rustix::io::fcntl_dupfd_cloexec(fd, floor()) {
        Ok(dup) => {
            mark_internal(dup.as_raw_fd(), true);
            Ok(InternalFd(dup.into()))
        }
        Err(rustix::io::Errno::INVAL) => Err(Errno::EMFILE),
        Err(e) => Err(e.into()),
    }
}

/// Moves a descriptor of ours out of the program's way and marks it.
pub fn adopt_internal(fd: OwnedFd) -> InternalFd {
    let mut fd = EngineFd::from(fd);
    if let Ok(high) = rustix::io::fcntl_dupfd_cloexec(&fd, floor()) {
        fd = high.into();
    }
    mark_internal(fd.as_raw_fd(), true);
    InternalFd(fd)
}

/// Gives a descriptor to the program.
pub fn release(fd: OwnedFd) -> i32 {
    fd.into_raw_fd()
}

/// Is `fd` open?
///
/// # Errors
/// `EBADF` if not.
pub fn check_open(fd: i32) -> Result<()> {
    match borrow(fd).map(rustix::io::fcntl_getfd) {
        Some(Ok(_)) => Ok(()),
        _ => Err(Errno::EBADF),
    }
}
