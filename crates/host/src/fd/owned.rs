//! Descriptors of the engine's own: out of the program's way, and marked, so that the entry points
//! can refuse to close them.

use core::sync::atomic::AtomicI32;
use core::sync::atomic::Ordering::Relaxed;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};

use crate::calls::files;
use crate::fd::lock_race::Closer;
use crate::fd::numbers::{is_internal, mark_internal};
use crate::fd::remembered::forget_socket;
use crate::fd::{exec, kept, locks, moved, same_table};
use crate::sys::{EngineFd, borrow};
use softring_uapi::errno::{Errno, Result};

/// A descriptor of the engine's own: out of the program's way, and marked, so that the doors can
/// refuse to close it.
#[derive(Debug)]
pub struct InternalFd {
    fd: EngineFd,
    /// Of a file of the program's, on which it may have POSIX locks.
    of_program: bool,
}

impl InternalFd {
    /// A fresh one. A number that another one goes by is not taken.
    fn new(mut fd: EngineFd, of_program: bool) -> InternalFd {
        loop {
            let number = fd.as_raw_fd();
            // The kernel gives out no number that is open: it was closed, and nobody heard of it.
            moved::lose(number);
            let taken = moved::is_taken(number);
            if let Some(Ok(next)) = taken.then(|| duplicate_from(number, number + 1)) {
                let closer = if of_program { Closer::begin(number) } else { None };
                let mut before = core::mem::replace(&mut fd, next);
                if of_program && closer.is_none() {
                    before.stay_open();
                }
                drop(before);
                continue;
            }
            same_table::take(number);
            mark_internal(number, true);
            if of_program {
                exec::changed();
            }
            return InternalFd { fd, of_program };
        }
    }

    /// A descriptor of a file of the program's that was kept open without an owner, by the number
    /// that it had at first: see [`Self::into_number`].
    pub fn of_program(first: i32) -> InternalFd {
        InternalFd { fd: EngineFd::of_number(first), of_program: true }
    }

    /// The number that it had at first, which [`moved::now`] takes.
    pub fn first(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Closes it whatever locks there are.
    pub fn close(mut self) {
        self.of_program = false;
    }

    /// The number that it had at first. It stays open and marked.
    pub fn into_number(self) -> i32 {
        let mut this = core::mem::ManuallyDrop::new(self);
        this.fd.stay_open();
        this.fd.as_raw_fd()
    }
}

impl AsFd for InternalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        borrow(self.as_raw_fd()).unwrap_or_else(|| self.fd.as_fd())
    }
}

impl AsRawFd for InternalFd {
    #[inline]
    fn as_raw_fd(&self) -> i32 {
        moved::now(self.fd.as_raw_fd())
    }
}

impl Drop for InternalFd {
    fn drop(&mut self) {
        let (first, number) = (self.first(), self.as_raw_fd());
        forget_socket(number);
        self.fd.stay_open();
        if same_table::is_parents(number) {
            return;
        }
        let closer = if self.of_program { Closer::begin(number) } else { None };
        if self.of_program && closer.is_none() {
            return locks::retain(first);
        }
        moved::forget(first).map(files::close);
    }
}

/// Was `fd` opened with `O_PATH`, or is it not open? Such a number names no file to work on.
pub fn is_path_only(fd: i32) -> bool {
    crate::sys::file_flags(fd).is_none_or(|flags| flags.contains(rustix::fs::OFlags::PATH))
}

/// Does `fd` mean nothing to the program, as the engine has it open? Then a request on it answers
/// `EBADF`. The kernel is asked only about a number of the engine's own: the program may have
/// closed it, and opened another file there, and nobody heard of that.
#[inline]
pub fn is_hidden(fd: i32) -> bool {
    is_internal(fd) && moved::is_ours_still(fd)
}

/// `fd`, or a number that is never open where the program has none under that name.
#[inline]
pub fn visible(fd: i32) -> i32 {
    if is_hidden(fd) { -1 } else { fd }
}

/// Lowest number for the engine's own descriptors: out of the way of programs that count on small
/// numbers.
pub fn floor() -> i32 {
    static FLOOR: AtomicI32 = AtomicI32::new(0);
    let known = FLOOR.load(Relaxed);
    if known != 0 {
        return known;
    }
    let soft = crate::substitute::getrlimit(rustix::process::Resource::Nofile).current;
    let soft = soft.unwrap_or(1024).min(65_536) as i32;
    let floor = (soft / 2).clamp(3, 512);
    FLOOR.store(floor, Relaxed);
    floor
}

