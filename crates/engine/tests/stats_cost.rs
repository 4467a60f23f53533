//! Cost of the statistics page: one ring counts on it, one does not, and they take turns of a few
//! milliseconds, so that the machine's other work affects both alike. Measures, so it runs by hand:
//!
//! ```text
//! cargo test --release -p softring-engine --test stats_cost -- --ignored --nocapture
//! ```

mod client;
mod cost;

use client::Client;
use cost::{BATCH, compare, loads, turn};

#[test]
#[ignore = "measures"]
fn costs() {
    let with = Client::new(2 * BATCH, 0);
    softring_engine::stats::disable();
    let without = Client::new(2 * BATCH, 0);
    for (name, mut round) in loads() {
        compare(name, |on| turn(if on { &with } else { &without }, &mut *round));
    }
}
