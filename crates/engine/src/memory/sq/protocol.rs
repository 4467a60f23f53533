//! The engine's steps on a submission queue's words, generic over the words: those of a ring, or
//! loom's (`verify::queues`). Every caller holds the ring's lock.

use crate::memory::cq::protocol::Word;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Words of a submission queue, and the steps on them.
pub(crate) trait Queue {
    type Word: Word;
    /// Copy of an SQE.
    type Sqe;

    /// Returns the number of SQEs that the program has made available.
    fn tail(&self) -> &Self::Word;
    /// Returns the number of SQEs with slots that the program may fill again.
    fn head(&self) -> &Self::Word;
    /// Returns the number of SQEs fetched: ahead of the head until [`commit`](Self::commit).
    fn fetched(&self) -> &Self::Word;
    /// Returns the number of slots, a power of two.
    fn entries(&self) -> u32;
    /// Returns whether each submission starts at the first slot (SQ_REWIND).
    fn rewinds(&self) -> bool;
    /// Returns the word of the index array at a position, if there is an array.
    fn index(&self, at: u32) -> Option<&Self::Word>;
    /// Copies an SQE, once.
    fn copy(&self, slot: u32, sqe: &mut Self::Sqe);
    /// Counts an entry of the index array that names no slot.
    fn lose(&self);

    /// Returns the number of SQEs that can be fetched.
    #[inline(always)]
    fn ready(&self) -> u32 {
        if self.rewinds() {
            return self.entries();
        }
        let tail = self.tail().load(Acquire);
        tail.wrapping_sub(self.fetched().load(Relaxed)).min(self.entries())
    }

    /// Copies the next SQE, once. False if the index array names no slot: the entry is consumed,
    /// and counted in `dropped`. Call at most [`ready`](Self::ready) times.
    #[inline(always)]
    fn fetch(&self, sqe: &mut Self::Sqe) -> bool {
        let head = self.fetched().load(Relaxed);
        self.fetched().store(head.wrapping_add(1), Relaxed);
        let mut slot = head & (self.entries() - 1);
        if let Some(index) = self.index(slot) {
            slot = index.load(Relaxed);
            if slot >= self.entries() {
                self.lose();
                return false;
            }
        }
        self.copy(slot, sqe);
        true
    }

    /// Gives the fetched slots back to the program.
    #[inline(always)]
    fn commit(&self) {
        if !self.rewinds() {
            self.head().store(self.fetched().load(Relaxed), Release);
        }
    }
}
