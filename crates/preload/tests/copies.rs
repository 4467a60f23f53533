//! Several copies of the library in one process: two installations, one below the other.

mod common;

use common::{count, example, library, succeed, under};
use std::path::PathBuf;
use std::process::{Command, Output};

/// Makes copies, each in a directory of its own.
fn copies(dir: &tempfile::TempDir, n: usize) -> Vec<PathBuf> {
    let copy = |i: usize| {
        let place = dir.path().join(i.to_string());
        std::fs::create_dir(&place).unwrap();
        let to = place.join("libsoftring.so");
        std::fs::copy(library(), &to).unwrap();
        to
    };
    (0..n).map(copy).collect()
}

fn with(preload: &[PathBuf], mut c: Command) -> Output {
    let list = preload.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(":");
    succeed(c.env("LD_PRELOAD", list))
}

#[test]
fn only_the_first_copy_has_rings() {
    let dir = tempfile::tempdir().unwrap();
    let copies = copies(&dir, 3);
    for n in 1..=3 {
        for engine in ["auto", "user"] {
            for intercept in ["auto", "patch", "sigsys"] {
                let mut c = under(example("filters"), engine, intercept);
                c.args(["ring", "kill=39", "ring"]);
                let out = with(&copies[..n], c);
                let said = String::from_utf8_lossy(&out.stderr);
                assert_eq!(said.matches("softring: report:").count(), 1, "{said}");
            }
        }
    }
}

#[test]
fn programs_without_rings_start() {
    let dir = tempfile::tempdir().unwrap();
    let copies = copies(&dir, 2);
    with(&copies, Command::new("true"));
    let mut shell = Command::new("sh");
    shell.args(["-c", "for i in 1 2; do echo $i | cat; done; exec true"]);
    let out = with(&copies, shell);
    assert_eq!(out.stdout, b"1\n2\n");
    assert!(out.stderr.is_empty());
}

/// The passive copy has functions before the C library's, which pass calls on.
#[test]
fn work_of_the_first_copy_is_not_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let copies = copies(&dir, 2);
    for (program, case) in [("execs", "execve"), ("execs", "execl"), ("sites", "vfork")] {
        let mut c = under(example(program), "user", "auto");
        c.arg(case);
        with(&copies, c);
    }
    // One site of this program can be patched, and none of a copy's is counted.
    for n in 1..=2 {
        let mut c = under(example("sites"), "user", "auto");
        c.arg("full");
        let out = with(&copies[..n], c);
        assert_eq!(count(&out, "patched"), 1, "{n} copies");
    }
}
