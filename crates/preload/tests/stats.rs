//! The statistics page as a program's own process shows it.

mod common;

use common::{example, succeed, under};

#[test]
fn each_process_has_its_own_page() {
    succeed(under(example("pages"), "user", "auto").arg("on"));
}

#[test]
fn there_is_none_if_nobody_wants_it_or_the_rings_are_the_kernels() {
    succeed(under(example("pages"), "user", "auto").arg("off").env("SOFTRING_STATS", "0"));
    succeed(under(example("pages"), "kernel", "auto").arg("off"));
}
