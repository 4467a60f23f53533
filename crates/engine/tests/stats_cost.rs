//! What the statistics page costs: one ring counts on it, one does not, and they take turns of a
//! few milliseconds, so that what else the machine does hits both alike. Measures, so it runs by
//! hand:
//!
//! ```text
//! cargo test --release -p softring-engine --test stats_cost -- --ignored --nocapture
//! ```

mod client;

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use client::{Client, sqe};
use softring_engine::abi::*;

const BATCH: u32 = 32;
const BLOCK: usize = 4096;
const BLOCKS: usize = 1024;
const TURN: Duration = Duration::from_millis(4);
const PAIRS: usize = 250;
const O_DIRECT: i32 = 0o40000;

/// A block of its own, aligned as O_DIRECT wants it.
#[derive(Clone)]
#[repr(align(4096))]
struct Block([u8; BLOCK]);

/// Requests done in one turn, per second.
fn turn(c: &Client, round: &mut impl FnMut(&Client) -> u32) -> f64 {
    let (start, mut done) = (Instant::now(), 0);
    while start.elapsed() < TURN {
        done += round(c);
    }
    f64::from(done) / start.elapsed().as_secs_f64()
}

fn compare(name: &str, rings: &[Client; 2], mut round: impl FnMut(&Client) -> u32) {
    let mut ratios = Vec::new();
    for pair in 0..PAIRS + 10 {
        // Who is first changes, too.
        let first = pair % 2;
        let a = turn(&rings[first], &mut round);
        let b = turn(&rings[1 - first], &mut round);
        if pair >= 10 {
            ratios.push(if first == 0 { a / b } else { b / a });
        }
    }
    ratios.sort_by(f64::total_cmp);
    let at = |share: f64| ratios[(share * (ratios.len() - 1) as f64) as usize];
    let (q1, median, q3) = (at(0.25), at(0.5), at(0.75));
    println!("{name:<28} with / without: {median:.4}  (quartiles {q1:.4} {q3:.4})");
}

fn drain(c: &Client) -> u32 {
    let mut n = 0;
    while let Some(cqe) = c.pop() {
        assert!(cqe.res >= 0, "{}", cqe.res);
        n += 1;
    }
    n
}

fn read(f: &File, to: &mut Block, block: usize) -> io_uring_sqe {
    let addr = to.0.as_mut_ptr().expose_provenance() as u64;
    let off = (block % BLOCKS * BLOCK) as u64;
    io_uring_sqe { fd: f.as_raw_fd(), addr, len: BLOCK as u32, off, ..sqe(IORING_OP_READ, 1) }
}

/// Reads of blocks here and there.
fn reads(f: &File) -> impl FnMut(&Client) -> u32 {
    let (mut to, mut at) = (vec![Block([0; BLOCK]); BATCH as usize], 0);
    move |c| {
        for block in &mut to {
            at += 331;
            c.push(read(f, block, at));
        }
        assert_eq!(c.enter(BATCH, BATCH), BATCH as isize);
        drain(c)
    }
}

#[test]
#[ignore = "measures"]
fn costs() {
    let with = Client::new(2 * BATCH, 0);
    softring_engine::stats::disable();
    let rings = [with, Client::new(2 * BATCH, 0)];
    compare("NOP, 32 per enter", &rings, |c| {
        (0..BATCH).for_each(|ud| c.push(sqe(IORING_OP_NOP, ud.into())));
        assert_eq!(c.enter(BATCH, BATCH), BATCH as isize);
        drain(c)
    });
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("stats-cost");
    let mut file = File::create(&path).unwrap();
    file.write_all(&vec![7; BLOCKS * BLOCK]).unwrap();
    file.sync_all().unwrap();
    let cached = File::open(&path).unwrap();
    compare("cached 4 KiB reads, 32", &rings, reads(&cached));
    match File::options().read(true).custom_flags(O_DIRECT).open(&path) {
        Ok(direct) => compare("O_DIRECT 4 KiB reads, 32", &rings, reads(&direct)),
        Err(e) => println!("O_DIRECT: skipped: {e}"),
    }
    std::fs::remove_file(&path).unwrap();
    let pairs: Vec<_> = (0..BATCH / 2).map(|_| UnixStream::pair().unwrap()).collect();
    let mut bytes = [0u8; 64];
    compare("socket: 16 RECV, 16 SEND", &rings, |c| {
        let addr = bytes.as_mut_ptr().expose_provenance() as u64;
        for (a, _) in &pairs {
            c.push(io_uring_sqe { fd: a.as_raw_fd(), addr, len: 64, ..sqe(IORING_OP_RECV, 1) });
        }
        for (_, b) in &pairs {
            c.push(io_uring_sqe { fd: b.as_raw_fd(), addr, len: 64, ..sqe(IORING_OP_SEND, 2) });
        }
        assert_eq!(c.enter(BATCH, BATCH), BATCH as isize);
        drain(c)
    });
}
