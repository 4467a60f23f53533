//! A static server with one data file, in the shape of databases that people run in containers
//! without io_uring: it starts itself from a memfd, locks its memory and its file, and submits
//! 1,500 SQEs by one enter. When it is killed, its file is free at once.
//! The tests need libsoftring.so next to the executable, as `under.rs` does.

mod common;

use common::{KERNEL, ME, build_by, library};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time after a kill in which others get the lock of the file.
const SOON: Duration = Duration::from_millis(250);

/// Starts the server, and waits until it has checked all and is ready.
fn ready(options: &[&str], program: &Path, file: &Path) -> Child {
    let mut c = Command::new(ME);
    c.args(options).arg("--").arg(program).arg(file);
    let mut child = c.stdout(Stdio::piped()).spawn().expect("softring starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).unwrap();
    assert!(line.starts_with("ready"), "{options:?}: {line}");
    child
}

/// Kills the server; returns the time until its file can be locked.
fn time_to_the_lock(mut child: Child, file: &Path) -> Duration {
    let file = File::open(file).unwrap();
    let lock = || flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    assert!(!lock(), "the server has the lock");
    child.kill().unwrap();
    let killed = Instant::now();
    while !lock() {
        assert!(killed.elapsed() < Duration::from_secs(20), "the lock is never free");
        std::thread::sleep(Duration::from_millis(1));
    }
    let took = killed.elapsed();
    child.wait().unwrap();
    took
}

fn serves(compiler: &str, how: &[&str]) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let source = include_str!("common/store.c");
    let Some(program) = build_by(compiler, dir.path(), "store", how, source) else { return };
    let file = dir.path().join("data");
    for engine in [&["run", "--deny", "--quiet"][..], &["run", "--engine=user", "--quiet"]] {
        // A machine that others keep busy gets another try.
        let took = (0..5).map(|_| time_to_the_lock(ready(engine, &program, &file), &file));
        let best = took.take_while(|took| *took > SOON).count();
        assert!(best < 5, "{compiler} {engine:?}: the lock was kept");
    }
}

#[test]
fn a_static_server_serves_and_leaves_its_lock() {
    if !library() {
        return;
    }
    serves("cc", &["-static", "-pthread"]);
    serves("musl-gcc", &[&["-static", "-pthread"][..], KERNEL].concat());
}
