//! Random numbers from a seed: the generator wyrand. The crate fastrand has the same one, but
//! whoever builds a tool that uses it turns its `std` on.

/// Generator of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Makes a generator, which gives the same numbers for the same seed.
    pub const fn with_seed(seed: u64) -> Rng {
        Rng(seed)
    }

    /// Returns a number of 64 random bits.
    pub const fn u64(&mut self) -> u64 {
        const STEP: u64 = 0x2d35_8dcc_aa6c_78a5;
        const MIX: u64 = 0x8bb8_4b93_962e_acc9;
        self.0 = self.0.wrapping_add(STEP);
        let product = self.0 as u128 * (self.0 ^ MIX) as u128;
        product as u64 ^ (product >> 64) as u64
    }

    /// Returns a number from 0 to below 1.
    pub const fn f64(&mut self) -> f64 {
        const UNIT: f64 = 1.0 / (1u64 << 63) as f64;
        loop {
            // Large numbers are rounded up.
            let number = (self.u64() >> 1) as f64 * UNIT;
            if number < 1.0 {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seed of a user's gives the times that it gave before.
    #[test]
    fn numbers_are_those_of_fastrand() {
        let (mut ours, mut theirs) = (Rng::with_seed(7), fastrand::Rng::with_seed(7));
        for _ in 0..1000 {
            assert_eq!(ours.u64(), theirs.u64(..));
            assert_eq!(ours.f64(), theirs.f64());
        }
    }
}
