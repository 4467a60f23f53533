//! The engine's end of the submission queue: load the tail, resolve the index, copy the SQE once, publish the head.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::rings::{Rings, off};
use crate::abi::io_uring_sqe;

/// What fetching one SQE came to.
#[derive(Debug)]
pub enum Fetch {
    Sqe(io_uring_sqe),
    /// The index array names no slot: consumed and counted in `dropped`.
    Dropped,
}

impl Rings {
    /// SQEs that the program has made available.
    pub fn sq_ready(&self) -> u32 {
        let tail = self.rings.word(off::SQ_TAIL).load(Acquire);
        tail.wrapping_sub(self.control.sq_head().load(Relaxed)).min(self.geo.sq_entries)
    }

    /// Fetches the next SQE. Lock holder only; call at most [`sq_ready`](Self::sq_ready) times.
    pub fn sq_fetch(&self) -> Fetch {
        let word = self.control.sq_head();
        let head = word.load(Relaxed);
        word.store(head.wrapping_add(1), Relaxed);
        let mut slot = head & (self.geo.sq_entries - 1);
        if let Some(array) = self.geo.array() {
            slot = self.rings.word(array + slot as usize * 4).load(Relaxed);
            if slot >= self.geo.sq_entries {
                self.rings.word(off::SQ_DROPPED).fetch_add(1, Relaxed);
                return Fetch::Dropped;
            }
        }
        Fetch::Sqe(self.sqes.load(slot as usize * self.geo.sqe_size()))
    }

    /// Gives the fetched slots back to the program.
    pub fn sq_commit(&self) {
        let head = self.control.sq_head().load(Relaxed);
        self.rings.word(off::SQ_HEAD).store(head, Release);
    }
}
