//! Sends and receives.

use super::Gen;
use super::kbuf::Group;
use super::pool::{BUFFER_TABLE, Made, buf_key, slot_key};
use super::rw::room;
use crate::fuzz::program::{Cell, Fd, Out, Slot, Val};
use softring_uapi::*;

/// `MSG_*` that a send takes. MSG_MORE is left out: data that it holds back are sent after a time.
const SEND_FLAGS: [i32; 7] =
    [0, 0, libc::MSG_DONTWAIT, libc::MSG_WAITALL, libc::MSG_EOR, libc::MSG_NOSIGNAL, libc::MSG_OOB];
const RECV_FLAGS: [i32; 9] = [
    0,
    0,
    libc::MSG_DONTWAIT,
    libc::MSG_WAITALL,
    libc::MSG_PEEK,
    libc::MSG_TRUNC,
    libc::MSG_ERRQUEUE,
    libc::MSG_OOB,
    libc::MSG_CMSG_CLOEXEC,
];

fn num(v: u64) -> Cell {
    Cell::U64(Val::Num(v))
}

impl Gen<'_> {
    pub(super) fn transfer(&mut self, op: u8) -> Made {
        let mut made = Made::default();
        made.sqe.op = op;
        made.arms = true;
        self.socket_file(&mut made);
        match op {
            IORING_OP_SEND | IORING_OP_SEND_ZC => self.send(&mut made),
            IORING_OP_SENDMSG | IORING_OP_SENDMSG_ZC => self.sendmsg(&mut made),
            IORING_OP_RECV => self.recv(&mut made),
            _ => self.recvmsg(&mut made),
        }
        if self.chance(15) {
            made.sqe.ioprio |= IORING_RECVSEND_POLL_FIRST;
        }
        if matches!(op, IORING_OP_SEND_ZC | IORING_OP_SENDMSG_ZC) {
            self.zero_copy(&mut made);
        }
        made
    }

    /// Picks the end of a connection, mostly.
    pub(super) fn socket_file(&mut self, made: &mut Made) {
        if self.chance(20) {
            self.file(made, true);
            made.arms = true;
            return;
        }
        let slot = if self.chance(95) { self.pick(&Slot::ENDS) } else { self.socket_slot() };
        made.sqe.fd = Fd::Slot(slot);
        made.keys.push((slot_key(slot), true));
    }

    fn send_flags(&mut self, made: &mut Made) {
        if self.chance(40) {
            made.sqe.op_flags = self.pick(&SEND_FLAGS).cast_unsigned();
        }
    }

    fn send(&mut self, made: &mut Made) {
        made.sqe.addr = self.buf(made, false);
        made.sqe.len = self.length();
        if made.sqe.op == IORING_OP_SEND_ZC {
            made.sqe.len = made.sqe.len.min(room(&made.sqe.addr));
        }
        self.send_flags(made);
        if self.chance(10) {
            let (to, key) = self.address();
            made.keys.extend(key.map(|k| (k, true)));
            made.sqe.off = to;
            made.sqe.file = Fd::Num(self.pick(&[16, 16, 16, 110, 8, 0, 200]));
        }
        if self.chance(12) {
            self.vectors(made, false);
            made.sqe.ioprio |= IORING_SEND_VECTORIZED;
        } else if made.sqe.op == IORING_OP_SEND && self.chance(25) {
            self.select(made);
            made.sqe.len = self.pick(&[0, 0, 10, 1000]);
            if self.chance(50) {
                made.sqe.ioprio |= IORING_RECVSEND_BUNDLE;
            }
        }
    }

    /// Returns a destination, and the key of the socket there.
    fn address(&mut self) -> (Val, Option<u64>) {
        match self.rng.u32(0..10) {
            0..6 => {
                let slot = self.pick(&[Slot::UdpA, Slot::UdpB, Slot::TcpL]);
                (Val::Addr(slot), Some(slot_key(slot)))
            }
            6..8 => (Val::Addr(Slot::UnixL), Some(slot_key(Slot::UnixL))),
            _ => (Val::Mem((0..16).map(Cell::U8).collect()), None),
        }
    }

    fn zero_copy(&mut self, made: &mut Made) {
        if self.chance(70) {
            // Only these sockets have urgent data.
            let slot = self.pick(&[Slot::TcpA, Slot::TcpB, Slot::UdpA, Slot::UdpB]);
            made.sqe.flags &= !IOSQE_FIXED_FILE;
            made.sqe.fd = Fd::Slot(slot);
            made.keys.push((slot_key(slot), true));
        }
        if self.chance(40) {
            made.sqe.ioprio |= IORING_SEND_ZC_REPORT_USAGE;
        }
        if made.sqe.op == IORING_OP_SEND_ZC && self.chance(25) {
            let i = self.rng.u8(0..self.buffers.max(1));
            made.keys.extend([(buf_key(i % 8), false), (BUFFER_TABLE, false)]);
            made.sqe.ioprio |= IORING_RECVSEND_FIXED_BUF;
            made.sqe.ioprio &= !IORING_SEND_VECTORIZED;
            (made.sqe.addr, made.sqe.buf_index) = (Val::Buf(i, 0), u16::from(i));
            made.sqe.len = self.length().min(9000);
        }
    }

    fn recv_flags(&mut self, made: &mut Made) {
        if self.chance(40) {
            made.sqe.op_flags = self.pick(&RECV_FLAGS).cast_unsigned();
        }
    }

    fn recv(&mut self, made: &mut Made) {
        self.recv_flags(made);
        if self.chance(45) {
            made.sqe.addr = self.buf(made, true);
            made.sqe.len = self.length();
            return;
        }
        self.select(made);
        made.sqe.len = self.pick(&[0, 0, 0, 10, 700, 5000]);
        if self.chance(55) {
            self.many(made);
            if self.chance(15) {
                made.sqe.file = Fd::Num(self.pick(&[1, 100, 5000]));
            }
        }
        // For a list the kernel's bundle may end earlier or later, depending on the vector that it
        // keeps.
        let group = self.groups.get(usize::from(made.sqe.buf_index));
        if matches!(group, Some(Group::Ring { .. })) && self.chance(30) {
            made.sqe.ioprio |= IORING_RECVSEND_BUNDLE;
        }
    }

    /// Makes a request multishot.
    fn many(&mut self, made: &mut Made) {
        made.sqe.ioprio |= IORING_RECV_MULTISHOT;
        made.again = true;
        if self.chance(90) {
            made.sqe.op_flags &= !libc::MSG_WAITALL.cast_unsigned();
        }
    }

    /// Makes a header whose vector is `iov` of `n` parts.
    fn header(&mut self, name: Val, namelen: u32, iov: Val, n: u64, control: u64) -> Val {
        let at = if control > 0 { Val::Out(Out::Raw(64)) } else { Val::Num(0) };
        let cells = [Cell::U64(name), Cell::U32(namelen), Cell::U32(0), Cell::U64(iov), num(n)];
        let rest = [Cell::U64(at), num(control), Cell::U32(self.pick(&[0, 0, 7])), Cell::U32(0)];
        Val::Mem(cells.into_iter().chain(rest).collect())
    }

    fn sendmsg(&mut self, made: &mut Made) {
        self.vectors(made, false);
        let (iov, n) = (std::mem::take(&mut made.sqe.addr), u64::from(made.sqe.len));
        let (mut name, mut len) = (Val::Num(0), 0);
        if self.chance(12) {
            let (to, key) = self.address();
            made.keys.extend(key.map(|k| (k, true)));
            (name, len) = (to, self.pick(&[16, 16, 110, 4, u32::MAX]));
        }
        made.sqe.addr = self.header(name, len, iov, n, 0);
        made.sqe.len = 1;
        self.send_flags(made);
    }

    fn recvmsg(&mut self, made: &mut Made) {
        self.recv_flags(made);
        let select = self.chance(50);
        let (iov, n) = if select {
            self.select(made);
            let part = vec![num(0), num(self.pick(&[0, 50, 5000]))];
            if self.chance(70) { (Val::Num(0), 0) } else { (Val::Mem(part), 1) }
        } else {
            self.vectors(made, true);
            (std::mem::take(&mut made.sqe.addr), u64::from(made.sqe.len))
        };
        if select && self.chance(60) {
            self.many(made);
        }
        // A name in a provided buffer holds a port and would differ in each run.
        let named = made.sqe.ioprio & IORING_RECV_MULTISHOT == 0 && self.chance(30);
        let name = if named { Val::Out(Out::Name) } else { Val::Num(0) };
        let len = if named { self.pick(&[128, 16, 2]) } else { 0 };
        let control = if self.chance(25) { self.pick(&[64, 16, 1]) } else { 0 };
        made.sqe.addr = self.header(name, len, iov, n, control);
        made.sqe.len = 1;
    }
}
