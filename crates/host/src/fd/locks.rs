//! POSIX locks, and duplicates that stay open because of them.
//!
//! A process loses its POSIX locks on a file when it closes any descriptor of that file, so also
//! when the engine closes a duplicate (fcntl(2), "Advisory record locking"). So a duplicate of a
//! file of the program's is closed only after `F_OFD_GETLK` has found no lock: it asks on behalf of
//! the open file description, to which the process's own locks are foreign. `lock_race` covers a
//! lock that is set between the question and the close. If there may be a lock, the duplicate is
//! retained until the program closes a descriptor of the file, which ends the locks in any case, or
//! until a sweep finds the lock gone ([`sweep`]). A request or a table that needs a duplicate of
//! the same description takes a retained one, so their number does not grow.
//!
//! No lock of ours guards the retained duplicates, because signal handlers may call close(2): the
//! thread that clears the bit of a retained number becomes its owner.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::calls::files::{self, Flock, Lock};
use crate::fd::moved::now;
use crate::fd::numbers::{File, WORDS, file, marked};
use crate::fd::owned::InternalFd;
use crate::fork::{AtFork, Child};
use crate::sys;

const F_RDLCK: i16 = 0;
const F_WRLCK: i16 = 1;
const F_UNLCK: i16 = 2;
/// Most questions about one file: if other processes have more locks on it, one of ours is assumed.
const QUESTIONS: u32 = 16;

/// Retained duplicates, one bit each.
static RETAINED: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
/// Count of the retained duplicates.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Returns the first lock that the kernel finds in a range of the file of `fd`, other than those of
/// the open file description.
fn lock_in(fd: i32, first: i64, last: i64) -> Option<Flock> {
    ask(Lock::GetOfOthers, fd, first, last)
}

fn ask(how: Lock, fd: i32, first: i64, last: i64) -> Option<Flock> {
    let len = if last == i64::MAX { 0 } else { last - first + 1 };
    let mut lock = Flock { kind: F_WRLCK, start: first, len, ..Flock::default() };
    let asked = files::lock(fd, how, &mut lock);
    (asked.is_ok() && lock.kind != F_UNLCK).then_some(lock)
}

/// Returns whether this process may have a POSIX lock on the file of `fd`.
pub fn any(fd: i32) -> bool {
    any_in(fd, 0, i64::MAX, &mut QUESTIONS.clone())
}

fn any_in(fd: i32, first: i64, last: i64, left: &mut u32) -> bool {
    let Some(lock) = lock_in(fd, first, last) else { return false };
    *left -= 1;
    let end = if lock.len == 0 { i64::MAX } else { lock.start + lock.len - 1 };
    // Another's read lock may hide one of ours.
    if *left == 0 || lock.kind == F_RDLCK || is_own(fd, &lock, end) {
        return true;
    }
    lock.start > first && any_in(fd, first, lock.start - 1, left)
        || end < last && any_in(fd, end + 1, last, left)
}

/// Returns whether the lock is this process's. Locks belong to the table of descriptors, which
/// another process may share (CLONE_FILES): `F_GETLK` does not report the locks of the caller's own
/// table.
fn is_own(fd: i32, lock: &Flock, end: i64) -> bool {
    lock.pid == crate::os::process::getpid() || ask(Lock::Get, fd, lock.start, end).is_none()
}

/// Locks a file of the engine's own, for [`is_own_table`].
pub(crate) fn mark_table(fd: i32) {
    let mut lock = Flock { kind: F_WRLCK, ..Flock::default() };
    let _ = files::lock(fd, Lock::Set, &mut lock);
}

/// Returns whether `fd` was locked through the table of descriptors that this process has; `None`
/// if `fd` is not locked at all.
pub(crate) fn is_own_table(fd: i32) -> Option<bool> {
    lock_in(fd, 0, i64::MAX).map(|_| ask(Lock::Get, fd, 0, i64::MAX).is_none())
}

fn word(fd: i32) -> Option<(&'static AtomicU64, u64)> {
    let at = usize::try_from(fd).ok()?;
    Some((RETAINED.get(at / 64)?, 1 << (at % 64)))
}

