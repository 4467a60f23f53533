//! What the newest kernel answered to the cases that need its ABI, recorded on it by `conformance
//! record`: the oracle of machines with an older one.

use crate::case::{Case, NEWEST};
use crate::report::{Answer, Verdict};

/// The records, case by case: a line `case NAME`, then what was seen.
const RECORDS: &str = include_str!("../recorded/7.2.txt");

/// What the newest kernel answered to the case of that name.
pub fn answer(case: &str) -> Option<Answer> {
    let mut lines = RECORDS.lines().skip_while(|l| l.strip_prefix("case ") != Some(case));
    lines.next()?;
    let seen = lines.map_while(|l| l.strip_prefix("  ")).map(str::to_owned).collect();
    Some(Answer { verdict: Verdict::Pass, seen, wrong: vec![], noise: String::new() })
}

/// The record of an answer.
///
/// # Errors
/// The answer is no oracle's: why.
pub fn record(case: &Case, answer: &Answer) -> Result<String, String> {
    if case.abi < NEWEST.release {
        return Err(format!("{} needs no record", case.path()));
    }
    if answer.verdict != Verdict::Pass {
        return Err(format!("{}: {}: {:?}", case.path(), answer.verdict, answer.wrong));
    }
    let lines = answer.seen.iter().map(|l| format!("  {l}\n")).collect::<String>();
    Ok(format!("case {}\n{lines}", case.path()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case;

    #[test]
    fn every_case_of_the_newest_is_recorded_and_no_other() {
        let wanted = case::all().filter(|c| c.abi == NEWEST.release).map(Case::path);
        let mut wanted: Vec<_> = wanted.collect();
        let there = RECORDS.lines().filter_map(|l| l.strip_prefix("case ")).map(str::to_owned);
        let mut there: Vec<_> = there.collect();
        wanted.sort();
        there.sort();
        assert_eq!(there, wanted);
    }
}
