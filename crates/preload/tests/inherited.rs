//! Memory that a forked child pays for the rings that it inherits.

mod common;

use common::{example, succeed, under};

/// Returns the private memory, in KiB, of a child whose parent has so many rings.
fn private(rings: u64) -> u64 {
    let out = succeed(under(example("inherited"), "user", "none").arg(rings.to_string()));
    String::from_utf8_lossy(&out.stdout).trim().parse().unwrap()
}

#[test]
fn rings_that_are_not_used_cost_little() {
    let (few, many) = (private(1), private(1001));
    println!("{few} KiB with one ring, {many} KiB with 1,001");
    // Half a KiB for each ring; on the kernel nothing.
    assert!(many < few + 500, "{few} KiB with one ring, {many} KiB with 1,001");
}
