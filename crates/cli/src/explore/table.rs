//! A result for people.

use super::report::{Failure, Report};
use crate::cli::Shell;
use crate::out;
use crate::shell::quote;
use comfy_table::{Cell, CellAlignment};
use softring_engine::stats::clean::printable;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Most faults of a failure that are named.
const SITES: usize = 3;

/// Quotes a word for a shell, if it has to be.
pub fn word(word: &OsStr) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"%+,-./:=@_^".contains(b);
    let bytes = word.as_bytes();
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return word.to_string_lossy().into_owned();
    }
    String::from_utf8_lossy(&quote(Shell::Sh, bytes)).into_owned()
}

/// Returns the text that is printed in the end.
pub fn text(report: &Report) -> String {
    let mut lines = String::new();
    if !report.failures.is_empty() {
        let mut table = out::table(&["", "failure", "seeds", "fault", "message"]);
        for (n, failure) in (1..).zip(&report.failures) {
            table.add_row(row(n, failure));
        }
        lines.push_str(&format!("{table}\n"));
        lines.push_str("\nsmallest SPEC of each:\n");
        for (n, failure) in (1..).zip(&report.failures) {
            lines.push_str(&format!(
                "{n}: {}{}\n",
                printable(failure.replay.as_bytes()),
                doubt(failure)
            ));
            for request in &failure.in_flight {
                lines.push_str(&format!("   in flight: {}\n", printable(request.as_bytes())));
            }
        }
        lines.push('\n');
    }
    let Report { runs, failed, .. } = report;
    let all = report.shards.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let shards = if all.is_empty() { all } else { format!(", shards {all}") };
    let kinds = match report.failures.len() {
        0 => String::new(),
        1 => ", all alike".to_owned(),
        n => format!(", {n} different failures"),
    };
    let cut = if report.stopped { "; stopped by a signal" } else { "" };
    lines + &format!("{runs} runs (seeds {}{shards}), {failed} failed{kinds}{cut}", report.seeds)
}

fn doubt(failure: &Failure) -> &'static str {
    if failure.reproduced { "" } else { "   # did not fail again" }
}

/// Returns the faults of a failure; where they were not dropped one by one, there may be many.
fn sites(failure: &Failure) -> String {
    let sites = &failure.sites;
    match sites.len() {
        0 => "-".to_owned(),
        n if n <= SITES => sites.join(", "),
        n => format!("{}, and {} more", sites[..SITES].join(", "), n - SITES),
    }
}

fn row(n: usize, failure: &Failure) -> Vec<Cell> {
    vec![
        Cell::new(n).set_alignment(CellAlignment::Right),
        Cell::new(failure.ending),
        Cell::new(failure.seeds.len()).set_alignment(CellAlignment::Right),
        Cell::new(sites(failure)),
        Cell::new(if failure.message.is_empty() { "-" } else { &failure.message }),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::outcome::Ending;
    use super::*;

    #[test]
    fn a_row_names_a_few_faults() {
        let of = |n: usize| {
            let sites = (0..n).map(|i| format!("READ {i}")).collect();
            super::sites(&Failure { sites, ..failure() })
        };
        assert_eq!((of(0), of(2)), ("-".to_owned(), "READ 0, READ 1".to_owned()));
        assert_eq!(of(3), "READ 0, READ 1, READ 2");
        assert_eq!(of(9), "READ 0, READ 1, READ 2, and 6 more");
    }

    fn failure() -> Failure {
        Failure {
            ending: Ending::Hang,
            message: String::new(),
            pattern: String::new(),
            sites: Vec::new(),
            seeds: vec![0],
            seed: 0,
            spec: None,
            reproduced: true,
            faults: Vec::new(),
            replay: String::new(),
            in_flight: Vec::new(),
        }
    }

    #[test]
    fn only_odd_words_are_quoted() {
        let quoted = |text: &str| word(OsStr::new(text));
        assert_eq!(quoted("seed=7,short-read=1@op=READ"), "seed=7,short-read=1@op=READ");
        assert_eq!(
            (quoted("a b"), quoted("it's"), quoted("")),
            ("'a b'".into(), "'it'\\''s'".into(), "''".into())
        );
    }
}
