//! Descriptors of the engine's own: out of the program's way, and marked, so that the entry points
//! can refuse to close them.
#![allow(unsafe_code)]

use alloc::vec::Vec;
use core::mem::ManuallyDrop;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use core::sync::atomic::{AtomicI32, AtomicU64};

use crate::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use crate::os::io::FdFlags;

use crate::calls::files;
use crate::fd::lock_race::Closer;
use crate::fd::numbers::{File, WORDS, file, is_internal, mark_internal};
use crate::fd::remembered::forget_socket;
use crate::fd::{dup_cache, exec, locks, moved, same_table};
use crate::sys::{self, EngineFd, borrow};
use softring_uapi::errno::{Errno, Result};

/// State that a process has once.
#[derive(Debug)]
struct OfProcess {
    /// Descriptors that are open and marked, and have no owner, one bit each: the thread that
    /// clears a bit becomes the owner.
    unowned: [AtomicU64; WORDS],
    /// Result of [`floor`]; 0: not known yet.
    floor: AtomicI32,
}

static PROCESS: OfProcess =
    OfProcess { unowned: [const { AtomicU64::new(0) }; WORDS], floor: AtomicI32::new(0) };

/// Returns the bit of a number, if the number is not too high to have one.
fn unowned(first: i32) -> Option<(&'static AtomicU64, u64)> {
    let at = usize::try_from(first).ok()?;
    Some((PROCESS.unowned.get(at / 64)?, 1 << (at % 64)))
}

/// Leaves a descriptor open, without an owner. Returns its number; `None` if the number is too high
/// to have a bit: then nobody takes it back.
fn without_owner(fd: EngineFd) -> Option<i32> {
    let first = fd.as_raw_fd();
    let _open = ManuallyDrop::new(fd);
    let (word, bit) = unowned(first)?;
    word.fetch_or(bit, Release);
    Some(first)
}

/// Descriptor of the engine's own: out of the program's way, and marked, so that the wrappers of
/// close(2) can refuse to close it.
#[derive(Debug)]
pub struct InternalFd {
    fd: EngineFd,
    /// Flag, true for a file of the program's, on which the program may have POSIX locks.
    of_program: bool,
}

