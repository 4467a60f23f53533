//! The engine's end of the completion queue: fills CQEs behind the tail, publishes them together,
//! and keeps those that do not fit.
//!
//! A CQE that finds no room goes to the overflow list and sets `IORING_SQ_CQ_OVERFLOW`. While the
//! list is not empty, later CQEs queue behind it, so that order is kept. The list is flushed when a
//! waiter enters and finds room. Kernel counterpart: `io_cqe_cache_refill`,
//! `io_cqring_overflow_flush`.

pub(crate) mod protocol;

use alloc::collections::VecDeque;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use self::protocol::Queue;
use super::rings::{Rings, off};
use softring_uapi::*;

/// One completion, before it is written to the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cqe {
    pub(crate) user_data: u64,
    pub(crate) res: i32,
    pub(crate) flags: u32,
    /// The upper half; posted on CQE32 rings, and on CQE_MIXED rings where `flags` has
    /// `IORING_CQE_F_32`.
    pub(crate) big: [u64; 2],
}

/// CQEs that found no room.
#[derive(Debug, Default)]
pub(crate) struct Overflow {
    list: VecDeque<Cqe>,
}

impl Overflow {
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }
}

impl Rings {
    /// Returns the number of published CQEs that the program has not consumed.
    pub(crate) fn cq_ready(&self) -> u32 {
        let tail = self.rings.word(off::CQ_TAIL).load(Relaxed);
        tail.wrapping_sub(self.rings.word(off::CQ_HEAD).load(Acquire))
    }

    /// Returns the number of filled CQEs, published or not, that the program has not consumed.
    pub(crate) fn cq_filled(&self) -> u32 {
        let tail = self.control.cq_tail().load(Relaxed);
        tail.wrapping_sub(self.rings.word(off::CQ_HEAD).load(Acquire))
    }

    /// Fills one CQE on a ring with CQEs of 32 bytes.
    fn cq_fill_wide(&self, cqe: &Cqe) -> bool {
        let mixed = self.geo.flags & IORING_SETUP_CQE_MIXED != 0;
        let wide = mixed && cqe.flags & IORING_CQE_F_32 != 0;
        let word = self.control.cq_tail();
        let mut tail = word.load(Relaxed);
        let mask = self.geo.cq_entries - 1;
        let need = self.cq_slots(wide);
        if self.room() < need {
            return false;
        }
        if need == 3 {
            let filler = io_uring_cqe { user_data: 0, res: 0, flags: IORING_CQE_F_SKIP };
            self.cq_store(tail & mask, filler);
            tail = tail.wrapping_add(1);
        }
        let slot = tail & mask;
        let small = io_uring_cqe { user_data: cqe.user_data, res: cqe.res, flags: cqe.flags };
        self.cq_store(slot, small);
        if wide || self.geo.cqe_size() == 32 {
            let at = off::CQES + slot as usize * self.geo.cqe_size() + 16;
            self.rings.store(at, cqe.big[0]);
            self.rings.store(at + 8, cqe.big[1]);
        }
        word.store(tail.wrapping_add(if wide { 2 } else { 1 }), Relaxed);
        true
    }

    /// Returns the number of slots that the next CQE takes; `wide` on a CQE_MIXED ring.
    fn cq_slots(&self, wide: bool) -> u32 {
        let last = self.geo.cq_entries - 1;
        match wide {
            false => 1,
            // A wide CQE must not wrap: a filler marked SKIP takes the last slot.
            true if self.control.cq_tail().load(Relaxed) & last == last => 3,
            true => 2,
        }
    }

    /// Returns whether a CQE of 32 bytes would fit now, and in order.
    pub(crate) fn cq_takes_wide(&self, overflow: &Overflow) -> bool {
        let mixed = self.geo.flags & IORING_SETUP_CQE_MIXED != 0;
        overflow.is_empty() && self.room() >= self.cq_slots(mixed)
    }

    fn cq_store(&self, slot: u32, cqe: io_uring_cqe) {
        self.rings.store(off::CQES + slot as usize * self.geo.cqe_size(), cqe);
    }

    /// Adds a CQE to the ring, or to the overflow list; false for the latter. Visible after
    /// [`cq_commit`](Self::cq_commit).
    #[inline(always)]
    pub(crate) fn cq_add(&self, overflow: &mut Overflow, cqe: Cqe) -> bool {
        self.add(overflow, cqe)
    }

    /// Adds a CQE if there is room and none has overflowed; false if not.
    pub(crate) fn cq_try_add(&self, overflow: &Overflow, cqe: Cqe) -> bool {
        overflow.is_empty() && self.fill(&cqe)
    }

    /// Returns whether there is room for one more CQE and none has overflowed.
    pub(crate) fn cq_has_room(&self, overflow: &Overflow) -> bool {
        overflow.is_empty() && self.room() > 0
    }

    /// Moves overflowed CQEs into the ring, in order, as far as there is room, and publishes all
    /// filled CQEs; true if there were any.
    pub(crate) fn cq_flush(&self, overflow: &mut Overflow) -> bool {
        self.flush(overflow)
    }

    /// Publishes filled CQEs; true if there were any.
    pub(crate) fn cq_commit(&self) -> bool {
        self.commit()
    }

    /// Sets or clears a bit of the SQ ring's flags word.
    pub(crate) fn sq_flag(&self, bit: u32, on: bool) {
        let word = self.rings.word(off::SQ_FLAGS);
        if on {
            word.fetch_or(bit, Relaxed);
        } else {
            word.fetch_and(!bit, Relaxed);
        }
    }

    /// Returns whether the program has switched eventfd notification off for now.
    pub(crate) fn eventfd_disabled(&self) -> bool {
        self.rings.word(off::CQ_FLAGS).load(Relaxed) & IORING_CQ_EVENTFD_DISABLED != 0
    }
}

impl Queue for Rings {
    type Word = AtomicU32;

    #[inline(always)]
    fn head(&self) -> &AtomicU32 {
        self.rings.word(off::CQ_HEAD)
    }

    #[inline(always)]
    fn tail(&self) -> &AtomicU32 {
        self.rings.word(off::CQ_TAIL)
    }

    #[inline(always)]
    fn filled(&self) -> &AtomicU32 {
        self.control.cq_tail()
    }

    #[inline(always)]
    fn flags(&self) -> &AtomicU32 {
        self.rings.word(off::SQ_FLAGS)
    }

    #[inline(always)]
    fn entries(&self) -> u32 {
        self.geo.cq_entries
    }

    #[inline(always)]
    fn is_wide(&self) -> bool {
        self.geo.flags & (IORING_SETUP_CQE32 | IORING_SETUP_CQE_MIXED) != 0
    }

    fn fill_wide(&self, cqe: &Cqe) -> bool {
        self.cq_fill_wide(cqe)
    }

    #[inline(always)]
    fn put(&self, slot: u32, cqe: &Cqe) {
        let at = off::CQES + slot as usize * 16;
        self.rings.store(at, cqe.user_data);
        self.rings.store(at + 8, u64::from(cqe.flags) << 32 | u64::from(cqe.res.cast_unsigned()));
    }

    fn lose(&self) {
        self.rings.word(off::CQ_OVERFLOW).fetch_add(1, Relaxed);
    }
}
