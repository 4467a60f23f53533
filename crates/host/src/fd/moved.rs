//! Where the engine's own descriptors are. A program may call dup2(2) onto any number, also onto
//! one of these: then the engine's moves to another number first ([`move_away`]). So an owner knows
//! a descriptor by the number that it had at first, and asks here for the one that it has now.
//!
//! A program may also close what is not its own, by ways that are not reported (close_range(2) from
//! code that no entry point knows). A number that was closed so is *lost*: its owner finds a number
//! that is never open, and does not close it. That it is lost shows
//!
//! - when the number is given out again by a call that is reported, or to the engine itself;
//! - when the program puts another file there by dup2(2), or a request names it;
//! - else within a second, in each setup and in every 64th `enter`, and before an eventfd is
//!   written to if the last check is a millisecond old: the page of statistics is a file of its
//!   own, and where its number means another, all numbers are checked ([`check`]).
//!
//! The engine's numbers lie above 512, so a program that closes them unreported must open hundreds
//! of files, or name a number itself, before one means a file of its own.
//!
//! What is left: another thread of the engine's may have asked for a number just before the
//! program's dup2(2) replaces it, and use it just after.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicI32, AtomicU64};

use rustix::fd::{AsRawFd, IntoRawFd};

use crate::calls::files;
use crate::fd::locks;
use crate::fd::numbers::{file, is_internal, mark_internal};
use crate::fd::owned::{InternalFd, floor, highest_free};
use crate::sys;
use softring_uapi::errno::{Errno, Result};

const NUMBERS: usize = 1 << 16;
/// The number of what is lost: no descriptor's, ever.
const LOST: i32 = i32::MAX;
/// Time-stamp cycles between two checks of the page of statistics.
const PAUSE: u64 = 1 << 21;
const FD_CLOEXEC: usize = 1;

/// The numbers, by the number that a descriptor had at first: the one that it has now; 0: the same.
static NOW: [AtomicI32; NUMBERS] = [const { AtomicI32::new(0) }; NUMBERS];
/// The first numbers, by number: the first one of the descriptor that has moved there; 0: none has.
static FIRST: [AtomicI32; NUMBERS] = [const { AtomicI32::new(0) }; NUMBERS];
/// A descriptor whose file is known, by its first number (0: none), and that file.
static KNOWN: AtomicI32 = AtomicI32::new(0);
static KNOWN_FILE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// When it was last checked, in time-stamp cycles.
static CHECKED: AtomicU64 = AtomicU64::new(0);

fn of(table: &'static [AtomicI32; NUMBERS], fd: i32) -> Option<&'static AtomicI32> {
    usize::try_from(fd).ok().and_then(|fd| table.get(fd))
}

/// The number of a descriptor of the engine's, by the one that it had at first.
#[inline]
pub fn now(first: i32) -> i32 {
    match of(&NOW, first).map_or(0, |now| now.load(Relaxed)) {
        0 => first,
        now => now,
    }
}

/// Does a descriptor that is elsewhere now, or lost, go by this number?
pub fn is_taken(first: i32) -> bool {
    of(&NOW, first).is_some_and(|now| now.load(Relaxed) != 0)
}

/// The owner gives a descriptor up; answers its number, unless that is lost.
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

/// As [`forget`], by the number that it has now.
pub fn forget_number(fd: i32) {
    let _ = forget(first_of(fd));
}

fn first_of(fd: i32) -> i32 {
    match of(&FIRST, fd).map_or(0, |first| first.swap(0, Relaxed)) {
        0 => fd,
        first => first,
    }
}

/// A number of the engine's is not its own any more.
pub fn lose(fd: i32) {
    if is_internal(fd)
        && let Some(now) = of(&NOW, first_of(fd))
    {
        now.store(LOST, Relaxed);
        mark_internal(fd, false);
    }
}

/// The program gets number `fd` by dup2(2): what the engine has there moves to another number, of
/// which `moves` is told before owners are. True if `fd` is open still, and to be replaced.
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

/// The file of a descriptor, by which [`check`] knows whether the engine's numbers are its own.
pub fn know(fd: &InternalFd) {
    let (dev, ino) = file(fd.as_raw_fd());
    KNOWN_FILE[0].store(dev, Relaxed);
    KNOWN_FILE[1].store(ino, Relaxed);
    KNOWN.store(fd.first(), Relaxed);
    locks::mark_table(fd.as_raw_fd());
}

/// The number of that descriptor, if it means that file.
pub fn known() -> Option<i32> {
    let first = KNOWN.load(Relaxed);
    let known = (KNOWN_FILE[0].load(Relaxed), KNOWN_FILE[1].load(Relaxed));
    (first != 0 && file(now(first)) == known).then(|| now(first))
}

/// Have numbers of the engine's been closed without a report? Costs a system call.
pub fn check() {
    let first = KNOWN.load(Relaxed);
    let known = (KNOWN_FILE[0].load(Relaxed), KNOWN_FILE[1].load(Relaxed));
    if first != 0 && file(now(first)) != known {
        KNOWN.store(0, Relaxed);
        (3..NUMBERS as i32).filter(|&fd| is_internal(fd)).for_each(lose_unless_ours);
    }
}

fn lose_unless_ours(fd: i32) {
    // All of the engine's own are closed by exec(2).
    if files::number_flags(fd).is_ok_and(|flags| flags & FD_CLOEXEC != 0) {
        return;
    }
    lose(fd);
}

/// Is a number that is marked as the engine's own so still, as far as the kernel tells?
#[cold]
pub fn is_ours_still(fd: i32) -> bool {
    check();
    lose_unless_ours(fd);
    is_internal(fd)
}

/// As [`check`], unless that was done just now.
pub fn check_now_and_then() {
    let (now, last) = (sys::cycles(), CHECKED.load(Relaxed));
    if now.wrapping_sub(last) > PAUSE {
        CHECKED.store(now, Relaxed);
        check();
    }
}
