//! Duplicates of rings that a signal handler made while its own thread, or a fork, held the ring
//! table. They stay here until the table is next written. A search for such a number reads these
//! slots while it holds the table for reading, so no number is in neither place.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::SeqCst;

/// Count of slots: more than the depth to which handlers nest.
const SLOTS: usize = 16;
/// Duplicates: the new number plus one in the upper half, the number of the ring in the table in
/// the lower half; 0: free.
static LEFT: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];

fn numbers(word: u64) -> Option<(i32, i32)> {
    (word != 0).then(|| ((word >> 32) as i32 - 1, word as u32 as i32))
}

/// Stores a duplicate; returns false if no slot is free.
pub fn leave(new: i32, old: i32) -> bool {
    let word = u64::from(new.cast_unsigned() + 1) << 32 | u64::from(old.cast_unsigned());
    LEFT.iter().any(|slot| slot.compare_exchange(0, word, SeqCst, SeqCst).is_ok())
}

fn left() -> impl Iterator<Item = (i32, i32)> {
    LEFT.iter().filter_map(|slot| numbers(slot.load(SeqCst)))
}

/// Returns the number by which the table knows the ring of `fd`.
#[cold]
pub fn original(fd: i32) -> i32 {
    left().find(|&(new, _)| new == fd).map_or(fd, |(_, old)| old)
}

/// Returns a stored number for which `within` is true.
pub fn any(within: impl Fn(i32) -> bool) -> Option<i32> {
    left().map(|(new, _)| new).find(|&fd| within(fd))
}

/// Frees the slot of `fd`, which is closed.
pub fn forget(fd: i32) {
    for slot in &LEFT {
        let word = slot.load(SeqCst);
        if numbers(word).is_some_and(|(new, _)| new == fd) {
            let _ = slot.compare_exchange(word, 0, SeqCst, SeqCst);
        }
    }
}

/// Takes all duplicates out, as (new, old). The caller holds the table for writing.
pub fn take() -> impl Iterator<Item = (i32, i32)> {
    LEFT.iter()
        .filter(|slot| slot.load(SeqCst) != 0)
        .filter_map(|slot| numbers(slot.swap(0, SeqCst)))
}
