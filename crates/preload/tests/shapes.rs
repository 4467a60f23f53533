//! Functions that take the number of the call in a register, in the shapes that C libraries, Go and
//! Zig write: each is patched, also where only `syscall` itself can be replaced. Where padding for
//! the jump is out of reach, the trap catches the call, and without the trap there is no ring.

#![allow(unsafe_code)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{count, deny_rings, succeed, under};

const SHAPES: [&str; 6] = ["glibc", "musl", "zig", "go", "joined", "table"];

fn build(dir: &Path, flags: &[&str]) -> PathBuf {
    let program = dir.join("shapes");
    let source = format!("{}/tests/common/shapes.c", env!("CARGO_MANIFEST_DIR"));
    succeed(Command::new("cc").args(flags).args(["-O1", "-o"]).arg(&program).arg(source));
    program
}

#[test]
fn each_shape_is_patched() {
    let dir = tempfile::tempdir().unwrap();
    let program = build(dir.path(), &[]);
    for shape in SHAPES {
        let ran = Command::new(&program).arg(shape).status().unwrap();
        // 77: the kernel makes no ring.
        assert!(matches!(ran.code(), Some(0 | 77)), "on the kernel, {shape}: {ran}");
        for engine in ["user", "auto"] {
            let mut run = under(&program, engine, "auto");
            deny_rings(&mut run, common::EPERM);
            let out = succeed(run.arg(shape));
            assert_eq!((count(&out, "gaps"), count(&out, "trapped")), (0, 0), "{shape}");
            // Setup, three times enter, register, dup, twice close, and enter once more.
            assert_eq!(count(&out, "patched"), 9, "{shape} {engine}");
        }
    }
}

#[test]
fn a_site_without_room_is_trapped_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let program = build(dir.path(), &["-DFULL"]);
    let out = under(&program, "user", "auto").arg("joined").output().unwrap();
    assert_eq!((count(&out, "gaps"), count(&out, "patched")), (1, 0));
    assert!(count(&out, "trapped") >= 5);
    // The trap does not catch close, so the last enter finds the ring until the engine notices.
    assert!(matches!(out.status.code(), Some(0 | 6)), "{}", out.status);
    let mut run = under(&program, "user", "patch");
    let out = run.env("SOFTRING_QUIET", "0").arg("joined").output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    // The kernel's ring, or none.
    assert!(matches!(out.status.code(), Some(0 | 77)), "{said}");
    assert!(said.contains("1 call site(s) of this program could not be patched"), "{said}");
}

#[test]
fn the_cost_of_other_calls() {
    let dir = tempfile::tempdir().unwrap();
    let program = build(dir.path(), &[]);
    for shape in SHAPES {
        let of = |intercept| {
            let out = succeed(under(&program, "kernel", intercept).args([shape, "cost"]));
            String::from_utf8_lossy(&out.stdout).trim().to_owned()
        };
        println!("{shape}: plain {} ns, patched {} ns", of("none"), of("patch"));
    }
}
