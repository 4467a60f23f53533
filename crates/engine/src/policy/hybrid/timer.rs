//! Cost of a timer on this machine: the lateness of a sleeping thread's wake-up, and the processor
//! time of the sleep itself. Between one microsecond and a hundred, by machine; where timers are
//! expensive, a short sleep costs more than it saves.

/// Lateness before anything was measured, in ns: the default slack of a thread's timers.
const LATE_UNKNOWN: u64 = 50_000;
/// Processor time before anything was measured, in ns: a context switch there and back, with a
/// timer to program.
const CPU_UNKNOWN: u64 = 10_000;
/// A new sample counts as one part in this many.
const WEIGHT: u64 = 16;
/// Lateness beyond which other threads and not the timer held the thread up, in ns.
const LATE_MAX: u64 = 1_000_000;
/// Multiple of the usual lateness beyond which a sample is an outlier, and is capped. Otherwise a
/// few such sleeps in a hundred would make all sleeps too expensive.
const OUTLIER: u64 = 2;
/// Lateness that is never an outlier, in ns.
const LATE_LEAST: u64 = 1_000;
/// Gain in ns by which a sleep must exceed its cost.
const GAIN: u64 = 3_000;

/// The measured cost of a timer, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    late: u64,
    deviation: u64,
    /// Mean including all outliers, and mean deviation from it.
    mean: u64,
    spread: u64,
    cpu: u64,
}

impl Default for Timer {
    fn default() -> Self {
        let (late, deviation) = (LATE_UNKNOWN, LATE_UNKNOWN / 4);
        Timer { late, deviation, mean: late, spread: deviation, cpu: CPU_UNKNOWN }
    }
}

impl Timer {
    /// Creates a timer from samples taken at start: lateness of wake-ups, and processor time of one
    /// sleep.
    pub fn measured(late: &[u64], cpu: u64) -> Timer {
        let mut late = late.to_vec();
        late.sort_unstable();
        let median = late.get(late.len() / 2).copied().unwrap_or(LATE_UNKNOWN).min(LATE_MAX);
        let mut timer = Timer { late: median, cpu: cpu.min(LATE_MAX), ..Timer::default() };
        let n = late.len().max(1) as u64;
        let each = |f: &dyn Fn(u64) -> u64| late.iter().map(|l| f(*l)).sum::<u64>() / n;
        timer.deviation = each(&|l| timer.usual(l).abs_diff(median));
        timer.mean = each(&|l| l.min(LATE_MAX));
        timer.spread = each(&|l| l.min(LATE_MAX).abs_diff(timer.mean));
        timer
    }

    fn usual(&self, late: u64) -> u64 {
        late.min(OUTLIER * self.late + LATE_LEAST).min(LATE_MAX)
    }

    /// Learns the lateness of a wake-up.
    pub(crate) fn woke_late(&mut self, late: u64) {
        let (usual, late) = (self.usual(late), late.min(LATE_MAX));
        let learn = |known: &mut u64, sample: u64| {
            *known = *known - *known / WEIGHT + sample / WEIGHT;
        };
        let (off, far) = (usual.abs_diff(self.late), late.abs_diff(self.mean));
        learn(&mut self.late, usual);
        learn(&mut self.deviation, off);
        learn(&mut self.mean, late);
        learn(&mut self.spread, far);
    }

    /// Lowers all costs a little, because no sleep was worth it for long.
    pub(crate) fn age(&mut self) {
        let lateness = [&mut self.late, &mut self.deviation, &mut self.mean, &mut self.spread];
        for known in lateness.into_iter().chain([&mut self.cpu]) {
            *known -= *known / WEIGHT;
        }
    }

    /// Learns the processor time of a sleep.
    pub(crate) fn cost(&mut self, cpu: u64) {
        self.cpu = self.cpu - self.cpu / WEIGHT + cpu.min(LATE_MAX) / WEIGHT;
    }

    /// Returns the usual lateness of a wake-up.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Returns the processor time of a sleep.
    pub fn cpu(&self) -> u64 {
        self.cpu
    }

    /// Returns the time by which a timer must be set early for the thread to be awake in time.
    pub(crate) fn lead(&self) -> u64 {
        self.late + self.deviation
    }

    /// Returns the lead of a sleep that must not end late: rare long sleeps count as well.
    pub(crate) fn careful_lead(&self) -> u64 {
        self.lead().max(self.mean + self.spread)
    }

    /// Returns whether a sleep is worth it if the thread must be awake after `ahead`.
    pub(crate) fn worth(&self, ahead: u64) -> bool {
        ahead > self.least()
    }

    /// Returns the longest time for which a sleep is not worth it.
    pub fn least(&self) -> u64 {
        self.lead().max(self.cpu + self.cpu / 4 + GAIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_shorter_than_their_cost_are_not_worth_it() {
        let cheap = Timer::measured(&[2_000, 2_200, 1_800], 1_500);
        assert!(cheap.worth(6_000) && !cheap.worth(4_000));
        let dear = Timer::measured(&[30_000, 40_000, 50_000], 32_000);
        assert!(!dear.worth(42_000) && dear.worth(60_000));
        assert!(dear.lead() > dear.late());
    }

    #[test]
    fn the_timer_model_adapts_and_ignores_stalls() {
        let mut t = Timer::measured(&[2_000], 1_500);
        for _ in 0..200 {
            t.woke_late(20_000);
            t.cost(9_000);
        }
        assert!((18_000..=20_000).contains(&t.late()), "{}", t.late());
        t.woke_late(u64::MAX);
        assert!(t.late() < 22_000, "{}", t.late());
        // One sleep in ten is a millisecond too long.
        for n in 0..1000 {
            t.woke_late(if n % 10 == 0 { 1_000_000 } else { 20_000 });
        }
        assert!(t.lead() < 30_000, "{}", t.lead());
        assert!(t.careful_lead() > 100_000, "{}", t.careful_lead());
        let before = t.lead();
        t.age();
        assert!(t.lead() < before);
        assert!(!t.worth(10_000));
    }
}
