//! Ways to send and to receive a piece of a stream.

use std::os::fd::RawFd;

use fastrand::Rng;

use super::super::sys;
use super::conn::Kind;
use super::stage::{BIT_BY_BIT, WHOLE};
use crate::sqe::{self, SqeExt};
use softring_uapi::*;

/// A file as an SQE names it.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    pub fd: RawFd,
    pub slot: Option<usize>,
}

impl Name {
    fn on(self, sqe: io_uring_sqe) -> io_uring_sqe {
        match self.slot {
            Some(slot) => sqe.set(|s| s.fd = slot as i32).fixed(),
            None => sqe.set(|s| s.fd = self.fd),
        }
    }
}

/// Writes a message of two parts to `page`.
fn message(page: usize, at: usize, len: usize) {
    let half = len / 2;
    sys::store(page + 64, [at as u64, half as u64, (at + half) as u64, (len - half) as u64]);
    sys::store(page, [0, 0, (page + 64) as u64, 2, 0, 0, 0u64]);
}

/// Kinds for which a way may be used: TCP, unix sockets, pipes.
#[derive(Debug)]
pub struct For(bool, bool, bool);

impl For {
    fn has(&self, kind: Kind) -> bool {
        match kind {
            Kind::Tcp => self.0,
            Kind::Unix => self.1,
            Kind::Pipe => self.2,
        }
    }
}

const SOCKETS: For = For(true, true, false);
const TCP: For = For(true, false, false);
const ALL: For = For(true, true, true);
const PIPES: For = For(false, false, true);

pub type Make = fn(usize, usize, usize) -> io_uring_sqe;

const HERE: u64 = u64::MAX;

/// Ways to send, or to receive; each makes its SQE from the page of headers, the address of the
/// data, and their length.
pub type Ways = &'static [(For, Make)];

/// Ways to send.
pub const SENDS: Ways = &[
    (ALL, |_, at, len| sqe::rw(IORING_OP_WRITE, 0, at, len, HERE)),
    (ALL, |page, _, _| sqe::rw(IORING_OP_WRITEV, 0, page + 64, 2, HERE)),
    (PIPES, |_, at, len| sqe::rw(IORING_OP_WRITE, 0, at, len, HERE).with(IOSQE_ASYNC)),
    (SOCKETS, |_, at, len| sqe::rw(IORING_OP_SEND, 0, at, len, 0)),
    (SOCKETS, |_, at, len| all(sqe::rw(IORING_OP_SEND, 0, at, len, 0))),
    (SOCKETS, |_, at, len| sqe::rw(IORING_OP_SEND, 0, at, len, 0).with(IOSQE_ASYNC)),
    (SOCKETS, |_, at, len| {
        let first = |s: &mut io_uring_sqe| s.ioprio = IORING_RECVSEND_POLL_FIRST;
        sqe::rw(IORING_OP_SEND, 0, at, len, 0).set(first)
    }),
    (SOCKETS, |page, _, _| sqe::rw(IORING_OP_SENDMSG, 0, page, 1, 0)),
    (SOCKETS, |page, _, _| all(sqe::rw(IORING_OP_SENDMSG, 0, page, 1, 0))),
    // From here on: without a copy.
    (TCP, |_, at, len| sqe::rw(IORING_OP_SEND_ZC, 0, at, len, 0)),
    (TCP, |_, at, len| all(sqe::rw(IORING_OP_SEND_ZC, 0, at, len, 0))),
    (TCP, |page, _, _| sqe::rw(IORING_OP_SENDMSG_ZC, 0, page, 1, 0)),
];

/// Ways to send that copy.
pub const COPYING: Ways = SENDS.split_at(SENDS.len() - 3).0;

fn all(sqe: io_uring_sqe) -> io_uring_sqe {
    sqe.op_flags(libc::MSG_WAITALL as u32)
}

