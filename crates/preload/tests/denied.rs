//! Denied io_uring: a line always says why, and nobody is killed where a ring can be refused.

mod common;

use common::{EPERM, count, deny, deny_rings, example, succeed, under};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;

fn wrapper(dir: &Path, flags: &[&str]) -> PathBuf {
    let program = dir.join("wrapper");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/wrapper.c");
    succeed(Command::new("cc").args(flags).arg("-o").arg(&program).arg(source));
    program
}

/// Returns what a program prints, without its report.
fn said(out: &Output) -> String {
    let text = String::from_utf8_lossy(&out.stderr);
    let lines = text.lines().filter(|l| !l.starts_with("softring: report:"));
    lines.map(|l| format!("{l}\n")).collect()
}

fn run(program: &Path, case: &str, engine: &str, intercept: &str, action: u32) -> Output {
    let mut c = under(program, engine, intercept);
    deny_rings(c.env_remove("SOFTRING_QUIET").arg(case), action).output().unwrap()
}

/// Returns a program of that directory that makes rings, and says why.
fn makes_rings(dir: &Path) -> Command {
    let mut c = under(wrapper(dir, &["-O2"]), "auto", "auto");
    c.env_remove("SOFTRING_QUIET").arg("own");
    c
}

/// A policy's KILL outranks the trap, so the trap is no help.
#[test]
fn a_site_that_cannot_be_patched_gets_no_ring_under_a_policy_that_kills() {
    for intercept in ["auto", "sigsys"] {
        let out = run(&example("sites"), "full", "auto", intercept, KILL);
        let said = said(&out);
        assert!(said.contains("setup answered -38"), "{intercept}: {} {said}", out.status);
        assert!(said.contains("kills a program for these calls, before"), "{intercept}: {said}");
        assert!(said.contains("return EPERM instead"), "{intercept}: {said}");
    }
}

#[test]
fn a_policy_that_kills_for_enter_denies_rings() {
    let mut c = under(example("sites"), "auto", "auto");
    let enter = libc::SYS_io_uring_enter;
    let out = deny(c.env_remove("SOFTRING_QUIET").arg("full"), enter, enter + 1, KILL);
    let said = said(&out.output().unwrap());
    assert!(
        said.contains("setup answered -38") && said.contains("before the SIGSYS trap"),
        "{said}"
    );
}

#[test]
fn sites_are_patched_if_the_trap_is_unavailable() {
    let dir = tempfile::tempdir().unwrap();
    let out = run(&wrapper(dir.path(), &["-O2"]), "own", "auto", "sigsys", KILL);
    assert!(out.status.success(), "{}", said(&out));
    assert!(count(&out, "patched") > 0);
}

#[test]
fn each_reason_for_no_trap_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let program = wrapper(dir.path(), &["-O2"]);
    for (engine, intercept, why) in [
        ("kernel", "auto", "SOFTRING_ENGINE=kernel forbids softring's rings"),
        ("auto", "none", "SOFTRING_INTERCEPT=none leaves "),
    ] {
        let out = run(&program, "own", engine, intercept, EPERM);
        let said = said(&out);
        assert_eq!((out.status.code(), said.lines().count()), (Some(77), 1), "{intercept}: {said}");
        assert!(said.contains(why), "{engine} {intercept}: {said}");
    }
    let out = run(&example("sites"), "full", "auto", "patch", EPERM);
    assert!(said(&out).contains("SOFTRING_INTERCEPT=patch sets no SIGSYS trap"), "{}", said(&out));
    // Nothing is printed where rings are not denied, or nobody wants them.
    let mut c = under(&program, "kernel", "none");
    let quiet = succeed(c.env_remove("SOFTRING_QUIET").arg("cost"));
    assert_eq!(said(&quiet), "");
}

/// Returns the action that answers `errno`.
const fn answer(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno as u32
}

/// Returns the lines of a program that gets its rings, where `call` is refused and io_uring's calls
/// have this action.
fn said_without(call: libc::c_long, rings: u32) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut c = makes_rings(dir.path());
    deny(&mut c, call, call + 1, EPERM);
    said(&succeed(deny_rings(&mut c, rings)))
}

/// Without a child that could try the call, the probe itself would be killed.
#[test]
fn no_program_is_killed_without_a_test_process() {
    let said = said_without(libc::SYS_clone, KILL);
    assert!(said.contains("softring cannot start a process to try"), "{said}");
}

/// A child is reaped by whichever call is not refused.
#[test]
fn children_that_try_are_waited_for_without_wait4() {
    let said = said_without(libc::SYS_wait4, EPERM);
    assert!(said.contains("the kernel denies it here (EPERM)"), "{said}");
}

/// Another process's filter may treat rings differently.
#[test]
fn a_record_of_working_rings_is_ignored_under_a_filter() {
    let dir = tempfile::tempdir().unwrap();
    let program = wrapper(dir.path(), &["-O2"]);
    // Leaves the record of working rings, if the kernel gives rings here.
    let _ = under(&program, "auto", "auto").arg("own").output().unwrap();
    let mut c = under(&program, "auto", "auto");
    c.env_remove("SOFTRING_QUIET").arg("own");
    let enter = libc::SYS_io_uring_enter;
    let out = succeed(deny(&mut c, enter, enter + 1, answer(libc::ENODEV)));
    assert!(said(&out).contains("runs in user space"), "{}", said(&out));
}

#[test]
fn rings_work_with_substitutes() {
    let dir = tempfile::tempdir().unwrap();
    let program = wrapper(dir.path(), &["-O2"]);
    for errno in [libc::EPERM, libc::ENOSYS] {
        for call in [libc::SYS_fstat, libc::SYS_prlimit64] {
            let mut c = under(&program, "auto", "auto");
            deny(c.arg("own"), call, call + 1, answer(errno));
            succeed(deny_rings(&mut c, EPERM));
        }
    }
}

#[test]
fn any_errno_of_a_policy_is_a_denial() {
    let dir = tempfile::tempdir().unwrap();
    let program = wrapper(dir.path(), &["-O2"]);
    for errno in [libc::ENODEV, libc::ENOENT, libc::EIO, libc::EINVAL] {
        let out = run(&program, "own", "auto", "auto", answer(errno));
        assert!(out.status.success(), "{errno}: {} {}", out.status, said(&out));
    }
}
