//! Resizing of the rings of one file.
//!
//! The kernel gives the ring new pages, and old mappings keep the old pages. A file has one page
//! per offset, so here the new rings replace the old ones in place. A mapping made after the call
//! shows the new rings, as on the kernel; an old mapping, which is of no use any more, shows parts
//! of them. Heads and tails keep their offsets and values, so a program that still reads them in
//! the old mapping gets right values. Kernel counterpart: `io_register_resize_rings`.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use softring_host::os::fd::BorrowedFd;

use super::mappings::{RingMemory, pin};
use super::region::Region;
use super::rings::{Geometry, Rings, off};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

/// Entries between a head and a tail, as words.
struct Entries {
    from: u32,
    size: usize,
    words: Vec<u64>,
}

impl Entries {
    fn take(mem: &Region, base: usize, size: usize, slots: u32, from: u32, to: u32) -> Entries {
        let n = to.wrapping_sub(from);
        let slot = |i: u32| base + (from.wrapping_add(i) & (slots - 1)) as usize * size;
        let word = |i: u32, w: usize| mem.load(slot(i) + w * 8);
        let words = (0..n).flat_map(|i| (0..size / 8).map(move |w| word(i, w))).collect();
        Entries { from, size, words }
    }

    fn put(&self, mem: &Region, base: usize, slots: u32) {
        for (i, entry) in self.words.chunks_exact(self.size / 8).enumerate() {
            let slot = self.from.wrapping_add(i as u32) & (slots - 1);
            for (w, &word) in entry.iter().enumerate() {
                mem.store(base + slot as usize * self.size + w * 8, word);
            }
        }
    }
}

impl Rings {
    /// Maps new memory for the rings or the SQEs (`at`) of these sizes, in the ring's file or where
    /// the program says (NO_MMAP).
    ///
    /// # Errors
    /// `ENOMEM`; `EINVAL`, `EFAULT` for bad NO_MMAP addresses.
    pub(crate) fn new_region(
        file: BorrowedFd<'_>,
        geo: &Geometry,
        at: u64,
        user: RingMemory,
    ) -> Result<Region> {
        let len = if at == IORING_OFF_SQES { geo.sqes_size() } else { geo.rings_size() };
        if geo.flags & IORING_SETUP_NO_MMAP != 0 {
            return pin(user, len);
        }
        let len = len.next_multiple_of(4096);
        super::file::grow(file, at + len as u64)?;
        Region::map(file, at, len).map_err(|_| Errno::ENOMEM)
    }

    /// Moves to new rings with the entries of the old ones. Lock holder only, with every filled CQE
    /// published.
    ///
    /// # Errors
    /// `EOVERFLOW` if the entries do not fit; nothing has changed then.
    pub(crate) fn move_to(&mut self, geo: Geometry, rings: Region, sqes: Region) -> Result<()> {
        let old = self.geo;
        let words = COPIED.map(|at| self.rings.word(at).load(Acquire));
        let [sq_head, sq_tail, cq_head, cq_tail, ..] = words;
        let fits = |head: u32, tail: u32, room: u32| tail.wrapping_sub(head) <= room;
        if !fits(sq_head, sq_tail, geo.sq_entries.min(old.sq_entries))
            || !fits(cq_head, cq_tail, geo.cq_entries.min(old.cq_entries))
        {
            return Err(Errno::EOVERFLOW);
        }
        let (sqe, cqe) = (old.sqe_size(), old.cqe_size());
        let queued = Entries::take(&self.sqes, 0, sqe, old.sq_entries, sq_head, sq_tail);
        let posted = Entries::take(&self.rings, off::CQES, cqe, old.cq_entries, cq_head, cq_tail);
        self.geo = geo;
        self.array = geo.array();
        self.rings = rings;
        self.sqes = sqes;
        let all = (off::CQES..geo.rings_size()).step_by(4);
        all.for_each(|at| self.rings.word(at).store(0, Relaxed));
        // New pages are zeroed: an index array not yet filled points at an SQE of zeros.
        if geo.flags & IORING_SETUP_NO_MMAP == 0 {
            (0..geo.sqes_size()).step_by(8).for_each(|at| self.sqes.store(at, 0));
        }
        self.init();
        for (at, word) in COPIED.into_iter().zip(words) {
            self.rings.word(at).store(word, Release);
        }
        queued.put(&self.sqes, 0, geo.sq_entries);
        posted.put(&self.rings, off::CQES, geo.cq_entries);
        Ok(())
    }
}

/// Words that are copied unchanged; heads and tails first.
const COPIED: [usize; 8] = [
    off::SQ_HEAD,
    off::SQ_TAIL,
    off::CQ_HEAD,
    off::CQ_TAIL,
    off::SQ_DROPPED,
    off::SQ_FLAGS,
    off::CQ_FLAGS,
    off::CQ_OVERFLOW,
];
