//! Programs that make their calls by a function of their own, which takes the number as an
//! argument: shims in C, Zig's standard library, Go's.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{count, succeed, under};

/// What the loader and unwinders do not need, and what tells a function's bounds.
const NO_FRAMES: [&str; 3] =
    ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fomit-frame-pointer"];

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common").join(name)
}

fn program(dir: &Path, flags: &[&str]) -> PathBuf {
    let program = dir.join("wrapper");
    succeed(Command::new("cc").args(flags).arg("-o").arg(&program).arg(source("wrapper.c")));
    program
}

/// Runs it on the kernel and, by `door`, on our rings.
fn run(program: &Path, how: &str, door: &str) -> Output {
    let ran = Command::new(program).arg(how).status().unwrap();
    // 77: the kernel makes no ring.
    assert!(matches!(ran.code(), Some(0 | 77)), "on the kernel, {how}: {ran}");
    succeed(under(program, "user", door).arg(how))
}

#[test]
fn a_wrapper_is_patched() {
    for optimized in ["-O0", "-O1", "-O2", "-Os"] {
        let dir = tempfile::tempdir().unwrap();
        let program = program(dir.path(), &[optimized]);
        for how in ["own", "name"] {
            let out = run(&program, how, "auto");
            let by_wrapper = if how == "own" { 6 } else { 5 };
            assert_eq!((count(&out, "gaps"), count(&out, "trapped")), (0, 0), "{optimized}");
            assert_eq!(count(&out, "patched"), by_wrapper, "{optimized} {how}");
        }
    }
}

#[test]
fn a_wrapper_of_unknown_bounds_is_trapped_from_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let program = program(dir.path(), &[&["-O2"], &NO_FRAMES[..]].concat());
    for how in ["own", "name"] {
        let out = under(&program, "user", "auto").arg(how).output().unwrap();
        assert_eq!((count(&out, "gaps"), count(&out, "setups")), (1, 1), "{how}");
        assert!(count(&out, "trapped") >= 3, "{how}");
        // Nobody hears of its close (docs/LIMITATIONS.md).
        assert!(matches!(out.status.code(), Some(0 | 4)), "{how}: {}", out.status);
    }
    // The kernel's ring, or none: never half of one.
    let out = under(&program, "user", "patch").arg("name").output().unwrap();
    assert_eq!(out.status.code(), Some(77));
}

/// Goroutines have 2 KiB of stack, and no page below that would fault.
#[test]
fn goroutines_use_rings() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("goroutines");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program).arg(source("goroutines.go"));
    go.env("CGO_ENABLED", "1").env("GO111MODULE", "off");
    if Command::new("go").arg("version").output().is_err() {
        eprintln!("skipped: no Go compiler");
        return;
    }
    succeed(&mut go);
    for door in ["auto", "patch", "sigsys"] {
        let mut run = under(&program, "user", door);
        run.env_remove("SOFTRING_QUIET");
        let out = succeed(&mut run);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(said.contains("runs in user space"), "{door}: {said}");
    }
}

#[test]
fn the_cost_of_other_calls_through_a_wrapper() {
    let dir = tempfile::tempdir().unwrap();
    let program = program(dir.path(), &["-O2"]);
    let of = |door| {
        let out = succeed(under(&program, "kernel", door).arg("cost"));
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    };
    println!("plain: {} ns; patched: {} ns", of("none"), of("patch"));
}
