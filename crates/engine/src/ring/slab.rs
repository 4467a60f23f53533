//! Requests that wait, in one growing table. An id names a slot and its generation, so that a late
//! event for an ended request finds nothing instead of another request. A request that is issued
//! again is taken out and put back, and has its slot and its id from the first wait to its end; the
//! table holds its box ([`ReqBox`]), so neither step copies it. A hash over the slots finds
//! requests by their `user_data`, as cancel and update must (kernel: `ctx->cancel_table`).

use alloc::vec::Vec;
use core::num::NonZeroU32;

use super::req_box::{FreeBoxes, ReqBox};
use super::request::Req;
use crate::io::token::ReqId;
use softring_host::time::Clock;

/// Index of no slot.
const NONE: u32 = u32::MAX;
/// Buckets of the smallest hash.
const MIN_BUCKETS: usize = 16;

#[derive(Debug)]
struct Slot {
    generation: NonZeroU32,
    /// Neighbours in the chain of its bucket.
    prev: u32,
    next: u32,
    /// `user_data` it is hashed under.
    key: u64,
    /// Value of the slab's `hashed` when it was hashed; wraps.
    born: u32,
    /// The request; `None` if the slot is free, or the request was taken out.
    req: Option<ReqBox>,
}

/// The table of waiting requests.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Boxes for requests to come.
    free_boxes: FreeBoxes,
    /// First slot of each chain, newest first; a power of two, or empty before the first request.
    buckets: Vec<u32>,
    /// Requests hashed so far; wraps.
    hashed: u32,
    /// Flag, true if requests record the time at which they come.
    pub(crate) timed: bool,
    /// The start time, for all of one batch; 0: not read yet.
    pub(crate) start: u64,
}

impl Slab {
    /// Makes boxes for the first requests of a ring. False if there is no memory for that.
    pub(crate) fn prepare(&mut self) -> bool {
        self.free_boxes.prepare()
    }

