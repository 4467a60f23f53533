//! Facts about descriptor numbers that need no ring: which are rings, which are the engine's own,
//! which file a number means, and what the entry points promise to report of them.
//!
//! A bit says that a number was a ring when something was last reported of it. Whether it still is,
//! and what numbers beyond the bits are, only the ring table knows (`ring::table`), which lies
//! above: it says how to ask ([`Answers`]) when it enters its first ring.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64};
use std::sync::OnceLock;

use crate::fd::remembered::forget_kind;
use crate::sys::borrow;

/// Numbers that have a bit in [`RINGS`].
const NUMBERS: usize = 1 << 16;
/// Numbers that are rings, one bit each, so that whoever closes, duplicates or polls something else
/// takes no lock. Changed with the table, and cleared before a number is closed.
static RINGS: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];

/// Words of a bit for each number.
pub const WORDS: usize = 1024;
/// The engine's own descriptors, one bit each.
static INTERNAL: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
/// The lowest of them that there ever was.
static LOWEST: AtomicI32 = AtomicI32::new(i32::MAX);

/// The entry points report every close: kinds of descriptors may be remembered.
static REPORTED: AtomicBool = AtomicBool::new(false);

/// The entry points report every close before it happens.
static ALL_REPORTED: AtomicBool = AtomicBool::new(false);

/// What the ring table alone can say of a number. Until it has a ring it says nothing of any.
static ANSWERS: OnceLock<Answers> = OnceLock::new();

/// Questions to the ring table.
#[derive(Debug)]
pub struct Answers {
    /// Has it a ring under this number?
    pub has: fn(i32) -> bool,
    /// Does this number mean the file that it had when its ring was entered?
    pub is_live: fn(i32) -> bool,
}

/// The ring table is about to enter a ring. It holds its lock, so that no fork, and no handler of
/// the thread's, comes in the middle.
pub fn answer_by(answers: Answers) {
    let _ = ANSWERS.set(answers);
}

fn bit(fd: i32) -> Option<(&'static AtomicU64, u64)> {
    let at = usize::try_from(fd).ok()?;
    Some((RINGS.get(at / 64)?, 1 << (at % 64)))
}

/// A number is a ring from now on, or is none.
pub fn mark_ring(fd: i32, on: bool) {
    match bit(fd) {
        Some((word, bit)) if on => word.fetch_or(bit, SeqCst),
        Some((word, bit)) => word.fetch_and(!bit, SeqCst),
        None => 0,
    };
}

/// Was `fd` a ring of ours when something was last reported of it?
#[inline]
pub fn is_known_ring(fd: i32) -> bool {
    if let Some((word, bit)) = bit(fd) {
        return word.load(SeqCst) & bit != 0;
    }
    fd >= 0 && ANSWERS.get().is_some_and(|table| (table.has)(fd))
}

/// Is `fd` a ring of ours? Where not every close is reported, this costs a system call for a number
/// that was a ring.
#[inline]
pub fn is_ring(fd: i32) -> bool {
    is_known_ring(fd) && (closes_all_reported() || is_live_ring(fd))
}

/// Is `fd` a ring of ours right now, and not a number that was reused behind our back?
pub fn is_live_ring(fd: i32) -> bool {
    ANSWERS.get().is_some_and(|table| (table.is_live)(fd))
}

/// The file that a number means: device and inode; zeroes if it is not open.
pub type File = (u64, u64);

/// The file that a number means.
pub fn file(fd: i32) -> File {
    let Some(fd) = borrow(fd) else { return File::default() };
    crate::substitute::fstat(fd).map_or(File::default(), |s| (s.st_dev, s.st_ino))
}

/// Is `fd` one of the engine's own descriptors, which the program must not close?
#[inline]
pub fn is_internal(fd: i32) -> bool {
    fd >= LOWEST.load(Relaxed) && is_marked(fd)
}

fn is_marked(fd: i32) -> bool {
    let Ok(fd) = usize::try_from(fd) else { return false };
    INTERNAL.get(fd / 64).is_some_and(|w| w.load(Relaxed) >> (fd % 64) & 1 == 1)
}

/// The engine's own, one bit each.
pub fn internal_words() -> &'static [AtomicU64; WORDS] {
    &INTERNAL
}

/// All of the engine's own.
pub fn all_internal() -> impl Iterator<Item = i32> {
    marked(&INTERNAL)
}

/// The numbers whose bit is set.
pub fn marked(words: &[AtomicU64]) -> impl Iterator<Item = i32> {
    words.iter().enumerate().flat_map(|(at, word)| {
        let set = word.load(SeqCst);
        (0..64).filter(move |bit| set >> bit & 1 == 1).map(move |bit| (at * 64 + bit) as i32)
    })
}

/// A number is the engine's own from now on, or is not.
pub fn mark_internal(number: i32, on: bool) {
    let Ok(fd) = usize::try_from(number) else { return };
    let Some(word) = INTERNAL.get(fd / 64) else { return };
    if on {
        // What is remembered of the program's file there says nothing of this one.
        forget_kind(number);
        LOWEST.fetch_min(number, Relaxed);
        // See `exec`: whoever goes through them sees it, or is seen.
        word.fetch_or(1 << (fd % 64), SeqCst);
    } else {
        word.fetch_and(!(1 << (fd % 64)), Relaxed);
    }
}

/// The entry points promise to report every close, dup and F_SETFL, so that the engine may remember
/// what a descriptor is.
pub fn closes_are_reported() {
    REPORTED.store(true, Relaxed);
}

/// Is every close of a descriptor of the program's reported?
pub fn closes_reported() -> bool {
    REPORTED.load(Relaxed)
}

/// The entry points promise more: to report every close before it happens, without exception.
pub fn closes_are_all_reported(all: bool) {
    ALL_REPORTED.store(all, Relaxed);
}

/// Does a number mean the same file until its close is reported?
pub fn closes_all_reported() -> bool {
    ALL_REPORTED.load(Relaxed)
}