/// Makes room in the process's table of descriptors for the engine's own numbers. To be called
/// while the process has one thread: once it has several, the kernel waits for a grace period (10
/// to 15 ms) before it lets go of the smaller table, and who makes the first ring would wait.
pub fn reserve_numbers() {
    // Of a file that nobody else has: closing a duplicate of the program's would drop its POSIX
    // locks. By a call that every program makes, as no policy may kill for it.
    let how = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    let Ok(own) = rustix::fs::open(c"/", how, rustix::fs::Mode::empty()) else { return };
    drop(rustix::io::fcntl_dupfd_cloexec(&own, floor()));
}

/// A duplicate of `fd`, out of the program's way as far as there is room.
fn duplicate(fd: i32) -> Result<EngineFd> {
    duplicate_from(fd, floor()).or_else(|e| match e {
        Errno::EMFILE => duplicate_from(fd, highest_free().ok_or(e)?),
        e => Err(e),
    })
}

/// The highest number that is free below those that the engine takes: for when the program has all
/// from there up.
pub fn highest_free() -> Option<i32> {
    (3..floor()).rev().find(|&fd| files::number_flags(fd) == Err(Errno::EBADF))
}

/// A duplicate of `fd`, from number `low` on.
fn duplicate_from(fd: i32, low: i32) -> Result<EngineFd> {
    let fd = borrow(fd).ok_or(Errno::EBADF)?;
    match rustix::io::fcntl_dupfd_cloexec(fd, low) {
        Ok(dup) => Ok(dup.into()),
        Err(rustix::io::Errno::INVAL) => Err(Errno::EMFILE),
        Err(e) => Err(e.into()),
    }
}

/// Takes a duplicate of the program's descriptor for a request that outlives `enter`.
///
/// # Errors
/// `EBADF` if it is not open, `EMFILE` if no number is free.
pub fn dup_internal(fd: i32) -> Result<InternalFd> {
    if let Some(retained) = locks::reuse(fd) {
        return Ok(retained);
    }
    let dup = duplicate(fd).or_else(|e| {
        if e != Errno::EMFILE {
            return Err(e);
        }
        kept::give_up_all();
        locks::sweep();
        duplicate(fd)
    });
    Ok(InternalFd::new(dup?, true))
}

/// As [`dup_internal`], for a number that the program names.
///
/// # Errors
/// As [`dup_internal`]; `EBADF` for one of the engine's own, or one that is open for its path only.
pub fn dup_visible(fd: i32) -> Result<InternalFd> {
    check_visible(fd)?;
    dup_internal(fd)
}

/// Moves a descriptor of ours out of the program's way and marks it.
pub fn adopt_internal(fd: OwnedFd) -> InternalFd {
    let fd = EngineFd::from(fd);
    let high = duplicate(fd.as_raw_fd());
    InternalFd::new(high.unwrap_or(fd), false)
}

/// As [`adopt_internal`], for a file that was opened by name, on which the program may have POSIX
/// locks: it stays where it is if there are any, as they would go with the number that is left.
pub fn adopt_opened(fd: OwnedFd) -> InternalFd {
    let fd = EngineFd::from(fd);
    let Some(_closer) = Closer::begin(fd.as_raw_fd()) else { return InternalFd::new(fd, true) };
    let high = duplicate(fd.as_raw_fd());
    InternalFd::new(high.unwrap_or(fd), true)
}

/// Closes numbers of the engine's own whose owners are left as they are: in a forked child, by as
/// few calls as there are gaps.
pub fn close_numbers(mut fds: Vec<i32>) {
    fds.retain(|&fd| !same_table::is_parents(fd));
    fds.sort_unstable();
    for run in fds.chunk_by(|a, b| a + 1 == *b) {
        for &fd in run {
            forget_socket(fd);
            moved::forget_number(fd);
        }
        let (first, last) = (run[0], run[run.len() - 1]);
        if files::close_range(first, last, 0).is_err() {
            run.iter().for_each(|&fd| drop(EngineFd::of_number(fd)));
        }
    }
}

/// Gives a descriptor to the program.
pub fn release(fd: OwnedFd) -> i32 {
    fd.into_raw_fd()
}

/// Has the program `fd` open, and not for its path only (`fget`)?
///
/// # Errors
/// `EBADF` if not.
pub fn check_visible(fd: i32) -> Result<()> {
    if is_hidden(fd) || is_path_only(fd) { Err(Errno::EBADF) } else { Ok(()) }
}
