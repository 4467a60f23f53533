//! Waits for events, futexes and children.

use super::Gen;
use super::pool::{Made, buf_key, child_key, slot_key};
use super::register::word;
use crate::fuzz::exec::arena::FUTEXES;
use crate::fuzz::program::{Cell, Fd, Out, Slot, Val};
use softring_uapi::*;

/// Initial value of the futexes.
const HELD: u64 = 0x4848_4848;
const U32: u64 = 2;
/// `FUTEX2_NUMA` and `FUTEX2_MPOL`: softring has no futexes of nodes.
const NODES: u64 = 12;
const PRIVATE: u64 = 128;

impl Gen<'_> {
    pub(super) fn wait(&mut self, op: u8) -> Made {
        let mut made = Made::default();
        made.sqe.op = op;
        match op {
            IORING_OP_EPOLL_CTL => self.epoll_ctl(&mut made),
            IORING_OP_EPOLL_WAIT => self.epoll_wait(&mut made),
            IORING_OP_FUTEX_WAITV => self.futex_any(&mut made),
            IORING_OP_WAITID => self.waitid(&mut made),
            _ => self.futex(&mut made),
        }
        made
    }

    fn epoll_ctl(&mut self, made: &mut Made) {
        made.sqe.fd = Fd::Slot(if self.chance(95) { Slot::Epoll } else { Slot::SockA });
        let watched = !self.watched.is_empty() && self.chance(40);
        let slot = if watched {
            self.watched[self.rng.usize(0..self.watched.len())]
        } else {
            let streams = [Slot::PipeR, Slot::NbR, Slot::Event, Slot::FullW, Slot::A];
            if self.chance(60) { self.pick(&Slot::ENDS) } else { self.pick(&streams) }
        };
        made.keys.extend([(slot_key(Slot::Epoll), true), (slot_key(slot), false)]);
        made.sqe.off = Val::Fd(Fd::Slot(slot));
        let op = self.pick(&[libc::EPOLL_CTL_ADD, libc::EPOLL_CTL_MOD, libc::EPOLL_CTL_DEL]);
        made.sqe.len = if watched { op as u32 } else { libc::EPOLL_CTL_ADD as u32 };
        if self.chance(4) {
            made.sqe.len = 9;
        }
        let events = self.pick(&[1, 1, 4, 5, 0x2001, 1 << 31 | 1, 1 << 30 | 1, 1 << 28 | 1, 0]);
        let data = 100 + slot as u32;
        made.sqe.addr = Val::Mem(vec![Cell::U32(events), Cell::U32(data), Cell::U32(7)]);
        if !self.watched.contains(&slot) {
            self.watched.push(slot);
        }
    }

    fn epoll_wait(&mut self, made: &mut Made) {
        made.sqe.fd = Fd::Slot(if self.chance(95) { Slot::Epoll } else { Slot::A });
        made.keys.push((slot_key(Slot::Epoll), true));
        // The events of the watched files are shared.
        made.keys.extend(self.watched.iter().map(|s| (slot_key(*s), false)));
        made.sqe.addr = Val::Out(Out::Raw(300));
        made.sqe.len = self.pick(&[1, 2, 4, 4, 0, u32::MAX]).min(1 << 31);
        (made.arms, made.loud) = (true, true);
    }

    fn word_at(&mut self) -> Val {
        let odd = u32::from(self.chance(3));
        Val::Buf(FUTEXES, 4 * self.rng.u32(0..4) + odd)
    }

    fn futex(&mut self, made: &mut Made) {
        let wakes = made.sqe.op == IORING_OP_FUTEX_WAKE;
        made.keys.push((buf_key(FUTEXES), true));
        made.arms = !wakes;
        made.sqe.addr = self.word_at();
        let flags = if self.chance(96) { U32 } else { self.rng.u64(0..256) & !NODES };
        let private = if self.chance(60) { PRIVATE } else { 0 };
        made.sqe.fd = Fd::Num((flags | private) as i64);
        let value = if wakes { self.pick(&[1, 1, 2, 9, 0]) } else { HELD };
        made.sqe.off = Val::Num(if self.chance(90) { value } else { self.pick(&[1, 1 << 32]) });
        let mask = self.pick(&[u64::from(u32::MAX), u64::from(u32::MAX), 1, 2, 0, 1 << 32]);
        made.sqe.addr3 = Val::Num(mask);
    }

    fn futex_any(&mut self, made: &mut Made) {
        made.keys.push((buf_key(FUTEXES), true));
        made.arms = true;
        let n = self.rng.u32(1..4);
        let mut cells = Vec::new();
        for _ in 0..n {
            let value = if self.chance(93) { HELD } else { 1 };
            let at = self.word_at();
            let private = if self.chance(60) { PRIVATE } else { 0 };
            let flags = (U32 | private) as u32;
            cells.extend([word(value), Cell::U64(at), Cell::U32(flags), Cell::U32(0)]);
        }
        made.sqe.addr = Val::Mem(cells);
        made.sqe.len = if self.chance(95) { n } else { self.pick(&[0, 129, u32::MAX]) };
    }

    fn waitid(&mut self, made: &mut Made) {
        let i = self.rng.u8(0..3);
        made.arms = true;
        made.sqe.len = match self.rng.u32(0..100) {
            0..60 => libc::P_PID,
            60..75 => libc::P_PGID,
            75..93 => libc::P_ALL,
            _ => self.pick(&[libc::P_PIDFD, 9]),
        };
        made.sqe.fd = Fd::Child(i);
        if made.sqe.len == libc::P_ALL {
            made.loud = true;
            made.keys.extend((0..3).map(|i| (child_key(i), true)));
        } else {
            made.keys.push((child_key(i), true));
        }
        let options = match self.rng.u32(0..100) {
            0..55 => libc::WEXITED,
            55..65 => libc::WEXITED | libc::WNOHANG,
            65..73 => libc::WEXITED | libc::WNOWAIT,
            73..83 => libc::WSTOPPED,
            83..90 => libc::WEXITED | libc::WSTOPPED | libc::WCONTINUED,
            90..96 => libc::WCONTINUED,
            _ => self.pick(&[0, libc::WNOHANG, 1 << 20]),
        };
        made.sqe.file = Fd::Num(i64::from(options));
        made.sqe.off = if self.chance(85) { Val::Out(Out::Child) } else { Val::Num(0) };
    }
}