impl InternalFd {
    /// Takes over a fresh descriptor. Its number must not be the first number of another
    /// descriptor: if it is, a higher one is taken.
    fn new(mut fd: EngineFd, of_program: bool) -> InternalFd {
        loop {
            let number = fd.as_raw_fd();
            // The kernel gives out no open number. If this one is marked, its close was not
            // reported.
            moved::lose(number);
            let taken = moved::is_taken(number);
            if let Some(Ok(next)) = taken.then(|| duplicate_from(number, number + 1)) {
                let closer = if of_program { Closer::begin(number) } else { None };
                let before = core::mem::replace(&mut fd, next);
                if of_program && closer.is_none() {
                    let _open = ManuallyDrop::new(before);
                }
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

    /// Leaves the descriptor open and marked, without an owner until [`Self::take_back`] is called
    /// with the returned first number. Safe in a signal handler.
    ///
    /// # Errors
    /// The descriptor, if its number is too high.
    pub fn leave(mut self) -> core::result::Result<i32, InternalFd> {
        let first = self.first();
        if unowned(first).is_none() {
            return Err(self);
        }
        self.fd.take().map(without_owner);
        Ok(first)
    }

    /// Takes back a descriptor of a file of the program's that [`Self::leave`] has left; `None` if
    /// another thread has taken it. Safe in a signal handler.
    pub fn take_back(first: i32) -> Option<InternalFd> {
        let (word, bit) = unowned(first)?;
        let taken = word.fetch_and(!bit, AcqRel) & bit != 0;
        // SAFETY: `without_owner` has set the bit, which took over the only owner and did not
        // close the number; and only this call has cleared the bit since.
        taken.then(|| unsafe { InternalFd::of_program(first) })
    }

    /// # Safety
    /// The number is open and marked, of a file of the program's, and nobody else answers for it.
    unsafe fn of_program(first: i32) -> InternalFd {
        // SAFETY: the caller's.
        InternalFd { fd: unsafe { sys::own(first) }.into(), of_program: true }
    }

    /// Closes the child's copy of the number, in a forked child, and leaves the owner as it is. A
    /// number that is retained for the child's locks stays open.
    ///
    /// # Safety
    /// The owner is neither used nor dropped any more.
    pub unsafe fn close_under_owner(&self) {
        // SAFETY: the owner does not answer for the number any more, says the caller.
        drop(unsafe { InternalFd::of_program(self.first()) });
    }

    /// Returns the first number, which [`moved::now`] takes.
    pub fn first(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Closes the descriptor, whatever locks there are.
    pub fn close(mut self) {
        self.of_program = false;
    }
}

impl AsFd for InternalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let number = self.as_raw_fd();
        if number < 0 {
            return self.fd.as_fd();
        }
        // SAFETY: the number of the descriptor that `self` owns, which stays open as long as `self`
        // lives, unless the program closes it behind us; the kernel checks the number then.
        unsafe { BorrowedFd::borrow_raw(number) }
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
        // Otherwise the descriptor was left without an owner.
        let Some(fd) = self.fd.take() else { return };
        let (first, number) = (self.first(), self.as_raw_fd());
        forget_socket(number);
        if same_table::is_parents(number) {
            let _open = ManuallyDrop::new(fd);
            return;
        }
        let closer = if self.of_program { Closer::begin(number) } else { None };
        if self.of_program && closer.is_none() {
            return without_owner(fd).map_or((), locks::retain);
        }
        // The present number is closed, not the first.
        let _open = ManuallyDrop::new(fd);
        moved::forget(first).map(files::close);
    }
}

/// Returns whether `fd` was opened with `O_PATH` or is not open. Such a number names no file to
/// work on.
pub fn is_path_only(fd: i32) -> bool {
    crate::sys::file_flags(fd).is_none_or(|flags| flags.contains(crate::os::fs::OFlags::PATH))
}

/// Returns whether `fd` means nothing to the program, because the engine has it open. A request on
/// it then answers `EBADF`. The kernel is asked only about a number of the engine's own: the
/// program may have closed it and opened another file there, both unreported.
#[inline]
pub fn is_hidden(fd: i32) -> bool {
    is_internal(fd) && moved::is_ours_still(fd)
}

/// Returns `fd`, or -1 if the program has no descriptor of that number ([`is_hidden`]).
#[inline]
pub fn visible(fd: i32) -> i32 {
    if is_hidden(fd) { -1 } else { fd }
}

/// Returns the lowest number for the engine's own descriptors. Programs count on small numbers.
pub fn floor() -> i32 {
    let known = PROCESS.floor.load(Relaxed);
    if known != 0 {
        return known;
    }
    let soft = crate::substitute::getrlimit(crate::os::process::Resource::Nofile).current;
    let soft = soft.unwrap_or(1024).min(65_536) as i32;
    let floor = (soft / 2).clamp(3, 512);
    PROCESS.floor.store(floor, Relaxed);
    floor
}

/// Makes room in the process's table of descriptors for the engine's own numbers. Call this while
/// the process has one thread. With several, the kernel waits for a grace period (10 to 15 ms)
/// before it frees the smaller table, and the thread that makes the first ring would wait.
pub fn reserve_numbers() {
    // The file is one that nobody else has: to close a duplicate of the program's would drop its
    // POSIX locks.
    let how = crate::os::fs::OFlags::PATH | crate::os::fs::OFlags::CLOEXEC;
    let Ok(own) = crate::os::fs::open(c"/", how, crate::os::fs::Mode::empty()) else { return };
    drop(crate::os::io::fcntl_dupfd_cloexec(&own, floor()));
}

/// Duplicates `fd`, out of the program's way as far as there is room.
fn duplicate(fd: i32) -> Result<EngineFd> {
    duplicate_from(fd, floor()).or_else(|e| match e {
        Errno::EMFILE => duplicate_from(fd, highest_free().ok_or(e)?),
        e => Err(e),
    })
}

/// Returns the highest free number below [`floor`], for when the program has all numbers from there
/// up.
pub(crate) fn highest_free() -> Option<i32> {
    (3..floor()).rev().find(|&fd| files::number_flags(fd) == Err(Errno::EBADF))
}

/// Duplicates `fd` to a free number from `low` on.
fn duplicate_from(fd: i32, low: i32) -> Result<EngineFd> {
    let fd = borrow(fd).ok_or(Errno::EBADF)?;
    match crate::os::io::fcntl_dupfd_cloexec(fd, low) {
        Ok(dup) => Ok(dup.into()),
        Err(Errno::EINVAL) => Err(Errno::EMFILE),
        Err(e) => Err(e),
    }
}

/// Takes a duplicate of the program's descriptor, for a request that outlives `enter`.
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
        dup_cache::give_up_all();
        locks::sweep();
        duplicate(fd)
    });
    Ok(InternalFd::new(dup?, true))
}

