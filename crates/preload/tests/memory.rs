//! softring's threads ask the program's malloc(3) for no memory.

mod common;

use std::process::Command;

use common::{succeed, under};

#[test]
fn threads_of_softrings_own_never_call_the_programs_malloc() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("counts");
    let source = format!("{}/tests/common/counts_malloc.c", env!("CARGO_MANIFEST_DIR"));
    succeed(Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(source));
    let out = succeed(&mut under(&program, "user", "auto"));
    let text = String::from_utf8_lossy(&out.stdout);
    let (calls, threads) = text.trim().split_once(' ').unwrap();
    assert_eq!(calls, "0", "{threads} threads were started");
    assert!(threads.parse::<u32>().unwrap() >= 3, "{threads}");
}
