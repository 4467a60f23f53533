//! Boxes of requests. A request is made in a box and stays there until it ends: functions that take
//! it, issue it or let it wait pass a pointer to the box, and not the request's bytes. There is one
//! owner at a time, so nobody can touch a request that was passed on.
//!
//! Boxes of requests that have ended are reused, and new ones are made several at once: a request
//! makes no call to the allocator.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use super::request::Req;
use crate::memory::left::{leaves_enough, leaves_enough_for_ring};

/// A request in its box. (An array of one, since only a `Vec` offers a fallible allocation.)
#[derive(Debug)]
pub(crate) struct ReqBox(Box<[Req; 1]>);

impl ReqBox {
    fn new() -> ReqBox {
        ReqBox(Box::new([Req::default()]))
    }

    /// Makes a box; `None` if there is no memory for it.
    fn try_new() -> Option<ReqBox> {
        let mut empty = Vec::new();
        empty.try_reserve_exact(1).ok()?;
        empty.push(Req::default());
        empty.into_boxed_slice().try_into().ok().map(ReqBox)
    }
}

impl Deref for ReqBox {
    type Target = Req;
    fn deref(&self) -> &Req {
        let [req] = &*self.0;
        req
    }
}

impl DerefMut for ReqBox {
    fn deref_mut(&mut self) -> &mut Req {
        let [req] = &mut *self.0;
        req
    }
}

/// Boxes without a request. Such a box still has its old contents, except for resources.
#[derive(Debug, Default)]
pub(crate) struct FreeBoxes(Vec<ReqBox>);

/// Bounds of the number of boxes made at once, which is the number in use.
const FEWEST: usize = 8;
const MOST: usize = 256;

impl FreeBoxes {
    /// Returns a box with stale contents; `None` if there is no memory for one. `used`: number of
    /// boxes in use.
    #[inline]
    pub(crate) fn try_take(&mut self, used: usize) -> Option<ReqBox> {
        if self.0.is_empty() && !self.make(used, leaves_enough) { None } else { self.0.pop() }
    }

    /// Makes the first boxes; false if there is no memory for them.
    pub(crate) fn prepare(&mut self) -> bool {
        self.make(0, leaves_enough_for_ring)
    }

    /// Returns a box for a request that cannot be refused; see [`Self::try_take`].
    pub(crate) fn take(&mut self, used: usize) -> ReqBox {
        self.try_take(used).unwrap_or_else(ReqBox::new)
    }

    /// Frees the box of an ended request for reuse. (Inlined despite its size: a call costs 39
    /// instructions.)
    #[inline(always)]
    pub(crate) fn leave(&mut self, mut used: ReqBox) {
        used.drop_resources();
        // A box that was made while memory is short may find no room.
        if self.0.len() < self.0.capacity() {
            self.0.push(used);
        }
    }

    #[cold]
    fn make(&mut self, used: usize, leaves_enough: fn(usize) -> bool) -> bool {
        let n = used.clamp(FEWEST, MOST);
        if !leaves_enough(n * size_of::<Req>()) || self.0.try_reserve(used + n).is_err() {
            return false;
        }
        self.0.extend((0..n).map_while(|_| ReqBox::try_new()));
        !self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_used_again() {
        let mut free_boxes = FreeBoxes::default();
        let first = free_boxes.try_take(0).expect("memory");
        let at = &raw const *first;
        assert_eq!(free_boxes.0.len(), FEWEST - 1);
        free_boxes.leave(first);
        assert!(core::ptr::eq(at, &raw const *free_boxes.take(0)));
    }

    #[test]
    fn boxes_are_allocated_in_bounded_batches() {
        let mut free_boxes = FreeBoxes::default();
        for (used, made) in [(0, FEWEST), (100, 100), (10 * MOST, MOST)] {
            let taken: Vec<_> = (0..made).map(|_| free_boxes.take(used)).collect();
            assert!(free_boxes.0.is_empty());
            assert!(free_boxes.0.capacity() >= used + taken.len());
        }
    }
}
