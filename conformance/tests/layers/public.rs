//! Public items: a crate below the program's side has only such that another crate names. So
//! rustc's dead-code lint sees the others. Types that others get without naming them are not
//! counted.

use super::lines;
use super::sources::{Source, is_word, sources};
use std::collections::BTreeSet;

/// Crates whose public items are checked. The constants of `uapi` are the ABI's, used or not.
const CRATES: &[&str] = &["crates/engine/src/", "crates/host/src/"];
const ITEMS: &[&str] = &["const", "fn", "mod", "static"];

fn words(source: &Source) -> impl Iterator<Item = &str> {
    source.code.split(|c: char| !c.is_ascii() || !is_word(c as u8)).filter(|word| !word.is_empty())
}

/// Returns the public items of a file, but not those of a trait or with a narrower `pub(…)`.
fn public(source: &Source) -> BTreeSet<&str> {
    let lines = source.code.lines().filter_map(|line| line.trim_start().strip_prefix("pub "));
    let items = lines.filter_map(|line| {
        let mut words = line.split(|c: char| !c.is_ascii() || !is_word(c as u8));
        let after: Vec<&str> = words.by_ref().take(5).collect();
        let at = after.iter().rposition(|word| ITEMS.contains(word))?;
        after.get(at + 1).copied().filter(|name| !name.is_empty())
    });
    items.collect()
}

#[test]
fn public_items_are_used_by_other_crates() {
    let all = sources(&[".rs"]);
    let mut unused = BTreeSet::new();
    for of_crate in CRATES {
        let (own, others): (Vec<_>, Vec<_>) =
            all.iter().partition(|s| s.name.starts_with(of_crate));
        let named: BTreeSet<&str> = others.into_iter().flat_map(words).collect();
        for source in own {
            let alone = public(source).into_iter().filter(|name| !named.contains(name));
            unused.extend(alone.map(|name| format!("{}: {name}", source.name)));
        }
    }
    assert!(unused.is_empty(), "no other crate names these: pub(crate):\n{}", lines(&unused));
}
