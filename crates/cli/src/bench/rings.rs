//! Measurements of rings themselves: NOP batches, set-up and exit, idle rings.

use super::job::{Idle, Job};
use super::phase::{Counts, Phase, Stage, rounds};
use super::uring::Ring;
use anyhow::{Context, bail};
use softring_uapi::io_uring_sqe;
use std::time::Instant;

/// Number of rings held open to see what one costs.
const IDLE_RINGS: u32 = 64;

/// Measures NOP requests, `batch` per enter; `lat` is the latency of a batch.
pub fn nop(job: &Job, stage: &Stage) -> anyhow::Result<Counts> {
    let opened = Ring::new(job.batch, job.setup_flags);
    stage.ready();
    let mut ring = opened.context("io_uring_setup")?;
    let mut counts = Counts { ring: ring.kind(), ..Counts::new(false)? };
    let nop = io_uring_sqe::default();
    let mut phase = stage.phase();
    while phase != Phase::Over {
        let start = Instant::now();
        for _ in 0..job.batch {
            ring.push(nop);
        }
        ring.enter(job.batch).context("io_uring_enter")?;
        let mut bad = 0;
        let got = ring.reap(|c| bad |= c.res);
        if bad != 0 || got != job.batch {
            bail!("{got} of {} NOPs came back, res {bad}", job.batch);
        }
        if phase == Phase::Measure {
            counts.ios += u64::from(got);
            counts.lat.saturating_record(start.elapsed().as_nanos() as u64);
        }
        phase = stage.phase();
    }
    Ok(counts)
}

/// Measures making, mapping, unmapping and closing a ring.
pub fn setup(job: &Job, stage: &Stage) -> anyhow::Result<Counts> {
    let first = Ring::new(job.depth, job.setup_flags);
    stage.ready();
    let mut counts = Counts::new(false)?;
    counts.ring = first.context("io_uring_setup")?.kind();
    rounds(stage, counts, 1, || {
        drop(Ring::new(job.depth, job.setup_flags).context("io_uring_setup")?);
        Ok(())
    })
}

/// Memory, threads and descriptors of this process.
pub struct Footprint {
    pub private: u64,
    pub shared: u64,
    pub threads: u64,
    pub fds: u64,
}

impl Footprint {
    pub fn now() -> Footprint {
        let number = |field| {
            let text = crate::files::proc_status(field).unwrap_or_default();
            text.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)
        };
        Footprint {
            private: number("RssAnon") * 1024,
            shared: number("RssShmem") * 1024,
            threads: number("Threads"),
            fds: std::fs::read_dir("/proc/self/fd").map_or(0, |d| d.count() as u64),
        }
    }
}

/// Opens rings, lets each serve one request, and measures what they hold.
pub fn idle(job: &Job) -> anyhow::Result<(Idle, Option<String>)> {
    let open = || -> anyhow::Result<Ring> {
        let mut ring = Ring::new(job.depth, job.setup_flags).context("io_uring_setup")?;
        ring.push(io_uring_sqe::default());
        ring.enter(1).context("io_uring_enter")?;
        ring.reap(|_| ());
        Ok(ring)
    };
    // The first ring also pays for what all share.
    let first = open()?;
    let before = Footprint::now();
    let rings = (0..IDLE_RINGS).map(|_| open()).collect::<anyhow::Result<Vec<_>>>()?;
    let after = Footprint::now();
    let per = |a: u64, b: u64| a.saturating_sub(b) / u64::from(IDLE_RINGS);
    let idle = Idle {
        rings: rings.len() as u32,
        private: per(after.private, before.private),
        shared: per(after.shared, before.shared),
        threads: after.threads.saturating_sub(before.threads),
        fds: after.fds.saturating_sub(before.fds),
    };
    Ok((idle, first.kind()))
}
