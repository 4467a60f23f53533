//! Status of files and processes, by whichever call may be made.
#![allow(unsafe_code)]

use crate::os::fd::{AsFd, AsRawFd, OwnedFd};
use crate::os::fs::{AtFlags, FileType, Stat, Statx, StatxFlags, makedev, statx};

use crate::refused;
use crate::sys::{EngineFd, POLLIN, borrow, nr, poll_now, sys};
use crate::user;
use softring_uapi::errno::{Errno, Result};

/// Calls fstat(2), newfstatat(2) of the same file, or statx(2).
///
/// # Errors
/// As fstat(2).
pub fn fstat(fd: impl AsFd) -> Result<Stat> {
    if !refused::is::<{ nr::__NR_fstat }>() {
        match crate::os::fs::fstat(&fd) {
            Err(e) if refused::has_come::<{ nr::__NR_fstat }>(e) => {}
            done => return done,
        }
    }
    match crate::os::fs::statat(&fd, c"", AtFlags::EMPTY_PATH) {
        Err(e) if refused::refuses(e) => {
            let result = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
            result.map(of_statx).or(Err(e))
        }
        done => done,
    }
}

/// Converts the answer of statx(2) to that of fstat(2).
fn of_statx(x: Statx) -> Stat {
    let mut stat = user::no_stat();
    stat.st_dev = makedev(x.stx_dev_major, x.stx_dev_minor);
    stat.st_rdev = makedev(x.stx_rdev_major, x.stx_rdev_minor);
    (stat.st_ino, stat.st_nlink, stat.st_mode) = (x.stx_ino, x.stx_nlink.into(), x.stx_mode.into());
    (stat.st_size, stat.st_blksize) = (x.stx_size.cast_signed(), x.stx_blksize.into());
    (stat.st_uid, stat.st_gid) = (x.stx_uid, x.stx_gid);
    stat
}

/// Calls pidfd_open(2).
///
/// # Errors
/// As pidfd_open(2); `ENOSYS`.
pub fn pidfd_open(pid: i32) -> Result<OwnedFd> {
    if refused::is::<{ nr::__NR_pidfd_open }>() {
        return Err(Errno::ENOSYS);
    }
    let made = crate::calls::process::pidfd_open(pid);
    let refused = |e| refused::has_come::<{ nr::__NR_pidfd_open }>(e);
    made.map_err(|e| if refused(e) { Errno::ENOSYS } else { e })
}

/// Returns whether process `pid` runs (a zombie does not).
pub fn process_lives(pid: u32) -> bool {
    let pid = pid.cast_signed();
    if pid <= 0 {
        return false;
    }
    match pidfd_open(pid) {
        // A pidfd is readable once all threads are gone, whether or not the process was reaped.
        Ok(fd) => poll_now(EngineFd::from(fd).as_raw_fd(), POLLIN) & POLLIN == 0,
        Err(Errno::ESRCH) => false,
        // SAFETY: numbers; no signal is sent.
        Err(_) => unsafe { sys!(__NR_kill, pid, 0) != -3 },
    }
}

/// Returns the type of the program's file `fd`; `None` if it is not open.
pub fn file_type(fd: i32) -> Option<FileType> {
    let stat = fstat(borrow(fd)?).ok()?;
    Some(FileType::from_raw_mode(stat.st_mode))
}
