//! Program of the tests of injected faults: `multishots poll|timeout` makes one multishot request,
//! and prints after how many results it has ended, or that it goes on after 16.
#![allow(unsafe_code)]

mod calls;

use calls::Libc;
use softring_client::{Cqe, Ring};
use softring_uapi::*;
use std::io::Write;
use std::os::fd::AsRawFd;

const SHOTS: u32 = 16;

fn next(ring: &mut Ring<Libc>) -> Cqe {
    loop {
        if let Some(cqe) = ring.pop() {
            return cqe;
        }
        ring.enter(0, 1, IORING_ENTER_GETEVENTS);
    }
}

/// Makes a multishot request, and takes its results; `event` is called before each.
fn take(request: io_uring_sqe, mut event: impl FnMut()) {
    let mut ring = Ring::new(Libc, 64, 0).expect("a ring");
    ring.push(request);
    while ring.sq_ready() > 0 {
        ring.enter(ring.sq_ready(), 0, 0);
    }
    for shot in 1..=SHOTS {
        event();
        let cqe = next(&mut ring);
        assert!(cqe.res > 0 || cqe.res == -libc::ETIME, "{}", cqe.res);
        if cqe.flags & IORING_CQE_F_MORE == 0 {
            return println!("ended after {shot}");
        }
    }
    println!("goes on after {SHOTS}");
}

fn poll() {
    let (from, mut to) = std::io::pipe().expect("a pipe");
    let request = io_uring_sqe {
        opcode: IORING_OP_POLL_ADD,
        fd: from.as_raw_fd(),
        len: IORING_POLL_ADD_MULTI,
        op_flags: 1,
        ..Default::default()
    };
    take(request, || to.write_all(&[1]).expect("room"));
}

fn timeout() {
    let period = kernel_timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    let request = io_uring_sqe {
        opcode: IORING_OP_TIMEOUT,
        fd: -1,
        addr: (&raw const period).expose_provenance() as u64,
        len: 1,
        op_flags: IORING_TIMEOUT_MULTISHOT,
        ..Default::default()
    };
    take(request, || ());
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("poll") => poll(),
        Some("timeout") => timeout(),
        _ => panic!("usage: multishots poll|timeout"),
    }
}
