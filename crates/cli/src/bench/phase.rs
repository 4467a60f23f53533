//! Stages of a measurement (warm up, measure, stop), and the counts taken meanwhile.

use super::job::{Job, Lat};
use anyhow::Context;
use hdrhistogram::Histogram;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// Stage that the load's threads are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Warmup,
    Measure,
    Over,
}

/// State shared by the load's threads and the thread that directs them.
pub struct Stage {
    phase: AtomicU8,
    start: Barrier,
}

/// CPU time used, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub user: u64,
    pub system: u64,
    pub machine: u64,
    pub steal: u64,
}

/// The measured time and the CPU time in it.
pub struct Measured {
    pub seconds: f64,
    pub usage: Usage,
}

impl Stage {
    /// Makes the state for `threads` threads and the director.
    pub fn new(threads: u32) -> Stage {
        Stage { phase: AtomicU8::new(0), start: Barrier::new(threads as usize + 1) }
    }

    /// Waits until every thread is set up, or has failed to be.
    pub fn ready(&self) {
        self.start.wait();
    }

    pub fn phase(&self) -> Phase {
        // Relaxed: no other data is passed along with the phase.
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Warmup,
            1 => Phase::Measure,
            _ => Phase::Over,
        }
    }

    fn set(&self, phase: u8) {
        self.phase.store(phase, Ordering::Relaxed);
    }

    /// Directs a measurement; `finished` returns true once all threads have ended early.
    pub fn direct(&self, job: &Job, finished: impl Fn() -> bool) -> Measured {
        if job.once {
            // Every I/O of a pass counts, the first ones too.
            self.set(1);
        }
        self.ready();
        if !job.once {
            idle_sleep(job.warmup, &finished);
        }
        let (before, start) = (Usage::now(), Instant::now());
        self.set(1);
        idle_sleep(if job.once { f64::MAX } else { job.seconds }, &finished);
        self.set(2);
        let (seconds, after) = (start.elapsed().as_secs_f64(), Usage::now());
        Measured { seconds, usage: after.since(before) }
    }
}

/// Sleeps for `seconds`, or until `finished`.
fn idle_sleep(seconds: f64, finished: &impl Fn() -> bool) {
    let start = Instant::now();
    while !finished() {
        let left = seconds - start.elapsed().as_secs_f64();
        if left <= 0.0 {
            return;
        }
        std::thread::sleep(Duration::from_secs_f64(left.min(0.02)));
    }
}

impl Measured {
    /// Runs `f` and measures its time.
    pub fn of<T>(f: impl FnOnce() -> T) -> (T, Measured) {
        let (before, start) = (Usage::now(), Instant::now());
        let done = f();
        let (seconds, after) = (start.elapsed().as_secs_f64(), Usage::now());
        (done, Measured { seconds, usage: after.since(before) })
    }
}

impl Usage {
    pub fn now() -> Usage {
        let (user, system) = crate::sys::process_times();
        let (machine, steal) = machine_times().unwrap_or((0, 0));
        Usage { user, system, machine, steal }
    }

    pub fn since(self, before: Usage) -> Usage {
        Usage {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            machine: self.machine.saturating_sub(before.machine),
            steal: self.steal.saturating_sub(before.steal),
        }
    }
}

/// Returns busy and stolen time of the whole machine, in microseconds.
fn machine_times() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let fields = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = fields.split_whitespace().map_while(|f| f.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal, in ticks of 10 ms (USER_HZ is 100
    // everywhere).
    let at = |i: usize| ticks.get(i).copied().unwrap_or(0) * 10_000;
    Some((at(0) + at(1) + at(2) + at(5) + at(6), at(7)))
}

/// Counts of one thread in the phase Measure.
pub struct Counts {
    pub ring: Option<String>,
    pub ios: u64,
    pub bytes: u64,
    pub verified: u64,
    pub lat: Histogram<u64>,
    pub slat: Option<Histogram<u64>>,
    pub clat: Option<Histogram<u64>>,
    /// Latencies that a client process has measured, in the place of `lat`.
    pub client: Option<Lat>,
    /// Share of one processor that the SQ thread took, in percent.
    pub sq_cpu: Option<f64>,
}

/// Makes a histogram from 1 ns to an hour with two significant digits: below one per cent of error.
fn histogram() -> anyhow::Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 2).context("histogram")
}

impl Counts {
    pub fn new(split: bool) -> anyhow::Result<Counts> {
        let part = || split.then(histogram).transpose();
        let (slat, clat) = (part()?, part()?);
        let (lat, client, sq_cpu) = (histogram()?, None, None);
        Ok(Counts { ring: None, ios: 0, bytes: 0, verified: 0, lat, slat, clat, client, sq_cpu })
    }

    #[inline]
    pub fn io(&mut self, bytes: u64, ns: u64) {
        self.ios += 1;
        self.bytes += bytes;
        self.lat.saturating_record(ns);
    }

    pub fn slat(&mut self, ns: u64) {
        if let Some(h) = &mut self.slat {
            h.saturating_record(ns);
        }
    }

    pub fn clat(&mut self, ns: u64) {
        if let Some(h) = &mut self.clat {
            h.saturating_record(ns);
        }
    }

    /// Adds another thread's counts.
    pub fn add(&mut self, other: Counts) -> anyhow::Result<()> {
        self.ring = self.ring.take().or(other.ring);
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.verified += other.verified;
        self.client = self.client.or(other.client);
        self.sq_cpu = self.sq_cpu.or(other.sq_cpu);
        self.lat.add(other.lat)?;
        for (mine, theirs) in [(&mut self.slat, other.slat), (&mut self.clat, other.clat)] {
            if let (Some(m), Some(t)) = (mine, theirs) {
                m.add(t)?;
            }
        }
        Ok(())
    }
}

/// Runs rounds of `ops` operations until the measurement is over, and times each round.
pub fn rounds(
    stage: &Stage,
    mut counts: Counts,
    ops: u32,
    mut round: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Counts> {
    let mut phase = stage.phase();
    while phase != Phase::Over {
        let start = Instant::now();
        round()?;
        if phase == Phase::Measure {
            counts.ios += u64::from(ops);
            counts.lat.saturating_record(start.elapsed().as_nanos() as u64);
        }
        phase = stage.phase();
    }
    Ok(counts)
}
