//! Probabilities and times.

/// Number of parts of a whole.
const WHOLE: u64 = 1_000_000_000;

/// A probability, in parts of a billion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chance(u32);

impl Chance {
    pub const NEVER: Chance = Chance(0);
    pub const ALWAYS: Chance = Chance(WHOLE as u32);

    /// Makes a probability of parts of a billion; `None` if they are more than a whole.
    pub const fn of_billion(parts: u32) -> Option<Chance> {
        if parts as u64 <= WHOLE { Some(Chance(parts)) } else { None }
    }

    /// Returns the parts of a billion.
    pub const fn billionths(self) -> u32 {
        self.0
    }

    /// Returns whether a random number is a hit.
    pub const fn hit(self, random: u64) -> bool {
        (random >> 32) * WHOLE < (self.0 as u64) << 32
    }
}

/// A time to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Always this many ns.
    Fixed(u64),
    /// Distributed exponentially: this percentage of all times is at most that many ns.
    Percentile(u8, u64),
}

/// Number of fraction bits of logarithms.
const FRACTION: u32 = 16;

/// Returns -log2(x / 2^32) with [`FRACTION`] bits of fraction; `x` is not 0.
const fn neg_log2(x: u32) -> u64 {
    let zeros = x.leading_zeros();
    // The mantissa is in [1, 2), with 31 bits of fraction.
    let mut mantissa = (x as u64) << zeros;
    let mut bits = 0u64;
    let mut i = 0;
    while i < FRACTION {
        mantissa = (mantissa * mantissa) >> 31;
        bits <<= 1;
        if mantissa >= 1 << 32 {
            mantissa >>= 1;
            bits |= 1;
        }
        i += 1;
    }
    ((zeros as u64 + 1) << FRACTION) - bits
}

impl Time {
    /// Longest time: a minute.
    pub const MOST: u64 = 60_000_000_000;

    /// Returns the time of a random number, in ns; at most ten times the given one.
    pub fn ns(self, random: u64) -> u64 {
        match self {
            Time::Fixed(ns) => ns,
            Time::Percentile(percent, ns) => {
                let random = neg_log2((random as u32) | 1);
                let above = u64::from(100 - percent.min(99)) << 32;
                let unit = neg_log2((above / 100) as u32 | 1).max(1);
                let time = u128::from(ns) * u128::from(random) / u128::from(unit);
                u64::try_from(time).unwrap_or(u64::MAX).min(ns.saturating_mul(10))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ninety_nine_of_a_hundred_times_are_below_their_percentile() {
        let time = Time::Percentile(99, 1_000_000);
        let below = (0..100_000u64)
            .map(|i| crate::draw(7, 0, i, crate::Fault::Delay))
            .filter(|&r| time.ns(r) <= 1_000_000)
            .count();
        assert!((98_800..99_200).contains(&below), "{below}");
        let half = Time::Percentile(50, 1_000_000);
        let below = (0..100_000u64)
            .map(|i| crate::draw(7, 0, i, crate::Fault::Delay))
            .filter(|&r| half.ns(r) <= 1_000_000)
            .count();
        assert!((49_000..51_000).contains(&below), "{below}");
    }

    #[test]
    fn a_certain_fault_always_hits_and_an_impossible_one_never() {
        for random in [0, 1, u64::MAX / 2, u64::MAX] {
            assert!(Chance::ALWAYS.hit(random));
            assert!(!Chance::NEVER.hit(random));
        }
        assert_eq!(Chance::of_billion(1_000_000_001), None);
    }
}
