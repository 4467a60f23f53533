//! Cost of something that can be there or not: loads, in turns of a few milliseconds with it and
//! without, so that the machine's other work affects both alike.
#![allow(dead_code)]

use softring_testing::skipped;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::time::ClockId;

use super::client::{Client, sqe};
use softring_uapi::*;

pub const BATCH: u32 = 32;
const BLOCK: usize = 4096;
const BLOCKS: usize = 1024;
const TURN: Duration = Duration::from_millis(3);
pub const PAIRS: usize = 250;
const O_DIRECT: i32 = 0o40000;

/// Block of its own, aligned for O_DIRECT.
#[derive(Clone)]
#[repr(align(4096))]
struct Block([u8; BLOCK]);

/// Round of requests on a ring; returns how many were done.
pub type Round = Box<dyn FnMut(&Client) -> u32>;
/// Maker of the next request, whose number in [`BATCH`] it gets.
pub type Next = Box<dyn FnMut(u32) -> io_uring_sqe>;

/// Returns the number of requests done in one turn, per second: of processor time of this thread
/// with CPU=1, which a busy machine disturbs less.
pub fn turn(c: &Client, round: &mut dyn FnMut(&Client) -> u32) -> f64 {
    let by_processor = std::env::var_os("CPU").is_some_and(|v| v == "1");
    let now = |clock| Duration::try_from(rustix::time::clock_gettime(clock)).expect("positive");
    let clock = if by_processor { ClockId::ThreadCPUTime } else { ClockId::Monotonic };
    let (begun, start, mut done) = (now(clock), Instant::now(), 0);
    while start.elapsed() < TURN {
        done += round(c);
    }
    f64::from(done) / (now(clock) - begun).as_secs_f64()
}

/// Compares turns that `side` takes with it, and without.
pub fn compare(name: &str, mut side: impl FnMut(bool) -> f64) {
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS + 10 {
        // The order of the two changes, too.
        let first = pair % 2 == 0;
        let (a, b) = (side(first), side(!first));
        if pair >= 10 {
            let (with, without) = if first { (a, b) } else { (b, a) };
            ratios.push(with / without);
            rates.push(without);
        }
    }
    [&mut ratios, &mut rates].into_iter().for_each(|list| list.sort_by(f64::total_cmp));
    let rate = rates[rates.len() / 2] / 1000.0;
    let at = |share: f64| ratios[(share * (ratios.len() - 1) as f64) as usize];
    let (q1, median, q3) = (at(0.25), at(0.5), at(0.75));
    print!("{name:<28} with / without: {median:.4}  (quartiles {q1:.4} {q3:.4}), ");
    println!("without {rate:.0} K/s");
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

/// Reads blocks here and there.
fn reads(f: File) -> Next {
    let (mut to, mut at) = (vec![Block([0; BLOCK]); BATCH as usize], 0);
    Box::new(move |n| {
        at += 331;
        read(&f, &mut to[n as usize], at)
    })
}

fn nops() -> Next {
    Box::new(|n| sqe(IORING_OP_NOP, n.into()))
}

/// Returns loads that complete at once: NOPs, and reads of a cached file.
pub fn at_once() -> Vec<(&'static str, Next)> {
    vec![("NOP", nops()), ("cached 4 KiB read", reads(files().0))]
}

/// Submits all in one call.
fn batch(mut next: Next) -> Round {
    Box::new(move |c| {
        (0..BATCH).for_each(|n| c.push(next(n)));
        assert_eq!(c.enter(BATCH, BATCH), BATCH as isize);
        drain(c)
    })
}

fn sockets() -> Round {
    let pairs: Vec<_> = (0..BATCH / 2).map(|_| UnixStream::pair().unwrap()).collect();
    let mut bytes = [0u8; 64];
    Box::new(move |c| {
        let addr = bytes.as_mut_ptr().expose_provenance() as u64;
        for (a, _) in &pairs {
            c.push(io_uring_sqe { fd: a.as_raw_fd(), addr, len: 64, ..sqe(IORING_OP_RECV, 1) });
        }
        for (_, b) in &pairs {
            c.push(io_uring_sqe { fd: b.as_raw_fd(), addr, len: 64, ..sqe(IORING_OP_SEND, 2) });
        }
        assert_eq!(c.enter(BATCH, BATCH), BATCH as isize);
        drain(c)
    })
}

/// Makes a file that has no name any more, and opens it through the page cache and past it.
fn files() -> (File, std::io::Result<File>) {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = path.join(format!("cost-{}", std::process::id()));
    let mut file = File::create(&path).unwrap();
    file.write_all(&vec![7; BLOCKS * BLOCK]).unwrap();
    file.sync_all().unwrap();
    let cached = File::open(&path).unwrap();
    let direct = File::options().read(true).custom_flags(O_DIRECT).open(&path);
    std::fs::remove_file(&path).unwrap();
    (cached, direct)
}

/// Returns the loads, each of [`BATCH`] requests per round, and their names.
pub fn loads() -> Vec<(&'static str, Round)> {
    let (cached, direct) = files();
    let mut all: Vec<(_, Round)> = vec![
        ("NOP, 32 per enter", batch(nops())),
        ("cached 4 KiB reads, 32", batch(reads(cached))),
        ("socket: 16 RECV, 16 SEND", sockets()),
    ];
    match direct {
        Ok(f) => all.push(("O_DIRECT 4 KiB reads, 32", batch(reads(f)))),
        Err(e) => skipped!("no O_DIRECT here: {e}"),
    }
    all
}