fn select(op: u8, group: u16, ioprio: u16) -> io_uring_sqe {
    let sqe = sqe::op(op, 0).with(IOSQE_BUFFER_SELECT);
    sqe.set(|s| (s.buf_index, s.ioprio) = (group, ioprio))
}

/// Ways to receive.
pub const RECEIVES: Ways = &[
    (ALL, |_, at, len| sqe::rw(IORING_OP_READ, 0, at, len, HERE)),
    (ALL, |page, _, _| sqe::rw(IORING_OP_READV, 0, page + 64, 2, HERE)),
    (ALL, |_, _, _| select(IORING_OP_READ, WHOLE, 0).set(|s| s.off = HERE)),
    (PIPES, |_, _, _| select(IORING_OP_READ_MULTISHOT, WHOLE, 0).set(|s| s.off = HERE)),
    (PIPES, |_, _, _| select(IORING_OP_READ_MULTISHOT, BIT_BY_BIT, 0).set(|s| s.off = HERE)),
    (SOCKETS, |_, at, len| sqe::rw(IORING_OP_RECV, 0, at, len, 0)),
    (SOCKETS, |_, at, len| all(sqe::rw(IORING_OP_RECV, 0, at, len, 0))),
    (SOCKETS, |_, at, len| sqe::rw(IORING_OP_RECV, 0, at, len, 0).with(IOSQE_ASYNC)),
    (SOCKETS, |page, _, _| sqe::rw(IORING_OP_RECVMSG, 0, page, 1, 0)),
    (SOCKETS, |_, _, _| select(IORING_OP_RECV, WHOLE, 0)),
    (SOCKETS, |_, _, _| select(IORING_OP_RECV, BIT_BY_BIT, IORING_RECVSEND_POLL_FIRST)),
    (SOCKETS, |_, _, _| select(IORING_OP_RECV, WHOLE, IORING_RECV_MULTISHOT)),
    (SOCKETS, |_, _, _| select(IORING_OP_RECV, BIT_BY_BIT, IORING_RECV_MULTISHOT)),
    (SOCKETS, |_, _, _| select(IORING_OP_RECV, WHOLE, IORING_RECVSEND_BUNDLE)),
    (SOCKETS, |_, _, _| {
        select(IORING_OP_RECV, WHOLE, IORING_RECVSEND_BUNDLE | IORING_RECV_MULTISHOT)
    }),
];

fn way(rng: &mut Rng, ways: &[(For, Make)], kind: Kind, name: Name) -> Make {
    loop {
        let (fits, make) = &ways[rng.usize(..ways.len())];
        // A worker looks up a request's slot only when it starts the request.
        let slot = name.slot.is_none() || make(0, 0, 0).flags & IOSQE_ASYNC == 0;
        if fits.has(kind) && slot {
            return *make;
        }
    }
}

/// Picks any of the ways to move `len` bytes at `at`; `page` is memory for a message's header.
pub fn any(
    rng: &mut Rng,
    ways: Ways,
    (kind, name): (Kind, Name),
    page: usize,
    (at, len): (usize, usize),
) -> io_uring_sqe {
    message(page, at, len);
    name.on(way(rng, ways, kind, name)(page, at, len))
}

/// Makes a send of all buffers of a group at once.
pub fn bundle(name: Name, group: u16) -> io_uring_sqe {
    name.on(all(select(IORING_OP_SEND, group, IORING_RECVSEND_BUNDLE)))
}

/// Makes a read to `at`.
pub fn plain(name: Name, at: usize, len: usize) -> io_uring_sqe {
    name.on(sqe::rw(IORING_OP_READ, 0, at, len, HERE))
}

/// Returns whether this request completes more than once.
pub fn many(sqe: &io_uring_sqe) -> bool {
    sqe.opcode == IORING_OP_READ_MULTISHOT
        || sqe.opcode == IORING_OP_RECV && sqe.ioprio & IORING_RECV_MULTISHOT != 0
}
