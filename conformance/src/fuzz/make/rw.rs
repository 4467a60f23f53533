//! Reads and writes in their eight forms.

use super::Gen;
use super::pool::{BUFFER_TABLE, Made, buf_key, iovecs, slot_key, waits};
use crate::fuzz::program::{Fd, Slot, Val};
use softring_uapi::*;

/// `RWF_*` that change only how a request waits, and some that are refused.
const RW_FLAGS: [u32; 8] = [0x2, 0x4, 0x8, 0x10, 0x20, 0x40, 0x80, 0x1];

/// Returns the number of bytes from there to the end of the buffer.
pub(super) fn room(at: &Val) -> u32 {
    if let Val::Buf(_, off) = at { 8192u32.saturating_sub(*off) } else { 0 }
}

impl Gen<'_> {
    pub(super) fn rw(&mut self, op: u8) -> Made {
        let write = matches!(
            op,
            IORING_OP_WRITE | IORING_OP_WRITEV | IORING_OP_WRITE_FIXED | IORING_OP_WRITEV_FIXED
        );
        let mut made = Made::default();
        made.sqe.op = op;
        if op == IORING_OP_READ_MULTISHOT {
            return self.read_multishot(made);
        }
        self.file(&mut made, true);
        if made.sqe.flags & IOSQE_FIXED_FILE == 0 && self.chance(80) {
            let slot = self.data_slot(write);
            made.sqe.fd = Fd::Slot(slot);
            made.keys = vec![(slot_key(slot), true)];
            made.arms = waits(slot);
        }
        made.sqe.off = Val::Num(self.offset());
        match op {
            IORING_OP_READ | IORING_OP_WRITE => {
                made.sqe.addr = self.buf(&mut made, !write);
                made.sqe.len = self.length();
            }
            IORING_OP_READV | IORING_OP_WRITEV => self.vectors(&mut made, !write),
            IORING_OP_READ_FIXED | IORING_OP_WRITE_FIXED => self.fixed_buffer(&mut made, !write),
            _ => self.fixed_vectors(&mut made, !write),
        }
        if self.net && matches!(op, IORING_OP_READ | IORING_OP_READV) && self.chance(30) {
            self.select(&mut made);
            if op == IORING_OP_READ {
                made.sqe.len = self.pick(&[0, 0, 10, 5000]);
            }
        }
        if self.chance(12) {
            made.sqe.op_flags = self.pick(&RW_FLAGS);
        }
        if self.chance(3) {
            made.sqe.ioprio = self.pick(&[0x4000, 0x2004, 0x6000, 0xffff, 7]);
        }
        made
    }

    fn read_multishot(&mut self, mut made: Made) -> Made {
        let streams = [Slot::PipeR, Slot::NbR, Slot::Event, Slot::SockA, Slot::TcpB, Slot::SeqB];
        let slot = if self.chance(85) { self.pick(&streams) } else { self.slot(true).0 };
        made.sqe.fd = Fd::Slot(slot);
        made.keys.push((slot_key(slot), true));
        (made.arms, made.again) = (true, true);
        made.sqe.off = Val::Num(self.pick(&[u64::MAX, u64::MAX, 0]));
        self.select(&mut made);
        if self.chance(5) {
            made.sqe.len = 100;
        }
        made
    }

    pub(super) fn vectors(&mut self, made: &mut Made, into: bool) {
        let n = self.rng.usize(0..5);
        // If memory ends in the middle, the kernel's SEND_ZC sends nothing, softring's the mapped
        // prefix.
        let whole = matches!(made.sqe.op, IORING_OP_SEND_ZC | IORING_OP_SENDMSG_ZC);
        let parts = (0..n).map(|_| {
            let base = self.buf(made, into);
            let most = if whole { room(&base) } else { 9000 };
            (base, u64::from(self.length().min(most)))
        });
        made.sqe.addr = iovecs(parts.collect());
        made.sqe.len = n as u32;
        if self.chance(4) {
            made.sqe.len = self.pick(&[1024, 1025, u32::MAX, 16]);
        }
    }

    /// Uses registered buffer `i` with addresses of the arena's buffer `i`.
    fn fixed_buffer(&mut self, made: &mut Made, into: bool) {
        let beyond = u8::from(self.chance(10));
        let i = self.rng.u8(0..self.buffers.max(1) + beyond);
        made.keys.extend([(buf_key(i % 8), into), (BUFFER_TABLE, false)]);
        let off = if self.chance(60) { 0 } else { self.rng.u32(0..8192) };
        made.sqe.addr = Val::Buf(i, off);
        made.sqe.len = self.length();
        if self.chance(80) {
            made.sqe.len = made.sqe.len.min(8192 - off);
        }
        made.sqe.buf_index = u16::from(i);
    }

    fn fixed_vectors(&mut self, made: &mut Made, into: bool) {
        let i = self.rng.u8(0..self.buffers.max(1));
        made.keys.extend([(buf_key(i % 8), into), (BUFFER_TABLE, false)]);
        let n = self.rng.usize(1..4);
        let parts = (0..n).map(|_| {
            let off = self.rng.u32(0..8192);
            (Val::Buf(i, off), u64::from(self.length().min(8192 - off)))
        });
        made.sqe.addr = iovecs(parts.collect());
        made.sqe.len = n as u32;
        made.sqe.buf_index = u16::from(i);
    }
}
