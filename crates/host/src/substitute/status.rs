//! Status of files and processes, by whichever call may be made.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Stat, Statx, StatxFlags, makedev, statx};
use rustix::process::{Pid, PidfdFlags};

use crate::refused;
use crate::sys::nr;
use crate::user;
use softring_uapi::errno::{Errno, Result};

/// Calls fstat(2), newfstatat(2) of the same file, or statx(2).
///
/// # Errors
/// As fstat(2).
pub fn fstat(fd: impl AsFd) -> rustix::io::Result<Stat> {
    if !refused::is::<{ nr::__NR_fstat }>() {
        match rustix::fs::fstat(&fd) {
            Err(e) if refused::has_come::<{ nr::__NR_fstat }>(e.into()) => {}
            done => return done,
        }
    }
    match rustix::fs::statat(&fd, c"", AtFlags::EMPTY_PATH) {
        Err(e) if refused::refuses(e.into()) => {
            let told = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
            told.map(of_statx).or(Err(e))
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
pub fn pidfd_open(pid: Pid) -> Result<OwnedFd> {
    if refused::is::<{ nr::__NR_pidfd_open }>() {
        return Err(Errno::ENOSYS);
    }
    let made = rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(Errno::from);
    let refused = |e| refused::has_come::<{ nr::__NR_pidfd_open }>(e);
    made.map_err(|e| if refused(e) { Errno::ENOSYS } else { e })
}
