//! Addresses of the program become a `UserPtr` in few modules, each of which says where it has the
//! number from. `UserPtr::of_program` is a safe function, as writing to `/proc/self/mem` is: the
//! kernel checks the number. What would be wrong is an address of the engine's own memory.

use super::sources::sources;
use super::{lines, listed};
use std::collections::BTreeSet;

/// `FILE  where the number comes from`, one to a line, sorted.
const LIST: &str = include_str!("addresses.txt");
const MAKERS: [&str; 2] = ["UserPtr::of_program(", "Parts::of_program("];

#[test]
fn addresses_of_the_program_come_from_where_it_is_known() {
    let mut found = BTreeSet::new();
    for source in sources(&[".rs"]) {
        let Some(file) = listed(&source.name) else { continue };
        let tests = source.code.find("\nmod tests {").unwrap_or(source.code.len());
        if MAKERS.iter().any(|maker| source.code[..tests].contains(maker)) {
            found.insert(file);
        }
    }
    let origins = LIST.lines().map(|line| line.split_once("  ").expect("a file and an origin"));
    let known: BTreeSet<String> = origins.map(|(file, _)| file.to_owned()).collect();
    let new: BTreeSet<String> = found.difference(&known).cloned().collect();
    let what = "say in layers/addresses.txt where the program has given the number";
    assert!(new.is_empty(), "{what}:\n{}", lines(&new));
    let gone: BTreeSet<String> = known.difference(&found).cloned().collect();
    assert!(gone.is_empty(), "take these out of layers/addresses.txt:\n{}", lines(&gone));
}