/// Retains a duplicate instead of closing it: `fd` has no owner ([`InternalFd::take_back`]).
pub fn retain(fd: i32) {
    if let Some((word, bit)) = word(fd) {
        COUNT.fetch_add(1, Relaxed);
        word.fetch_or(bit, AcqRel);
    }
}

/// Takes a retained duplicate; `None` if another thread was faster.
fn claim(fd: i32) -> Option<InternalFd> {
    let (word, bit) = word(fd)?;
    if word.fetch_and(!bit, AcqRel) & bit == 0 {
        return None;
    }
    COUNT.fetch_sub(1, Relaxed);
    InternalFd::take_back(fd)
}

fn retained() -> impl Iterator<Item = i32> {
    let some = if COUNT.load(Relaxed) == 0 { 0 } else { WORDS };
    marked(&RETAINED[..some])
}

/// Takes a retained duplicate of the open file of the program's `fd`.
pub(crate) fn reuse(fd: i32) -> Option<InternalFd> {
    let mut same = retained().filter(|&own| sys::same_open_file(now(own), fd) == Some(true));
    same.find_map(claim)
}

/// Returns whether any duplicate is retained.
pub(crate) fn any_retained() -> bool {
    COUNT.load(Relaxed) > 0
}

/// Closes the retained duplicates of the file of `fd`. The program is about to close `fd`, which
/// ends its locks on that file.
pub fn closing(fd: i32) {
    if !any_retained() {
        return;
    }
    let closed = file(fd);
    if closed != File::default() {
        let same = retained().filter(|&own| file(now(own)) == closed);
        same.filter_map(claim).for_each(InternalFd::close);
    }
}

/// Closes retained duplicates of files without locks.
pub fn sweep() {
    // The drop retains a duplicate again if its file has a lock by then.
    retained().filter(|&fd| !any(now(fd))).filter_map(claim).for_each(drop);
}

pub const AT_FORK: AtFork = AtFork::new(in_child);

/// Gives up the retained duplicates. A child has none of its parent's locks, but may have locks of
/// its own if the fork is noticed late.
fn in_child(child: &Child) {
    let close = if child.late { drop } else { InternalFd::close };
    retained().filter_map(claim).for_each(close);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fd::dup_internal;
    use crate::os::fd::AsRawFd;

    fn set_lock(fd: &impl AsRawFd, kind: i16, start: i64, len: i64) {
        let mut lock = Flock { kind, start, len, ..Flock::default() };
        assert_eq!(files::lock(fd.as_raw_fd(), Lock::Set, &mut lock), Ok(()));
    }

    /// One test at a time: a number that one gives up may be another's at once.
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    fn file_in_memory() -> crate::os::fd::OwnedFd {
        crate::substitute::memfd("f", false).unwrap()
    }

    #[test]
    fn a_duplicate_of_a_locked_file_is_retained_and_used_again() {
        let _one = ONE.lock();
        let file = file_in_memory();
        let dup = dup_internal(file.as_raw_fd()).unwrap();
        let number = dup.as_raw_fd();
        set_lock(&file, F_WRLCK, 10, 5);
        assert!(any(number));
        drop(dup);
        assert!(any(number), "it is open, and the lock is there");
        let again = dup_internal(file.as_raw_fd()).unwrap();
        assert_eq!(again.as_raw_fd(), number);
        drop(again);
        sweep();
        assert!(any(number), "as long as there is the lock");
        set_lock(&file, F_UNLCK, 0, 0);
        sweep();
        assert!(!retained().any(|fd| fd == number));
    }

    #[test]
    fn a_close_releases_the_retained_duplicate() {
        let _one = ONE.lock();
        let file = file_in_memory();
        set_lock(&file, F_RDLCK, 0, 0);
        let dup = dup_internal(file.as_raw_fd()).unwrap();
        let number = dup.as_raw_fd();
        drop(dup);
        assert!(retained().any(|fd| fd == number));
        closing(file.as_raw_fd());
        assert!(!retained().any(|fd| fd == number));
        assert!(!any(file.as_raw_fd()), "as the close would");
    }
}
