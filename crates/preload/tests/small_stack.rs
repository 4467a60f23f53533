//! Stack use of a call: it needs little of its caller's stack, as a system call does, where the
//! stack may be small. A call uses less than 512 bytes, by each entry point, in the first thread
//! and in another. A handler that comes meanwhile runs on the caller's stack, and may leave the
//! call for good.

mod common;

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
