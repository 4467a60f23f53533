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
