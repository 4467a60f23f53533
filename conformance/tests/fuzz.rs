//! The fuzzer itself: it finds faults, minimises them, and finds nothing where nothing is wrong.
//! Both sides are the kernel here, so only the kernel's io_uring is needed.

use softring_conformance::entry::{self, EntryPoint};
use softring_testing::skipped;
use std::process::{Command, Output};

/// Runs the fuzzer on the kernel alone; `None`, with a word on stderr, if the kernel makes no
/// rings.
fn fuzz(args: &[&str]) -> Option<Output> {
    let mut params = softring_uapi::io_uring_params::default();
    let fd = entry::setup(EntryPoint::Syscall, 1, (&raw mut params).addr());
    if fd < 0 {
        skipped!("this kernel makes no io_uring ({fd})");
        return None;
    }
    entry::close(EntryPoint::Syscall, fd as i32);
    let mut cmd = Command::new(env!("CARGO_BIN_EXE_softring-fuzz"));
    Some(cmd.arg("--against-kernel").args(args).output().expect("the fuzzer starts"))
}

fn text(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
}

#[test]
fn the_kernel_agrees_with_itself() {
    let Some(out) = fuzz(&["--seed", "1", "--programs", "40"]) else { return };
    assert!(out.status.success(), "{}", text(&out));
}

#[test]
fn a_wrong_result_is_found_and_made_small() {
    let dir = tempfile::tempdir().expect("a directory");
    let to = dir.path().display().to_string();
    let args = ["--seed", "1", "--programs", "12", "--only", "read,nop", "--spoil", "read"];
    let Some(out) = fuzz(&[&args[..], &["--out", &to]].concat()) else { return };
    assert_eq!(out.status.code(), Some(1), "{}", text(&out));
    let found = std::fs::read_dir(dir.path()).expect("the directory").flatten();
    let programs = found.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "json"));
    let steps = programs.map(|path| {
        let text = std::fs::read_to_string(path).expect("a program");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        json["steps"].as_array().map_or(usize::MAX, Vec::len)
    });
    // The program has a setup, a read, an enter, and perhaps one step that the read depends on.
    assert!(steps.min().is_some_and(|n| n <= 4), "{}", text(&out));
}

/// Tests that programs which agree only when run again are reported, and that too many fail the
/// run.
#[test]
fn programs_that_agree_when_run_again_have_a_budget() {
    let spoil = ["--seed", "1", "--programs", "12", "--only", "read,nop", "--spoil", "read"];
    for (budget, code, words) in [("0", 1, "OVER BUDGET: passed only"), ("12", 0, "passed only")] {
        let more = ["--spoil-once", "--retry-budget", budget];
        let Some(out) = fuzz(&[&spoil[..], &more].concat()) else { return };
        let said = text(&out);
        assert_eq!(out.status.code(), Some(code), "{said}");
        let line = said.lines().find(|line| line.starts_with(words));
        assert!(line.is_some_and(|line| line.contains("when asked again on kernel")), "{said}");
        assert!(said.contains(" 0 diverged, "), "{said}");
    }
}

#[test]
fn an_unknown_opcode_is_a_usage_error() {
    let Some(out) = fuzz(&["--only", "frobnicate"]) else { return };
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out).contains("frobnicate"));
}
