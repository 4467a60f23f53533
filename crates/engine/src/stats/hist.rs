//! Log-linear histograms of latencies: each power of two in eight equal steps, so that a bucket is
//! at most an eighth of its value wide.

use super::Count;

/// Width of the narrowest bucket, 2^4 ns: a system call takes six of them.
const UNIT: u32 = 4;
/// Steps of a power of two, as a power of two.
const STEPS: u32 = 3;
/// Start of the last bucket: 2^36 ns (69 s) and more.
const TOP: u32 = 36;
/// Number of buckets of a histogram.
pub const BUCKETS: usize = ((TOP - UNIT - STEPS + 1) << STEPS) as usize + 1;

/// Latencies of one operation of one ring.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Hist {
    /// Sum of all latencies, in ns.
    pub(crate) sum_ns: Count,
    pub(crate) buckets: [Count; BUCKETS],
}

impl Hist {
    /// Counts `n` requests that took `ns` each.
    #[inline]
    pub(crate) fn add(&self, ns: u64, n: u64) {
        self.sum_ns.add(ns.wrapping_mul(n));
        self.buckets[bucket(ns)].add(n);
    }

    /// Iterates over every word.
    pub(crate) fn words(&self) -> impl Iterator<Item = &Count> {
        core::iter::once(&self.sum_ns).chain(&self.buckets)
    }
}

fn bucket(ns: u64) -> usize {
    let units = ns >> UNIT;
    if units < 1 << STEPS {
        return units as usize;
    }
    let octave = units.ilog2() - STEPS;
    let at = u64::from(octave << STEPS) + (units >> octave);
    (at as usize).min(BUCKETS - 1)
}

/// Returns a bucket's least value in ns, and the first that is too large for it; `u64::MAX` for the
/// last.
pub fn bounds(bucket: usize) -> (u64, u64) {
    let least = |bucket: usize| {
        let octave = (bucket >> STEPS).saturating_sub(1);
        ((bucket - (octave << STEPS)) as u64) << (octave as u32 + UNIT)
    };
    (least(bucket), if bucket + 1 < BUCKETS { least(bucket + 1) } else { u64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_within_its_bucket() {
        assert_eq!((bounds(0), bounds(7), bounds(8)), ((0, 16), (112, 128), (128, 144)));
        assert_eq!(bounds(BUCKETS - 1), (1 << TOP, u64::MAX));
        let near = (0..64).flat_map(|b| [1u64 << b, (1 << b) - 1, (1 << b) + 1, 3 << b >> 1]);
        for ns in near {
            let b = bucket(ns);
            let (least, end) = bounds(b);
            assert!(least <= ns && ns < end, "{ns} in bucket {b}: {least} to {end}");
            assert!(b == BUCKETS - 1 || end - least <= (least / 8).max(16), "{b}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn buckets_leave_no_gap() {
        for b in 1..BUCKETS {
            assert_eq!(bounds(b - 1).1, bounds(b).0);
        }
    }
}
