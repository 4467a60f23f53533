//! Facts about descriptor numbers that need no ring: which numbers are rings, which are the
//! engine's own, which file a number means, and what the entry points promise to report.
//!
//! A bit says that a number was a ring when something was last reported of it. Only the ring table
//! (`ring::table`) knows whether the number still is one, and whether numbers beyond the bits are.
//! The table belongs to a higher layer: it passes its functions ([`Answers`]) when it enters its
//! first ring.

use crate::lock::OnceLock;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64};

use crate::fd::remembered::forget_kind;
use crate::sys::borrow;

/// Bound of the numbers that have a bit in [`RINGS`].
const NUMBERS: usize = 1 << 16;
/// Numbers that are rings, one bit each, so that a close, dup or poll of another descriptor takes
/// no lock. Changed with the table, and cleared before a number is closed.
static RINGS: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];

/// Words of a bit set of numbers.
pub const WORDS: usize = 1024;
/// The engine's own descriptors, one bit each.
static INTERNAL: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
/// Lowest number that the engine has ever had.
static LOWEST: AtomicI32 = AtomicI32::new(i32::MAX);

/// Flag, set if the entry points report every close: kinds of descriptors may be remembered.
static REPORTED: AtomicBool = AtomicBool::new(false);

/// Flag, set if the entry points report every close before it happens.
static ALL_REPORTED: AtomicBool = AtomicBool::new(false);

/// Functions of the ring table; before its first ring no number is a ring.
static ANSWERS: OnceLock<Answers> = OnceLock::new();

/// Questions that only the ring table can answer.
#[derive(Debug)]
pub struct Answers {
    /// Returns whether the table has a ring under this number.
    pub has: fn(i32) -> bool,
    /// Returns whether this number means the file that it had when its ring was entered.
    pub is_live: fn(i32) -> bool,
}

/// Sets the functions of the ring table, which is about to enter a ring. The caller holds the
/// table's lock, so no fork and no handler of the thread interrupts this.
pub fn answer_by(answers: Answers) {
    let _ = ANSWERS.set(answers);
}

fn bit(fd: i32) -> Option<(&'static AtomicU64, u64)> {
    let at = usize::try_from(fd).ok()?;
    Some((RINGS.get(at / 64)?, 1 << (at % 64)))
}

/// Marks a number as a ring, or as none.
pub fn mark_ring(fd: i32, on: bool) {
    match bit(fd) {
        Some((word, bit)) if on => word.fetch_or(bit, SeqCst),
        Some((word, bit)) => word.fetch_and(!bit, SeqCst),
        None => 0,
    };
}

/// Returns whether `fd` was a ring of ours when something was last reported of it.
#[inline]
pub fn is_known_ring(fd: i32) -> bool {
    if let Some((word, bit)) = bit(fd) {
        return word.load(SeqCst) & bit != 0;
    }
    fd >= 0 && ANSWERS.get().is_some_and(|table| (table.has)(fd))
}

/// Returns whether `fd` is a ring of ours. If not every close is reported, this costs a system call
/// for a number that was a ring.
#[inline]
pub fn is_ring(fd: i32) -> bool {
    is_known_ring(fd) && (closes_all_reported() || is_live_ring(fd))
}

/// Returns whether `fd` is a ring of ours right now, and not a number that was reused unreported.
pub fn is_live_ring(fd: i32) -> bool {
    ANSWERS.get().is_some_and(|table| (table.is_live)(fd))
}

/// File that a number means: device and inode; zeroes if the number is not open.
pub type File = (u64, u64);

/// Returns the file that a number means.
pub fn file(fd: i32) -> File {
    let Some(fd) = borrow(fd) else { return File::default() };
    crate::substitute::fstat(fd).map_or(File::default(), |s| (s.st_dev, s.st_ino))
}

/// Returns whether `fd` is one of the engine's own descriptors, which the program must not close.
#[inline]
pub fn is_internal(fd: i32) -> bool {
    fd >= LOWEST.load(Relaxed) && is_marked(fd)
}

fn is_marked(fd: i32) -> bool {
    let Ok(fd) = usize::try_from(fd) else { return false };
    INTERNAL.get(fd / 64).is_some_and(|w| w.load(Relaxed) >> (fd % 64) & 1 == 1)
}

/// Returns the engine's own numbers, one bit each.
pub(crate) fn internal_words() -> &'static [AtomicU64; WORDS] {
    &INTERNAL
}

/// Returns the engine's own numbers.
pub(crate) fn all_internal() -> impl Iterator<Item = i32> {
    marked(&INTERNAL)
}

/// Returns the numbers whose bit is set.
pub fn marked(words: &[AtomicU64]) -> impl Iterator<Item = i32> {
    words.iter().enumerate().flat_map(|(at, word)| {
        let set = word.load(SeqCst);
        (0..64).filter(move |bit| set >> bit & 1 == 1).map(move |bit| (at * 64 + bit) as i32)
    })
}

/// Marks a number as the engine's own, or as not.
pub(crate) fn mark_internal(number: i32, on: bool) {
    let Ok(fd) = usize::try_from(number) else { return };
    let Some(word) = INTERNAL.get(fd / 64) else { return };
    if on {
        // Facts that are remembered of the number are those of a file of the program's.
        forget_kind(number);
        LOWEST.fetch_min(number, Relaxed);
        // See `exec`: either a thread that execs sees this bit, or its announcement is seen.
        word.fetch_or(1 << (fd % 64), SeqCst);
    } else {
        word.fetch_and(!(1 << (fd % 64)), Relaxed);
    }
}

/// Notes that the entry points report every close, dup and F_SETFL, so that the engine may remember
/// the kind of a descriptor.
pub fn closes_are_reported() {
    REPORTED.store(true, Relaxed);
}

/// Returns whether every close of a descriptor of the program's is reported.
pub fn closes_reported() -> bool {
    REPORTED.load(Relaxed)
}

/// Notes whether the entry points report every close before it happens, without exception.
pub fn closes_are_all_reported(all: bool) {
    ALL_REPORTED.store(all, Relaxed);
}

/// Returns whether a number means the same file until its close is reported.
pub fn closes_all_reported() -> bool {
    ALL_REPORTED.load(Relaxed)
}
