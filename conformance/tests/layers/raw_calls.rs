//! Raw system calls: only the host crate makes them, where they are unsafe; the engine has typed
//! functions above them (`host::calls`).

use super::lines;
use super::sources::{Source, sources};
use std::collections::BTreeSet;

/// Lines of `FILE or FOLDER/  why it makes raw calls`. Can only become shorter.
const LIST: &str = include_str!("raw_calls.txt");

/// Words that make a raw call, or name what does: macros and functions, ours and the C library's.
const WORDS: &[&str] = &[
    "asm!(",
    "libc::syscall",
    "raw!(",
    "sleeping_call",
    "sleeps!(",
    "sys!(",
    "sys::syscall",
    "syscall as",
    "syscall(",
    "syscall6",
];

fn makes_raw_calls(source: &Source) -> bool {
    let is_word = |at: usize| {
        let before = source.code[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    };
    let has = |word: &str| source.code.match_indices(word).any(|(at, _)| is_word(at));
    WORDS.iter().any(|word| has(word))
}

#[test]
fn only_host_makes_raw_system_calls() {
    let mut found = BTreeSet::new();
    for source in sources(&[".rs"]) {
        let of_crate = source.name.starts_with("crates/") && source.name.contains("/src/");
        if of_crate && !source.name.starts_with("crates/host/") && makes_raw_calls(&source) {
            found.insert(source.name);
        }
    }
    let reasons = LIST.lines().map(|line| line.split_once("  ").expect("a file and a reason"));
    let known: BTreeSet<&str> = reasons.map(|(file, _)| file).collect();
    let of = |entry: &str, file: &str| match entry.ends_with('/') {
        true => file.starts_with(entry),
        false => file == entry,
    };
    let is_known = |file: &&String| known.iter().any(|entry| of(entry, file));
    let new: BTreeSet<String> = found.iter().filter(|file| !is_known(file)).cloned().collect();
    assert!(new.is_empty(), "give host::calls a function for these calls:\n{}", lines(&new));
    let is_gone = |entry: &&&str| !found.iter().any(|file| of(entry, file));
    let gone = known.iter().filter(is_gone).map(|&entry| entry.to_owned()).collect();
    assert!(BTreeSet::is_empty(&gone), "take these out of raw_calls.txt:\n{}", lines(&gone));
}
