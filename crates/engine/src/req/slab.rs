//! Requests that wait, in one growing table; an id names a slot and its generation, so that a late event for a
//! request long gone finds nothing instead of somebody else.

use super::request::Req;

/// Names a waiting request. Never 0, so that 0 can mean "the ring itself" in event data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReqId {
    slot: u32,
    generation: u32,
}

impl ReqId {
    /// As event data (epoll, aio).
    pub const fn to_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }

    /// From event data.
    pub const fn from_u64(v: u64) -> Self {
        ReqId { slot: v as u32, generation: (v >> 32) as u32 }
    }
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    req: Option<Req>,
}

/// The table of waiting requests.
#[derive(Debug, Default)]
pub struct Slab {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Slab {
    pub fn with_capacity(n: usize) -> Self {
        Slab { slots: Vec::with_capacity(n), free: Vec::with_capacity(n) }
    }

    pub fn insert(&mut self, req: Req) -> ReqId {
        if let Some(slot) = self.free.pop() {
            let s = &mut self.slots[slot as usize];
            s.req = Some(req);
            return ReqId { slot, generation: s.generation };
        }
        let slot = self.slots.len() as u32;
        self.slots.push(Slot { generation: 1, req: Some(req) });
        ReqId { slot, generation: 1 }
    }

    pub fn get(&self, id: ReqId) -> Option<&Req> {
        let s = self.slots.get(id.slot as usize)?;
        if s.generation == id.generation { s.req.as_ref() } else { None }
    }

    pub fn get_mut(&mut self, id: ReqId) -> Option<&mut Req> {
        let s = self.slots.get_mut(id.slot as usize)?;
        if s.generation == id.generation { s.req.as_mut() } else { None }
    }

    pub fn remove(&mut self, id: ReqId) -> Option<Req> {
        let s = self.slots.get_mut(id.slot as usize)?;
        if s.generation != id.generation {
            return None;
        }
        let req = s.req.take()?;
        s.generation = s.generation.wrapping_add(1).max(1);
        self.free.push(id.slot);
        Some(req)
    }

    /// Waiting requests, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (ReqId, &Req)> {
        self.slots.iter().enumerate().filter_map(|(i, s)| {
            let id = ReqId { slot: i as u32, generation: s.generation };
            s.req.as_ref().map(|r| (id, r))
        })
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives memory back once nothing waits any more.
    pub fn shrink(&mut self) {
        if self.is_empty() && self.slots.capacity() > 1024 {
            *self = Slab::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_id_finds_nothing() {
        let mut slab = Slab::default();
        let a = slab.insert(Req::default());
        assert!(slab.remove(a).is_some());
        let b = slab.insert(Req::default());
        assert!(slab.get(a).is_none() && slab.get(b).is_some());
        assert!(slab.remove(a).is_none());
        assert_eq!(ReqId::from_u64(b.to_u64()), b);
        assert_eq!(slab.len(), 1);
    }
}
