//! What a timer costs on this machine: how late a sleeping thread wakes, and how much processor
//! time the sleep itself takes. Between a microsecond and a hundred, by machine; where timers are
//! dear, a short sleep costs more than it spares.

/// Lateness before anything was measured, in ns: the default slack of a thread's timers.
const LATE_UNKNOWN: u64 = 50_000;
/// As long: a context switch there and back, with a timer to program.
const CPU_UNKNOWN: u64 = 10_000;
/// One part in so many is what a new sample counts.
const WEIGHT: u64 = 16;
/// A thread that wakes later than this was not held up by its timer but by other threads.
const LATE_MAX: u64 = 1_000_000;
/// Times the usual lateness beyond which a sample is probably none, and counts as one that is
/// usual. A few such sleeps in a hundred would else make all sleeps too dear to be taken.
const OUTLIER: u64 = 2;
/// What timers cost when nothing tells, in ns.
const LATE_LEAST: u64 = 1_000;
/// A sleep must spare more than it costs by this many ns.
const GAIN: u64 = 3_000;

/// The measured cost of a timer, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    late: u64,
    deviation: u64,
    /// The mean with all outliers, and how far off it samples are.
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
    /// From samples taken at start: how late sleeping threads woke, and the processor time of one
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

    /// A timer fired so late.
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

    /// No sleep was worth it for long: what is known grows old.
    pub(crate) fn age(&mut self) {
        let lateness = [&mut self.late, &mut self.deviation, &mut self.mean, &mut self.spread];
        for known in lateness.into_iter().chain([&mut self.cpu]) {
            *known -= *known / WEIGHT;
        }
    }

    /// A sleep took so much processor time.
    pub(crate) fn cost(&mut self, cpu: u64) {
        self.cpu = self.cpu - self.cpu / WEIGHT + cpu.min(LATE_MAX) / WEIGHT;
    }

    /// How late a sleeping thread wakes, usually.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// How much processor time a sleep takes.
    pub fn cpu(&self) -> u64 {
        self.cpu
    }

    /// How much before the moment at which to be awake a timer must be set to.
    pub(crate) fn lead(&self) -> u64 {
        self.late + self.deviation
    }

    /// The same where whoever sleeps is waited for, so that the rare long sleeps count as well.
    pub(crate) fn careful_lead(&self) -> u64 {
        self.lead().max(self.mean + self.spread)
    }

    /// Is it worth sleeping if one must be awake after `ahead`?
    pub(crate) fn worth(&self, ahead: u64) -> bool {
        ahead > self.least()
    }

    /// The longest time for which it is not worth it.
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
    fn it_learns_on_and_forgets_stalls() {
        let mut t = Timer::measured(&[2_000], 1_500);
        for _ in 0..200 {
            t.woke_late(20_000);
            t.cost(9_000);
        }
        assert!((18_000..=20_000).contains(&t.late()), "{}", t.late());
        t.woke_late(u64::MAX);
        assert!(t.late() < 22_000, "{}", t.late());
        // One in ten sleeps for a millisecond too long.
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
