//! Stack use of a call: it needs little of its caller's stack, as a system call does, where the
//! stack may be small. A call uses less than 512 bytes, by each entry point, in the first thread
//! and in another. A handler that comes meanwhile runs on the caller's stack, and may leave the
//! call for good.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{count, succeed, under};

#[test]
fn a_call_uses_little_of_a_small_stack() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("small_stack");
    let source = format!("{}/tests/common/small_stack.c", env!("CARGO_MANIFEST_DIR"));
    let flags = ["-O1", "-fno-optimize-sibling-calls", "-pthread"];
    succeed(Command::new("cc").args(flags).arg("-o").arg(&program).arg(source));
    for (how, intercept) in [("name", "none"), ("inline", "patch"), ("inline", "sigsys")] {
        let ran = Command::new(&program).arg(how).status().unwrap();
        // 77: the kernel makes no ring.
        assert!(matches!(ran.code(), Some(0 | 77)), "on the kernel, {how}: {ran}");
        let out = succeed(under(&program, "user", intercept).arg(how));
        let ways = (count(&out, "patched") > 0, count(&out, "trapped") > 0);
        assert_eq!(ways, (intercept == "patch", intercept == "sigsys"));
        // Rings of the kernel's, through the same entry points; a trapped setup is refused.
        if ran.code() == Some(0) && intercept != "sigsys" {
            succeed(under(&program, "kernel", intercept).arg(how));
        }
    }
}

/// Limit of the bytes that a call takes of a stack, with those that the program itself takes.
const MOST: u64 = 512;

fn clone_stack(dir: &Path) -> PathBuf {
    let program = dir.join("clone_stack");
    let source = format!("{}/tests/common/clone_stack.c", env!("CARGO_MANIFEST_DIR"));
    succeed(Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(source));
    program
}

/// A thread that clone(2) has made without the C library, whose whole stack is one page: it makes a
/// ring, enters it, and waits in it until a timeout ends.
#[test]
fn a_page_of_stack_is_enough() {
    let dir = tempfile::tempdir().unwrap();
    let program = clone_stack(dir.path());
    for (how, intercept) in [("name", "patch"), ("inline", "patch"), ("inline", "sigsys")] {
        let ran = Command::new(&program).args(["stack", how]).status().unwrap();
        // 77: the kernel makes no ring.
        assert!(matches!(ran.code(), Some(0 | 77)), "on the kernel, {how}: {ran}");
        let out = succeed(under(&program, "user", intercept).args(["stack", how]));
        let used: u64 = String::from_utf8_lossy(&out.stdout).trim().parse().unwrap();
        assert!(used < MOST, "{how} {intercept}: {used} bytes");
    }
}

#[test]
fn the_cost_of_another_stack() {
    let dir = tempfile::tempdir().unwrap();
    let program = clone_stack(dir.path());
    for how in ["name", "inline"] {
        let out = succeed(under(&program, "user", "patch").args(["cost", how]));
        let printed = String::from_utf8_lossy(&out.stdout).trim().replace(' ', " ns, ");
        println!("an enter, {how}, on the thread's own stack and on a small one: {printed} ns");
    }
}
