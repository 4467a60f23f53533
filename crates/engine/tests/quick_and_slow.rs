//! One ring with a slow device and a quick one: a wait for the quick one does not sleep until the
//! slow one is done. A program of its own, because it forces a policy on all rings.
#![allow(unsafe_code)]

mod client;
mod direct;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use client::Client;
use direct::{BLOCK, Block, file_in, read};
use softring_client::Cqe;
use softring_engine::hybrid::Policy;
use softring_engine::model::{self, parse};
use softring_engine::polling;
use softring_host::fd;
use softring_uapi::*;

const SLOW: Duration = Duration::from_millis(300);
/// Ten times the time of a read: machines are busy, and the slow read is still far away.
const SOON: Duration = Duration::from_millis(20);

/// Makes two modelled devices, quick and slow.
fn devices() -> [PathBuf; 2] {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("quick-and-slow");
    let folders = ["quick", "slow"].map(|name| root.join(name));
    let models = ["latency:2ms", "latency:300ms"];
    let made = folders.iter().zip(models).map(|(path, options)| {
        std::fs::create_dir_all(path).unwrap();
        parse::model(format!("{}={options}", path.display()).as_ref()).unwrap()
    });
    model::set(made.collect());
    fd::closes_are_reported();
    folders
}

fn on(device: &Path) -> Option<File> {
    let f = file_in(device, 16)?;
    fd::forget_kind(f.as_raw_fd());
    Some(f)
}

/// Enters until there is a completion.
fn next(c: &Client) -> Cqe {
    loop {
        match c.pop() {
            Some(cqe) => return cqe,
            None => assert_eq!(c.enter(0, 1), 0),
        }
    }
}

/// Reads one by one from the quick device while the slow one has a read; returns the longest time
/// of a read.
fn longest(c: &Client, quick: &File, slow: &File) -> Duration {
    let (mut late, mut block) = (Block([0xff; BLOCK]), Block([0xff; BLOCK]));
    let begin = Instant::now();
    c.push(read(slow, &mut late, 7, 77));
    assert_eq!(c.enter(1, 0), 1);
    let mut longest = Duration::ZERO;
    for i in 0..30 {
        let start = Instant::now();
        c.push(read(quick, &mut block, i % 16, i));
        assert_eq!(c.enter(1, 1), 1);
        let cqe = next(c);
        if cqe.user_data == 77 {
            // The machine stood still for so long that the slow device overtook.
            assert!(begin.elapsed() >= SLOW, "{:?}", begin.elapsed());
            assert_eq!((next(c).user_data, late.0[0]), (i, 7));
            return begin.elapsed();
        }
        assert_eq!((cqe.user_data, cqe.res), (i, BLOCK as i32));
        assert!(block.0.iter().all(|&b| u64::from(b) == i % 16), "block {i}");
        longest = longest.max(start.elapsed());
    }
    let cqe = next(c);
    assert_eq!((cqe.user_data, cqe.res, late.0[0]), (77, BLOCK as i32, 7));
    assert!(begin.elapsed() >= SLOW);
    longest
}

#[test]
fn quick_requests_do_not_wait_for_slow_ones() {
    let [quick, slow] = devices();
    let (Some(quick), Some(slow)) = (on(&quick), on(&slow)) else { return };
    let check = |flags: u32, how: &str| {
        let c = Client::new(8, flags);
        // A machine that others keep busy gets another try.
        let mut took = Vec::new();
        while took.last().is_none_or(|t| *t >= SOON) {
            took.push(longest(&c, &quick, &slow));
            assert!(took.len() < 5, "{how}, {flags:#x}: {took:?}");
        }
    };
    check(0, "no policy");
    check(IORING_SETUP_IOPOLL, "no policy");
    check(IORING_SETUP_IOPOLL | IORING_SETUP_HYBRID_IOPOLL, "its own policy");
    for policy in [Policy::Hybrid, Policy::Adaptive, Policy::Block, Policy::Spin] {
        polling::force(policy);
        check(0, policy.name());
    }
}
