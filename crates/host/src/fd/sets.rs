//! Epoll sets of the program that hold rings, by number. A set is *quiet* while it gets no events
//! of its rings: a thread that waits on it drives the rings itself. Whoever waits in another way
//! (poll(2) of the set, a set in the set, a request of a ring, a duplicate of the number) has the
//! set revealed first: then it gets the events of its rings.
//!
//! A set may have several numbers (mio adds by a duplicate of the number that it waits by). Numbers
//! of one file have the same id, from the first time that one of them is named or duplicated.

use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use crate::lock::OnceLock;

/// Count of numbers that are known, from 0 on; a set with a higher number is never quiet.
const NUMBERS: usize = 1 << 12;

/// Bit of ids of numbers that are not known.
const UNKNOWN: u32 = 1 << 31;

/// Numbers as bits.
struct Numbers([AtomicU64; NUMBERS / 64]);

struct Sets {
    /// Ids of files by number; 0: none yet.
    ids: [AtomicU32; NUMBERS],
    /// The last id given.
    last: AtomicU32,
    /// Sets that hold a ring.
    holds: Numbers,
    quiet: Numbers,
    /// Numbers that others than epoll_wait(2) wait for, until they are closed.
    shared: Numbers,
    /// Flag, set once there has been a quiet set.
    used: AtomicBool,
    /// Flag, set once a number in `shared` has been in `holds` as well.
    held_shared: AtomicBool,
    /// Gives a quiet set the events of its rings; of who stands in front of the engine.
    reveal: OnceLock<fn(i32)>,
}

static SETS: Sets = Sets {
    ids: [const { AtomicU32::new(0) }; NUMBERS],
    last: AtomicU32::new(0),
    holds: Numbers::new(),
    quiet: Numbers::new(),
    shared: Numbers::new(),
    used: AtomicBool::new(false),
    held_shared: AtomicBool::new(false),
    reveal: OnceLock::new(),
};

impl Numbers {
    const fn new() -> Numbers {
        Numbers([const { AtomicU64::new(0) }; NUMBERS / 64])
    }

    fn has(&self, fd: i32) -> bool {
        let at = fd.cast_unsigned() as usize;
        at < NUMBERS && self.0[at / 64].load(SeqCst) & 1 << (at % 64) != 0
    }

    fn set(&self, fd: i32, on: bool) {
        let at = fd.cast_unsigned() as usize;
        if let Some(word) = self.0.get(at / 64) {
            let bit = 1 << (at % 64);
            if on {
                word.fetch_or(bit, SeqCst)
            } else {
                word.fetch_and(!bit, SeqCst)
            };
        }
    }
}

/// Returns whether a set with this number may be quiet.
pub fn can_be_quiet(fd: i32) -> bool {
    is_known(fd) && !SETS.shared.has(fd)
}

/// Returns whether the number is below the limit of those that are known.
pub fn is_known(fd: i32) -> bool {
    usize::try_from(fd).is_ok_and(|at| at < NUMBERS)
}

fn known_id(fd: i32) -> u32 {
    let id = SETS.ids.get(fd.cast_unsigned() as usize);
    id.map_or(0, |id| id.load(SeqCst))
}

/// Returns the id of a number's file. A number that is not known has an id of its own.
pub fn id(fd: i32) -> u32 {
    let number = fd.cast_unsigned();
    let Some(id) = SETS.ids.get(number as usize) else { return UNKNOWN | number };
    if id.load(SeqCst) == 0 {
        let new = SETS.last.fetch_add(1, SeqCst) + 1;
        let _ = id.compare_exchange(0, new, SeqCst, SeqCst);
    }
    id.load(SeqCst)
}

/// Returns a number of the file with this id.
pub fn number(id: u32) -> Option<i32> {
    if id & UNKNOWN != 0 { Some((id & !UNKNOWN).cast_signed()) } else { numbers(id).next() }
}

fn numbers(id: u32) -> impl Iterator<Item = i32> {
    (0..NUMBERS as i32).filter(move |&fd| id != 0 && known_id(fd) == id)
}

/// Records that `new` has become a duplicate of `old`.
#[inline]
pub fn duplicated(old: i32, new: i32) {
    // Most are as they were when the number was last a duplicate: a look costs less than a write.
    let same = |numbers: &Numbers| numbers.has(new) == numbers.has(old);
    let is_recorded = is_known(old)
        && is_known(new)
        && known_id(old) != 0
        && known_id(old) == known_id(new)
        && [&SETS.holds, &SETS.quiet, &SETS.shared].into_iter().all(same);
    if !is_recorded {
        record(old, new);
    }
}

