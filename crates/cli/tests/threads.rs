//! Threads behind rings are none of the C library's: what it does to the program's threads has its
//! results, on glibc and on musl, in dynamic and in static programs.

mod common;

use common::{KERNEL, ME, build_by, library, text};
use std::process::Command;

const THREADS: &str = include_str!("common/threads.c");
const ENDS: &str = include_str!("common/ends.c");

/// Runs the program's part of that name, denied, with softring's rings.
fn does(what: &str) {
    runs(THREADS, what);
}

fn runs(source: &str, what: &str) {
    if !library() {
        return;
    }
    for (compiler, how) in [
        ("cc", vec!["-pthread"]),
        ("cc", vec!["-pthread", "-static"]),
        ("musl-gcc", KERNEL.to_vec()),
        ("musl-gcc", [&["-static"], KERNEL].concat()),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let Some(program) = build_by(compiler, dir.path(), "threads", &how, source) else {
            continue;
        };
        let mut c = Command::new("timeout");
        c.args(["30", ME, "run", "--deny", "--quiet", "--"]).arg(program).arg(what);
        let o = c.current_dir(&dir).output().unwrap();
        let said = (text(&o.stdout), text(&o.stderr));
        assert!(o.status.success(), "{compiler} {how:?} {what}: {:?} {said:?}", o.status);
    }
}

#[test]
fn the_ids_of_the_process_change() {
    does("identity");
}

#[test]
fn the_process_ends_with_the_last_thread_of_the_program() {
    does("last");
}

#[test]
fn fork_handlers_run_once() {
    does("forks");
}

#[test]
fn a_thread_in_enter_is_cancelled() {
    does("cancelled");
}

#[test]
fn signals_come_to_threads_of_the_program() {
    does("signalled");
}

/// On the kernel, too, a request of a thread that has ended is cancelled.
#[test]
fn requests_of_an_ended_thread_are_cancelled() {
    runs(ENDS, "cancelled");
}

#[test]
fn threads_that_end_leave_nothing() {
    runs(ENDS, "10000");
}
