//! A thread that waits for an epoll set since before the process has a ring hears the ring that is
//! added to the set.

mod common;

use common::{example, succeed, under};

#[test]
fn a_ring_ends_a_wait_that_is_older() {
    for intercept in ["auto", "none"] {
        for kind in ["lt", "et", "inline", "poll", "select"] {
            succeed(under(example("waits_first"), "user", intercept).arg(kind));
        }
    }
}
