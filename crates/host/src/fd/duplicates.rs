//! Duplicates of rings that a signal handler made while its own thread, or a fork, held the ring
//! table. They are kept here until the table is next written. Whoever looks for such a number reads
//! these slots while holding the table for reading, so no number is in neither place.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::SeqCst;

/// More than handlers interrupt each other.
const SLOTS: usize = 16;
/// The new number plus one, above the number of the ring in the table; 0: free.
static LEFT: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];

fn numbers(word: u64) -> Option<(i32, i32)> {
    (word != 0).then(|| ((word >> 32) as i32 - 1, word as u32 as i32))
}

/// Leaves a duplicate; false if there is no slot.
pub fn leave(new: i32, old: i32) -> bool {
    let word = u64::from(new.cast_unsigned() + 1) << 32 | u64::from(old.cast_unsigned());
    LEFT.iter().any(|slot| slot.compare_exchange(0, word, SeqCst, SeqCst).is_ok())
}

fn left() -> impl Iterator<Item = (i32, i32)> {
    LEFT.iter().filter_map(|slot| numbers(slot.load(SeqCst)))
}

/// The number by which the table knows the ring of `fd`.
#[cold]
pub fn original(fd: i32) -> i32 {
    left().find(|&(new, _)| new == fd).map_or(fd, |(_, old)| old)
}

/// One of those that are left.
pub fn any(within: impl Fn(i32) -> bool) -> Option<i32> {
    left().map(|(new, _)| new).find(|&fd| within(fd))
}

/// `fd` is closed.
pub fn forget(fd: i32) {
    for slot in &LEFT {
        let word = slot.load(SeqCst);
        if numbers(word).is_some_and(|(new, _)| new == fd) {
            let _ = slot.compare_exchange(word, 0, SeqCst, SeqCst);
        }
    }
}

/// Takes them all: (new, old). The table is held for writing.
pub fn take() -> impl Iterator<Item = (i32, i32)> {
    LEFT.iter()
        .filter(|slot| slot.load(SeqCst) != 0)
        .filter_map(|slot| numbers(slot.swap(0, SeqCst)))
}
