//! The steps on a chunk's words. The words are those of a trace's memory, or loom's
//! (`verify::trace`). Only one ring writes a chunk, only one reader reads it.

use core::ops::Range;
use core::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

/// State word: 0 if free; else one more than the slots written, with [`CLOSED`] if no more come.
pub(crate) trait State {
    fn load(&self, order: Ordering) -> u32;
    fn store(&self, value: u32, order: Ordering);
    /// Guesses whether the word may be `value`, which spares an exchange in vain.
    fn may_be(&self, value: u32) -> bool;
    /// Replaces `old` by `new`; returns whether the word was `old`.
    fn exchange(&self, old: u32, new: u32, success: Ordering) -> bool;
}

/// Word of a slot, a fourth of it.
pub(crate) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
}

impl State for AtomicU32 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    #[inline(always)]
    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }

    #[inline(always)]
    fn may_be(&self, value: u32) -> bool {
        self.load(Relaxed) == value
    }

    #[inline(always)]
    fn exchange(&self, old: u32, new: u32, success: Ordering) -> bool {
        self.compare_exchange(old, new, success, Relaxed).is_ok()
    }
}

impl Word for AtomicU64 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }
}

/// Bit in the state: the writer has left the chunk before it was full.
pub(super) const CLOSED: u32 = 1 << 31;

/// The words of a chunk, and the steps on them.
pub(crate) trait Chunk {
    type State: State;
    type Word: Word;

    fn state(&self) -> &Self::State;
    fn slot(&self, at: u32) -> &[Self::Word; 4];
    /// Returns the number of slots.
    fn slots(&self) -> u32;

    /// Takes the chunk for a ring; false if it is not free.
    #[inline(always)]
    fn claim(&self) -> bool {
        self.state().may_be(0) && self.state().exchange(0, 1, Acquire)
    }

    /// Writes an event and its words behind `used` slots; returns how many are used then. Called
    /// only by the chunk's writer, and only if there is room.
    #[inline(always)]
    fn put(&self, used: u32, event: [u64; 4], more: &[[u64; 4]]) -> u32 {
        let write = |at, words: &[u64; 4]| {
            self.slot(at).iter().zip(words).for_each(|(to, word)| to.store(*word, Relaxed));
        };
        write(used, &event);
        (used + 1..).zip(more).for_each(|(at, words)| write(at, words));
        self.publish(used + 1 + more.len() as u32)
    }

    /// Shows the reader all slots before `used`, which is returned. Called only by the chunk's
    /// writer, which has written them.
    #[inline(always)]
    fn publish(&self, used: u32) -> u32 {
        self.state().store(used + 1, Release);
        used
    }

    /// Closes the chunk: no more events come.
    fn close(&self, used: u32) {
        self.state().store((used + 1) | CLOSED, Release);
    }

    /// Returns the words of a slot that the reader knows of.
    fn get(&self, at: u32) -> [u64; 4] {
        self.slot(at).each_ref().map(|word| word.load(Relaxed))
    }

    /// Calls `read` with the slots behind the first `seen`, and frees a chunk that its writer is
    /// through with; returns how many came.
    fn take(&self, seen: &mut u32, read: impl FnOnce(Range<u32>)) -> u32 {
        let state = self.state().load(Acquire);
        if state == 0 {
            return 0;
        }
        let n = self.written(state);
        let from = (*seen).min(n);
        if n > from {
            read(from..n);
            *seen = n;
        }
        self.end(state, seen);
        n - from
    }

    /// Skips everything that is there.
    fn discard(&self, seen: &mut u32) {
        let state = self.state().load(Acquire);
        *seen = self.written(state);
        self.end(state, seen);
    }

    fn written(&self, state: u32) -> u32 {
        (state & !CLOSED).saturating_sub(1).min(self.slots())
    }

    /// Frees the chunk if its writer is through with it.
    fn end(&self, state: u32, seen: &mut u32) {
        if self.written(state) == self.slots() || state & CLOSED != 0 {
            *seen = 0;
            self.state().store(0, Release);
        }
    }
}
