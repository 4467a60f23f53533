//! A Go program of 200 goroutines whose rings are made by the runtime's own system call functions
//! (`conformance/go`): the same on the kernel's rings and on softring's.

mod built;

use softring_testing::skipped;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const EXE: &str = env!("CARGO_BIN_EXE_softring-environments");

/// Builds the program for use with cgo (`1`), dynamically linked, or without (`0`), static.
fn build(dir: &Path, cgo: &str) -> Option<PathBuf> {
    compile(dir, cgo, |_| ())
}

/// Builds the program as `how` says.
fn compile(dir: &Path, cgo: &str, how: impl FnOnce(&mut Command)) -> Option<PathBuf> {
    if Command::new("go").arg("version").output().is_err() {
        skipped!("no Go compiler");
        return None;
    }
    let program = dir.join("rings");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program);
    how(&mut go);
    go.arg(".");
    go.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("go"));
    go.env("CGO_ENABLED", cgo).env("GOTOOLCHAIN", "local").env("GOFLAGS", "-mod=mod");
    let o = go.env("GOWORK", "off").output().unwrap();
    assert!(o.status.success(), "go build: {}", String::from_utf8_lossy(&o.stderr));
    Some(program)
}

/// Runs the program in a directory of its own, and with further arguments.
fn run(c: &mut Command, more: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    c.arg(dir.path()).args(more).output().unwrap()
}

#[track_caller]
fn answer(o: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (printed, said) = (text(&o.stdout), text(&o.stderr));
    assert!(o.status.success(), "{}\n{printed}{said}", o.status);
    assert!(said.is_empty() || said.starts_with("softring: "), "{said}");
    printed
}

/// Lines that the program prints, whatever its rings.
const RIGHT: &str = "copied 32763050 bytes, echoed 2100000, sum 0x608ea76d35f\n";
/// Line that it prints for each child before.
const CHILD: &str = "the child has a ring, and [A=1]\n";

/// Runs the program on the kernel's rings; false if there are none.
fn kernel(program: &Path) -> bool {
    let o = run(&mut Command::new(program), &["children"]);
    let said = String::from_utf8_lossy(&o.stderr);
    if said.contains("io_uring_setup: ") {
        skipped!("no io_uring here: the program runs on softring alone");
        return false;
    }
    assert_eq!(answer(&o), format!("{CHILD}{CHILD}{RIGHT}"));
    true
}

#[test]
fn goroutines_copy_and_echo() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build(dir.path(), "1") else { return };
    kernel(&program);
    let library = built::library(EXE);
    // The trap does not see the call that starts a child (docs/LIMITATIONS.md).
    let children = format!("{CHILD}{CHILD}");
    // With one setting more or less: Go searches for the auxiliary vector behind the environment.
    let runs = [
        ("auto", "SOFTRING_ENGINE=auto", &["children"][..], &*children),
        ("auto", "", &["children"], &*children),
        ("patch", "", &["children"], &*children),
        ("sigsys", "", &[], ""),
    ];
    for (intercept, setting, more, before) in runs {
        let mut c = Command::new(EXE);
        c.args(["under", "rings=EPERM", "--", "env"]);
        c.arg(format!("LD_PRELOAD={}", library.display()));
        c.arg(format!("SOFTRING_INTERCEPT={intercept}"));
        c.args(Some(setting).filter(|s| !s.is_empty())).arg(&program);
        let o = run(&mut c, more);
        assert_eq!(answer(&o), format!("{before}{RIGHT}"), "{intercept}");
        let said = String::from_utf8_lossy(&o.stderr);
        assert!(said.contains("runs in user space"), "{intercept}: {said}");
    }
}

/// The same program as a static one, into which `softring run` maps the library. Its children have
/// no library (docs/LIMITATIONS.md).
#[test]
fn goroutines_of_a_static_program_copy_and_echo() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build(dir.path(), "0") else { return };
    kernel(&program);
    let softring = built::library(EXE).with_file_name("softring");
    if !softring.exists() {
        return skipped!("the command softring is not built");
    }
    let o = run(Command::new(softring).args(["run", "--deny", "--"]).arg(&program), &[]);
    assert_eq!(answer(&o), RIGHT);
    let said = String::from_utf8_lossy(&o.stderr);
    assert!(said.contains("runs in user space") && said.lines().count() == 1, "{said}");
}

/// Threads that end leave nothing, and their requests are cancelled as on the kernel.
#[test]
fn threads_of_a_static_program_end() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build(dir.path(), "0") else { return };
    let cancelled = "the thread's request: -125\n";
    if kernel(&program) {
        let o = Command::new(&program).arg("ends").output().unwrap();
        assert_eq!(answer(&o), cancelled);
    }
    let softring = built::library(EXE).with_file_name("softring");
    if !softring.exists() {
        return skipped!("the command softring is not built");
    }
    let mut c = Command::new(softring);
    let o = c.args(["run", "--deny", "--"]).arg(&program).arg("ends").output().unwrap();
    assert_eq!(answer(&o), cancelled);
}

/// The same program with libsoftring.a, linked statically by way of cgo, and dynamically.
#[test]
fn goroutines_of_a_program_with_softring_built_in_copy_and_echo() {
    let dir = tempfile::tempdir().unwrap();
    let softring = built::command(EXE);
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (from, archive) = (built::library(EXE).with_extension("a"), dir.path().join("softring.a"));
    let mut sh = Command::new("sh");
    let o = sh.arg(top.join("dist/archive.sh")).args([&from, &archive]).output().unwrap();
    if !o.status.success() {
        return skipped!("no libsoftring.a: {}", String::from_utf8_lossy(&o.stderr));
    }
    let external = ["-ldflags", "-linkmode external -extldflags -static"];
    let both = [&["deny"][..], &["run", "--deny"]];
    for (linked, commands) in [(&external[..], &both[..]), (&[], &both[..1])] {
        let how = |go: &mut Command| {
            go.args(["-tags", "built_in"]).args(linked).env("CGO_LDFLAGS", &archive);
            go.env("CGO_CFLAGS", format!("-I{}", top.join("include").display()));
        };
        let Some(program) = compile(dir.path(), "1", how) else { return };
        kernel(&program);
        for before in commands {
            let mut c = Command::new(&softring);
            let o = run(c.args(*before).arg("--").arg(&program), &["children"]);
            assert_eq!(answer(&o), format!("{CHILD}{CHILD}{RIGHT}"), "{before:?}");
            let said = String::from_utf8_lossy(&o.stderr);
            assert!(said.contains("runs in user space"), "{before:?}: {said}");
        }
    }
}