#[cold]
#[inline(never)]
fn record(old: i32, new: i32) {
    if !is_known(old) || !is_known(new) {
        return share(old);
    }
    let id = id(old);
    if known_id(new) != id {
        SETS.ids[new as usize].store(id, SeqCst);
    }
    for numbers in [&SETS.holds, &SETS.quiet, &SETS.shared] {
        if numbers.has(new) != numbers.has(old) {
            numbers.set(new, numbers.has(old));
        }
    }
}

/// Records that `fd` may be waited for in another way than by epoll_wait(2): a set is not quiet
/// from now on.
#[inline]
pub fn share(fd: i32) {
    if is_known(fd) && !SETS.shared.has(fd) {
        share_first(fd);
    }
}

#[cold]
fn share_first(fd: i32) {
    SETS.shared.set(fd, true);
    numbers(known_id(fd)).for_each(|other| SETS.shared.set(other, true));
    if holds_ring(fd) {
        SETS.held_shared.store(true, SeqCst);
    }
    reveal(fd);
}

/// Returns whether anything is recorded of the number.
#[inline]
pub fn knows(fd: i32) -> bool {
    known_id(fd) != 0 || SETS.shared.has(fd)
}

/// Records that the number is about to be closed.
pub fn closes(fd: i32) {
    if !is_known(fd) {
        return;
    }
    for numbers in [&SETS.holds, &SETS.quiet, &SETS.shared] {
        if numbers.has(fd) {
            numbers.set(fd, false);
        }
    }
    if known_id(fd) != 0 {
        SETS.ids[fd as usize].store(0, SeqCst);
    }
}

/// Returns whether `fd` is a set that holds a ring.
#[inline]
pub fn holds_ring(fd: i32) -> bool {
    SETS.holds.has(fd)
}

/// Returns whether `fd` is a quiet set.
#[inline]
pub fn is_quiet(fd: i32) -> bool {
    SETS.quiet.has(fd)
}

/// Returns whether there is a quiet set.
pub fn any_quiet() -> bool {
    SETS.used.load(SeqCst) && SETS.quiet.0.iter().any(|word| word.load(SeqCst) != 0)
}

/// Returns whether there has been a set with a ring that others than epoll_wait(2) wait for.
pub fn any_shared() -> bool {
    SETS.held_shared.load(SeqCst)
}

/// Records whether the set with this id holds a ring, and whether it is quiet.
pub fn mark(id: u32, holds: bool, quiet: bool) {
    if quiet {
        SETS.used.store(true, SeqCst);
    }
    for fd in numbers(id) {
        if holds && SETS.shared.has(fd) {
            SETS.held_shared.store(true, SeqCst);
        }
        SETS.holds.set(fd, holds);
        SETS.quiet.set(fd, quiet);
    }
}

/// Registers the function that gives a quiet set the events of its rings.
pub fn on_reveal(reveal: fn(i32)) {
    let _ = SETS.reveal.set(reveal);
}

/// Gives the set `fd` the events of its rings, if it is quiet.
#[inline]
pub fn reveal(fd: i32) {
    if is_quiet(fd)
        && let Some(reveal) = SETS.reveal.get()
    {
        reveal(fd);
    }
}

/// Gives every quiet set the events of its rings.
pub fn reveal_all() {
    (0..NUMBERS as i32).filter(|&fd| is_quiet(fd)).for_each(reveal);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_known_by_each_of_its_numbers() {
        let set = id(4095);
        mark(set, true, true);
        assert!(holds_ring(4095) && is_quiet(4095) && any_quiet());
        assert!(!is_quiet(4094) && !is_quiet(-1) && !is_quiet(4096));
        duplicated(4095, 4093);
        assert!(is_quiet(4093) && id(4093) == set && number(set) == Some(4093));
        mark(set, true, false);
        assert!(holds_ring(4093) && !is_quiet(4095) && !is_quiet(4093));
        closes(4095);
        assert!(!holds_ring(4095) && holds_ring(4093) && number(set) == Some(4093));
        assert!(can_be_quiet(4093) && !is_known(4096));
        assert!(!any_shared());
        share(4093);
        assert!(!can_be_quiet(4093) && can_be_quiet(4095) && any_shared());
        closes(4093);
        assert!(number(set).is_none() && id(4095) != set);
    }
}
