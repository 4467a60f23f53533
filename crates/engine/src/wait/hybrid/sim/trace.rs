//! What devices do: how long each request takes, by a seed.

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
    /// From 50 µs to 450 µs and back, a jump now and then.
    Drifting,
    /// As constant, but the program lets eight minutes pass before it looks, once in 500 requests.
    Pausing,
}

impl TraceKind {
    pub const ALL: [TraceKind; 5] = [
        TraceKind::Constant,
        TraceKind::Bimodal,
        TraceKind::HeavyTail,
        TraceKind::Drifting,
        TraceKind::Pausing,
    ];

    pub fn name(self) -> &'static str {
        match self {
            TraceKind::Constant => "constant",
            TraceKind::Bimodal => "bimodal",
            TraceKind::HeavyTail => "heavy tail",
            TraceKind::Drifting => "drifting",
            TraceKind::Pausing => "pausing",
        }
    }
}

/// Eight minutes, in ns: the pause that the list archive reports of.
pub const PAUSE: u64 = 480_000_000_000;
/// How often it happens, in requests.
pub const PAUSE_EVERY: u64 = 500;

/// One request, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// How long the device takes.
    pub takes: u64,
    /// How long the program does something else after it has submitted.
    pub pause: u64,
}

/// Requests of one kind, without end.
#[derive(Clone, Debug)]
pub struct Trace {
    kind: TraceKind,
    random: Random,
    count: u64,
}

impl Trace {
    pub fn new(kind: TraceKind, seed: u64) -> Trace {
        Trace { kind, random: Random(seed), count: 0 }
    }

    pub fn sample(&mut self) -> Sample {
        self.count += 1;
        let noise = 1.0 + 0.0125 * self.random.normal().clamp(-3.0, 3.0);
        let mut pause = 0;
        let us = match self.kind {
            TraceKind::Constant => 80.0,
            TraceKind::Bimodal if self.random.unit() < 0.3 => 25.0,
            TraceKind::Bimodal => 100.0,
            // Pareto, with exponent 2.
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
        };
        Sample { takes: (us * noise * 1000.0) as u64, pause }
    }
}
