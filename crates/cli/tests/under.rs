//! The command with the preload library under it: needs libsoftring.so next to the executable,
//! which `cargo build --workspace` puts there; without it these say that they were skipped.

use serde_json::Value;
use std::process::{Command, Output};

const ME: &str = env!("CARGO_BIN_EXE_softring");

fn softring(args: &[&str]) -> Output {
    Command::new(ME).args(args).output().expect("softring starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn library() -> bool {
    let o = softring(&["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&o.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let there = checks.iter().any(|c| c["name"] == "libsoftring.so" && c["state"] == "ok");
    if !there {
        eprintln!("skipped: libsoftring.so is not next to {ME}");
    }
    there
}

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
