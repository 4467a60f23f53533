//! Unwinding through a call: the program's functions are found behind ours by backtrace(3) in a
//! handler that comes during a wait in enter, by the destructors of a thread that is cancelled
//! there, and by an exception that the handler throws.

mod common;

use softring_testing::skipped;
use std::path::PathBuf;
use std::process::Command;

use common::{count, succeed, under};

/// Ways to call enter: how the program calls, and how the call is intercepted.
const WAYS: [(&str, &str); 3] = [("name", "none"), ("inline", "patch"), ("inline", "sigsys")];

/// Compiles a program of tests/common; returns its directory, too.
fn program(compiler: &str, source: &str, flags: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("unwind");
    let source = format!("{}/tests/common/{source}", env!("CARGO_MANIFEST_DIR"));
    succeed(Command::new(compiler).args(flags).arg("-O1").arg("-o").arg(&program).arg(source));
    (dir, program)
}

fn reaches_main(program: PathBuf) {
    for (how, intercept) in WAYS {
        let ran = Command::new(&program).arg(how).status().unwrap();
        // 77: the kernel makes no ring.
        assert!(matches!(ran.code(), Some(0 | 77)), "on the kernel, {how}: {ran}");
        let out = succeed(under(&program, "user", intercept).arg(how));
        let ways = (count(&out, "patched") > 0, count(&out, "trapped") > 0);
        assert_eq!(ways, (intercept == "patch", intercept == "sigsys"));
    }
}

#[test]
fn a_backtrace_and_a_cancelled_thread_reach_main() {
    let flags = ["-fexceptions", "-fno-optimize-sibling-calls", "-pthread"];
    let (_dir, program) = program("cc", "unwind.c", &flags);
    reaches_main(program);
}

#[test]
fn an_exception_out_of_a_handler_is_caught() {
    if Command::new("c++").arg("--version").output().is_err() {
        skipped!("no C++ compiler");
        return;
    }
    let (_dir, program) = program("c++", "throw.cc", &["-fnon-call-exceptions"]);
    reaches_main(program);
}
