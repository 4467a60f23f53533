//! A ring of provided buffers whose buffers go back when they were read.

use std::sync::atomic::{AtomicU16, Ordering};

use super::{Check, ensure, sys};
use crate::ring::{Cqe, Map, Ring};
use crate::sqe::addr;
use softring_engine::abi::*;

/// A registered ring of buffers of equal size.
pub struct Pbufs {
    map: Map,
    data: Map,
    entries: u16,
    each: usize,
    tail: u16,
}

impl Pbufs {
    /// `entries` must be a power of two.
    pub fn new(ring: &Ring, group: u16, entries: u16, each: usize) -> Check<Self> {
        let no = |e| format!("no memory for buffers: errno {e}");
        let map = Map::anonymous(4096.max(usize::from(entries) * 16)).map_err(no)?;
        let data = Map::anonymous(usize::from(entries) * each).map_err(no)?;
        let reg = io_uring_buf_reg {
            ring_addr: map.addr as u64,
            ring_entries: entries.into(),
            bgid: group,
            ..Default::default()
        };
        let got = ring.register(IORING_REGISTER_PBUF_RING, addr(&reg), 1);
        ensure(got == 0, || format!("PBUF_RING: {got}"))?;
        let mut new = Pbufs { map, data, entries, each, tail: 0 };
        (0..entries).for_each(|bid| new.give(bid));
        Ok(new)
    }

    /// Puts a buffer back.
    pub fn give(&mut self, bid: u16) {
        let at = self.map.addr + usize::from(self.tail & (self.entries - 1)) * 16;
        let from = (self.data.addr + usize::from(bid) * self.each) as u64;
        sys::store(at, from);
        sys::store(at + 8, self.each as u32);
        sys::store(at + 12, bid);
        self.tail = self.tail.wrapping_add(1);
        self.tail_word().store(self.tail, Ordering::Release);
    }

    fn tail_word(&self) -> &AtomicU16 {
        sys::word16(&self.map, 14)
    }

    /// What a completion brought; its buffer goes back once it was looked at.
    pub fn take(&mut self, cqe: &Cqe, look: impl FnOnce(&[u8])) -> Check {
        if cqe.flags & IORING_CQE_F_BUFFER == 0 {
            return ensure(cqe.res <= 0, || format!("data without a buffer: {cqe:?}"));
        }
        let bid = (cqe.flags >> IORING_CQE_BUFFER_SHIFT) as u16;
        let n = cqe.res.max(0) as usize;
        ensure(bid < self.entries && n <= self.each, || format!("a buffer that is none: {cqe:?}"))?;
        let data = sys::bytes(self.data.addr + usize::from(bid) * self.each, n);
        look(&data);
        self.give(bid);
        Ok(())
    }
}
