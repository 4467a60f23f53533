//! The clock of a trace's times, as a reader of one or more processes' memories uses it.

use super::Ticks;
use super::writer::ticks;

/// Clock that the writers are to use, and its relation to CLOCK_MONOTONIC.
#[derive(Debug)]
pub struct Clock {
    pub(super) kind: Ticks,
    /// Both clocks at the start, and at the last read: ticks, ns.
    anchors: [(u64, u64); 2],
    /// Ticks for which writers are told to go on.
    lease: u64,
}

fn anchor(kind: Ticks) -> (u64, u64) {
    let counter = kind == Ticks::Counter;
    // The shortest of a few attempts: nothing came between the two reads.
    let pair = |_| {
        let (a, ns, b) = (ticks(counter), ticks(false), ticks(counter));
        (b - a, (a + (b - a) / 2, ns))
    };
    (0..5).map(pair).min().map_or((0, 0), |(_, at)| at)
}

impl Clock {
    /// Makes a clock. `counter`: the kernel trusts the processor's time stamp counter.
    pub fn new(counter: bool) -> Clock {
        let kind = if counter { Ticks::Counter } else { Ticks::Monotonic };
        let first = anchor(kind);
        // Measures roughly how fast the counter goes.
        softring_host::sys::pause(core::time::Duration::from_millis(2));
        let now = anchor(kind);
        let lease = 2_000_000_000 * (now.0 - first.0) / (now.1 - first.1).max(1);
        Clock { kind, anchors: [first, now], lease }
    }

    /// Reads both clocks: the later the read, the better their relation is known.
    pub fn read(&mut self) {
        self.anchors[1] = anchor(self.kind);
    }

    /// Returns the time of the last read, in ticks.
    pub fn read_at(&self) -> u64 {
        self.anchors[1].0
    }

    /// Returns until when writers may write if their reader never reads the clocks again.
    pub(super) fn lease_ends(&self) -> u64 {
        self.anchors[1].0 + self.lease
    }

    /// Returns a time in ns of CLOCK_MONOTONIC, as far as is known now.
    pub fn ns(&self, ticks: u64) -> u64 {
        let [(t0, n0), (t1, n1)] = self.anchors.map(|(t, n)| (i128::from(t), i128::from(n)));
        let ns = n0 + (i128::from(ticks) - t0) * (n1 - n0) / (t1 - t0).max(1);
        u64::try_from(ns).unwrap_or(0)
    }
}
