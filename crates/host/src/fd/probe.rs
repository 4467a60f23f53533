//! What special file a descriptor is, and which flags it knows: the kernel is asked each time.

use rustix::fs::FileType;

use crate::calls::events::epoll_pwait_of_program;
use crate::calls::{Parts, UserPtr};
use crate::fd::kind::Kind;
use crate::fd::owned::make_internal;
use crate::sys::{self, borrow};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::{RWF_NOWAIT, iovec};

/// Is it an eventfd? Without /proc, any anonymous inode passes: all of them share the one that an
/// eventfd has.
pub fn is_eventfd(fd: i32) -> bool {
    let link = format!("/proc/thread-self/fd/{fd}");
    if let Ok(target) = rustix::fs::readlink(link, Vec::new()) {
        return target.as_bytes() == b"anon_inode:[eventfd]";
    }
    let one = crate::substitute::eventfd().map(make_internal);
    let inode = |s: rustix::fs::Stat| (s.st_dev, s.st_ino);
    let ours = one.ok().and_then(|one| rustix::fs::fstat(one).ok()).map(inode);
    ours.is_some() && borrow(fd).and_then(|fd| rustix::fs::fstat(fd).ok()).map(inode) == ours
}

/// Is it a file that takes RWF_NOWAIT on the newest kernel, and not on each: pipes since Linux 6.4,
/// until a splice(2), and eventfds since 5.12?
pub fn newest_knows(fd: i32) -> bool {
    is_pipe(fd) || is_eventfd(fd) || is_zero(fd)
}

/// Is it a pipe?
pub fn is_pipe(fd: i32) -> bool {
    sys::file_type(fd) == Some(FileType::Fifo)
}

/// Is it /dev/zero, or /dev/null?
pub fn is_zero(fd: i32) -> bool {
    let stat = sys::borrow(fd).and_then(|fd| crate::substitute::fstat(fd).ok());
    stat.is_some_and(|s| {
        let device = (rustix::fs::major(s.st_rdev), rustix::fs::minor(s.st_rdev));
        FileType::from_raw_mode(s.st_mode) == FileType::CharacterDevice
            && matches!(device, (1, 3 | 5))
    })
}

/// What a file answers to a flag that it does not know.
pub const UNKNOWN_FLAG: Result<usize> = Err(Errno::EOPNOTSUPP);

/// preadv2(2) or pwritev2(2) of one byte at no address: no data move.
///
/// # Errors
/// What the file says of `flags`.
pub fn try_byte(fd: i32, writes: bool, flags: u32) -> Result<usize> {
    let byte = iovec { base: 0, len: 1 };
    crate::substitute::transfer(writes, fd, Parts::one(&byte), u64::MAX, flags)
}

/// No other file than an epoll set tells an epoll_wait(2) without room from one of no use.
pub fn is_epoll(fd: i32) -> bool {
    epoll_pwait_of_program(fd, UserPtr::NULL, 1) != Err(Errno::EINVAL)
}

/// May attempts at `fd`, which is no socket, be told not to wait (`FMODE_NOWAIT`)? A read of a byte
/// to nowhere takes nothing out of a pipe, an eventfd and their kin.
pub fn tries(fd: i32) -> bool {
    let takes = try_byte(fd, false, RWF_NOWAIT) != UNKNOWN_FLAG || newest_knows(fd);
    takes && !is_epoll(fd)
}

/// Does the file lack `write_iter`, as an eventfd does? pwritev2(2) refuses it every flag.
pub fn is_simple(fd: i32, kind: Kind) -> bool {
    kind == Kind::Pollable && sys::file_type(fd) == Some(FileType::Unknown)
}
