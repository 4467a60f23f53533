//! The engine's end of the submission queue: load the tail, resolve the index, copy the SQE once,
//! publish the head.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::rings::{Rings, off};
use crate::abi::io_uring_sqe;

impl Rings {
    /// SQEs that the program has made available.
    pub fn sq_ready(&self) -> u32 {
        let tail = self.rings.word(off::SQ_TAIL).load(Acquire);
        tail.wrapping_sub(self.control.sq_head().load(Relaxed)).min(self.geo.sq_entries)
    }

    /// Copies the next SQE, once. False if the index array names no slot: consumed, and counted in
    /// `dropped`. Lock holder only; call at most [`sq_ready`](Self::sq_ready) times.
    #[inline]
    pub fn sq_fetch(&self, sqe: &mut io_uring_sqe) -> bool {
        let word = self.control.sq_head();
        let head = word.load(Relaxed);
        word.store(head.wrapping_add(1), Relaxed);
        let mut slot = head & (self.geo.sq_entries - 1);
        if let Some(array) = self.array {
            slot = self.rings.word(array + slot as usize * 4).load(Relaxed);
            if slot >= self.geo.sq_entries {
                self.rings.word(off::SQ_DROPPED).fetch_add(1, Relaxed);
                return false;
            }
        }
        self.sqes.load_into(slot as usize * self.geo.sqe_size(), sqe);
        true
    }

    /// The second half of the SQE that was fetched last, on a ring with SQEs of 128 bytes. (A
    /// program that changes its index array meanwhile gets another's.)
    pub fn sq_second_half(&self) -> Option<[u64; 8]> {
        let head = self.control.sq_head().load(Relaxed).wrapping_sub(1);
        let mask = self.geo.sq_entries - 1;
        let named = |array| self.rings.word(array + (head & mask) as usize * 4).load(Relaxed);
        let slot = self.array.map_or(head, named) & mask;
        let at = slot as usize * self.geo.sqe_size() + size_of::<io_uring_sqe>();
        let word = |i| self.sqes.load(at + i * 8);
        (self.geo.sqe_size() == 128).then(|| core::array::from_fn(word))
    }

    /// Where the SQEs behind the one that was fetched last have their `addr`, `n` of them at most
    /// and as long as they are of `opcode`. A hint: the program may still change them.
    pub fn sq_peek(&self, n: u32, opcode: u8, mut each: impl FnMut(u64)) {
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
            if self.sqes.load::<u64>(at) as u8 != opcode {
                return;
            }
            each(self.sqes.load(at + 16));
        }
    }

    /// Puts the SQE that was fetched last back: it is the next again.
    pub fn sq_unfetch(&self) {
        let word = self.control.sq_head();
        word.store(word.load(Relaxed).wrapping_sub(1), Relaxed);
    }

    /// Gives the fetched slots back to the program.
    pub fn sq_commit(&self) {
        let head = self.control.sq_head().load(Relaxed);
        self.rings.word(off::SQ_HEAD).store(head, Release);
    }
}
