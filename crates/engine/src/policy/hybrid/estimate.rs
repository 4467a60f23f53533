//! Age at which a completion is worth polling for: one estimate per kind of requests, learned from
//! one bit at a time (as PAS does: FAST '26, "DPAS"), and not from a mean: a late poll would raise
//! the mean, which would make the next poll later still.

/// Growth of the age after a sleep that ended too early, in thousandths; each further one in a row
/// adds as much again to the step.
const UP: u64 = 10;
/// Shrinkage after a sleep that ended too late, likewise. An estimate that shrinks ten times as
/// fast as it grows settles where one request in eleven is done before the thread polls.
const DOWN: u64 = 100;
/// Smallest and largest step in thousandths: the estimate follows a changed device within a few
/// dozen requests, and one bit can never do more than this.
const FACTOR: core::ops::RangeInclusive<u64> = 100..=2000;
/// Smallest age, in ns: no step would lead up again from zero.
const AGE_MIN: u64 = 500;
/// Largest age, in ns; sleeps end much earlier ([`super::IDLE_SLEEP_MAX`]).
const AGE_MAX: u64 = 60_000_000_000;
/// The mean moves by one part in this many.
const MEAN_WEIGHT: u64 = 8;
/// Limit of one sample, as a multiple of the mean.
const SAMPLE_MAX: u64 = 4;

/// Result of polling for a request, against the age at which a sleep for it would have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bit {
    /// Still pending at that age: longer sleeps are possible.
    Under,
    /// Done by that age, before the thread polled.
    Over,
}

/// The estimate for one kind of requests. Times in ns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Estimate {
    /// Age at which the thread should be awake for a request of this kind; 0: not known yet.
    age: u64,
    /// Mean time of a request; 0: not known yet.
    mean: u64,
    last: Option<Bit>,
    /// Step of the last bit, in thousandths.
    factor: u64,
}

impl Estimate {
    /// Returns whether the estimate is known.
    pub(super) fn known(&self) -> bool {
        self.age > 0
    }

    /// Returns the age at which to be awake.
    pub(super) fn age(&self) -> u64 {
        self.age
    }

    /// Returns the mean time of a request.
    pub(super) fn mean(&self) -> u64 {
        self.mean
    }

    /// Learns from a sleep for such a request that ended, or would have ended, at [`Self::age`].
    pub(super) fn learn(&mut self, bit: Bit) {
        if !self.known() {
            return;
        }
        let step = match (self.last, bit) {
            (Some(Bit::Under), Bit::Under) => self.factor + UP,
            (Some(Bit::Over), Bit::Over) => self.factor.saturating_sub(DOWN),
            (_, Bit::Under) => 1000 + UP,
            (_, Bit::Over) => 1000 - DOWN,
        };
        self.factor = step.clamp(*FACTOR.start(), *FACTOR.end());
        self.age = (self.age * self.factor / 1000).clamp(AGE_MIN, AGE_MAX);
        self.last = Some(bit);
    }

    /// Learns that a request was done at an age between the two. A wide interval counts little: a
    /// program that pauses before it polls must not make its device seem slow.
    pub(super) fn took(&mut self, low: u64, high: u64) {
        let high = high.min(AGE_MAX);
        let close = high.saturating_sub(low) <= high / 4;
        if self.mean == 0 {
            if close {
                let took = (low + high) / 2;
                (self.mean, self.age) = (took.max(1), (took / 2).max(AGE_MIN));
            }
            return;
        }
        let sample = if close { (low + high) / 2 } else { high.min(self.mean) };
        let sample = sample.min(self.mean.saturating_mul(SAMPLE_MAX));
        self.mean = (self.mean - self.mean / MEAN_WEIGHT + sample / MEAN_WEIGHT).max(1);
    }

    /// Limits the estimate to an age at which a request was seen done.
    pub(super) fn at_most(&mut self, age: u64) {
        if self.known() {
            self.age = self.age.min(age.max(AGE_MIN));
        }
    }

    /// Lowers an estimate for which no completion was seen for long: the device may be another by
    /// now.
    pub(super) fn grow_old(&mut self) {
        if self.known() {
            self.age = (self.age - self.age / 4).max(AGE_MIN);
            self.last = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds requests that take `took`, watched from `age` on.
    fn feed(e: &mut Estimate, took: u64, times: usize) {
        for _ in 0..times {
            e.learn(if took < e.age() { Bit::Over } else { Bit::Under });
            e.took(took, took);
        }
    }

    fn fresh(took: u64) -> Estimate {
        let mut e = Estimate::default();
        assert!(!e.known());
        e.learn(Bit::Under);
        assert!(!e.known());
        e.took(took, took);
        e
    }

    #[test]
    fn a_constant_device_is_found() {
        let mut e = fresh(80_000);
        assert_eq!(e.age(), 40_000);
        feed(&mut e, 80_000, 100);
        for _ in 0..50 {
            feed(&mut e, 80_000, 1);
            assert!((56_000..92_000).contains(&e.age()), "{}", e.age());
        }
        assert_eq!(e.mean() / 1000, 80);
    }

    #[test]
    fn the_estimate_follows_changes() {
        let mut e = fresh(100_000);
        feed(&mut e, 10_000_000, 80);
        assert!(e.age() > 5_000_000, "{}", e.age());
        feed(&mut e, 20_000, 15);
        assert!(e.age() < 21_000, "{}", e.age());
    }

    #[test]
    fn unobserved_time_does_not_inflate_the_estimate() {
        let mut e = fresh(100_000);
        feed(&mut e, 100_000, 50);
        let (age, mean) = (e.age(), e.mean());
        for _ in 0..100 {
            e.took(0, 480_000_000_000);
        }
        assert_eq!(e.age(), age);
        assert!(e.mean() <= mean && e.mean() > mean / 2);
        e.grow_old();
        assert!(e.age() < age && e.age() > age / 2);
    }
}
