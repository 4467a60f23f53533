//! Medians and their confidence intervals.

use serde::Serialize;

/// Returns the middle value; the mean of the two middle ones for an even count; NaN for none.
pub fn median(values: &[f64]) -> f64 {
    let mut v = values.to_vec();
    v.sort_by(f64::total_cmp);
    match v.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => v[n / 2],
        n => f64::midpoint(v[n / 2 - 1], v[n / 2]),
    }
}

/// Returns (max − min) / median.
pub fn spread(values: &[f64]) -> f64 {
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let min = values.iter().copied().fold(f64::INFINITY, f64::min);
    let m = median(values);
    if m > 0.0 { (max - min) / m } else { 0.0 }
}

/// A median with an interval that holds the true median with at least this confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    pub confidence: f64,
}

/// Returns the median of pair-wise ratios. The interval is that of the sign test (order
/// statistics), which assumes nothing of the distribution. The narrowest interval of at least 95 %
/// is taken; if there are too few pairs for that, the interval holds all of them.
pub fn ratio(values: &[f64]) -> Option<Ratio> {
    let mut v: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
    v.sort_by(f64::total_cmp);
    let n = v.len();
    if n == 0 {
        return None;
    }
    let mut best = (0, coverage(n, 0));
    for k in 1..n / 2 {
        let c = coverage(n, k);
        if c >= 0.95 {
            best = (k, c);
        }
    }
    let (k, confidence) = best;
    Some(Ratio { median: median(&v), low: v[k], high: v[n - 1 - k], confidence })
}

/// Returns the chance that the median lies between the k-th smallest and the k-th largest of `n` (k
/// from 0).
fn coverage(n: usize, k: usize) -> f64 {
    let mut term = 0.5f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let mut tail = 0.0;
    for i in 0..=k {
        tail += term;
        term = term * (n - i) as f64 / (i + 1) as f64;
    }
    (1.0 - 2.0 * tail).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
        assert_eq!(spread(&[9.0, 10.0, 11.0]), 0.2);
    }

    #[test]
    fn intervals() {
        let five = ratio(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!((five.low, five.median, five.high), (1.0, 3.0, 5.0));
        assert!((five.confidence - 0.9375).abs() < 1e-9);
        // By the tables, the second smallest and second largest of 9 values give 96.1 %.
        let nine: Vec<f64> = (1..=9).map(f64::from).collect();
        let r = ratio(&nine).unwrap();
        assert_eq!((r.low, r.high), (2.0, 8.0));
        assert!((r.confidence - 0.9609).abs() < 1e-3, "{r:?}");
        assert_eq!(ratio(&[]), None);
        assert_eq!(ratio(&[2.0]).unwrap().confidence, 0.0);
    }
}