/// Takes a duplicate of a descriptor that the program names; see [`dup_internal`].
///
/// # Errors
/// As [`dup_internal`]; `EBADF` for one of the engine's own, or one that is open for its path only.
pub fn dup_visible(fd: i32) -> Result<InternalFd> {
    check_visible(fd)?;
    dup_internal(fd)
}

/// Moves a descriptor of ours out of the program's way and marks it.
pub fn make_internal(fd: OwnedFd) -> InternalFd {
    let fd = EngineFd::from(fd);
    let high = duplicate(fd.as_raw_fd());
    InternalFd::new(high.unwrap_or(fd), false)
}

/// Marks the descriptor of a file that was opened by name, and on which the program may have POSIX
/// locks, and moves it out of the program's way. If there are locks, it is not moved: a close of
/// its old number would drop them.
pub fn make_internal_opened(fd: OwnedFd) -> InternalFd {
    let fd = EngineFd::from(fd);
    let Some(_closer) = Closer::begin(fd.as_raw_fd()) else { return InternalFd::new(fd, true) };
    let high = duplicate(fd.as_raw_fd());
    InternalFd::new(high.unwrap_or(fd), true)
}

/// Takes over a descriptor that an earlier program of this process has left open over exec(2), or
/// that the process was born with (`exec`). Returns whether the number is then the engine's.
///
/// # Safety
/// The number is the one that the earlier program has told, and nothing of this program has run yet
/// that could own it.
pub unsafe fn inherit(number: i32, of: (u64, u64), born_with: bool) -> bool {
    let stays = || exec::flags(number) == Some(FdFlags::empty());
    if of == File::default() || file(number) != of || !stays() {
        return false;
    }
    exec::set_flags(number, FdFlags::CLOEXEC);
    mark_internal(number, true);
    // SAFETY: it is open, as it has a file, and was just marked; nobody else owns it, says the
    // caller.
    let duplicate = unsafe { InternalFd::of_program(number) };
    if born_with {
        // The lock belongs to another process.
        duplicate.close();
    } else {
        drop(duplicate);
    }
    is_internal(number)
}

/// Closes numbers of the engine's own in a forked child, and leaves their owners as they are. Each
/// run of adjacent numbers takes one call.
///
/// # Safety
/// Their owners are neither used nor dropped any more.
pub unsafe fn close_under_owners(mut fds: Vec<i32>) {
    fds.retain(|&fd| !same_table::is_parents(fd));
    fds.sort_unstable();
    for run in fds.chunk_by(|a, b| a + 1 == *b) {
        for &fd in run {
            forget_socket(fd);
            moved::forget_number(fd);
        }
        let (first, last) = (run[0], run[run.len() - 1]);
        if files::close_range(first, last, 0).is_err() {
            run.iter().for_each(|&fd| _ = files::close(fd));
        }
    }
}

/// Gives a descriptor to the program.
pub fn release(fd: OwnedFd) -> i32 {
    fd.into_raw_fd()
}

/// Checks that the program has `fd` open, and not for its path only (`fget`).
///
/// # Errors
/// `EBADF` if not.
pub fn check_visible(fd: i32) -> Result<()> {
    if is_hidden(fd) || is_path_only(fd) { Err(Errno::EBADF) } else { Ok(()) }
}
