//! The statistics page of this very process, while its rings work.

mod client;

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use client::{Client, sqe};
use softring_engine::stats::{NAME, read};
use softring_uapi::*;

/// Reads the page of this process, which another test's thread may just be making.
fn page() -> read::Page {
    let find = || {
        for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
            let path = entry.unwrap().path();
            let link = std::fs::read_link(&path).unwrap_or_default();
            let named = link.to_string_lossy().starts_with(&format!("/memfd:{NAME}"));
            if let Some(page) = File::open(path).ok().filter(|_| named) {
                return read::file(softring_host::sys::borrow(page.as_raw_fd())?).ok();
            }
        }
        None
    };
    let mut page = find();
    until("no page", || {
        page = page.take().or_else(find);
        page.is_some()
    });
    page.unwrap()
}

/// Returns the ring with that many entries, which no other test makes.
fn ring(entries: u64) -> Option<read::Ring> {
    page().rings.into_iter().find(|r| r.sq_entries() == entries)
}

fn counted(r: &read::Ring, op: u8) -> u64 {
    r.latencies.get(&usize::from(op)).map_or(0, read::Latencies::count)
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn buffer(fd: i32, op: u8, to: &mut [u8]) -> io_uring_sqe {
    let addr = to.as_mut_ptr().expose_provenance() as u64;
    io_uring_sqe { fd, addr, len: to.len() as u32, ..sqe(op, 1) }
}

#[test]
fn errors_bytes_and_requests_in_flight_are_counted() {
    let c = Client::new(2, 0);
    let (r, mut w) = std::io::pipe().unwrap();
    let mut to = [0; 100];
    c.push(buffer(r.as_raw_fd(), IORING_OP_READ, &mut to));
    c.push(buffer(-1, IORING_OP_READ, &mut to));
    assert_eq!(c.enter(2, 1), 2);
    let s = ring(2).unwrap();
    assert_eq!((s.in_flight(), s.cqes(), s.errors(), s.op_errors(22)), (1, 1, 1, 1));
    std::thread::sleep(Duration::from_millis(20));
    w.write_all(&[1; 40]).unwrap();
    c.enter(0, 2);
    let s = ring(2).unwrap();
    assert_eq!((s.in_flight(), s.cqes(), s.read_bytes(), s.poll()), (0, 2, 40, 1));
    let waited = &s.latencies[&usize::from(IORING_OP_READ)];
    assert!(waited.quantile(1.0) > Some(20_000_000) && waited.mean() > Some(9_000_000));
    let mut from = [7; 30];
    c.push(buffer(w.as_raw_fd(), IORING_OP_WRITE, &mut from));
    assert_eq!(c.enter(1, 1), 1);
    assert_eq!(ring(2).unwrap().written_bytes(), 30);
}

#[test]
fn inline_requests_are_sampled() {
    let c = Client::new(4, 0);
    for _ in 0..5_000 {
        for ud in 0..4 {
            c.push(sqe(IORING_OP_NOP, ud));
        }
        assert_eq!(c.enter(4, 4), 4);
        while c.pop().is_some() {}
    }
    let s = ring(4).unwrap();
    assert_eq!((s.submitted(), s.cqes(), s.overflowed()), (20_000, 20_000, 0));
    let n = counted(&s, IORING_OP_NOP);
    assert!((19_000..=20_000).contains(&n), "{n}");
}

#[test]
fn overflows_are_counted() {
    let c = Client::new(8, 0);
    for _ in 0..3 {
        for ud in 0..8 {
            c.push(sqe(IORING_OP_NOP, ud));
        }
        assert_eq!(c.enter(8, 0), 8);
    }
    let s = ring(8).unwrap();
    assert_eq!((s.overflowed(), s.in_flight()), (8, 0));
}

#[test]
fn workers_are_counted() {
    let c = Client::new(16, 0);
    let f = File::open(std::env::current_exe().unwrap()).unwrap();
    for ud in 0..4 {
        c.push(io_uring_sqe { fd: f.as_raw_fd(), ..sqe(IORING_OP_FSYNC, ud) });
    }
    assert_eq!(c.enter(4, 4), 4);
    let s = ring(16).unwrap();
    let pool = s.pool.unwrap().bound;
    assert!(s.worker() == 4 && pool.workers > 0 && pool.max >= pool.workers, "{pool:?}");
    until("idle", || ring(16).unwrap().pool.unwrap().bound.running() == 0);
    assert_eq!(counted(&s, IORING_OP_FSYNC), 4);
}

#[test]
fn sums_include_ended_rings() {
    // There is a page from now on.
    let _first = Client::new(64, 0);
    for _ in 0..2 {
        let before = page().ended;
        let c = Client::new(32, 0);
        c.push(io_uring_sqe { fd: -1, ..sqe(IORING_OP_FSYNC, 1) });
        for ud in 0..3 {
            c.push(io_uring_sqe { fd: -1, ..sqe(IORING_OP_FADVISE, ud) });
        }
        c.enter(4, 4);
        drop(c);
        let sum = |op: u8, n: fn(&read::Ring, usize) -> u64| {
            n(&page().ended, usize::from(op)) - n(&before, usize::from(op))
        };
        until("the ring's end", || sum(IORING_OP_FADVISE, read::Ring::ops) == 3);
        until("its errors", || sum(IORING_OP_FSYNC, read::Ring::op_errors) >= 1);
        let latencies = |r: &read::Ring| counted(r, IORING_OP_FADVISE);
        until("its latencies", || latencies(&page().ended) - latencies(&before) == 3);
        assert!(ring(32).is_none());
    }
}
