//! The engine's end of the submission queue: loads the tail, resolves the index, copies the SQE
//! once, publishes the head.

pub(crate) mod protocol;

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::rings::{Rings, off};
use super::sqe::Sqe;
use protocol::Queue;
use softring_uapi::{IORING_SETUP_SQ_REWIND, io_uring_sqe};

impl Rings {
    /// Returns the number of SQEs that the program has made available.
    pub(crate) fn sq_ready(&self) -> u32 {
        self.ready()
    }

    /// Begins a submission.
    pub(crate) fn sq_begin(&self) {
        if self.rewinds() {
            self.control.sq_head().store(0, Relaxed);
        }
    }

    /// Returns whether the submission queue is full by the published head and tail. The published
    /// head does not move within a batch.
    pub(crate) fn sq_full(&self) -> bool {
        let head = if self.rewinds() { 0 } else { self.rings.word(off::SQ_HEAD).load(Relaxed) };
        let tail = self.rings.word(off::SQ_TAIL).load(Acquire);
        tail.wrapping_sub(head) == self.geo.sq_entries
    }

    /// Copies the next SQE, once. False if the index array names no slot: the entry is consumed,
    /// and counted in `dropped`. Lock holder only; call at most [`sq_ready`](Self::sq_ready) times.
    #[inline]
    pub(crate) fn sq_fetch(&self, sqe: &mut Sqe) -> bool {
        self.fetch(sqe)
    }

    /// Returns the slot of the SQE fetched `ago` entries before the head. (A program that changes
    /// its index array meanwhile gets another SQE's slot.)
    fn sq_slot(&self, ago: u32) -> u32 {
        let head = self.control.sq_head().load(Relaxed).wrapping_sub(ago);
        let mask = self.geo.sq_entries - 1;
        let named = |array| self.rings.word(array + (head & mask) as usize * 4).load(Relaxed);
        self.array.map_or(head, named) & mask
    }

    /// Returns the second half of the SQE fetched last: on a ring with SQEs of 128 bytes, or on a
    /// mixed one, if the SQE has taken two entries.
    pub(crate) fn sq_second_half(&self, took_two: bool) -> Option<[u64; 8]> {
        let wide = self.geo.sqe_size() == 128;
        if !wide && !took_two {
            return None;
        }
        let slot = self.sq_slot(if wide { 1 } else { 2 }) as usize;
        let at = slot * self.geo.sqe_size() + size_of::<io_uring_sqe>();
        let end = self.geo.sq_entries as usize * self.geo.sqe_size();
        (at < end).then(|| core::array::from_fn(|i| self.sqes.load(at + i * 8)))
    }

    /// Takes the second entry of the SQE fetched last, of 128 bytes on a mixed ring. False if the
    /// SQE is in the last slot.
    pub(crate) fn sq_take_second(&self) -> bool {
        if self.sq_slot(1) + 1 >= self.geo.sq_entries {
            return false;
        }
        let word = self.control.sq_head();
        word.store(word.load(Relaxed).wrapping_add(1), Relaxed);
        true
    }

    /// Passes the first 32 bytes of the next SQEs to `each`: at most `n`, and only as long as they
    /// are of `opcode` and `each` returns true. A hint: the program may still change the SQEs.
    pub(crate) fn sq_peek(&self, n: u32, opcode: u8, mut each: impl FnMut([u64; 4]) -> bool) {
        let head = self.control.sq_head().load(Relaxed);
        for i in 0..n {
            let mut slot = head.wrapping_add(i) & (self.geo.sq_entries - 1);
            if let Some(array) = self.array {
                slot = self.rings.word(array + slot as usize * 4).load(Relaxed);
            }
            if slot >= self.geo.sq_entries {
                return;
            }
            let at = slot as usize * self.geo.sqe_size();
            let words = core::array::from_fn(|i| self.sqes.load(at + 8 * i));
            if words[0] as u8 != opcode || !each(words) {
                return;
            }
        }
    }

    /// Puts the SQE fetched last back, as the next.
    pub(crate) fn sq_unfetch(&self) {
        let word = self.control.sq_head();
        word.store(word.load(Relaxed).wrapping_sub(1), Relaxed);
    }

    /// Gives the fetched slots back to the program.
    pub(crate) fn sq_commit(&self) {
        self.commit();
    }
}

impl Queue for Rings {
    type Word = AtomicU32;
    type Sqe = Sqe;

    #[inline(always)]
    fn tail(&self) -> &AtomicU32 {
        self.rings.word(off::SQ_TAIL)
    }

    #[inline(always)]
    fn head(&self) -> &AtomicU32 {
        self.rings.word(off::SQ_HEAD)
    }

    #[inline(always)]
    fn fetched(&self) -> &AtomicU32 {
        self.control.sq_head()
    }

    #[inline(always)]
    fn entries(&self) -> u32 {
        self.geo.sq_entries
    }

    #[inline(always)]
    fn rewinds(&self) -> bool {
        self.geo.flags & IORING_SETUP_SQ_REWIND != 0
    }

    #[inline(always)]
    fn index(&self, at: u32) -> Option<&AtomicU32> {
        self.array.map(|array| self.rings.word(array + at as usize * 4))
    }

    #[inline(always)]
    fn copy(&self, slot: u32, sqe: &mut Sqe) {
        self.sqes.load_into(slot as usize * self.geo.sqe_size(), sqe.copied());
    }

    fn lose(&self) {
        self.rings.word(off::SQ_DROPPED).fetch_add(1, Relaxed);
    }
}
