//! Outcomes of runs, and keys that are equal for failures of one kind.

use serde::{Deserialize, Serialize};
use softring_engine::stats::clean::printable;
use softring_faults::log::Line;
use std::collections::BTreeSet;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// Most bytes of a message.
const MESSAGE: usize = 400;

/// End of a failed run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// The program's exit code.
    Exit(i32),
    /// The signal that the program died of.
    Signal(i32),
    /// The program did not end in time.
    Hang,
    /// The checker's exit code; 128 and its number for a signal, as in a shell.
    Check(i32),
    /// The checker did not end in time.
    CheckHang,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Exit(code) => write!(f, "exit {code}"),
            Ending::Signal(signal) => f.write_str(&crate::strace::signal_name(*signal)),
            Ending::Hang => f.write_str("hang"),
            Ending::Check(code) => write!(f, "check {code}"),
            Ending::CheckHang => f.write_str("check hang"),
        }
    }
}

impl Ending {
    /// Returns the end of a program, if it is a failure.
    pub fn of(status: ExitStatus, allowed: &[u8]) -> Option<Ending> {
        match (status.code(), status.signal()) {
            (Some(0), _) => None,
            (Some(code), _) if allowed.iter().any(|&a| i32::from(a) == code) => None,
            (Some(code), _) => Some(Ending::Exit(code)),
            (None, signal) => Some(Ending::Signal(signal.unwrap_or(0))),
        }
    }

    pub fn of_check(status: ExitStatus) -> Option<Ending> {
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        (code != 0).then_some(Ending::Check(code))
    }
}

/// Outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// End, if the run has failed.
    pub ending: Option<Ending>,
    /// The last line that it wrote.
    pub message: String,
    /// The faults that were injected.
    pub faults: Vec<Line>,
    /// Requests and syncs until the power failed.
    pub counts: Option<(u64, u64)>,
    pub took: Duration,
}

/// Two runs that have the same of these have failed for the same reason, as far as can be seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub ending: Ending,
    pub pattern: String,
}

impl Outcome {
    pub fn key(&self) -> Option<Key> {
        self.ending.map(|ending| Key { ending, pattern: folded(&self.message) })
    }

    pub fn sites(&self) -> BTreeSet<String> {
        sites(&self.faults)
    }
}

/// Returns the operations with the faults that were injected into them.
pub fn sites(faults: &[Line]) -> BTreeSet<String> {
    faults.iter().map(|line| format!("{} {}", line.op, line.fault)).collect()
}

/// Returns the last line of a text that is not empty, without what a terminal would act on.
/// `folder` is replaced: it has another name in each run.
pub fn last_line(text: &str, folder: &str) -> String {
    let counts = |line: &&str| !line.is_empty() && !line.starts_with("softring: hint: ");
    let line = text.lines().map(str::trim).rfind(counts).unwrap_or_default();
    let line = line.replace(folder, "DIR");
    let mut end = line.len().min(MESSAGE);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    printable(&line.as_bytes()[..end])
}

/// Least digits of a hexadecimal number that has no `0x` before it.
const HEX: usize = 4;

/// Replaces numbers by a `#`: decimal ones, and hexadecimal ones as those of addresses and hashes.
pub fn folded(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let begins = !out.ends_with(|c: char| c.is_ascii_alphanumeric());
        let digits = number(rest, begins);
        if digits > 0 {
            out.push('#');
            rest = &rest[digits..];
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

/// Returns the length of the number at the beginning of a text; `word` says that a word may begin
/// there.
fn number(text: &str, word: bool) -> usize {
    let run = |text: &str, of: fn(char) -> bool| text.len() - text.trim_start_matches(of).len();
    let hex = |text: &str| run(text, |c| c.is_ascii_hexdigit());
    let prefixed = text.strip_prefix("0x").map_or(0, hex);
    if prefixed > 0 {
        return prefixed + 2;
    }
    let (digits, all) = (hex(text), run(text, |c| c.is_ascii_alphanumeric()));
    let has_digit = || text[..digits].contains(|c: char| c.is_ascii_digit());
    if word && digits == all && digits >= HEX && has_digit() {
        return digits;
    }
    run(text, |c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_folded() {
        assert_eq!(folded("byte 4096 of 0x7ffe12ab is wrong"), "byte # of # is wrong");
        assert_eq!(folded("a1b22 ü 0xz"), "# ü #xz");
        assert_eq!(folded("at 7ffe12ab and DEAD00: is"), "at # and #: is");
        assert_eq!(folded("id 0b5c1f3e-77aa-4e01-9c2d-00ff12ab34cd"), "id #-#-#-#-#");
        assert_eq!(folded("faced a1 x12ab uint8 READV2"), "faced a# x#ab uint# READV#");
    }

    #[test]
    fn the_last_line_is_the_message() {
        assert_eq!(last_line("a\n /tmp/x/data: b\x1b \n\n", "/tmp/x"), "DIR/data: b?");
        assert_eq!(last_line("", "/tmp/x"), "");
        assert_eq!(last_line("softring: error: a\nsoftring: hint: b\n", "/"), "softring: error: a");
        assert_eq!(last_line(&"ü".repeat(1000), "/"), "ü".repeat(MESSAGE / 2));
    }

    #[test]
    fn ends_are_told_apart() {
        let of = |raw| Ending::of(ExitStatus::from_raw(raw), &[7]);
        assert_eq!((of(0), of(7 << 8), of(9)), (None, None, Some(Ending::Signal(9))));
        assert_eq!(of(1 << 8).map(|e| e.to_string()), Some("exit 1".to_owned()));
        assert_eq!(Ending::of_check(ExitStatus::from_raw(9)), Some(Ending::Check(137)));
        assert_eq!(serde_json::to_string(&Ending::Exit(3)).unwrap(), r#"{"exit":3}"#);
        assert_eq!(serde_json::to_string(&Ending::Hang).unwrap(), r#""hang""#);
    }
}
