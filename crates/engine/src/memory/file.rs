//! Files in memory: their sizes, and the effect of RLIMIT_FSIZE on them.
//!
//! Softring's files hold memory that the kernel keeps in no file, so the limit must not apply. If
//! only the soft limit is too low, it is lifted for one call. The limit is the whole process's: it
//! is lifted for the program's other threads, too, so only one thread at a time may do so. Another
//! thread or process can lower the limit meanwhile with setrlimit(2) or prlimit(2): SIGXFSZ is kept
//! from the program in any case.

use softring_host::os::fd::{AsFd, AsRawFd};
use softring_host::os::process::{Resource, Rlimit};

use super::of_process::PROCESS;
use softring_host::signal::BlockAll;
use softring_host::substitute::{fstat, getrlimit, set_size, setrlimit};
use softring_host::sys;
use softring_uapi::IORING_OFF_SQES;
use softring_uapi::errno::{Errno, Result};

const SIGXFSZ: u64 = 1 << 24;

fn short(limit: Option<u64>, size: u64) -> bool {
    limit.is_some_and(|most| most < size)
}

/// Returns the hard RLIMIT_FSIZE, in bytes, if it is too low for any ring: a ring's file ends with
/// its SQEs.
pub fn no_ring() -> Option<u64> {
    getrlimit(Resource::Fsize).maximum.filter(|most| *most < IORING_OFF_SQES + 4096)
}

/// Makes a file at least `size` bytes long; see [`extend`].
///
/// # Errors
/// Those of [`extend`].
pub(crate) fn grow(file: impl AsFd, size: u64) -> Result<()> {
    if fstat(&file)?.st_size.cast_unsigned() >= size { Ok(()) } else { extend(file, size) }
}

/// Makes a file, which is shorter, `size` bytes long. Pages take memory only once touched.
///
/// # Errors
/// `ENOMEM`, also past the hard RLIMIT_FSIZE, or if the soft one cannot be lifted.
pub(crate) fn extend(file: impl AsFd, size: u64) -> Result<()> {
    let fd = file.as_fd().as_raw_fd();
    // Tried first: a limit, which is rare, shows in the failure.
    match without_signal(&BlockAll::begin(), fd, size) {
        Err(Errno::EFBIG) => lifted(fd, size),
        done => done,
    }
    .map_err(|_| Errno::ENOMEM)
}

/// Makes a file `size` bytes long; the limit's signal does not reach the program.
fn without_signal(blocked: &BlockAll, fd: i32, size: u64) -> Result<()> {
    let sent_before = blocked.may_pend(SIGXFSZ) && sys::pending_signals() & SIGXFSZ != 0;
    let done = set_size(fd, size);
    if done == Err(Errno::EFBIG) && !sent_before {
        sys::take_signal(SIGXFSZ);
    }
    done
}

/// Makes a file `size` bytes long under a soft limit that is lifted for that.
#[cold]
fn lifted(fd: i32, size: u64) -> Result<()> {
    let held = PROCESS.lifts.hold();
    let old = getrlimit(Resource::Fsize);
    if short(old.maximum, size) {
        return Err(Errno::ENOMEM);
    }
    let lift = short(old.current, size);
    if lift {
        setrlimit(Resource::Fsize, Rlimit { current: old.maximum, maximum: old.maximum })?;
    }
    let done = without_signal(held.blocked(), fd, size);
    if lift {
        let _ = setrlimit(Resource::Fsize, old);
    }
    done
}
