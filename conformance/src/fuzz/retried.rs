//! Programs that differed once and agreed when they were run again
//! ([`Verdict::Flaky`](super::check::Verdict)). They are counted and named in the summary, and too
//! many of them fail the run, as cases do ([`crate::retries`]): a fault that shows in one run of
//! ten is among them.

use crate::retries::{Budget, Retried};
use std::collections::BTreeMap;

/// Programs per one that may agree only when it is run again.
const ONE_IN: u64 = 100;
/// Number of such programs that is always allowed.
const FEWEST: u64 = 3;

/// First difference of each program, by its seed.
#[derive(Debug, Default, serde::Serialize)]
#[serde(transparent)]
pub struct RetriedPrograms(BTreeMap<u64, String>);

impl RetriedPrograms {
    pub fn add(&mut self, seed: u64, what: &str) {
        self.0.insert(seed, format!("seed {seed}: {what}"));
    }

    pub fn len(&self) -> u64 {
        self.0.len() as u64
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the line for the summary, and whether these are too many of `tried` programs, or
    /// more than `most`, if that is given.
    pub fn sum_up(&self, target: &str, tried: u64, most: Option<u64>) -> (String, bool) {
        if self.is_empty() {
            return ("no difference agreed only when asked again".into(), false);
        }
        let most = most.unwrap_or_else(|| FEWEST.max(tried / ONE_IN)) as usize;
        let budget = Budget { softring: most, kernel: Some(most) };
        let cases = self.0.values().map(|what| (what.as_str(), 1)).collect();
        let retried = Retried { target, cases };
        (retried.line(budget), retried.is_over(budget))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retried(n: u64) -> RetriedPrograms {
        let mut all = RetriedPrograms::default();
        (0..n).for_each(|seed| all.add(seed, "READ"));
        all
    }

    #[test]
    fn the_budget_is_one_percent_and_at_least_three() {
        let is_over = |n, tried| retried(n).sum_up("softring", tried, None).1;
        assert!(!is_over(3, 40));
        assert!(is_over(4, 40));
        assert!(is_over(4, 399));
        assert!(!is_over(6, 600));
        assert!(is_over(7, 600));
    }

    #[test]
    fn the_kernel_against_itself_has_the_same_budget() {
        assert!(!retried(3).sum_up("kernel", 40, None).1);
        assert!(retried(4).sum_up("kernel", 40, None).1);
    }

    #[test]
    fn the_budget_can_be_set() {
        assert!(retried(1).sum_up("softring", 40, Some(0)).1);
        assert!(!retried(9).sum_up("softring", 40, Some(9)).1);
    }

    #[test]
    fn the_line_names_every_program() {
        let (line, over) = retried(1).sum_up("softring", 600, Some(0));
        let want = "OVER BUDGET: agreed only when asked again on softring: 1 of 0\n    \
                    seed 0: READ, which differed 1 time(s) before";
        assert_eq!((line.as_str(), over), (want, true));
        let none = "no difference agreed only when asked again".to_owned();
        assert_eq!(retried(0).sum_up("softring", 600, None), (none, false));
    }
}
