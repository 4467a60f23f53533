//! A result for people.

use super::report::{Failure, Report};
use crate::cli::Shell;
use crate::out;
use crate::shell::quote;
use comfy_table::{Cell, CellAlignment};
use softring_engine::stats::clean::printable;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

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

fn row(n: usize, failure: &Failure) -> Vec<Cell> {
    let sites = if failure.sites.is_empty() { "-".to_owned() } else { failure.sites.join(", ") };
    vec![
        Cell::new(n).set_alignment(CellAlignment::Right),
        Cell::new(failure.ending),
        Cell::new(failure.seeds.len()).set_alignment(CellAlignment::Right),
        Cell::new(sites),
        Cell::new(if failure.message.is_empty() { "-" } else { &failure.message }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

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
