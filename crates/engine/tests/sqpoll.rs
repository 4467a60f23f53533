//! SQ threads: 64 rings that share one, and rings that are closed while theirs is busy.
#![allow(unsafe_code)]

mod client;

use std::sync::Barrier;
use std::time::{Duration, Instant};

use client::{Client, Engine, sqe};
use softring_client::Calls;
use softring_engine::syscall;
use softring_uapi::*;

const RINGS: usize = 64;
const DEPTH: u32 = 32;

/// Wakes the thread, if it has gone to sleep.
fn wake(ring: &Client) {
    if ring.sq_flags() & IORING_SQ_NEED_WAKEUP != 0 {
        assert!(syscall::enter(ring.fd, 0, 0, IORING_ENTER_SQ_WAKEUP, 0, 8) >= 0);
    }
}

/// Submits NOPs as fast as the queue takes them, until `end`; returns how many came back.
fn load(rings: &[Client], end: Instant) -> Vec<u64> {
    let mut done = vec![0; rings.len()];
    while Instant::now() < end {
        for (ring, done) in rings.iter().zip(&mut done) {
            while ring.pop().is_some() {
                *done += 1;
            }
            // The queue is never empty: a ring that shares the thread wants it, too. It is filled
            // once: later SQEs might come to more than the CQ has room for, and only a program that
            // enters sees overflowed CQEs.
            for _ in ring.queued()..DEPTH {
                ring.push(sqe(IORING_OP_NOP, 1));
            }
            wake(ring);
        }
        std::thread::yield_now();
    }
    done
}

#[test]
fn rings_that_share_a_thread_get_their_share() {
    let mut rings = vec![Client::with(polled(0, None))];
    let first = rings[0].fd;
    rings.extend((1..RINGS).map(|_| Client::with(polled(0, Some(first)))));
    let done = load(&rings, Instant::now() + Duration::from_millis(1500));
    let mean = done.iter().sum::<u64>() / RINGS as u64;
    let least = done.iter().min().copied().unwrap();
    assert!(mean > 0 && least * 2 >= mean, "mean {mean}, least {least}: {done:?}");
}

fn polled(idle: u32, attach: Option<i32>) -> io_uring_params {
    let attaches = if attach.is_some() { IORING_SETUP_ATTACH_WQ } else { 0 };
    io_uring_params {
        flags: IORING_SETUP_SQPOLL | attaches,
        sq_entries: DEPTH,
        sq_thread_idle: idle,
        wq_fd: attach.unwrap_or(0).cast_unsigned(),
        ..Default::default()
    }
}

/// A ring's memory may go as soon as `close` has returned. Here it is a mapping of the test's own;
/// if the thread still read it, the test would die of SIGSEGV or SIGBUS.
#[test]
fn a_busy_sq_thread_releases_a_closed_ring() {
    for round in 0..200 {
        let ring = Client::of_own_memory(polled(50, None));
        let other = Client::with(polled(50, Some(ring.fd)));
        for _ in 0..round % 8 {
            ring.push(sqe(IORING_OP_NOP, 1));
        }
        // Closes, and unmaps at once.
        drop(ring);
        other.push(sqe(IORING_OP_NOP, 2));
        let start = Instant::now();
        while other.pop().is_none() {
            assert!(start.elapsed() < Duration::from_secs(10));
            // On a busy machine the thread may have seen nothing for as long as it polls.
            wake(&other);
        }
    }
}

/// One thread closes the last ring of an SQ thread while another attaches to it.
#[test]
fn attaching_to_an_ending_sq_thread_works() {
    for _ in 0..100 {
        let (first, start) = (Client::with(polled(1, None)), Barrier::new(2));
        let fd = first.fd;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                let mut p = polled(1, Some(fd));
                let fd = Engine.setup(DEPTH, (&raw mut p).expose_provenance());
                if fd >= 0 {
                    // The ring has a thread, whichever: a NOP comes back.
                    let ring = Client::from_fd(fd as i32, p);
                    ring.push(sqe(IORING_OP_NOP, 3));
                    let flags = IORING_ENTER_GETEVENTS | IORING_ENTER_SQ_WAKEUP;
                    syscall::enter(ring.fd, 1, 1, flags, 0, 8);
                    assert_eq!(ring.pop().map(|c| c.user_data), Some(3));
                }
            });
            start.wait();
            drop(first);
        });
    }
}
