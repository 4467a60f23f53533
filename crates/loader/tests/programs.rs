//! A library in programs that have no dynamic loader: they begin as they would without it.
#![allow(unsafe_code)]

mod common;

use common::{ALONE, BARE, LIBRARY, PROGRAM, build, library, read, text};
use softring_loader::{Error, Otherwise, arrange};
use softring_testing::skipped;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SAID: &str = "library is here\n";

/// Runs a program with the library mapped into it; `prepare` runs before, in the process that
/// becomes the program.
fn run_with(
    program: &mut Command,
    library: &Path,
    otherwise: Otherwise,
    prepare: fn() -> io::Result<()>,
) -> Output {
    let library = read(library).unwrap();
    let start = move || {
        let failed = |e: &Error| {
            let _ = writeln!(io::stderr(), "{e}");
            otherwise
        };
        arrange(&library, failed).map_err(io::Error::other)?;
        prepare()
    };
    // SAFETY: glibc's fork(2) leaves a whole heap to the child, which has one thread.
    unsafe { program.pre_exec(start) }.output().unwrap()
}

fn run(program: &mut Command, library: &Path) -> Output {
    run_with(program, library, Otherwise::Exit(2), || Ok(()))
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn started(program: &Path) -> Command {
    let mut c = Command::new(program);
    c.args(["one", "two words"]).env("VARIABLE", "a value");
    c
}

/// [`started`], by fork(2): posix_spawn(3) leaves other signals ignored.
fn forked(program: &Path) -> Command {
    let mut c = started(program);
    // SAFETY: does nothing.
    unsafe { c.pre_exec(|| Ok(())) };
    c
}

/// Checks that a program says the same with the library as without it.
#[track_caller]
fn same(program: &Path, library: &Path) -> Output {
    let alone = forked(program).output().unwrap();
    let with = run(&mut started(program), library);
    assert_eq!(text(&with.stderr), SAID);
    assert_eq!(text(&with.stdout), text(&alone.stdout));
    assert_eq!(with.status, alone.status);
    with
}

fn built(compiler: &str, dir: &Path, how: &[&str], source: &str) -> Option<PathBuf> {
    let built = build(compiler, dir, "program", how, source);
    if let Err(why) = &built {
        skipped!("{compiler} {how:?}: {why}");
    }
    built.ok()
}

#[test]
fn programs_of_every_c_library_begin_as_without_it() {
    for (compiler, how) in [
        ("cc", &["-static", "-no-pie"][..]),
        ("cc", &["-static-pie", "-fPIE"]),
        ("musl-gcc", &["-static"]),
    ] {
        let dir = folder();
        let library = library(dir.path());
        let Some(program) = built(compiler, dir.path(), how, PROGRAM) else { continue };
        let o = same(&program, &library);
        let said = text(&o.stdout);
        assert_eq!(o.status.code(), Some(7), "{said}");
        assert!(said.contains("argument two words\nvariable a value\n"), "{said}");
        assert!(
            said.contains("child -1 1\nsilent child 0\n") && said.contains("TracerPid:\t0\n"),
            "{said}"
        );
        assert!(!said.contains("descriptor"), "{said}");
    }
}

#[test]
fn registers_are_those_of_execve() {
    for how in [&["-static", "-no-pie"][..], &["-static-pie", "-fPIE"]] {
        let dir = folder();
        let how = [how, &["-nostdlib", "-fno-stack-protector"]].concat();
        let Some(program) = built("cc", dir.path(), &how, BARE) else { continue };
        let o = same(&program, &library(dir.path()));
        let expected = format!("registers are zero\n{}", program.display());
        assert_eq!((text(&o.stdout), o.status.code()), (expected, Some(3)));
    }
}

#[test]
fn a_go_program_begins() {
    const SOURCE: &str = "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n)\n\n\
        func main() {\n\tdone := make(chan int)\n\tgo func() { done <- len(os.Args) }()\n\
        \tfmt.Println(os.Args[1:], os.Getenv(\"VARIABLE\"), <-done)\n}\n";
    let dir = folder();
    let (file, program) = (dir.path().join("main.go"), dir.path().join("program"));
    std::fs::write(&file, SOURCE).unwrap();
    let mut go = Command::new("go");
    go.args(["build", "-o"]).args([&program, &file]).env("CGO_ENABLED", "0");
    match go.env("GOFLAGS", "-mod=mod").output() {
        Ok(o) => assert!(o.status.success(), "{}", text(&o.stderr)),
        Err(e) => return skipped!("no go: {e}"),
    }
    let o = same(&program, &library(dir.path()));
    assert_eq!(text(&o.stdout), "[one two words] a value 3\n");
}

/// A program with a dynamic loader goes on untouched: the preload library is for it.
#[test]
fn dynamic_programs_are_left_alone() {
    let dir = folder();
    let program = build("cc", dir.path(), "program", &[], PROGRAM).unwrap();
    let alone = text(&forked(&program).output().unwrap().stdout);
    let with = run(&mut started(&program), &library(dir.path()));
    // The helper has ended, and nobody reaps it.
    let expected = alone.replace("silent child 0", "silent child 1");
    assert_eq!((text(&with.stdout), text(&with.stderr)), (expected, String::new()));
}

#[test]
fn a_script_begins_in_its_static_interpreter() {
    use std::os::unix::fs::PermissionsExt;
    let dir = folder();
    let Some(program) = built("cc", dir.path(), &["-static"], PROGRAM) else { return };
    let script = dir.path().join("script");
    std::fs::write(&script, format!("#!{}\n", program.display())).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let o = same(&script, &library(dir.path()));
    assert!(text(&o.stdout).contains(&format!("argument {}\n", script.display())));
}

/// Blocked and ignored signals stay so, and a signal that waits is delivered.
#[test]
fn signals_stay_as_they_were() {
    fn prepare() -> io::Result<()> {
        // SAFETY: sets of this process, which has one thread.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGUSR1);
            libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            libc::signal(libc::SIGUSR2, libc::SIG_IGN);
            libc::raise(libc::SIGUSR1);
        }
        Ok(())
    }
    let dir = folder();
    let Some(program) = built("cc", dir.path(), &["-static"], PROGRAM) else { return };
    let o = run_with(&mut started(&program), &library(dir.path()), Otherwise::Exit(2), prepare);
    let said = text(&o.stdout);
    assert_eq!(text(&o.stderr), SAID);
    assert!(said.contains("SigBlk:\t0000000000000200\n"), "{said}");
    assert!(said.contains("SigPnd:\t0000000000000200\n"), "{said}");
    let ignored = said.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
    let ignored = u64::from_str_radix(ignored, 16).unwrap();
    assert!(ignored & 1 << (libc::SIGUSR2 - 1) != 0, "{said}");
}

