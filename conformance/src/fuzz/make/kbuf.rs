//! Provided buffers: groups that are lists, and groups that are rings.

use super::Gen;
use super::pool::{Made, group_key};
use super::register::word;
use crate::fuzz::exec::arena::{PROVIDED, RING_ENTRIES, RINGS};
use crate::fuzz::program::{Cell, Host, Step, Supply, Val};
use softring_uapi::*;

/// Number of groups that programs use, and the length of their memory.
pub const GROUPS: usize = 4;
const LEN: u32 = 8192;

/// State of a group, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    None,
    Ring { entries: u16 },
}

impl Gen<'_> {
    /// Makes the request pick its buffer.
    pub(super) fn select(&mut self, made: &mut Made) {
        let beyond = u16::from(self.chance(5));
        let group = self.rng.u16(0..GROUPS as u16 + beyond);
        made.sqe.flags |= IOSQE_BUFFER_SELECT;
        made.sqe.addr =
            if made.sqe.op == IORING_OP_READV { made.sqe.addr.clone() } else { Val::Num(0) };
        made.sqe.buf_index = group;
        made.keys.push((group_key(group), true));
    }

    pub(super) fn provide(&mut self, op: u8) -> Made {
        let mut made = Made::default();
        let group = self.rng.u16(0..GROUPS as u16);
        (made.sqe.op, made.sqe.buf_index) = (op, group);
        made.keys.push((group_key(group), true));
        let n = self.rng.i64(1..9);
        made.sqe.fd = crate::fuzz::program::Fd::Num(match self.rng.u32(0..100) {
            0..94 => n,
            94..96 => 0,
            96..98 => 65_536,
            _ => 70_000,
        });
        if op == IORING_OP_PROVIDE_BUFFERS {
            let len = self.pick(&[1, 16, 100, 512, 1000]);
            made.sqe.len = len;
            made.sqe.addr = self.provided(group, n as u32 * len);
            made.sqe.off = Val::Num(self.pick(&[0, 0, 7, 65_530, 65_536]));
        }
        made
    }

    /// Returns a place in a group's memory for `len` bytes.
    fn provided(&mut self, group: u16, len: u32) -> Val {
        let off = self.rng.u32(0..LEN.saturating_sub(len).max(1));
        let buf = PROVIDED + group as u8 % GROUPS as u8;
        if self.chance(96) { Val::Buf(buf, off) } else { Val::Bad(self.bad()) }
    }

    /// Registers the groups that a program starts with.
    pub(super) fn buffer_rings(&mut self) {
        for group in 0..GROUPS as u16 {
            match self.rng.u32(0..10) {
                0..5 => self.register_ring(group),
                5..8 => {
                    let mut made = self.provide(IORING_OP_PROVIDE_BUFFERS);
                    made.sqe.buf_index = group;
                    made.sqe.addr = self.provided(group, 4096);
                    self.queue(made, &mut Vec::new());
                }
                _ => {}
            }
        }
    }

    fn register_ring(&mut self, group: u16) {
        let entries = match self.rng.u32(0..100) {
            0..92 => self.pick(&[1, 2, 4, 8, 8, 16, RING_ENTRIES]),
            _ => self.pick(&[0, 3, 32_768]),
        };
        let mut flags = if self.chance(35) { IOU_PBUF_RING_INC } else { 0 };
        // A ring of more than a page is mapped by the kernel as a whole or not at all.
        let mapped = entries <= RING_ENTRIES && self.chance(20);
        if mapped {
            flags |= IOU_PBUF_RING_MMAP;
        }
        if self.chance(3) {
            flags |= 1 << self.rng.u16(2..16);
        }
        let mem = group as u8 % RINGS;
        // Entries beyond the page would lie in unmapped memory.
        let at = if self.chance(96) { Val::Ring(mem) } else { Val::Bad(self.bad()) };
        let cells = vec![
            Cell::U64(if mapped { Val::Num(0) } else { at }),
            Cell::U32(u32::from(entries)),
            Cell::U16(group),
            Cell::U16(flags),
            word(0),
            word(u64::from(self.chance(2))),
            word(0),
        ];
        self.call(0, IORING_REGISTER_PBUF_RING, Val::Mem(cells), 1);
        if mapped {
            self.steps.push(Step::Host(Host::MapBuffers { ring: 0, group, mem }));
        }
        self.groups[usize::from(group) % GROUPS] = Group::Ring { entries: entries.max(1) };
        if self.chance(85) {
            let act = self.supply_of(group);
            self.steps.push(Step::Host(act));
        }
    }

    /// Makes buffers for one of the rings.
    pub(super) fn supply(&mut self) -> Host {
        let group = self.rng.u16(0..GROUPS as u16);
        self.supply_of(group)
    }

    fn supply_of(&mut self, group: u16) -> Host {
        let entries = match self.groups[usize::from(group) % GROUPS] {
            Group::Ring { entries } => entries.min(RING_ENTRIES),
            Group::None => 4,
        };
        let n = self.rng.u16(0..entries.min(8) + 1);
        let bufs: Vec<_> = (0..n).map(|i| self.entry(group, i)).collect();
        let tail = if self.chance(93) {
            n
        } else {
            self.pick(&[0, entries, entries.wrapping_add(1), 0x8000, u16::MAX])
        };
        Host::Supply(Supply { mem: group as u8 % RINGS, entries, bufs, tail })
    }

    fn entry(&mut self, group: u16, i: u16) -> (Val, u32, u16) {
        let len = match self.rng.u32(0..100) {
            0..92 => self.pick(&[1, 16, 100, 512, 2000, 4096]),
            // recvmsg(2) cuts a longer length, and the kernel takes it for negative.
            _ => self.pick(&[0, 0x7fff_ffff]),
        };
        let bid = if self.chance(90) { i } else { self.rng.u16(..) };
        (self.provided(group, len.min(4096)), len, bid)
    }

    /// Makes a register call about groups.
    pub(super) fn buffer_call(&mut self) {
        let group = self.rng.u16(0..GROUPS as u16 + 1);
        match self.rng.u32(0..10) {
            0..3 => self.register_ring(group % GROUPS as u16),
            3..5 => {
                let cells = vec![word(0), Cell::U32(0), Cell::U16(group), Cell::U16(0)];
                let rest = [word(0), word(u64::from(self.chance(4))), word(0)];
                let arg = Val::Mem(cells.into_iter().chain(rest).collect());
                self.call(0, IORING_UNREGISTER_PBUF_RING, arg, 1);
            }
            5..8 => {
                let head = [Cell::U32(u32::from(group)), Cell::U32(0)];
                let rest = (0..8).map(|_| Cell::U32(0));
                let arg = Val::Mem(head.into_iter().chain(rest).collect());
                self.call(0, IORING_REGISTER_PBUF_STATUS, arg, 1);
            }
            _ => {
                let act = self.supply_of(group % GROUPS as u16);
                self.steps.push(Step::Host(act));
            }
        }
    }
}
