//! Cost of an SQ thread's work meter, and of the statistics page with it: one ring has both, one
//! has neither, and they take turns of a few milliseconds. The client keeps the submission queue
//! full, so that the rate is that of the SQ thread. Measures, so it runs by hand:
//!
//! ```text
//! cargo test --release -p softring-engine --test meter_cost -- --ignored --nocapture
//! ```

mod client;
mod cost;

use client::{Client, sqe};
use cost::{BATCH, Next, at_once, compare, turn};
use softring_engine::syscall;
use softring_uapi::*;

/// Makes a ring whose thread sleeps a millisecond after its last request.
fn ring() -> Client {
    let flags = IORING_SETUP_SQPOLL;
    let p = io_uring_params { flags, sq_entries: 64, sq_thread_idle: 1, ..Default::default() };
    let c = Client::with(p);
    // The thread lives, and has a meter if it ever will.
    c.push(sqe(IORING_OP_NOP, 0));
    assert_eq!(c.watch(1).len(), 1);
    c
}

fn sleeps(c: &Client) -> bool {
    c.sq_flags() & IORING_SQ_NEED_WAKEUP != 0
}

/// Ends the thread's sleep.
fn rouse(c: &Client) {
    while sleeps(c) {
        syscall::enter(c.fd, 0, 0, IORING_ENTER_SQ_WAKEUP, 0, 8);
    }
}

/// Submits a further batch, without waiting for earlier ones; returns how many have been done.
fn push(c: &Client, next: &mut Next) -> u32 {
    let mut done = 0;
    for n in 0..BATCH {
        while c.queued() >= BATCH {
            // This thread may have been off the processor for longer than the other spins.
            if sleeps(c) {
                rouse(c);
            }
        }
        c.push(next(n));
        while let Some(cqe) = c.pop() {
            assert!(cqe.res >= 0, "{}", cqe.res);
            done += 1;
        }
    }
    done
}

#[test]
#[ignore = "measures"]
fn costs() {
    let with = ring();
    softring_engine::stats::disable();
    let without = ring();
    for (name, mut next) in at_once() {
        compare(name, |on| {
            let (c, other) = if on { (&with, &without) } else { (&without, &with) };
            while !sleeps(other) {
                std::hint::spin_loop();
            }
            rouse(c);
            let rate = turn(c, &mut |c| push(c, &mut next));
            while !sleeps(c) {}
            while c.pop().is_some() {}
            rate
        });
    }
}
