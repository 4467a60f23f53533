//! The four ways of a read, one after the other in each round, so that what else the machine does
//! hits all alike.
//!
//! The engine's hook is a plain function, so what it needs and what it saw lies in statics. It runs
//! on the thread that submits, and nobody else touches them meanwhile.

use super::Stream;
use super::share::Counted;
use crate::bench::buf::Slots;
use crate::bench::uring::Ring;
use crate::cli::ReissueArgs;
use crate::fail;
use anyhow::Context;
use hdrhistogram::Histogram;
use softring_engine::call_between;
use softring_host::time::Clock;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Rounds before those that count.
const WARMUP: u32 = 1000;
/// The most that a read writes.
const MOST: usize = 4096;
/// For so long nobody else needs this processor; then a worker might, if there is only one.
const SPIN_NS: u64 = 50_000;
/// A worker that takes longer has lost the request.
const LOST_NS: u64 = 10_000_000_000;

/// What the hook writes, and where to; none: it does nothing.
static WRITER: Mutex<Option<(OwnedFd, u32)>> = Mutex::new(None);
/// Has it a worker do the read?
static TO_WORKER: AtomicBool = AtomicBool::new(false);
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// When it began and ended, in ns.
static BEGAN: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);

/// The data come; true if the request is to be armed.
fn hook() -> bool {
    if !ACTIVE.load(Relaxed) {
        return true;
    }
    BEGAN.store(Clock::Monotonic.now(), Relaxed);
    if let Ok(writer) = WRITER.lock()
        && let Some((fd, bytes)) = &*writer
    {
        write(fd, *bytes);
    }
    ENDED.store(Clock::Monotonic.now(), Relaxed);
    !TO_WORKER.load(Relaxed)
}

/// What goes wrong here shows as a read that does not complete.
fn write(fd: &OwnedFd, bytes: u32) {
    let _ = rustix::io::write(fd, &[7; MOST][..bytes as usize]);
}

/// One read's times: as a whole without the hook, and from the hook's end to the return of enter.
struct Took {
    whole: u64,
    queueing: u64,
}

struct Rounds<'a> {
    ring: Ring,
    stream: &'a Stream,
    slots: Slots,
    bytes: u32,
}

impl Rounds<'_> {
    /// One read, whose data are there before (`ready`), or come by the hook.
    fn read(&mut self, ready: bool) -> anyhow::Result<Took> {
        if ready {
            write(&self.stream.writer, self.bytes);
        }
        ACTIVE.store(!ready, Relaxed);
        let sqe = self.stream.read(self.slots.addr(0), self.bytes);
        let start = Clock::Monotonic.now();
        self.ring.push(sqe);
        self.ring.enter(0).context("io_uring_enter")?;
        let returned = Clock::Monotonic.now();
        while self.ring.ready() == 0 {
            match Clock::Monotonic.now() - returned {
                0..SPIN_NS => std::hint::spin_loop(),
                SPIN_NS..LOST_NS => std::thread::yield_now(),
                _ => return Err(fail::work("a read did not complete")),
            }
        }
        let end = Clock::Monotonic.now();
        let mut res = 0;
        self.ring.reap(|c| res = c.res);
        if res != self.bytes.cast_signed() {
            return Err(fail::work(format!("a read answered {res}")));
        }
        if ready {
            return Ok(Took { whole: end - start, queueing: 0 });
        }
        let (began, ended) = (BEGAN.load(Relaxed), ENDED.load(Relaxed));
        Ok(Took { whole: (began - start) + (end - ended), queueing: returned - ended })
    }
}

/// Measures; the histograms are in the order of [`super::LINES`].
pub fn measure(stream: &Stream, args: &ReissueArgs) -> anyhow::Result<[Histogram<u64>; 4]> {
    let ring = Ring::linked(8).context("io_uring_setup")?;
    let stats = Counted::of(&ring)?;
    let writer = stream.writer.try_clone()?;
    *WRITER.lock().unwrap_or_else(PoisonError::into_inner) = Some((writer, args.bytes));
    call_between(hook);
    let slots = Slots::new(1, args.bytes)?;
    let mut rounds = Rounds { ring, stream, slots, bytes: args.bytes };
    let new = || Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).context("a histogram");
    let mut times = [new()?, new()?, new()?, new()?];
    for round in 0..WARMUP + args.reads {
        TO_WORKER.store(false, Relaxed);
        let ready = rounds.read(true)?;
        let again = rounds.read(false)?;
        TO_WORKER.store(true, Relaxed);
        let worker = rounds.read(false)?;
        if round >= WARMUP {
            let all = [ready.whole, again.whole, worker.queueing, worker.whole];
            times.iter_mut().zip(all).for_each(|(h, ns)| h.saturating_record(ns));
        }
    }
    ACTIVE.store(false, Relaxed);
    let n = u64::from(WARMUP + args.reads);
    let seen = Counted::of(&rounds.ring)?.since(&stats);
    if (seen.at_once, seen.ready_at_arm, seen.aborted) != (n, n, n) {
        return Err(fail::work(format!("of {n} reads each, not all went their way: {seen:?}")));
    }
    Ok(times)
}
