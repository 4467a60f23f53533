//! Requests about other requests, rings and time.

use super::Gen;
use super::pool::{BUFFER_TABLE, FIXED_TABLE, Made, OPEN, slot_key, timespec};
use crate::fuzz::program::{Fd, Slot, Val};
use softring_uapi::*;

/// Seconds that stand for "does not happen while the program runs": as a relative time, and as an
/// absolute time of any clock.
const LONG: i64 = 4_000_000_000;

impl Gen<'_> {
    pub(super) fn ctl(&mut self, op: u8) -> Made {
        let mut made = Made::default();
        made.sqe.op = op;
        match op {
            IORING_OP_NOP => self.nop(&mut made),
            IORING_OP_POLL_ADD => self.poll_add(&mut made),
            IORING_OP_POLL_REMOVE => self.poll_remove(&mut made),
            IORING_OP_TIMEOUT => self.timeout(&mut made),
            IORING_OP_TIMEOUT_REMOVE => self.timeout_remove(&mut made),
            IORING_OP_LINK_TIMEOUT => self.link_timeout(&mut made),
            IORING_OP_ASYNC_CANCEL => self.cancel(&mut made),
            _ => self.msg_ring(&mut made),
        }
        made
    }

    fn nop(&mut self, made: &mut Made) {
        if self.chance(60) {
            return;
        }
        made.sqe.op_flags = match self.rng.u32(0..100) {
            0..70 => 1 << self.rng.u32(0..6),
            70..95 => self.rng.u32(0..64),
            _ => 1 << self.rng.u32(6..32),
        };
        made.sqe.len = self.pick(&[0, 1, 77, u32::MAX, (-22i32).cast_unsigned()]);
        made.sqe.fd = Fd::Num(self.rng.i64(-1..6));
        made.sqe.buf_index = self.rng.u16(0..4);
        made.keys.extend([(FIXED_TABLE, false), (BUFFER_TABLE, false)]);
    }

    fn poll_events(&mut self) -> u32 {
        self.pick(&[1, 1, 4, 5, 0x2000, 0x2001, 1 << 30 | 1, 1 << 31 | 1, 0, 0x19, u32::MAX])
    }

    fn poll_add(&mut self, made: &mut Made) {
        if self.chance(45) {
            // The poll waits: there is nothing to read, or no room to write.
            use Slot::{Event, FullW, NbR, PipeR, SockA, SockB};
            let (slot, events) =
                self.pick(&[(PipeR, 1), (NbR, 1), (Event, 1), (SockA, 1), (SockB, 1), (FullW, 4)]);
            made.sqe.fd = Fd::Slot(slot);
            made.keys.push((slot_key(slot), false));
            made.sqe.op_flags = events;
        } else {
            self.file(made, false);
            made.sqe.op_flags = self.poll_events();
        }
        made.arms = true;
        made.sqe.len = match self.rng.u32(0..100) {
            0..70 => 0,
            70..95 => IORING_POLL_ADD_MULTI,
            _ => self.pick(&[IORING_POLL_ADD_LEVEL, 2, 4, 16, 9]),
        };
    }

    /// Returns the user_data of a request that is probably still there.
    fn target(&mut self, of: &[u8]) -> u64 {
        let live = self.live.iter().filter(|(_, op)| of.is_empty() || of.contains(op));
        let live: Vec<u64> = live.map(|(ud, _)| *ud).collect();
        match live.len() {
            0 => self.rng.u64(0..self.ud + 1),
            n if self.chance(90) => live[self.rng.usize(0..n)],
            _ => self.rng.u64(0..self.ud + 3),
        }
    }

    fn poll_remove(&mut self, made: &mut Made) {
        let target = self.target(&[IORING_OP_POLL_ADD]);
        made.sqe.addr = Val::Num(target);
        if self.chance(45) {
            made.sqe.len = self.pick(&[2, 3, 4, 5, 6, 7, 1, 8, 16]);
            made.sqe.op_flags = self.poll_events();
            made.sqe.off = Val::Num(500 + self.ud);
            if made.sqe.len & 4 != 0 {
                self.live.push((500 + self.ud, IORING_OP_POLL_ADD));
            }
        }
    }

    /// Returns a time soon or never, and whether it is soon.
    fn time(&mut self, soon: u32) -> (Val, bool) {
        let soon = self.chance(soon);
        let (sec, nsec) = match self.rng.u32(0..100) {
            0..90 if soon => (0, self.pick(&[0, 1, 100_000, 1_000_000])),
            0..90 => (LONG, 0),
            90..95 => (-1, 0),
            95..97 => (0, -5),
            97..98 => (0, 1_000_000_000),
            _ => (i64::MAX, 999_999_999),
        };
        (timespec(sec, nsec), soon)
    }

    fn timeout(&mut self, made: &mut Made) {
        let (time, soon) = self.time(35);
        made.sqe.addr = time;
        made.soon = soon;
        made.sqe.len = if self.chance(96) { 1 } else { 2 };
        made.sqe.op_flags = match self.rng.u32(0..100) {
            0..50 => 0,
            50..60 => IORING_TIMEOUT_ETIME_SUCCESS,
            60..68 => IORING_TIMEOUT_BOOTTIME,
            68..76 => IORING_TIMEOUT_REALTIME,
            76..82 if soon => IORING_TIMEOUT_ABS,
            82..92 => IORING_TIMEOUT_MULTISHOT,
            _ => self.rng.u32(0..256),
        };
        let multishot = made.sqe.op_flags & IORING_TIMEOUT_MULTISHOT != 0;
        // `off` is a count of completions, unless the time expires first; or a number of
        // repetitions.
        if multishot && soon || !soon && self.chance(25) {
            made.sqe.off = Val::Num(self.rng.u64(1..4));
        }
        made.arms = true;
    }

    fn timeout_remove(&mut self, made: &mut Made) {
        let target = self.target(&[IORING_OP_TIMEOUT, IORING_OP_LINK_TIMEOUT]);
        made.sqe.addr = Val::Num(target);
        if self.chance(40) {
            let update = self.pick(&[IORING_TIMEOUT_UPDATE, IORING_LINK_TIMEOUT_UPDATE]);
            made.sqe.op_flags = update;
            if self.chance(15) {
                made.sqe.op_flags |= self.pick(&[1, 4, 8, 12, 32, 64, 128]);
            }
            (made.sqe.off, made.soon) = self.time(50);
        }
    }

    fn link_timeout(&mut self, made: &mut Made) {
        // The time is long enough not to race with the limited request.
        let soon = self.chance(40);
        made.soon = soon;
        made.sqe.addr = if soon { timespec(0, 2_000_000) } else { self.time(0).0 };
        made.sqe.len = if self.chance(96) { 1 } else { 0 };
        if self.chance(12) {
            // An expired time would race with the limited request.
            made.sqe.op_flags = self.rng.u32(0..128) & !(u32::from(soon) * IORING_TIMEOUT_ABS);
        }
    }

    fn cancel(&mut self, made: &mut Made) {
        let target = self.target(&[]);
        made.sqe.addr = Val::Num(target);
        if self.chance(45) {
            return;
        }
        let flags = match self.rng.u32(0..100) {
            0..85 => self.pick(&[1, 2, 3, 4, 5, 0x0a, 0x0b, 0x10, 0x11, 0x12, 0x13, 0x20, 0x21]),
            _ => self.rng.u32(0..128),
        };
        made.sqe.op_flags = flags;
        if flags & (IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_FD_FIXED) != 0 {
            let (slot, _) = self.slot(false);
            made.keys.push((OPEN, false));
            let fixed = flags & IORING_ASYNC_CANCEL_FD_FIXED != 0;
            made.sqe.fd = if fixed { Fd::Num(self.rng.i64(0..5)) } else { Fd::Slot(slot) };
        }
        if flags & IORING_ASYNC_CANCEL_OP != 0 {
            made.sqe.len = self.pick(&[6, 11, 22, 1, 0, 300]);
        }
    }

    fn msg_ring(&mut self, made: &mut Made) {
        made.sqe.fd = if self.chance(75) {
            Fd::Ring(u8::from(self.two && self.chance(70)))
        } else {
            Fd::Slot(self.slot(false).0)
        };
        made.sqe.off = Val::Num(9000 + self.ud);
        if self.chance(65) {
            made.sqe.len = self.pick(&[0, 7, u32::MAX, 0x7fff_ffff]);
            if self.chance(25) {
                made.sqe.op_flags = self.pick(&[1, 2, 3, 4]);
                // IORING_CQE_F_32 is left out: only a ring with mixed CQEs supports it.
                made.sqe.file = Fd::Num(self.rng.i64(0..70_000) & !0x8000);
            }
        } else {
            made.sqe.addr = Val::Num(self.pick(&[1, 1, 1, 1, 2]));
            made.sqe.addr3 = Val::Num(self.rng.u64(0..6));
            made.sqe.file = Fd::Num(self.pick(&[-1, 0, 1, 2, 9]));
            made.sqe.op_flags = self.pick(&[0, 0, 1]);
            made.keys.push((FIXED_TABLE, true));
        }
    }
}
