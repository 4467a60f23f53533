//! Sockets as a whole: SOCKET, BIND, CONNECT, LISTEN, ACCEPT, URING_CMD, SHUTDOWN.

use super::Gen;
use super::pool::{FILES, Made, slot_key, ud_key};
use super::register::word;
use crate::fuzz::program::{Cell, Fd, Out, Slot, Val};
use softring_uapi::*;

/// Options of SOL_SOCKET with the same value in every run.
const OPTIONS: [i32; 8] = [
    libc::SO_TYPE,
    libc::SO_ERROR,
    libc::SO_DOMAIN,
    libc::SO_RCVBUF,
    libc::SO_REUSEADDR,
    libc::SO_KEEPALIVE,
    libc::SO_ACCEPTCONN,
    999,
];

impl Gen<'_> {
    pub(super) fn socket(&mut self, op: u8) -> Made {
        let mut made = Made::default();
        made.sqe.op = op;
        match op {
            IORING_OP_ACCEPT => self.accept(&mut made),
            IORING_OP_CONNECT => self.connect(&mut made),
            IORING_OP_SOCKET => self.new_socket(&mut made),
            IORING_OP_BIND => self.bind(&mut made),
            IORING_OP_URING_CMD => self.command(&mut made),
            IORING_OP_LISTEN => {
                self.lone(&mut made);
                made.sqe.len = self.pick(&[0, 1, 64, u32::MAX]);
            }
            _ => {
                self.socket_file(&mut made);
                made.sqe.len = self.pick(&[0, 1, 1, 2, 3]);
            }
        }
        made
    }

    /// Gives a request's new descriptor a key, which no other request shares.
    fn opens(&mut self, made: &mut Made) {
        self.direct(made);
        if made.sqe.file == Fd::Num(0) {
            let key = ud_key(self.ud);
            made.keys.push((key, true));
            self.opened.push((self.ud, key));
        }
    }

    fn accept(&mut self, made: &mut Made) {
        let slot = match self.rng.u32(0..100) {
            0..60 => Slot::TcpL,
            60..92 => Slot::UnixL,
            _ => self.socket_slot(),
        };
        made.sqe.fd = Fd::Slot(slot);
        made.keys.push((slot_key(slot), true));
        made.arms = true;
        if self.chance(25) {
            made.sqe.addr = Val::Out(Out::Name);
            made.sqe.off = Val::Mem(vec![Cell::U32(self.pick(&[128, 16, 1, 0]))]);
        }
        if self.chance(20) {
            made.sqe.op_flags = self.pick(&[libc::SOCK_NONBLOCK, libc::SOCK_CLOEXEC, 1]) as u32;
        }
        if self.chance(40) {
            made.sqe.ioprio |= IORING_ACCEPT_MULTISHOT;
            made.again = true;
        }
        if self.chance(15) {
            made.sqe.ioprio |= self.pick(&[IORING_ACCEPT_DONTWAIT, IORING_ACCEPT_POLL_FIRST]);
        }
        self.opens(made);
        if made.again && made.sqe.file != Fd::Num(0) && self.chance(85) {
            made.sqe.file = Fd::Num(-1);
        }
    }

    fn lone(&mut self, made: &mut Made) {
        let slot = match self.rng.u32(0..100) {
            0..45 => Slot::TcpN,
            45..80 => Slot::UnixN,
            _ => self.socket_slot(),
        };
        made.sqe.fd = Fd::Slot(slot);
        made.keys.push((slot_key(slot), true));
        if !self.opened.is_empty() && self.chance(35) {
            let (of, key) = self.opened[self.rng.usize(0..self.opened.len())];
            made.sqe.fd = Fd::Of(of);
            made.keys.extend([(ud_key(of), true), (key, true)]);
        }
    }

    fn connect(&mut self, made: &mut Made) {
        self.lone(made);
        made.arms = true;
        let to = match self.rng.u32(0..100) {
            0..55 => Slot::TcpL,
            55..80 => Slot::UnixL,
            80..88 => Slot::TcpA,
            _ => self.socket_slot(),
        };
        made.keys.push((slot_key(to), true));
        made.sqe.addr = Val::Addr(to);
        made.sqe.off = Val::Num(self.pick(&[16, 16, 16, 110, 2, 200]));
    }

    fn new_socket(&mut self, made: &mut Made) {
        let domain = self.pick(&[libc::AF_INET, libc::AF_INET, libc::AF_UNIX, 99]);
        made.sqe.fd = Fd::Num(i64::from(domain));
        let kind = self.pick(&[libc::SOCK_STREAM, libc::SOCK_STREAM, libc::SOCK_DGRAM, 9]);
        let more = self.pick(&[0, 0, libc::SOCK_NONBLOCK, libc::SOCK_CLOEXEC, 0x4000]);
        made.sqe.off = Val::Num((kind | more) as u64);
        self.opens(made);
    }

    fn bind(&mut self, made: &mut Made) {
        self.lone(made);
        made.keys.push((FILES, true));
        let unix = |name: &[u8]| {
            let bytes = [1, 0].iter().chain(name).chain(&[0; 13]).copied();
            Val::Mem(bytes.take(16).map(Cell::U8).collect())
        };
        made.sqe.addr = match self.rng.u32(0..10) {
            0..5 => {
                let bytes = [2, 0, 0, 0, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
                Val::Mem(bytes.map(Cell::U8).to_vec())
            }
            5..7 => unix(b"s0"),
            7 => unix(b"a"),
            8 => Val::Addr(Slot::TcpL),
            _ => Val::Bad(self.bad()),
        };
        made.sqe.off = Val::Num(self.pick(&[16, 16, 16, 2, 0, 129]));
    }

    fn command(&mut self, made: &mut Made) {
        self.socket_file(made);
        let what = match self.rng.u32(0..10) {
            0..3 => SOCKET_URING_OP_SIOCINQ,
            3..6 => SOCKET_URING_OP_GETSOCKOPT,
            6..9 => SOCKET_URING_OP_SETSOCKOPT,
            // With room for a time in a CQE the request would wait for a time.
            _ if self.wide => 99,
            _ => self.pick(&[SOCKET_URING_OP_TX_TIMESTAMP, 99]),
        };
        made.sqe.off = Val::Num(u64::from(what) | u64::from(self.chance(3)) << 32);
        if what == SOCKET_URING_OP_SIOCINQ {
            return;
        }
        let level = if self.chance(90) { libc::SOL_SOCKET } else { libc::IPPROTO_TCP };
        let name = self.pick(&OPTIONS);
        made.sqe.addr = Val::Num(level as u64 | (name as u64) << 32);
        made.sqe.file = Fd::Num(self.pick(&[4, 4, 4, 8, 2, 0, -1]));
        made.sqe.addr3 = if what == SOCKET_URING_OP_GETSOCKOPT {
            Val::Out(Out::Raw(16))
        } else {
            Val::Mem(vec![word(self.pick(&[0, 1, 4096]))])
        };
    }
}
