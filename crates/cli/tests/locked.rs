//! Programs that lock all memory to come, within a low RLIMIT_MEMLOCK: softring's own memory counts
//! against it, and the kernel's does not.

mod common;

use common::{KERNEL, ME, build_by, library, text};
use std::process::Command;

const LOCKED: &str = include_str!("common/locked.c");

/// A setup may answer that there is no memory. No limit ends the program.
#[test]
fn no_limit_of_locked_memory_ends_a_program() {
    if !library() {
        return;
    }
    let musl = [&["-static"], KERNEL].concat();
    let kinds: [(&str, &[&str]); 3] =
        [("cc", &["-pthread"]), ("cc", &["-static", "-pthread"]), ("musl-gcc", &musl)];
    for (compiler, how) in kinds {
        let dir = tempfile::tempdir().unwrap();
        let Some(program) = build_by(compiler, dir.path(), "locked", how, LOCKED) else { continue };
        for kib in ["8", "64", "192", "256", "700", "1500", "8192"] {
            for threads in ["1", "3", "10", "40"] {
                let mut c = Command::new(ME);
                c.args(["run", "--deny", "--quiet", "--"]).arg(&program).args([kib, threads]);
                let o = c.output().unwrap();
                let said = text(&o.stderr);
                assert!(o.status.success(), "{how:?} {kib} {threads}: {:?} {said}", o.status);
            }
        }
    }
}
