//! Probes of special files, and of the flags that they know: the kernel is asked each time.

use crate::os::fs::FileType;

use crate::calls::events::epoll_pwait_of_program;
use crate::calls::{Part, Parts, UserPtr};
use crate::fd::kind::Kind;
use crate::fd::owned::make_internal;
use crate::files::path_of;
use crate::sys::{self, borrow};
use softring_uapi::RWF_NOWAIT;
use softring_uapi::errno::{Errno, Result};

/// Returns whether the file is an eventfd. Without /proc, any anonymous inode passes: all of them
/// share one inode.
pub fn is_eventfd(fd: i32) -> bool {
    if let Some(target) = path_of(fd) {
        return target == b"anon_inode:[eventfd]";
    }
    let one = crate::substitute::eventfd().map(make_internal);
    let inode = |s: crate::os::fs::Stat| (s.st_dev, s.st_ino);
    let ours = one.ok().and_then(|one| crate::os::fs::fstat(one).ok()).map(inode);
    ours.is_some() && borrow(fd).and_then(|fd| crate::os::fs::fstat(fd).ok()).map(inode) == ours
}

/// Returns whether the file takes RWF_NOWAIT on the newest kernel, but not on every one: pipes
/// since Linux 6.4 (until a splice(2)), eventfds since 5.12, /dev/zero and /dev/null.
pub fn newest_knows(fd: i32) -> bool {
    is_pipe(fd) || is_eventfd(fd) || is_zero(fd)
}

/// Returns whether the file is a pipe.
pub fn is_pipe(fd: i32) -> bool {
    crate::substitute::file_type(fd) == Some(FileType::Fifo)
}

/// Returns whether the file is /dev/zero or /dev/null.
pub fn is_zero(fd: i32) -> bool {
    let stat = sys::borrow(fd).and_then(|fd| crate::substitute::fstat(fd).ok());
    stat.is_some_and(|s| {
        let device = (crate::os::fs::major(s.st_rdev), crate::os::fs::minor(s.st_rdev));
        FileType::from_raw_mode(s.st_mode) == FileType::CharacterDevice
            && matches!(device, (1, 3 | 5))
    })
}

/// Answer of a file to a flag that it does not know.
pub const UNKNOWN_FLAG: Result<usize> = Err(Errno::EOPNOTSUPP);

/// Calls preadv2(2) or pwritev2(2) with one byte at no address: no data move.
///
/// # Errors
/// The file's answer to `flags`.
pub fn try_byte(fd: i32, writes: bool, flags: u32) -> Result<usize> {
    let byte = Part::new(UserPtr::NULL, 1);
    crate::substitute::transfer(writes, fd, Parts::one(&byte), u64::MAX, flags)
}

/// Returns whether the file is an epoll set: any other file fails epoll_pwait(2) with EINVAL.
pub fn is_epoll(fd: i32) -> bool {
    epoll_pwait_of_program(fd, UserPtr::NULL, 1) != Err(Errno::EINVAL)
}

/// Returns whether attempts at `fd`, which is no socket, can be told not to wait (`FMODE_NOWAIT`).
/// The probe reads a byte to nowhere, which takes nothing out of a pipe, an eventfd or the like.
pub fn tries(fd: i32) -> bool {
    let takes = try_byte(fd, false, RWF_NOWAIT) != UNKNOWN_FLAG || newest_knows(fd);
    takes && !is_epoll(fd)
}

/// Returns whether the file lacks `write_iter`, as an eventfd does. pwritev2(2) refuses it every
/// flag.
pub fn is_simple(fd: i32, kind: Kind) -> bool {
    kind == Kind::Pollable && crate::substitute::file_type(fd) == Some(FileType::Unknown)
}
