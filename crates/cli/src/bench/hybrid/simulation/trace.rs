//! Models of devices: the time that each request takes, by a seed.

use super::Random;

/// The kinds of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// 80 µs, give or take one.
    Constant,
    /// 25 µs or 100 µs: three in ten are in the device's cache.
    Bimodal,
    /// 60 µs at least; one in a hundred takes ten times that, one in ten thousand a hundred times.
    HeavyTail,
    /// Times from 50 µs to 400 µs and back, a jump now and then.
    Drifting,
    /// Constant, but once in 500 requests the program lets eight minutes pass before it polls.
    Pausing,
    /// One request after the other, 19 µs each, and 80 µs beside that: bound by the device's
    /// bandwidth at depth 64.
    Busy,
    /// One request after the other, 19 µs on average, exponential.
    BusyUneven,
    /// Eight units; each works for 150 µs on one request, give or take a third.
    Units,
    /// 800 µs side by side, give or take a tenth; behind a part that takes 10 µs for each request.
    /// At depth 64 that part is busy most of the time, but not all of it.
    Pipeline,
}

impl TraceKind {
    pub const ALL: [TraceKind; 9] = [
        TraceKind::Constant,
        TraceKind::Bimodal,
        TraceKind::HeavyTail,
        TraceKind::Drifting,
        TraceKind::Pausing,
        TraceKind::Busy,
        TraceKind::BusyUneven,
        TraceKind::Units,
        TraceKind::Pipeline,
    ];

    pub fn name(self) -> &'static str {
        match self {
            TraceKind::Constant => "constant",
            TraceKind::Bimodal => "bimodal",
            TraceKind::HeavyTail => "heavy tail",
            TraceKind::Drifting => "drifting",
            TraceKind::Pausing => "pausing",
            TraceKind::Busy => "busy",
            TraceKind::BusyUneven => "busy, uneven",
            TraceKind::Units => "eight units",
            TraceKind::Pipeline => "pipeline",
        }
    }
}

/// The pause that the list archive reports: eight minutes, in ns.
pub(super) const PAUSE: u64 = 480_000_000_000;
/// Requests from one pause to the next.
pub(super) const PAUSE_EVERY: u64 = 500;

/// One request, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Time that the device takes.
    pub takes: u64,
    /// Time for which the program does something else after it has submitted.
    pub pause: u64,
}

/// An endless series of requests of one kind.
#[derive(Clone, Debug)]
pub struct Trace {
    kind: TraceKind,
    random: Random,
    count: u64,
    /// Time at which each unit of the device is free.
    free: [u64; UNITS],
}

/// Units of [`TraceKind::Units`].
const UNITS: usize = 8;

impl Trace {
    pub fn new(kind: TraceKind, seed: u64) -> Trace {
        Trace { kind, random: Random(seed), count: 0, free: [0; UNITS] }
    }

    /// Gives work of `us` µs that comes at `now` to the unit, of `units`, that is free first.
    /// Returns the µs from `now` to the end of the work.
    fn turn(&mut self, units: usize, now: u64, us: f64) -> f64 {
        let free = &mut self.free[..units];
        let Some(first) = free.iter_mut().min() else { return us };
        *first = now.max(*first) + (us * 1000.0) as u64;
        (*first - now) as f64 / 1000.0
    }

    /// Draws a request that comes at `now`.
    pub fn sample(&mut self, now: u64) -> Sample {
        self.count += 1;
        let noise = 1.0 + 0.0125 * self.random.normal().clamp(-3.0, 3.0);
        let mut pause = 0;
        let us = match self.kind {
            TraceKind::Constant => 80.0,
            TraceKind::Bimodal if self.random.unit() < 0.3 => 25.0,
            TraceKind::Bimodal => 100.0,
            // A Pareto distribution with exponent 2.
            TraceKind::HeavyTail => 60.0 / (1.0 - self.random.unit()).sqrt().max(0.005),
            TraceKind::Drifting => {
                let jump = if self.count / 4000 % 2 == 1 { 150.0 } else { 0.0 };
                let wave = (self.count as f64 / 1500.0).sin() * 100.0 + 150.0;
                wave + jump
            }
            TraceKind::Pausing => {
                pause = if self.count.is_multiple_of(PAUSE_EVERY) { PAUSE } else { 0 };
                80.0
            }
            TraceKind::Busy => return self.queued(1, now, 19.0, 80.0),
            TraceKind::BusyUneven => {
                let us = -(1.0 - self.random.unit()).ln() * 19.0;
                return self.queued(1, now, us, 0.0);
            }
            TraceKind::Units => {
                let us = 150.0 * (1.0 + self.random.normal().clamp(-2.5, 2.5) / 3.0);
                return self.queued(UNITS, now, us, 0.0);
            }
            TraceKind::Pipeline => {
                let behind = 800.0 * (1.0 + 0.1 * self.random.normal());
                return self.queued(1, now, 10.0, behind);
            }
        };
        Sample { takes: (us * noise * 1000.0) as u64, pause }
    }

    fn queued(&mut self, units: usize, now: u64, us: f64, behind: f64) -> Sample {
        let takes = self.turn(units, now, us) + behind;
        Sample { takes: (takes * 1000.0) as u64, pause: 0 }
    }
}
