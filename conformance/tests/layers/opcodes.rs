//! Operations: each is its family's file and its row, which says all that the rest of the engine
//! must know. Only timeouts are named elsewhere, as in the kernel.

use super::lines;
use super::sources::sources;
use std::collections::BTreeSet;

/// The two opcodes that the timeout queue and the chains know.
const NAMED: &[&str] = &["TIMEOUT", "LINK_TIMEOUT"];

/// Name of the number of opcodes, which is no operation.
const COUNT: &str = "LAST";

fn names(code: &str) -> impl Iterator<Item = &str> {
    let is_end = |c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit() && c != '_';
    let name = move |rest: &'_ str| rest.find(is_end).unwrap_or(rest.len());
    code.split("IORING_OP_").skip(1).map(move |rest| &rest[..name(rest)])
}

#[test]
fn opcodes_are_named_only_in_their_own_files() {
    let mut found = BTreeSet::new();
    for source in sources(&[".rs"]) {
        let Some(file) = source.name.strip_prefix("crates/engine/src/") else { continue };
        if ["ops/", "tests/", "verify/"].iter().any(|dir| file.starts_with(dir)) {
            continue;
        }
        for name in names(&source.code).filter(|name| *name != COUNT && !NAMED.contains(name)) {
            found.insert(format!("{file}: IORING_OP_{name}"));
        }
    }
    let what = "say by a bit or a hook of the row (opdef.rs) what the core must know";
    assert!(found.is_empty(), "{what}:\n{}", lines(&found));
}
