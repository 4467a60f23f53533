//! Unsafe code of the engine and of the host crate: it is in few modules, each of which says why.
//! rustc refuses it elsewhere.

use super::sources::sources;
use super::{lines, listed};
use std::collections::BTreeSet;

/// Lines of `FILE  what needs it`. Can only become shorter.
const LIST: &str = include_str!("unsafe.txt");

#[test]
fn unsafe_code_stays_in_known_files() {
    let mut found = BTreeSet::new();
    for source in sources(&[".rs"]) {
        let Some(file) = listed(&source.name) else { continue };
        let word = |at: usize| source.code[at..].starts_with("unsafe ");
        let own = source.code.match_indices("unsafe").any(|(at, _)| word(at));
        if own && !file.starts_with("verify/") && !file.ends_with("tests.rs") {
            found.insert(file);
        }
    }
    let reasons = LIST.lines().map(|line| line.split_once("  ").expect("a file and a reason"));
    let known: BTreeSet<String> = reasons.map(|(file, _)| file.to_owned()).collect();
    let new: BTreeSet<String> = found.difference(&known).cloned().collect();
    let what = "move what is unsafe into a module of layers/unsafe.txt";
    assert!(new.is_empty(), "{what}:\n{}", lines(&new));
    let gone: BTreeSet<String> = known.difference(&found).cloned().collect();
    assert!(gone.is_empty(), "take these out of layers/unsafe.txt:\n{}", lines(&gone));
}
