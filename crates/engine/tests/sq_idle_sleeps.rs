//! SQ threads that sleep, of rings that sleep for their completions (HYBRID_IOPOLL).

mod client;
mod direct;
mod modelled;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use client::Client;
use direct::{BLOCK, Block, read};
use softring_engine::set_idle_sleeps;
use softring_engine::stats::{NAME, read as stats};
use softring_uapi::*;

const BLOCKS: u8 = 16;

/// Makes a file whose reads take that long: `2ms`, `30ms`.
fn file(time: &str) -> Option<File> {
    set_idle_sleeps(true);
    modelled::file("sq_idle_sleeps", &["2ms", "30ms"], time, BLOCKS)
}

/// Makes a polled ring whose SQ thread sleeps after ten idle seconds.
fn ring(entries: u32, attach: Option<&Client>) -> Client {
    let attaches = if attach.is_some() { IORING_SETUP_ATTACH_WQ } else { 0 };
    let polled = IORING_SETUP_SQPOLL | IORING_SETUP_IOPOLL | IORING_SETUP_HYBRID_IOPOLL;
    Client::with(io_uring_params {
        flags: polled | attaches,
        sq_entries: entries,
        sq_thread_idle: 10_000,
        wq_fd: attach.map_or(0, |c| c.fd).cast_unsigned(),
        ..Default::default()
    })
}

/// Reads the page of this process.
fn page() -> stats::Page {
    let named = |e: std::io::Result<std::fs::DirEntry>| {
        let path = e.ok()?.path();
        let link = std::fs::read_link(&path).ok()?;
        let named = link.to_string_lossy().starts_with(&format!("/memfd:{NAME}"));
        // The number may have gone meanwhile: another test makes its page.
        let file = File::open(path).ok().filter(|_| named)?;
        stats::file(softring_host::sys::borrow(file.as_raw_fd())?).ok()
    };
    std::fs::read_dir("/proc/self/fd").unwrap().find_map(named).expect("a page")
}

/// Returns the ring with so many entries, which no other test makes.
fn counts(entries: u64) -> stats::Ring {
    page().rings.into_iter().find(|r| r.sq_entries() == entries).expect("the ring's place")
}

fn done(c: &Client, to: &Block) {
    let cqe = c.watch(1).pop().expect("a completion");
    assert_eq!(cqe.res, BLOCK as i32);
    assert!(to.0.iter().all(|&b| u64::from(b) == cqe.user_data), "block {}", cqe.user_data);
}

#[test]
fn an_idle_sq_thread_sleeps_between_submissions() {
    let Some(f) = file("2ms") else { return };
    let c = ring(8, None);
    let mut to = Block([0xff; BLOCK]);
    c.push(read(&f, &mut to, 1, 1));
    done(&c, &to);
    let thread = counts(8).sq_thread();
    let idle_sleeps =
        || page().meters.iter().find(|m| m.tid() == thread).expect("a meter").idle_sleeps();
    let (start, before) = (Instant::now(), idle_sleeps());
    while idle_sleeps() < before + 10 {
        assert!(start.elapsed() < Duration::from_secs(10), "{} sleeps", idle_sleeps() - before);
        std::thread::sleep(Duration::from_millis(5));
    }
    // The thread then finds new submissions.
    c.push(read(&f, &mut to, 2, 2));
    done(&c, &to);
}

/// One ring always has something in flight, whose duration is known.
#[test]
fn an_sq_thread_sleeps_until_the_earlier_ring() {
    let (Some(quick), Some(slow)) = (file("2ms"), file("30ms")) else { return };
    let a = ring(16, None);
    let b = ring(32, Some(&a));
    let mut to = Block([0xff; BLOCK]);
    let mut slow_to = [Block([0xff; BLOCK]), Block([0xff; BLOCK])];
    for block in 0..10 {
        b.push(read(&slow, &mut slow_to[0], block, block));
        done(&b, &slow_to[0]);
    }
    b.push(read(&slow, &mut slow_to[0], 0, 0));
    std::thread::sleep(Duration::from_millis(15));
    b.push(read(&slow, &mut slow_to[1], 1, 1));
    let (start, before) = (Instant::now(), counts(16).idle_sleeps());
    for round in 0u64.. {
        let block = round % u64::from(BLOCKS);
        a.push(read(&quick, &mut to, block, block));
        done(&a, &to);
        while let Some(cqe) = b.pop() {
            let (to, block) = (&mut slow_to[cqe.user_data as usize], cqe.user_data);
            assert!(cqe.res == BLOCK as i32 && to.0.iter().all(|&b| u64::from(b) == block));
            b.push(read(&slow, to, block, block));
        }
        let idle_sleeps = counts(16).idle_sleeps() - before;
        if idle_sleeps >= 50 {
            break;
        }
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "{idle_sleeps} sleeps in {round} rounds"
        );
    }
}
