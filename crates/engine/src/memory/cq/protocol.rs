//! The steps on a completion queue's words, generic over the words: those of a ring, or loom's
//! (`verify::overflow`). Every caller holds the ring's lock.

use super::{Cqe, Overflow};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use softring_uapi::IORING_SQ_CQ_OVERFLOW;

/// A word that the program shares, or the engine's copy of one.
pub(crate) trait Word {
    fn load(&self, order: Ordering) -> u32;
    fn store(&self, value: u32, order: Ordering);
    fn set(&self, bits: u32, order: Ordering);
    fn clear(&self, bits: u32, order: Ordering);
}

impl Word for AtomicU32 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    #[inline(always)]
    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }

    #[inline(always)]
    fn set(&self, bits: u32, order: Ordering) {
        self.fetch_or(bits, order);
    }

    #[inline(always)]
    fn clear(&self, bits: u32, order: Ordering) {
        self.fetch_and(!bits, order);
    }
}

/// Words of a completion queue, and the steps on them.
pub(crate) trait Queue {
    type Word: Word;

    /// Returns the number of CQEs that the program has consumed.
    fn head(&self) -> &Self::Word;
    /// Returns the number of CQEs that the program may see.
    fn tail(&self) -> &Self::Word;
    /// Returns the number of CQEs filled: ahead of the tail until [`commit`](Self::commit).
    fn filled(&self) -> &Self::Word;
    /// Returns the SQ ring's flags.
    fn flags(&self) -> &Self::Word;
    /// Returns the number of slots, a power of two.
    fn entries(&self) -> u32;
    /// Returns whether the ring has CQEs of 32 bytes.
    fn is_wide(&self) -> bool;
    /// Fills one CQE on a ring with CQEs of 32 bytes; see [`fill`](Self::fill).
    fn fill_wide(&self, cqe: &Cqe) -> bool;
    /// Writes a slot.
    fn put(&self, slot: u32, cqe: &Cqe);
    /// Counts a CQE that is lost for lack of memory.
    fn lose(&self);

    #[inline(always)]
    fn room(&self) -> u32 {
        let used = self.filled().load(Relaxed).wrapping_sub(self.head().load(Acquire));
        self.entries().saturating_sub(used)
    }

    /// Fills one CQE behind the tail; false if there is no room.
    #[inline(always)]
    fn fill(&self, cqe: &Cqe) -> bool {
        if self.is_wide() {
            return self.fill_wide(cqe);
        }
        if self.room() == 0 {
            return false;
        }
        let word = self.filled();
        let tail = word.load(Relaxed);
        self.put(tail & (self.entries() - 1), cqe);
        word.store(tail.wrapping_add(1), Relaxed);
        true
    }

    /// Adds a CQE to the queue, or to the overflow list; false for the latter.
    #[inline(always)]
    fn add(&self, overflow: &mut Overflow, cqe: Cqe) -> bool {
        let fits = overflow.is_empty() && self.fill(&cqe);
        if !fits {
            self.keep(overflow, cqe);
        }
        fits
    }

    /// Adds a CQE to the overflow list.
    #[cold]
    fn keep(&self, overflow: &mut Overflow, cqe: Cqe) {
        if overflow.list.try_reserve(1).is_err() {
            // No memory for the CQE: counted as lost, as in the kernel.
            return self.lose();
        }
        overflow.list.push_back(cqe);
        self.flags().set(IORING_SQ_CQ_OVERFLOW, Relaxed);
    }

    /// Moves overflowed CQEs into the queue, in order, as far as there is room, and publishes all
    /// filled CQEs; true if there were any.
    fn flush(&self, overflow: &mut Overflow) -> bool {
        while let Some(cqe) = overflow.list.front() {
            if !self.fill(cqe) {
                break;
            }
            overflow.list.pop_front();
        }
        if overflow.is_empty() {
            self.flags().clear(IORING_SQ_CQ_OVERFLOW, Relaxed);
        }
        self.commit()
    }

    /// Publishes filled CQEs; true if there were any.
    #[inline(always)]
    fn commit(&self) -> bool {
        let (tail, word) = (self.filled().load(Relaxed), self.tail());
        if word.load(Relaxed) == tail {
            return false;
        }
        word.store(tail, Release);
        true
    }
}
