//! Rings on a disk that has stalled: no thread waits for it that would not on the kernel, and one
//! that waits sleeps. Needs root and the blkio controller; reports it if there is neither.

mod common;

use common::{example, under};
use softring_testing::skipped;
use std::process::Command;

const SKIPPED: i32 = 77;

/// Runs a case; false if no disk can be made slow.
fn holds(c: &mut Command, case: &str) -> bool {
    c.arg(case).env("STALLED_DIR", env!("CARGO_TARGET_TMPDIR"));
    let out = c.output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    if out.status.code() == Some(SKIPPED) {
        skipped!("{case}: {}", said.trim());
        return false;
    }
    assert!(out.status.success(), "{case}: {}", String::from_utf8_lossy(&out.stderr));
    true
}

/// Runs a case on the kernel's own rings, if it has any.
fn kernel_holds(case: &str) {
    match io_uring::IoUring::new(1) {
        Ok(_) => {
            holds(&mut Command::new(example("stalled")), case);
        }
        Err(e) => skipped!("{case}: the kernel gives no rings here: {e}"),
    }
}

#[test]
fn closing_a_ring_waits_for_no_disk() {
    for case in ["closes", "closes_idle"] {
        kernel_holds(case);
        holds(&mut under(example("stalled"), "user", "auto"), case);
    }
}

#[test]
fn waiters_for_a_stalled_disk_sleep() {
    kernel_holds("waits");
    for policy in ["default", "spin", "hybrid", "adaptive", "block"] {
        for case in ["waits", "waits_polled", "waits_sq_thread", "posted_meanwhile"] {
            println!("{case} {policy}");
            let mut c = under(example("stalled"), "user", "auto");
            holds(c.env("SOFTRING_POLL", policy), case);
        }
    }
}
