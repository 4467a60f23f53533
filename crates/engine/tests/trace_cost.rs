//! Cost of `softring trace` and `softring strace` for the program that they trace: a ring takes
//! turns of a few milliseconds, in which its steps are written, and in which they are not. The
//! reader's work is not the program's cost, and is done between the turns. Measures, so it runs by
//! hand:
//!
//! ```text
//! cargo test --release -p softring-engine --test trace_cost -- --ignored --nocapture costs
//! ```
//!
//! `least` in place of `costs` measures the least that a trace must do: no trace at all, but for
//! each request 32 bytes of memory, which an event has, and three reads of the clock for each call:
//! when it begins, when its requests are submitted, when it ends. CPU=1: processor time counts.
//!
//! In instructions per request, by the difference of two runs of the same requests:
//!
//! ```text
//! for TRACED in 0 1; do
//!     export TRACED
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/deps/trace_cost-* \
//!         --ignored fixed
//! done
//! ```
#![allow(unsafe_code)]

mod client;
mod cost;
mod tracing;

use client::Client;
use cost::{BATCH, compare, loads, turn};
use softring_engine::stats::trace::Clock;
use std::hint::black_box;
use std::time::Instant;
use tracing::open;

/// Events that fit into a mebibyte.
const EVENTS: usize = 1 << 15;

/// Returns whether the kernel makes its own clock of the processor's time stamp counter.
fn counter() -> bool {
    let at = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    std::fs::read_to_string(at).is_ok_and(|name| name.trim() == "tsc")
}

/// Returns whether descriptors are to be named, as `softring strace -y` asks for: NAMES=1.
fn names() -> bool {
    std::env::var_os("NAMES").is_some_and(|v| v == "1")
}

#[test]
#[ignore = "measures"]
fn costs() {
    let c = Client::new(2 * BATCH, 0);
    let (mut reader, mut clock) = (open(), Clock::new(counter()));
    for (name, mut round) in loads() {
        let mut dropped = 0;
        compare(name, |on| {
            // Both sides wait for the same.
            clock.read();
            reader.start(&clock, names()).unwrap();
            if !on {
                reader.stop();
            }
            let rate = turn(&c, &mut *round);
            reader.stop();
            // The ring learns of the end in its next call.
            round(&c);
            let events = reader.poll(&clock, |_, _, _| ());
            assert!(events as u32 >= BATCH || !on, "{events} events");
            dropped += reader.dropped();
            rate
        });
        assert_eq!(dropped, 0, "a refused event costs less");
    }
}

#[test]
#[ignore = "measures"]
fn least() {
    let c = Client::new(2 * BATCH, 0);
    let (counter, start) = (counter(), Instant::now());
    let now = || {
        if counter {
            // SAFETY: every processor of x86-64 has the instruction, and nothing here gives it up.
            unsafe { core::arch::x86_64::_rdtsc() }
        } else {
            start.elapsed().as_nanos() as u64
        }
    };
    let (mut events, mut at) = (vec![[0; 4]; EVENTS], 0);
    for (name, mut round) in loads() {
        compare(name, |on| {
            turn(&c, &mut |c| {
                let time = if on { now() } else { 0 };
                for n in 0..if on { u64::from(BATCH) } else { 0 } {
                    events[at % EVENTS] = black_box([time, n, 1, 2]);
                    at += 1;
                }
                if on {
                    black_box((now(), now()));
                }
                round(c)
            })
        });
    }
}

/// Runs requests whose instructions are counted from outside: 32,000 of each kind, of all kinds or
/// of the one that LOAD names by its number.
#[test]
#[ignore = "is measured"]
fn fixed() {
    let c = Client::new(2 * BATCH, 0);
    let mut reader = open();
    reader.start(&Clock::new(counter()), names()).unwrap();
    if std::env::var_os("TRACED").is_none_or(|v| v != "1") {
        reader.stop();
    }
    let only = std::env::var("LOAD").ok().and_then(|n| n.parse::<usize>().ok());
    let chosen = loads().into_iter().enumerate().filter(|(n, _)| only.is_none_or(|o| o == *n));
    for (_, (_, mut round)) in chosen {
        (0..1000).for_each(|_| assert_eq!(round(&c), BATCH));
    }
}
