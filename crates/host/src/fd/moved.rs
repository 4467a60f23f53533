//! Present numbers of the engine's own descriptors. A program may call dup2(2) onto any number,
//! also onto one of these: the engine then first moves its descriptor to another number
//! ([`move_away`]). So an owner knows a descriptor by its first number, and asks here for the
//! present one.
//!
//! A program may also close numbers that are not its own, in ways that are not reported
//! (close_range(2) from code that no entry point knows). A number that was closed so is *lost*: its
//! owner gets a number that is never open, and does not close it. The loss is noticed
//!
//! - when a reported call, or the engine itself, gets the number again;
//! - when the program puts another file there by dup2(2), or a request names the number;
//! - else within a second, in each setup and in every 64th `enter`, and before a write to an
//!   eventfd if the last check is a millisecond old: the page of statistics is a file of its own,
//!   and if its number means another file, all numbers are checked ([`check`]).
//!
//! The engine's numbers start at [`floor`] (usually 512). So a program that closes them unreported
//! must open hundreds of files, or name a number itself, before one means a file of its own.
//!
//! Remaining race: another thread of the engine's may have asked for a number just before the
//! program's dup2(2) replaces it, and use the number just after.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicI32, AtomicU64};

use crate::os::fd::{AsRawFd, IntoRawFd};

use crate::calls::files;
use crate::fd::locks;
use crate::fd::numbers::{file, is_internal, mark_internal};
use crate::fd::owned::{InternalFd, floor, highest_free};
use crate::sys;
use softring_uapi::errno::{Errno, Result};

const NUMBERS: usize = 1 << 16;
/// Number of a lost descriptor: no descriptor ever has it.
const LOST: i32 = i32::MAX;
/// Time-stamp cycles between two checks of the page of statistics.
const PAUSE: u64 = 1 << 21;
const FD_CLOEXEC: usize = 1;

/// Present numbers of descriptors, by their first numbers; 0: the same.
static NOW: [AtomicI32; NUMBERS] = [const { AtomicI32::new(0) }; NUMBERS];
/// First numbers of descriptors, by the numbers that they have moved to; 0: none has.
static FIRST: [AtomicI32; NUMBERS] = [const { AtomicI32::new(0) }; NUMBERS];
/// First number of the descriptor whose file is known (`KNOWN_FILE`); 0: none.
static KNOWN: AtomicI32 = AtomicI32::new(0);
static KNOWN_FILE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// Time of the last check, in time-stamp cycles.
static CHECKED: AtomicU64 = AtomicU64::new(0);

fn of(table: &'static [AtomicI32; NUMBERS], fd: i32) -> Option<&'static AtomicI32> {
    usize::try_from(fd).ok().and_then(|fd| table.get(fd))
}

/// Returns the present number of a descriptor of the engine's, by its first number.
#[inline]
pub fn now(first: i32) -> i32 {
    match of(&NOW, first).map_or(0, |now| now.load(Relaxed)) {
        0 => first,
        now => now,
    }
}

/// Returns whether this is the first number of a descriptor that has moved or is lost.
pub(crate) fn is_taken(first: i32) -> bool {
    of(&NOW, first).is_some_and(|now| now.load(Relaxed) != 0)
}

/// Forgets a descriptor that its owner gives up; returns its present number, unless that is lost.
pub fn forget(first: i32) -> Option<i32> {
    let _ = KNOWN.compare_exchange(first, 0, Relaxed, Relaxed);
    let at = now(first);
    if let Some(now) = of(&NOW, first) {
        now.store(0, Relaxed);
    }
    if at == LOST {
        return None;
    }
    if let Some(moved) = of(&FIRST, at) {
        moved.store(0, Relaxed);
    }
    mark_internal(at, false);
    Some(at)
}

/// Forgets a descriptor by its present number; see [`forget`].
pub(crate) fn forget_number(fd: i32) {
    let _ = forget(first_of(fd));
}

fn first_of(fd: i32) -> i32 {
    match of(&FIRST, fd).map_or(0, |first| first.swap(0, Relaxed)) {
        0 => fd,
        first => first,
    }
}

/// Marks a number of the engine's as lost.
pub fn lose(fd: i32) {
    if is_internal(fd)
        && let Some(now) = of(&NOW, first_of(fd))
    {
        now.store(LOST, Relaxed);
        mark_internal(fd, false);
    }
}

/// Moves the engine's descriptor away from number `fd`, which the program gets by dup2(2). Calls
/// `moves` with the new number before owners see it. Returns true if `fd` is still open, and is to
/// be replaced.
///
/// # Errors
/// `EMFILE`.
pub fn move_away(fd: i32, moves: impl FnOnce(i32)) -> Result<bool> {
    check();
    if !is_internal(fd) {
        return Ok(false);
    }
    let duplicate = |low| files::duplicate(fd, low, true).map(IntoRawFd::into_raw_fd);
    let below = |e| if e == Errno::EBADF { Err(e) } else { duplicate(highest_free().ok_or(e)?) };
    let high = match duplicate(floor()).or_else(below) {
        Ok(high) => high,
        Err(Errno::EBADF) => {
            lose(fd);
            return Ok(false);
        }
        Err(_) => return Err(Errno::EMFILE),
    };
    lose(high);
    let first = first_of(fd);
    moves(high);
    if let (Some(now), Some(moved)) = (of(&NOW, first), of(&FIRST, high)) {
        now.store(high, Relaxed);
        moved.store(first, Relaxed);
        mark_internal(high, true);
        mark_internal(fd, false);
    }
    Ok(true)
}

/// Remembers the file of a descriptor, by which [`check`] knows whether the engine's numbers are
/// its own, and locks the file.
pub fn know(fd: &InternalFd) {
    let (dev, ino) = file(fd.as_raw_fd());
    KNOWN_FILE[0].store(dev, Relaxed);
    KNOWN_FILE[1].store(ino, Relaxed);
    KNOWN.store(fd.first(), Relaxed);
    locks::mark_table(fd.as_raw_fd());
}

/// Returns the number of that descriptor, if it still means that file.
pub fn known() -> Option<i32> {
    let first = KNOWN.load(Relaxed);
    let known = (KNOWN_FILE[0].load(Relaxed), KNOWN_FILE[1].load(Relaxed));
    (first != 0 && file(now(first)) == known).then(|| now(first))
}

/// Marks as lost the numbers of the engine's that were closed unreported. Costs a system call.
pub fn check() {
    let first = KNOWN.load(Relaxed);
    let known = (KNOWN_FILE[0].load(Relaxed), KNOWN_FILE[1].load(Relaxed));
    if first != 0 && file(now(first)) != known {
        KNOWN.store(0, Relaxed);
        (3..NUMBERS as i32).filter(|&fd| is_internal(fd)).for_each(lose_unless_ours);
    }
}

fn lose_unless_ours(fd: i32) {
    // All of the engine's own are close-on-exec.
    if files::number_flags(fd).is_ok_and(|flags| flags & FD_CLOEXEC != 0) {
        return;
    }
    lose(fd);
}

/// Returns whether a number that is marked as the engine's own still is, as far as the kernel
/// tells.
#[cold]
pub(crate) fn is_ours_still(fd: i32) -> bool {
    check();
    lose_unless_ours(fd);
    is_internal(fd)
}

/// Calls [`check`], unless the last check was just now.
pub fn check_now_and_then() {
    let (now, last) = (sys::cycles(), CHECKED.load(Relaxed));
    if now.wrapping_sub(last) > PAUSE {
        CHECKED.store(now, Relaxed);
        check();
    }
}