/// The program ends before its first instruction, or runs without the library, as is wanted.
#[test]
fn without_memory_the_program_does_as_is_wanted() {
    fn little_memory() -> io::Result<()> {
        let least = 1 << 20;
        let limit = libc::rlimit { rlim_cur: least, rlim_max: least };
        // SAFETY: reads the limit.
        match unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
    let dir = folder();
    let how = ["-static", "-no-pie", "-nostdlib", "-fno-stack-protector"];
    let Some(program) = built("cc", dir.path(), &how, BARE) else { return };
    let source = LIBRARY.replace("zeroes[10000]", "zeroes[10000000]");
    let large = build("cc", dir.path(), "large.so", &ALONE, &source).unwrap();
    let run = |otherwise| run_with(&mut started(&program), &large, otherwise, little_memory);
    let o = run(Otherwise::Exit(2));
    let why = "the program may not call mmap(2): Cannot allocate memory (os error 12)\n";
    assert_eq!((o.status.code(), text(&o.stderr)), (Some(2), why.to_owned()));
    assert_eq!(text(&o.stdout), "");
    let o = run(Otherwise::Untouched);
    assert_eq!((o.status.code(), text(&o.stderr)), (Some(3), why.to_owned()));
    assert!(text(&o.stdout).starts_with("registers are zero\n"), "{}", text(&o.stdout));
}

/// A process that already has a tracer runs without the library.
#[test]
fn a_traced_process_cannot_be_traced() {
    let dir = folder();
    let Some(program) = built("cc", dir.path(), &["-static"], PROGRAM) else { return };
    let library = read(&library(dir.path())).unwrap();
    let start = move || {
        // SAFETY: the test program traces its child, which nobody waits for before it ends.
        unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
        match arrange(&library, |_| Otherwise::Untouched) {
            Err(Error::NotTraced(_)) => Err(io::Error::from_raw_os_error(99)),
            _ => Ok(()),
        }
    };
    let mut c = Command::new(program);
    // SAFETY: as in `run_with`.
    let e = unsafe { c.pre_exec(start) }.spawn().unwrap_err();
    assert_eq!(e.raw_os_error(), Some(99), "{e}");
}
