//! The engine's steps on a submission queue's words, on whatever words there are: those of a ring,
//! or loom's (`verify::queues`). Whoever makes one holds the ring's lock.

use crate::memory::cq::protocol::Word;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// What has the words, and the steps on them.
pub(crate) trait Queue {
    type Word: Word;
    /// What an SQE is copied to.
    type Sqe;

    /// SQEs that the program has made available.
    fn tail(&self) -> &Self::Word;
    /// SQEs whose slots the program may fill again.
    fn head(&self) -> &Self::Word;
    /// SQEs fetched: ahead of the head until [`commit`](Self::commit).
    fn fetched(&self) -> &Self::Word;
    /// A power of two.
    fn entries(&self) -> u32;
    /// Does each submission start at the first slot (SQ_REWIND)?
    fn rewinds(&self) -> bool;
    /// The word of the index array at a place, if there is an array.
    fn index(&self, at: u32) -> Option<&Self::Word>;
    /// Copies an SQE, once.
    fn copy(&self, slot: u32, sqe: &mut Self::Sqe);
    /// The index array names no slot.
    fn lose(&self);

    /// SQEs that the program has made available.
    #[inline(always)]
    fn ready(&self) -> u32 {
        if self.rewinds() {
            return self.entries();
        }
        let tail = self.tail().load(Acquire);
        tail.wrapping_sub(self.fetched().load(Relaxed)).min(self.entries())
    }

    /// Copies the next SQE, once. False if the index array names no slot: consumed, and counted in
    /// `dropped`. To be called at most [`ready`](Self::ready) times.
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
