//! Addresses of the program become a `UserPtr` in few modules, each of which says where it has the
//! number from. `UserPtr::of_program` is a safe function, as writing to `/proc/self/mem` is: the
//! kernel checks the number. What would be wrong is an address of the engine's own memory.

use super::sources::sources;
use super::{check_list, listed};
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
    check_list("addresses.txt", LIST, &found, "say where the program has given the number in");
}
