//! Skipped tests. A test that cannot run on a machine reports that by [`skipped!`]. The reason is
//! printed, `make test` counts it, and the test fails if the machine was to have what is missing. A
//! test adds a line to the end of `make test` by [`remark!`].

use std::ffi::OsString;
use std::fmt::Arguments;
use std::io::Write;

/// Variable that names the file of skips, a line each: test, tab, reason.
const SKIPS: &str = "SOFTRING_TEST_SKIPS";
/// Variable that names the file of remarks, a line each: test, tab, remark.
const REMARKS: &str = "SOFTRING_TEST_REMARKS";
/// Variable that lists what the machine must have: words of reasons, with commas between them, or
/// `all`.
const REQUIRE: &str = "SOFTRING_TEST_REQUIRE";

/// Notes that the running test, or a part of it, is skipped, and why. Format arguments as
/// `println!` has them.
///
/// # Panics
/// If `SOFTRING_TEST_REQUIRE` is `all` or names a word of the reason.
#[macro_export]
macro_rules! skipped {
    ($($arg:tt)*) => { $crate::note(::core::format_args!($($arg)*)) };
}

/// Does the work of [`skipped!`].
///
/// # Panics
/// As `skipped!`.
#[track_caller]
pub fn note(why: Arguments<'_>) {
    let why = why.to_string();
    let why = why.trim().replace('\n', " ");
    eprintln!("skipped: {why}");
    let test = std::thread::current().name().unwrap_or("main").to_owned();
    if let Some(path) = std::env::var_os(SKIPS) {
        append(path, &format!("{test}\t{why}\n"));
    }
    let required = std::env::var(REQUIRE).unwrap_or_default();
    if let Some(word) = wanted(&required, &why) {
        panic!("{test} may not be skipped, as {REQUIRE} has {word:?}: {why}");
    }
}

/// Prints a line now, and again at the end of `make test`. Format arguments as `println!` has them.
#[macro_export]
macro_rules! remark {
    ($($arg:tt)*) => { $crate::remember(::core::format_args!($($arg)*)) };
}

/// Does the work of [`remark!`].
pub fn remember(what: Arguments<'_>) {
    let test = std::thread::current().name().unwrap_or("main").to_owned();
    println!("{what}");
    if let Some(path) = std::env::var_os(REMARKS) {
        append(path, &format!("{test}\t{what}\n"));
    }
}

/// Appends a line by one write, so that lines of tests that run at the same time stay whole.
fn append(path: OsString, line: &str) {
    let file = std::fs::File::options().append(true).create(true).open(&path);
    if let Err(e) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
        eprintln!("{}: {e}: a line is not counted", path.to_string_lossy());
    }
}

/// Returns the required word that a reason names.
fn wanted<'a>(required: &'a str, why: &str) -> Option<&'a str> {
    let mut words = required.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.find(|word| *word == "all" || why.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_required_word_is_found_in_a_reason() {
        assert_eq!(wanted("tmux, musl-gcc", "no musl-gcc"), Some("musl-gcc"));
        assert_eq!(wanted("all", "no Go compiler"), Some("all"));
        assert_eq!(wanted("tmux,", "no Go compiler"), None);
        assert_eq!(wanted("", "no Go compiler"), None);
    }

    #[test]
    fn skips_are_appended() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for line in ["one\tno tmux\n", "two\tno tmux\n"] {
            append(file.path().into(), line);
        }
        let all = std::fs::read_to_string(file.path()).unwrap();
        assert_eq!(all, "one\tno tmux\ntwo\tno tmux\n");
    }
}
