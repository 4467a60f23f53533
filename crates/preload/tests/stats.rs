//! The statistics page as a program's own process shows it.

mod common;

use common::{example, succeed, under};

#[test]
fn each_process_has_its_own_page() {
    succeed(under(example("pages"), "user", "auto").arg("on"));
}

#[test]
fn there_is_no_page_without_stats_or_softring_rings() {
    succeed(under(example("pages"), "user", "auto").arg("off").env("SOFTRING_STATS", "0"));
    succeed(under(example("pages"), "kernel", "auto").arg("off"));
}
