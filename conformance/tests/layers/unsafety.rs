//! Unsafe code of the engine and of the host crate: it is in few modules, each of which says why.
//! rustc refuses it elsewhere.

use super::sources::sources;
use super::{check_list, listed};
use std::collections::BTreeSet;

/// Lines of `FILE  what needs it`.
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
    check_list("unsafe.txt", LIST, &found, "move what is unsafe into a module of");
}
