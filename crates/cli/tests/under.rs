//! The command with the preload library under it: needs libsoftring.so next to the executable,
//! which `cargo build --workspace` puts there; without it these say that they were skipped.

mod common;

use common::{ME, library, softring, text};
use serde_json::Value;
use std::process::Command;

#[test]
fn a_denied_program_gets_a_ring() {
    if !library() {
        return;
    }
    let o = softring(&["run", "--deny", "--quiet", "--", ME, "doctor", "--json"]);
    let report: Value = serde_json::from_slice(&o.stdout).expect("JSON");
    assert_eq!(report["verdict"]["rings"], "softring", "{report}");
    assert_eq!(report["checks"][0]["state"], "ok", "{report}");
}

#[test]
fn auto_takes_over_under_a_real_denial_and_says_so_once() {
    if !library() {
        return;
    }
    let o = softring(&["run", "--deny", "--engine=auto", "--", ME, "doctor", "--json"]);
    let report: Value = serde_json::from_slice(&o.stdout).expect("JSON");
    assert_eq!(report["verdict"]["rings"], "softring", "{report}");
    let said = text(&o.stderr);
    let notice = "this program's io_uring runs in user space: the kernel denies it here (EPERM)";
    assert_eq!(said.matches(notice).count(), 1, "{said}");
}

#[test]
fn run_asks_for_one_notice_unless_it_is_out() {
    if !library() {
        return;
    }
    for (before, want) in [(None, "1"), (Some("0"), "0")] {
        let mut c = Command::new(ME);
        c.args(["run", "--", "env"]).env_remove("SOFTRING_NOTICE");
        let o = c.envs(before.map(|v| ("SOFTRING_NOTICE", v))).output().unwrap();
        let env = text(&o.stdout);
        let line = format!("SOFTRING_NOTICE={want}");
        assert!(env.lines().any(|l| l == line), "{env}");
    }
}

#[test]
fn bench_measures_and_verifies_softring_under_denial() {
    if !library() {
        return;
    }
    let o = softring(&[
        "bench",
        "--engines=softring,pool",
        "--deny",
        "--verify",
        "--rw=randrw",
        "--seconds=0.1",
        "--pairs=1",
        "--size=1m",
        "--json",
    ]);
    assert!(o.status.success(), "{}", text(&o.stderr));
    let result: Value = serde_json::from_slice(&o.stdout).expect("JSON");
    let run = &result["engines"][0]["runs"][0];
    assert!(run["verified"].as_u64().unwrap() > 0, "{run}");
    assert!(run["ring"].as_str().unwrap().contains("memfd"), "{run}");
}

#[test]
fn the_demo_fails_works_and_measures() {
    if !library() {
        return;
    }
    let o = softring(&["demo", "--seconds=0.05"]);
    let shown = text(&o.stdout);
    assert!(o.status.success(), "{shown}{}", text(&o.stderr));
    for part in ["it fails: io_uring_setup", "every byte right", "blocks verified", "POSIX aio"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}