    /// Returns whether there is a slot for the current request, making some if memory allows;
    /// [`Self::insert`] then needs no memory. (The request has a box, and [`Self::try_box`] makes
    /// the next.)
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        let spare = self.slots.len() < self.slots.capacity() && !self.buckets.is_empty();
        !self.free.is_empty() || spare || self.grow()
    }

    #[cold]
    fn grow(&mut self) -> bool {
        if self.buckets.is_empty() && !self.rehash() {
            return false;
        }
        // All slots may be free at once.
        let grown = self.slots.try_reserve(1).and_then(|()| {
            let slots = self.slots.capacity();
            self.free.try_reserve(slots - self.free.len())
        });
        grown.is_ok()
    }

    /// Returns a box with stale contents for a request that is fetched; `None` without memory.
    #[inline]
    pub(crate) fn try_box(&mut self) -> Option<ReqBox> {
        self.free_boxes.try_take(self.len())
    }

    /// Puts a request of the ring's own making into a box.
    pub(crate) fn boxed(&mut self, req: Req) -> ReqBox {
        let mut empty = self.free_boxes.take(self.len());
        *empty = req;
        empty
    }

    /// Puts a request of the ring's own making into the table.
    pub(crate) fn add(&mut self, req: Req) -> ReqId {
        let req = self.boxed(req);
        self.insert(req)
    }

    /// Frees the box of a request that ends after it was taken out.
    #[inline(always)]
    pub(crate) fn leave(&mut self, req: ReqBox) {
        self.free_boxes.leave(req);
    }

    /// Returns the start time of the current batch; 0 if nobody would see it.
    pub(crate) fn now(&mut self) -> u64 {
        if self.start == 0 && self.timed {
            self.start = Clock::Monotonic.now();
        }
        self.start
    }

    /// Puts a request into the table: back into its slot, if it has one.
    pub(crate) fn insert(&mut self, mut req: ReqBox) -> ReqId {
        if req.task == 0 {
            req.task = crate::ring::task::current();
        }
        if req.start == 0 {
            req.start = self.now();
        }
        if self.len() >= self.buckets.len() {
            self.rehash();
        }
        let id = match req.id.filter(|&id| self.is_checked_out(id)) {
            Some(id) => id,
            None => self.new_slot(),
        };
        let key = req.user_data;
        req.id = Some(id);
        self.slots[id.slot as usize].req = Some(req);
        self.enter(id.slot, key);
        id
    }

    /// Returns whether the slot is empty because its request was taken out.
    fn is_checked_out(&self, id: ReqId) -> bool {
        let slot = self.slots.get(id.slot as usize);
        slot.is_some_and(|s| s.generation == id.generation && s.req.is_none())
    }

    fn new_slot(&mut self) -> ReqId {
        let slot = self.free.pop().unwrap_or_else(|| {
            let new = Slot {
                generation: NonZeroU32::MIN,
                prev: NONE,
                next: NONE,
                key: 0,
                born: 0,
                req: None,
            };
            self.slots.push(new);
            self.slots.len() as u32 - 1
        });
        ReqId { slot, generation: self.slots[slot as usize].generation }
    }

    /// Takes a request out. Nobody finds it meanwhile, but it keeps its slot and its id until
    /// [`Self::insert`] puts it back or [`Self::release`] frees them.
    pub(crate) fn take(&mut self, id: ReqId) -> Option<ReqBox> {
        let s = self.slots.get_mut(id.slot as usize)?;
        if s.generation != id.generation {
            return None;
        }
        let req = s.req.take()?;
        self.unhash(id.slot);
        Some(req)
    }

    /// Frees the slot of a request that ends after it was taken out; its id is stale from here on.
    pub(crate) fn release(&mut self, id: ReqId) {
        if self.is_checked_out(id) {
            let s = &mut self.slots[id.slot as usize];
            s.generation = id.next().generation;
            self.free.push(id.slot);
        }
    }

    /// Drops every request. Requests that were taken out lose their slots, too.
    pub(crate) fn clear(&mut self) {
        for (slot, s) in (0..).zip(&mut self.slots) {
            s.req = None;
            s.generation = ReqId { slot, generation: s.generation }.next().generation;
        }
        self.free.clear();
        self.free.extend((0..self.slots.len() as u32).rev());
        self.buckets.fill(NONE);
    }

    pub(crate) fn get(&self, id: ReqId) -> Option<&Req> {
        let s = self.slots.get(id.slot as usize)?;
        if s.generation == id.generation { s.req.as_deref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, id: ReqId) -> Option<&mut Req> {
        let s = self.slots.get_mut(id.slot as usize)?;
        if s.generation == id.generation { s.req.as_deref_mut() } else { None }
    }

    /// Gives a waiting request another `user_data`.
    pub(crate) fn rename(&mut self, id: ReqId, user_data: u64) {
        if let Some(req) = self.get_mut(id) {
            req.user_data = user_data;
            self.unhash(id.slot);
            self.enter(id.slot, user_data);
        }
    }

    /// Returns the waiting requests of that `user_data`, newest first.
    pub(crate) fn named(&self, user_data: u64) -> impl Iterator<Item = (ReqId, &Req)> {
        let first =
            if self.buckets.is_empty() { NONE } else { self.buckets[self.bucket(user_data)] };
        let slot = |i: u32| self.slots.get(i as usize).map(|s| (i, s));
        core::iter::successors(slot(first), move |(_, s)| slot(s.next))
            .filter(move |(_, s)| s.key == user_data)
            .filter_map(|(slot, s)| {
                let id = ReqId { slot, generation: s.generation };
                s.req.as_deref().map(|r| (id, r))
            })
    }

    /// Returns the number of requests hashed since this one was hashed.
    pub(crate) fn age(&self, id: ReqId) -> u32 {
        let born = self.slots.get(id.slot as usize).map_or(0, |s| s.born);
        self.hashed.wrapping_sub(born)
    }

    /// Returns the waiting requests, in slot order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ReqId, &Req)> {
        self.slots.iter().enumerate().filter_map(|(i, s)| {
            let id = ReqId { slot: i as u32, generation: s.generation };
            s.req.as_deref().map(|r| (id, r))
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bucket of a key. Sixteen consecutive keys lie side by side: many programs count
    /// upwards, and then cancel in that order.
    fn bucket(&self, key: u64) -> usize {
        let hash = (key >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        (hash + (key & 15)) as usize & (self.buckets.len() - 1)
    }

    /// Hashes a request that is new, or has a new `user_data`.
    fn enter(&mut self, slot: u32, key: u64) {
        self.hash(slot, key);
        self.hashed = self.hashed.wrapping_add(1);
        self.slots[slot as usize].born = self.hashed;
    }

    fn hash(&mut self, slot: u32, key: u64) {
        let bucket = self.bucket(key);
        let next = core::mem::replace(&mut self.buckets[bucket], slot);
        if let Some(n) = self.slots.get_mut(next as usize) {
            n.prev = slot;
        }
        let s = &mut self.slots[slot as usize];
        (s.key, s.prev, s.next) = (key, NONE, next);
    }

    fn unhash(&mut self, slot: u32) {
        let Slot { prev, next, key, .. } = self.slots[slot as usize];
        match self.slots.get_mut(prev as usize) {
            Some(p) => p.next = next,
            None => {
                let bucket = self.bucket(key);
                self.buckets[bucket] = next;
            }
        }
        if let Some(n) = self.slots.get_mut(next as usize) {
            n.prev = prev;
        }
    }

    /// Doubles the buckets, with every chain still newest first. Without memory for them the chains
    /// stay too long; false.
    fn rehash(&mut self) -> bool {
        let mut new = Vec::new();
        let n = (self.buckets.len() * 2).max(MIN_BUCKETS);
        if new.try_reserve_exact(n).is_err() {
            return false;
        }
        new.resize(n, NONE);
        for first in core::mem::replace(&mut self.buckets, new) {
            // The chain is walked from the oldest request on.
            let mut at = first;
            while let Some(s) = self.slots.get(at as usize).filter(|s| s.next != NONE) {
                at = s.next;
            }
            while let Some(s) = self.slots.get(at as usize) {
                let (slot, key) = (at, s.key);
                at = if slot == first { NONE } else { s.prev };
                self.hash(slot, key);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Slab {
        /// Removes a request from the table.
        fn remove(&mut self, id: ReqId) -> Option<ReqBox> {
            let req = self.take(id)?;
            self.release(id);
            Some(req)
        }
    }

    fn named(user_data: u64) -> Req {
        Req { user_data, ..Req::default() }
    }

    #[test]
    fn a_stale_id_finds_nothing() {
        let mut slab = Slab::default();
        let a = slab.add(Req::default());
        assert!(slab.remove(a).is_some());
        let b = slab.add(Req::default());
        assert!(slab.get(a).is_none() && slab.get(b).is_some());
        assert!(slab.remove(a).is_none());
        assert_eq!(ReqId::from_u64(b.to_u64()), b);
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn a_checked_out_request_keeps_its_id() {
        let mut slab = Slab::default();
        let a = slab.add(named(7));
        let req = slab.take(a).expect("it is there");
        assert!(slab.get(a).is_none() && slab.take(a).is_none() && slab.named(7).next().is_none());
        let b = slab.add(named(7));
        assert_ne!(a.slot, b.slot);
        assert_eq!(slab.insert(req), a);
        let found: Vec<ReqId> = slab.named(7).map(|(id, _)| id).collect();
        assert_eq!((found, slab.age(a), slab.age(b)), (vec![a, b], 0, 1));
        let req = slab.take(a).expect("it is there");
        slab.clear();
        assert!(slab.is_empty() && slab.get(b).is_none());
        assert_ne!(slab.insert(req), a);
        slab.release(a);
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn requests_are_found_by_user_data_newest_first() {
        let mut slab = Slab::default();
        let ids: Vec<ReqId> = (0..100).map(|i| slab.add(named(i % 10))).collect();
        let found = |slab: &Slab, ud| slab.named(ud).map(|(id, _)| id).collect::<Vec<_>>();
        let want = |ud: usize| ids.iter().copied().skip(ud).step_by(10).rev().collect::<Vec<_>>();
        assert_eq!(found(&slab, 3), want(3));
        slab.rename(ids[13], 77);
        slab.remove(ids[23]);
        let mut left = want(3);
        left.retain(|&id| id != ids[13] && id != ids[23]);
        assert_eq!((found(&slab, 3), found(&slab, 77)), (left, vec![ids[13]]));
        for id in ids {
            slab.remove(id);
        }
        assert!(slab.is_empty() && (0..100).all(|ud| found(&slab, ud).is_empty()));
    }
}
