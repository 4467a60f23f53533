//! Number of reads of a stream that find their data between their attempt and their arming, if
//! nobody arranges it: one thread writes, this one reads and waits.

use super::Stream;
use crate::bench::buf::Slots;
use crate::bench::uring::Ring;
use crate::cli::ReissueArgs;
use crate::fail;
use anyhow::Context;
use serde::Serialize;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Counts of a stream's reads.
#[derive(Debug, Serialize)]
pub struct Share {
    /// Rate of the writer; None: as fast as possible.
    pub mbit: Option<u32>,
    pub reads: u64,
    pub at_once: u64,
    pub waited: u64,
    pub ready_at_arm: u64,
    /// The share of all reads that were ready at arm.
    pub percent: f64,
}

/// Counters of the engine.
#[derive(Debug)]
pub struct Counted {
    pub at_once: u64,
    pub armed: u64,
    pub ready_at_arm: u64,
    pub aborted: u64,
}

impl Counted {
    pub fn of(ring: &Ring) -> anyhow::Result<Counted> {
        let ring = softring_engine::fds::find(ring.fd()).context("the ring is not the engine's")?;
        let ctx = ring.read();
        let r = &ctx.stats.reissue;
        let (at_once, armed) = (r.at_once.get(), r.armed.get());
        Ok(Counted { at_once, armed, ready_at_arm: r.ready_at_arm.get(), aborted: r.aborted.get() })
    }

    pub fn since(&self, before: &Counted) -> Counted {
        Counted {
            at_once: self.at_once - before.at_once,
            armed: self.armed - before.armed,
            ready_at_arm: self.ready_at_arm - before.ready_at_arm,
            aborted: self.aborted - before.aborted,
        }
    }
}

/// Writes until `stop` is set.
fn writer(fd: &OwnedFd, bytes: u32, mbit: Option<u32>, stop: &AtomicBool) {
    let data = vec![7; bytes as usize];
    let pause = mbit.map(|n| Duration::from_nanos(u64::from(bytes) * 8_000 / u64::from(n)));
    let mut next = Instant::now();
    while !stop.load(Relaxed) {
        // An error shows on the reader's side.
        let _ = rustix::io::write(fd, &data);
        if let Some(pause) = pause {
            next += pause;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
}

/// Reads for `seconds` what another thread writes.
pub fn measure(stream: &Stream, args: &ReissueArgs, mbit: Option<u32>) -> anyhow::Result<Share> {
    let mut ring = Ring::linked(8).context("io_uring_setup")?;
    let slots = Slots::new(1, args.bytes)?;
    let stop = AtomicBool::new(false);
    let reads = thread::scope(|scope| {
        let other = scope.spawn(|| writer(&stream.writer, args.bytes, mbit, &stop));
        let (start, mut reads) = (Instant::now(), 0);
        let done = loop {
            if start.elapsed().as_secs_f64() >= args.seconds {
                break Ok(());
            }
            ring.push(stream.read(slots.addr(0), args.bytes));
            if let Err(e) = ring.enter(1) {
                break Err(anyhow::Error::new(e).context("io_uring_enter"));
            }
            let mut res = 0;
            ring.reap(|c| res = c.res);
            if res <= 0 {
                break Err(fail::work(format!("a read returned {res}")));
            }
            reads += 1;
        };
        stop.store(true, Relaxed);
        // The writer may be waiting for room.
        while !other.is_finished() {
            drain(stream);
            thread::yield_now();
        }
        done.map(|()| reads)
    })?;
    drain(stream);
    let seen = Counted::of(&ring)?;
    let (at_once, ready_at_arm) = (seen.at_once, seen.ready_at_arm);
    let percent = 100.0 * ready_at_arm as f64 / (reads as f64).max(1.0);
    Ok(Share { mbit, reads, at_once, waited: reads - at_once, ready_at_arm, percent })
}

/// Reads what is left in the stream.
fn drain(stream: &Stream) {
    let mut buf = [0; 65536];
    while rustix::io::ioctl_fionread(&stream.reader).is_ok_and(|n| n > 0) {
        let _ = rustix::io::read(&stream.reader, &mut buf);
    }
}
