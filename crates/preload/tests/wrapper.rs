//! Programs that make their calls by a function of their own, which takes the number as an
//! argument: shims in C, Zig's standard library, Go's.

#![allow(unsafe_code)]

mod common;

use softring_testing::skipped;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{count, succeed, under};

/// Compiler flags that leave out the unwind tables, which tell a function's bounds.
const NO_FRAMES: [&str; 3] =
    ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fomit-frame-pointer"];

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common").join(name)
}

fn program(dir: &Path, flags: &[&str]) -> PathBuf {
    build(dir, "wrapper.c", flags)
}

fn build(dir: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let program = dir.join("wrapper");
    succeed(Command::new("cc").args(flags).arg("-o").arg(&program).arg(source(name)));
    program
}

/// Runs the program on the kernel and, by `intercept`, on our rings.
fn run(program: &Path, how: &str, intercept: &str) -> Output {
    let ran = Command::new(program).arg(how).status().unwrap();
    // 77: the kernel makes no ring.
    assert!(matches!(ran.code(), Some(0 | 77)), "on the kernel, {how}: {ran}");
    succeed(under(program, "user", intercept).arg(how))
}

/// With frames, and where only the code itself shows a function's bounds.
#[test]
fn a_wrapper_is_patched() {
    for optimized in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
        for frames in [&[][..], &NO_FRAMES] {
            let dir = tempfile::tempdir().unwrap();
            let program = program(dir.path(), &[&[optimized], frames].concat());
            for how in ["own", "name"] {
                let out = run(&program, how, "auto");
                let by_wrapper = if how == "own" { 6 } else { 5 };
                let left = (count(&out, "gaps"), count(&out, "trapped"));
                assert_eq!(left, (0, 0), "{optimized} {frames:?}");
                assert_eq!(count(&out, "patched"), by_wrapper, "{optimized} {frames:?} {how}");
            }
        }
    }
}

/// The number comes from anywhere, and any code makes the ring.
#[test]
fn computed_call_numbers_are_patched() {
    for optimized in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
        for frames in [&[][..], &NO_FRAMES] {
            let dir = tempfile::tempdir().unwrap();
            let program = build(dir.path(), "half.c", &[&[optimized], frames].concat());
            for intercept in ["auto", "patch"] {
                let out = succeed(&mut under(&program, "user", intercept));
                let left = (count(&out, "gaps"), count(&out, "trapped"));
                assert_eq!(left, (0, 0), "{optimized} {frames:?}");
            }
        }
    }
}

/// Goroutines have 2 KiB of stack, and no guard page below.
#[test]
fn goroutines_use_rings() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("goroutines");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program).arg(source("goroutines.go"));
    go.env("CGO_ENABLED", "1").env("GO111MODULE", "off");
    if Command::new("go").arg("version").output().is_err() {
        skipped!("no Go compiler");
        return;
    }
    succeed(&mut go);
    for intercept in ["auto", "patch", "sigsys"] {
        let mut run = under(&program, "user", intercept);
        run.env_remove("SOFTRING_QUIET");
        let out = succeed(&mut run);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(said.contains("runs in user space"), "{intercept}: {said}");
    }
}

#[test]
fn the_cost_of_other_calls_through_a_wrapper() {
    let dir = tempfile::tempdir().unwrap();
    let program = program(dir.path(), &["-O2"]);
    let of = |intercept| {
        let out = succeed(under(&program, "kernel", intercept).arg("cost"));
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    };
    println!("plain: {} ns; patched: {} ns", of("none"), of("patch"));
}

/// Installs a policy that kills for io_uring_setup(2).
fn kill_for_setup() -> std::io::Result<()> {
    let op = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let (load, answer) = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_RET | libc::BPF_K);
    let filter = [
        op(load, 0, 0, 0),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_io_uring_setup as u32),
        op(answer, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        op(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: numbers, and a filter that the kernel copies.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// The library finds out at start whether the trap is needed, in programs without rings, too.
#[test]
fn a_wrapper_of_unknown_bounds_kills_no_program() {
    let dir = tempfile::tempdir().unwrap();
    let program = program(dir.path(), &[&["-O2"], &NO_FRAMES[..]].concat());
    let mut run = under(&program, "auto", "auto");
    // SAFETY: system calls only.
    unsafe { run.pre_exec(kill_for_setup) };
    succeed(run.arg("cost"));
}
