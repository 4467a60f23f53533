//! Differences that agreed only when a case was asked again. They are counted for each target and
//! named in the summary, and too many of them fail the run: a fault that shows in one run of ten is
//! among them.

use crate::report::{Outcome, Row};
use crate::target;
use std::fmt::Write as _;

/// Default budget of each of softring's entry points.
pub const SOFTRING: usize = 5;
/// Default budget of the kernel.
pub const KERNEL: usize = 12;

/// Number of cases that may agree only when asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Retries of softring, through each entry point.
    pub softring: usize,
    /// Retries of the kernel, which depend on how busy the machine is; `None` for any number.
    pub kernel: Option<usize>,
}

impl Default for Budget {
    fn default() -> Self {
        Self { softring: SOFTRING, kernel: Some(KERNEL) }
    }
}

/// Cases that agreed only when asked again on one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retried<'a> {
    pub target: &'a str,
    /// Cases, each with how often it differed before.
    pub cases: Vec<(&'a str, usize)>,
}

impl Retried<'_> {
    /// Returns whether these are the kernel's own failures, by the name of its target.
    fn is_kernels(&self) -> bool {
        self.target == target::KERNEL
    }

    /// Returns this target's budget: a record that the kernel confirms late is no fault.
    fn limit(&self, budget: Budget) -> Option<usize> {
        match self.target {
            target::KERNEL => budget.kernel,
            recorded if recorded.starts_with(target::RECORDED) => None,
            _ => Some(budget.softring),
        }
    }

    /// Returns whether these exceed their target's budget.
    pub fn is_over(&self, budget: Budget) -> bool {
        self.limit(budget).is_some_and(|most| self.cases.len() > most)
    }

    /// Returns a line for the summary.
    pub fn line(&self, budget: Budget) -> String {
        let what = if self.is_kernels() { "passed" } else { "agreed" };
        let most = self.limit(budget);
        let most = most.map_or_else(|| "any number".into(), |n| n.to_string());
        let over = if self.is_over(budget) { "OVER BUDGET: " } else { "" };
        let n = self.cases.len();
        let mut line =
            format!("{over}{what} only when asked again on {}: {n} of {most}", self.target);
        for (case, times) in &self.cases {
            let _ = write!(line, "\n    {case}, which differed {times} time(s) before");
        }
        line
    }
}

/// Returns the cases that agreed only when asked again, target by target in the order of the rows.
pub fn of(rows: &[Row]) -> Vec<Retried<'_>> {
    let mut out: Vec<Retried<'_>> = Vec::new();
    for row in rows {
        if row.earlier.is_empty() || matches!(row.outcome, Outcome::Differs(_)) {
            continue;
        }
        let case = (row.case.as_str(), row.earlier.len());
        match out.iter_mut().find(|r| r.target == row.target) {
            Some(r) => r.cases.push(case),
            None => out.push(Retried { target: &row.target, cases: vec![case] }),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: &str, target: &str, earlier: usize, outcome: Outcome) -> Row {
        Row {
            case: case.into(),
            family: "family",
            target: target.into(),
            earlier: vec![vec!["wrong".into()]; earlier],
            outcome,
        }
    }

    #[test]
    fn only_retried_agreements_count() {
        let rows = [
            row("a", "kernel", 0, Outcome::Pass),
            row("a", "softring/patch", 1, Outcome::Pass),
            row("b", "kernel", 3, Outcome::Pass),
            row("b", "softring/patch", 0, Outcome::Pass),
            row("c", "softring/patch", 2, Outcome::Differs(vec![])),
            row("d", "softring/patch", 2, Outcome::Skip("busy".into())),
        ];
        let patch = Retried { target: "softring/patch", cases: vec![("a", 1), ("d", 2)] };
        let kernel = Retried { target: "kernel", cases: vec![("b", 3)] };
        assert_eq!(of(&rows), [patch, kernel]);
    }

    #[test]
    fn each_entry_point_has_its_own_budget() {
        let budget = Budget { softring: 1, kernel: Some(1) };
        let mut rows = vec![
            row("a", "softring/patch", 1, Outcome::Pass),
            row("a", "softring/sigsys", 1, Outcome::Pass),
        ];
        assert!(of(&rows).iter().all(|r| !r.is_over(budget)));
        rows.push(row("b", "softring/sigsys", 1, Outcome::Pass));
        let over = |r: &Retried<'_>| (r.target.to_owned(), r.is_over(budget));
        let want = [("softring/patch".to_owned(), false), ("softring/sigsys".to_owned(), true)];
        assert_eq!(of(&rows).iter().map(over).collect::<Vec<_>>(), want);
    }

    #[test]
    fn a_case_counts_once_however_often_it_differed() {
        let rows = [row("a", "softring/patch", 2, Outcome::Pass)];
        assert!(!of(&rows)[0].is_over(Budget { softring: 1, kernel: None }));
        assert!(of(&rows)[0].is_over(Budget { softring: 0, kernel: None }));
    }

    #[test]
    fn the_kernel_has_a_budget_of_its_own() {
        let rows = [row("a", "kernel", 8, Outcome::Pass), row("b", "kernel", 1, Outcome::Pass)];
        let kernel = |kernel| of(&rows)[0].is_over(Budget { softring: 0, kernel });
        assert!(kernel(Some(1)));
        assert!(!kernel(Some(2)));
        assert!(!kernel(None));
    }

    #[test]
    fn records_may_be_confirmed_late() {
        let rows = [row("a", "recorded on 6.18", 1, Outcome::Skip("out of date".into()))];
        assert!(!of(&rows)[0].is_over(Budget { softring: 0, kernel: Some(0) }));
    }

    #[test]
    fn the_line_names_every_case() {
        let rows = [row("a", "softring/patch", 2, Outcome::Pass)];
        let line = of(&rows)[0].line(Budget { softring: 0, kernel: None });
        let want = "OVER BUDGET: agreed only when asked again on softring/patch: 1 of 0\n    \
                    a, which differed 2 time(s) before";
        assert_eq!(line, want);
    }
}
