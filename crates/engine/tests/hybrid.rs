//! Rings that sleep, on whatever disk the build directory is on.

mod client;
mod direct;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use client::Client;
use direct::{BLOCK, Block, file, keep, read};
use softring_uapi::*;

const HYBRID: u32 = IORING_SETUP_IOPOLL | IORING_SETUP_HYBRID_IOPOLL;

/// Reads `n` blocks at once, `rounds` times, and checks each.
fn reads(c: &Client, f: &std::fs::File, rounds: u32, n: u8) {
    let mut blocks = vec![Block([0xff; BLOCK]); usize::from(n)];
    for round in 0..rounds {
        for (i, to) in blocks.iter_mut().enumerate() {
            to.0[0] = 0xff;
            c.push(read(f, to, i as u64, i as u64));
        }
        assert_eq!(c.enter(u32::from(n), 1), isize::from(i16::from(n)));
        let mut seen = [false; 256];
        for _ in 0..n {
            let cqe = loop {
                match c.pop() {
                    Some(cqe) => break cqe,
                    None => assert_eq!(c.enter(0, 1), 0),
                }
            };
            assert_eq!(cqe.res, BLOCK as i32, "round {round}");
            let i = cqe.user_data as usize;
            assert!(!core::mem::replace(&mut seen[i], true), "{i} twice in round {round}");
            assert!(blocks[i].0.iter().all(|&b| usize::from(b) == i), "block {i}");
        }
    }
}

#[test]
fn a_ring_that_sleeps_finds_everything_once() {
    let Some(f) = file(64) else { return };
    for flags in [0, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN] {
        let c = Client::new(64, HYBRID | flags);
        for n in [1, 2, 17, 64] {
            reads(&c, &f, 100, n);
        }
    }
}

#[test]
fn several_threads_wait_for_one_ring() {
    let Some(f) = file(64) else { return };
    let c = Client::new(64, HYBRID);
    let (fd, done) = (c.fd, Arc::new(AtomicBool::new(false)));
    let waiter = || {
        let done = done.clone();
        std::thread::spawn(move || {
            while !done.load(Relaxed) {
                let flags = IORING_ENTER_GETEVENTS;
                assert!(softring_engine::syscall::enter(fd, 0, 1, flags, 0, 8) >= 0);
            }
        })
    };
    let waiters = [waiter(), waiter(), waiter()];
    reads(&c, &f, 200, 32);
    done.store(true, Relaxed);
    waiters.into_iter().for_each(|t| t.join().unwrap());
}

#[test]
fn ten_thousand_in_flight() {
    let Some(f) = file(64) else { return };
    let c = Client::new(16_384, HYBRID);
    let mut block = Block([0xff; BLOCK]);
    let n = 10_000;
    for i in 0..n {
        c.push(read(&f, &mut block, i % 64, i));
    }
    assert_eq!(c.enter(n as u32, 1), n as isize);
    let mut seen = vec![false; n as usize];
    let start = Instant::now();
    for _ in 0..n {
        let cqe = loop {
            match c.pop() {
                Some(cqe) => break cqe,
                None => assert_eq!(c.enter(0, 1), 0),
            }
            assert!(start.elapsed() < Duration::from_secs(60), "lost completions");
        };
        assert_eq!(cqe.res, BLOCK as i32);
        assert!(!core::mem::replace(&mut seen[cqe.user_data as usize], true));
    }
    assert!(c.pop().is_none());
}

#[test]
fn closed_with_reads_in_flight() {
    let Some(f) = file(8) else { return };
    for _ in 0..50 {
        let mut blocks = vec![Block([0xff; BLOCK]); 8];
        let c = Client::new(8, HYBRID);
        for (i, to) in blocks.iter_mut().enumerate() {
            c.push(read(&f, to, i as u64, i as u64));
        }
        assert_eq!(c.enter(8, 0), 8);
        drop(c);
        keep(blocks);
    }
}
