//! Lateness of completions: a histogram of the time between the modelled end of a request and the
//! posting of its CQE.

/// Buckets per doubling: an error of six per cent at most.
const STEPS: u32 = 8;
const BUCKETS: usize = 256;

/// Histogram of times in ns.
#[derive(Debug)]
pub(crate) struct Late {
    counts: [u64; BUCKETS],
    total: u64,
    sum: u64,
}

impl Default for Late {
    fn default() -> Self {
        Late { counts: [0; BUCKETS], total: 0, sum: 0 }
    }
}

fn bucket(ns: u64) -> usize {
    if ns < u64::from(STEPS) {
        return ns as usize;
    }
    let top = ns.ilog2();
    let step = (ns >> (top - STEPS.ilog2())) as u32 & (STEPS - 1);
    ((top - STEPS.ilog2() + 1) * STEPS + step).min(BUCKETS as u32 - 1) as usize
}

/// Returns the middle of a bucket.
fn middle(bucket: usize) -> u64 {
    let (octave, step) = (bucket as u32 / STEPS, bucket as u32 % STEPS);
    if octave == 0 {
        return u64::from(step);
    }
    let width = 1u64 << (octave - 1);
    u64::from(STEPS + step) * width + width / 2
}

impl Late {
    #[inline]
    pub(crate) fn add(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.total += 1;
        self.sum = self.sum.saturating_add(ns);
    }

    pub(crate) fn count(&self) -> u64 {
        self.total
    }

    /// Returns the sum of all times, in ns.
    pub(crate) fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns a quantile in ns; `share` is from 0 to 1.
    pub(crate) fn quantile(&self, share: f64) -> u64 {
        let target = softring_host::math::ceil(share * self.total as f64).max(1.0) as u64;
        let mut seen = 0;
        for (i, n) in self.counts.iter().enumerate() {
            seen += n;
            if seen >= target {
                return middle(i);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_middle_and_times_keep_their_order() {
        let mut last = 0;
        for ns in (0..100_000).chain([1 << 20, 1 << 30, 1 << 33]) {
            let b = bucket(ns);
            assert!(b >= last && bucket(middle(b)) == b, "{ns}");
            assert!(middle(b).abs_diff(ns) * 16 <= ns.max(16), "{ns} {}", middle(b));
            last = b;
        }
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn quantiles() {
        let mut late = Late::default();
        (1..=1000).for_each(|i| late.add(i * 100));
        assert!((late.sum() as f64 / late.total as f64 - 50_050.0).abs() < 1.0);
        for (q, ns) in [(0.5, 50_000.0), (0.99, 99_000.0), (0.001, 100.0)] {
            assert!((late.quantile(q) as f64 / ns - 1.0).abs() < 0.07, "{q}");
        }
        assert_eq!(Late::default().quantile(0.5), 0);
    }
}
