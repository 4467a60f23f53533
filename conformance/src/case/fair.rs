//! Multishot receives of several sockets that all have data. A receive that reaches its retry limit
//! goes on behind the others; with DEFER_TASKRUN, when its task next runs task work.

use super::pbuf::{GROUP, reg, register, supply};
use super::prelude::*;
use std::io::Write;
use std::os::unix::net::UnixStream;

pub const CASES: &[Case] = &[
    any_order!("fair", bundle_takes_all, [Op(IORING_OP_RECV)], "a bundle takes all data of a socket"),
    any_order!("fair", bundle_with_length, [
        Op(IORING_OP_RECV),
    ], "a bundle with a length takes that length, then the next request has its turn"),
    any_order!("fair", receive_retry_limit, [
        Op(IORING_OP_RECV),
    ], "a receive without bundles has 33 turns in a row"),
    case!("fair", exclusive_poll, [Op(IORING_OP_POLL_ADD)], "a wake-up of an exclusive poll wakes no request behind it"),
    any_order!("fair", accept_before_worker, [Op(IORING_OP_ACCEPT), Sqe(IOSQE_IO_LINK)], "an earlier ACCEPT comes before one that waits in a worker"),
    any_order!("fair", read_in_worker, [Op(IORING_OP_READ), Sqe(IOSQE_ASYNC)], "a request that returns to a worker leaves the data to other requests"),
];

const SOCKETS: u64 = 3;
const BUFFER: usize = 256;
const BUFFERS: usize = 256;

/// Provides enough buffers for all receives.
fn buffers(cx: &mut Cx, ring: &Ring, mem: &mut [u8]) {
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    cx.is("register", register(ring, &reg(page, BUFFERS as u32, 0)), 0isize);
    supply(page, 0, BUFFERS as u16, mem, BUFFER);
}

/// Records the CQEs of each call until `bytes` of every socket are received, by requests of `sqe`.
fn turns(cx: &mut Cx, bytes: usize, sqe: impl Fn(i32) -> io_uring_sqe) -> Outcome {
    for waits in [true, false] {
        let mut ring = cx.ring(256, DEFER)?;
        let mut mem = vec![0; BUFFER * BUFFERS];
        buffers(cx, &ring, &mut mem);
        let sockets = (0..SOCKETS).map(|_| UnixStream::pair()).collect::<Result<Vec<_>, _>>()?;
        let sqes: Vec<_> =
            (0..).zip(&sockets).map(|(ud, (_, to))| sqe(to.as_raw_fd()).ud(ud)).collect();
        if waits {
            cx.start(&mut ring, &sqes);
        }
        for (from, _) in &sockets {
            (&*from).write_all(&vec![b'x'; bytes])?;
        }
        if !waits {
            cx.start(&mut ring, &sqes);
        }
        let mut left = bytes * SOCKETS as usize;
        for call in 0.. {
            let got = ring.pop_all();
            let list: Vec<_> = got.iter().map(|c| format!("{}:{}", c.user_data, c.res)).collect();
            cx.note(&format!("call {call}"), list.join(" "));
            let n: usize = got.iter().map(|c| c.res.max(0) as usize).sum();
            left = left.saturating_sub(n);
            if left == 0 || (n == 0 && call > 0) {
                break;
            }
            ring.enter(0, 0, IORING_ENTER_GETEVENTS);
        }
        cx.is("left", left, 0);
    }
    Ok(())
}

fn receive(fd: i32, len: usize, ioprio: u16) -> io_uring_sqe {
    let sqe = sqe::rw(IORING_OP_RECV, fd, 0, len, 0).with(IOSQE_BUFFER_SELECT);
    sqe.set(|s| (s.buf_index, s.ioprio) = (GROUP, IORING_RECV_MULTISHOT | ioprio))
}

fn bundle_takes_all(cx: &mut Cx) -> Outcome {
    turns(cx, 5000, |fd| receive(fd, 0, IORING_RECVSEND_BUNDLE))
}

pub(super) fn bundle_with_length(cx: &mut Cx) -> Outcome {
    turns(cx, 3000, |fd| receive(fd, 512, IORING_RECVSEND_BUNDLE))?;
    turns(cx, 2000, |fd| receive(fd, 300, IORING_RECVSEND_BUNDLE))
}

pub(super) fn receive_retry_limit(cx: &mut Cx) -> Outcome {
    turns(cx, 64 * 40, |fd| receive(fd, 64, 0))
}

fn exclusive_poll(cx: &mut Cx) -> Outcome {
    const EPOLLEXCLUSIVE: u32 = 1 << 28;
    let mut ring = cx.ring(8, 0)?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let fd = listener.as_raw_fd();
    let poll = sqe::poll_add(fd, libc::POLLIN).set(|s| s.op_flags |= EPOLLEXCLUSIVE);
    let accept = sqe::op(IORING_OP_ACCEPT, fd);
    cx.start(&mut ring, &[poll.ud(1), accept.ud(2)]);
    let _client = std::net::TcpStream::connect(listener.local_addr()?)?;
    std::thread::sleep(std::time::Duration::from_millis(20));
    let told: Vec<_> = ring.pop_all().iter().map(|c| (c.user_data, c.res.min(1))).collect();
    cx.eq("told", told, vec![(1, libc::POLLIN.into())]);
    Ok(())
}

/// Checks which of two accepts takes a connection. The second is an open chain, which a worker runs
/// and waits for in accept(2).
fn accept_before_worker(cx: &mut Cx) -> Outcome {
    let mut first = 0;
    for _ in 0..20 {
        let mut ring = cx.ring(8, 0)?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let accept = sqe::op(IORING_OP_ACCEPT, listener.as_raw_fd());
        cx.start(&mut ring, &[accept.ud(1), accept.link().ud(2)]);
        cx.quiet(&ring, "wait", 5);
        let _client = std::net::TcpStream::connect(listener.local_addr()?)?;
        let got = ring.take(1)?[0];
        drop(os::own(got.res));
        first += u32::from(got.user_data == 1);
    }
    cx.note("of 20 the first has taken", first);
    Ok(())
}

/// Checks the order of two reads of one socket. The kernel wakes the read that was armed last
/// first, and passes it to a worker if the read is IOSQE_ASYNC.
fn read_in_worker(cx: &mut Cx) -> Outcome {
    for (name, flags) in [("plain", 0), ("deferred", DEFER)] {
        for (how, first, last) in [
            ("neither", 0, 0),
            ("the last", 0, IOSQE_ASYNC),
            ("the first", IOSQE_ASYNC, 0),
            ("both", IOSQE_ASYNC, IOSQE_ASYNC),
        ] {
            let mut ring = cx.ring(8, flags)?;
            let (a, b) = UnixStream::pair()?;
            let mut mem = [[0; 8]; 2];
            for (ud, forced) in [(1, first), (2, last)] {
                let read = sqe::read(a.as_raw_fd(), &mut mem[ud as usize - 1], 0);
                cx.start(&mut ring, &[read.with(forced).ud(ud)]);
                cx.quiet(&ring, "waits", 20);
            }
            (&b).write_all(b"x")?;
            ring.submit_wait(1);
            // The worker and the ring's task are woken at the same time: either may be first.
            let races = last != 0 && flags == 0;
            let told = |c: &Cqe| (if races { 0 } else { c.user_data }, c.res);
            let got: Vec<_> = ring.take(1)?.iter().map(told).collect();
            cx.note(&format!("{name}, {how} forced"), format_args!("{got:?}"));
        }
    }
    Ok(())
}
