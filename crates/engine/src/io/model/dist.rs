//! Time that a device takes for one request: seeded distributions.

use softring_host::math::{cos, exp, ln, sqrt};
use softring_host::random::Rng;

/// Shape of a distribution of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Always the mean.
    #[default]
    Fixed,
    /// The bell curve, cut off at zero.
    Normal,
    /// A time whose logarithm is normal: never far below the mean, now and then far above.
    Lognormal,
}

/// A second mode: a mean time for a share of the requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Slow {
    /// Mean in ns, instead of the first mode's.
    pub(crate) mean: f64,
    /// The share of all requests, 0 to 1.
    pub(crate) share: f64,
}

/// A distribution of times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Dist {
    pub(crate) shape: Shape,
    /// Mean in ns.
    pub(crate) mean: f64,
    /// Standard deviation, in ns; of the second mode, the same share of its mean.
    pub(crate) deviation: f64,
    /// The second mode of a bimodal distribution.
    pub(crate) slow: Option<Slow>,
}

/// Longest time of a request, in ns: an hour.
const LONGEST: f64 = 3.6e12;

impl Dist {
    #[cfg(test)]
    pub(crate) fn fixed(mean: f64) -> Dist {
        Dist { mean, ..Dist::default() }
    }

    /// Draws one time, in ns.
    pub(crate) fn sample(&self, random: &mut Rng) -> u64 {
        let (mut mean, mut deviation) = (self.mean, self.deviation);
        if let Some(slow) = self.slow
            && random.f64() < slow.share
        {
            deviation *= if mean > 0.0 { slow.mean / mean } else { 0.0 };
            mean = slow.mean;
        }
        let ns = match self.shape {
            _ if deviation == 0.0 || mean == 0.0 => mean,
            Shape::Fixed => mean,
            Shape::Normal => mean + deviation * bell(random),
            Shape::Lognormal => {
                // Mean and deviation are those of the result.
                let ratio = deviation / mean;
                let square = ln(1.0 + ratio * ratio);
                mean * exp(sqrt(square) * bell(random) - square / 2.0)
            }
        };
        ns.clamp(0.0, LONGEST) as u64
    }
}

/// Draws a number of the standard normal distribution (Box and Muller).
fn bell(random: &mut Rng) -> f64 {
    let (u, v) = (1.0 - random.f64(), random.f64());
    sqrt(-2.0 * ln(u)) * cos(core::f64::consts::TAU * v)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn many(dist: Dist) -> Vec<f64> {
        let mut random = Rng::with_seed(7);
        (0..100_000).map(|_| dist.sample(&mut random) as f64).collect()
    }

    fn mean(v: &[f64]) -> f64 {
        v.iter().sum::<f64>() / v.len() as f64
    }

    fn deviation(v: &[f64]) -> f64 {
        let m = mean(v);
        (v.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / v.len() as f64).sqrt()
    }

    fn near(a: f64, b: f64) -> bool {
        (a / b - 1.0).abs() < 0.02
    }

    #[test]
    fn means_and_deviations_are_those_asked_for() {
        for shape in [Shape::Normal, Shape::Lognormal] {
            let v = many(Dist { shape, mean: 80_000.0, deviation: 8_000.0, slow: None });
            assert!(near(mean(&v), 80_000.0) && near(deviation(&v), 8_000.0), "{shape:?}");
        }
        assert!(many(Dist::fixed(5.0)).iter().all(|&ns| ns == 5.0));
    }

    #[test]
    fn a_lognormal_tail_is_above() {
        let mut v =
            many(Dist { shape: Shape::Lognormal, mean: 80_000.0, deviation: 40_000.0, slow: None });
        v.sort_by(f64::total_cmp);
        let (low, mid, high) = (v[100], v[50_000], v[99_900]);
        assert!(high - mid > 3.0 * (mid - low), "{low} {mid} {high}");
    }

    #[test]
    fn the_second_mode_has_its_share() {
        let slow = Some(Slow { mean: 2e6, share: 0.01 });
        let v = many(Dist { mean: 8e4, slow, ..Dist::default() });
        let n = v.iter().filter(|&&ns| ns == 2e6).count();
        assert!((900..1100).contains(&n), "{n}");
        assert!(v.iter().all(|&ns| ns == 2e6 || ns == 8e4));
    }

    #[test]
    fn never_below_zero_and_the_same_for_the_same_seed() {
        let wild = Dist { shape: Shape::Normal, mean: 10.0, deviation: 1e6, slow: None };
        assert_eq!(many(wild), many(wild));
        assert!(many(wild).iter().all(|&ns| (0.0..=LONGEST).contains(&ns)));
    }
}
