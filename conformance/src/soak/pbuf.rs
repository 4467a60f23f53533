//! A ring of provided buffers, whose buffers are given back after they were read.

use std::sync::atomic::Ordering;

use super::{Check, ensure, sys};
use crate::ring::{Cqe, Map, Ring};
use crate::sqe::addr;
use softring_uapi::*;

/// A registered ring of buffers of equal size.
pub struct Pbufs {
    map: Map,
    data: Map,
    group: u16,
    entries: u16,
    each: usize,
    tail: u16,
    /// Flag, true for incremental buffers (`IOU_PBUF_RING_INC`).
    inc: bool,
    /// The last slot of each buffer in the ring, and the number of its used bytes.
    slots: Vec<u16>,
    used: Vec<usize>,
    /// The buffer in each slot of the ring.
    order: Vec<u16>,
}

impl Pbufs {
    /// Registers a ring; `entries` must be a power of two.
    pub fn new(ring: &Ring, group: u16, entries: u16, each: usize) -> Check<Self> {
        Self::with(ring, group, entries, each, 0)
    }

    /// Same as [`Self::new`] with `IOU_PBUF_RING_*` flags.
    pub fn with(ring: &Ring, group: u16, entries: u16, each: usize, flags: u16) -> Check<Self> {
        let no = |e| format!("no memory for buffers: errno {e}");
        let map = Map::anonymous(4096.max(usize::from(entries) * 16)).map_err(no)?;
        let data = Map::anonymous(usize::from(entries) * each).map_err(no)?;
        register(ring, &map, group, entries, flags)?;
        let n = usize::from(entries);
        let (slots, used, order) = (vec![0; n], vec![0; n], vec![0; n]);
        let inc = flags & IOU_PBUF_RING_INC != 0;
        let mut new = Pbufs { map, data, group, entries, each, tail: 0, inc, slots, used, order };
        (0..entries).for_each(|bid| new.give(bid));
        Ok(new)
    }

    /// Returns the number of buffers that the ring used up without a CQE. Nothing may be in flight.
    pub fn lost(&self, ring: &Ring) -> Check<u16> {
        let status = io_uring_buf_status { buf_group: self.group.into(), ..Default::default() };
        let got = ring.register(IORING_REGISTER_PBUF_STATUS, addr(&status), 1);
        ensure(got == 0, || format!("PBUF_STATUS: {got}"))?;
        let head = std::hint::black_box(&status).head as u16;
        Ok(self.entries.wrapping_sub(self.tail.wrapping_sub(head)))
    }

    /// Gives a buffer back.
    pub fn give(&mut self, bid: u16) {
        let slot = self.tail & (self.entries - 1);
        let from = self.data.addr + usize::from(bid) * self.each;
        put(&self.map, slot, from, self.each, bid);
        (self.slots[usize::from(bid)], self.used[usize::from(bid)]) = (slot, 0);
        self.order[usize::from(slot)] = bid;
        self.tail = self.tail.wrapping_add(1);
        sys::word16(&self.map, 14).store(self.tail, Ordering::Release);
    }

    /// Passes a completion's data to `look`, from one buffer or, for a bundle, also from those that
    /// follow it in the ring; gives each back afterwards.
    pub fn take(&mut self, cqe: &Cqe, mut look: impl FnMut(&[u8])) -> Check {
        if cqe.flags & IORING_CQE_F_BUFFER == 0 {
            return ensure(cqe.res <= 0, || format!("data without a buffer: {cqe:?}"));
        }
        let more = cqe.flags & IORING_CQE_F_BUF_MORE != 0;
        let mut bid = (cqe.flags >> IORING_CQE_BUFFER_SHIFT) as u16;
        let mut left = cqe.res.max(0) as usize;
        let all = self.each * usize::from(self.entries);
        ensure(bid < self.entries && left <= all, || format!("a buffer that is none: {cqe:?}"))?;
        let mut slot = self.slots[usize::from(bid)];
        loop {
            let used = self.used[usize::from(bid)];
            let n = left.min(self.each - used);
            look(&sys::bytes(self.data.addr + usize::from(bid) * self.each + used, n));
            left -= n;
            self.used[usize::from(bid)] += n;
            let room = self.inc && used + n < self.each;
            ensure(!self.inc || left > 0 || more == room, || {
                format!("{used} + {n} of {} bytes used: {cqe:?}", self.each)
            })?;
            if !room {
                self.give(bid);
            }
            if left == 0 {
                return Ok(());
            }
            slot = (slot + 1) & (self.entries - 1);
            bid = self.order[usize::from(slot)];
        }
    }
}

/// A ring of buffers that are given once, to be sent from.
#[derive(Debug)]
pub struct Offer {
    /// The kernel or softring reads the map until the ring is unregistered.
    _map: Map,
    group: u16,
}

impl Offer {
    /// Registers at most 16 pieces: an address and a length each.
    pub fn new(ring: &Ring, group: u16, pieces: &[(usize, usize)]) -> Check<Self> {
        let map = Map::anonymous(4096).map_err(|e| format!("no memory: errno {e}"))?;
        register(ring, &map, group, 16, 0)?;
        for (i, (at, len)) in (0..).zip(pieces) {
            put(&map, i, *at, *len, i);
        }
        sys::word16(&map, 14).store(pieces.len() as u16, Ordering::Release);
        Ok(Offer { _map: map, group })
    }

    /// Unregisters the ring, when nobody uses it any more.
    pub fn withdraw(self, ring: &Ring) -> Check {
        let reg = io_uring_buf_reg { bgid: self.group, ..Default::default() };
        let got = ring.register(IORING_UNREGISTER_PBUF_RING, addr(&reg), 1);
        ensure(got == 0, || format!("unregister PBUF_RING: {got}"))
    }
}

fn register(ring: &Ring, map: &Map, group: u16, entries: u16, flags: u16) -> Check {
    let reg = io_uring_buf_reg {
        ring_addr: map.addr as u64,
        ring_entries: entries.into(),
        bgid: group,
        flags,
        ..Default::default()
    };
    let got = ring.register(IORING_REGISTER_PBUF_RING, addr(&reg), 1);
    ensure(got == 0, || format!("PBUF_RING: {got}"))
}

fn put(map: &Map, slot: u16, from: usize, len: usize, bid: u16) {
    let at = map.addr + usize::from(slot) * 16;
    sys::store(at, from as u64);
    sys::store(at + 8, len as u32);
    sys::store(at + 12, bid);
}
