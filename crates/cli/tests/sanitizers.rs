//! Programs with a sanitizer's runtime start under `softring run`, and get no false reports.

use softring_testing::skipped;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Program that makes a ring; with an argument, it reads memory that it has freed.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned params[30];

int main(int argc, char **argv)
{
    (void)argv;
    char *memory = malloc(10);
    int ring = syscall(425, 4, params);
    free(memory);
    return argc > 1 ? memory[0] : ring < 0;
}
"#;

/// Compilers, and the options with which they link the shared runtime of AddressSanitizer.
const COMPILERS: [(&str, &[&str]); 2] =
    [("cc", &["-fsanitize=address"]), ("clang", &["-fsanitize=address", "-shared-libasan"])];

/// Finds `compiler` or, as Debian names it, `compiler` with a version.
fn installed(compiler: &str) -> Option<String> {
    let names = (11..=22).rev().map(|version| format!("{compiler}-{version}"));
    let runs = |name: &String| Command::new(name).arg("--version").output().is_ok();
    std::iter::once(compiler.to_owned()).chain(names).find(runs)
}

/// Compiles the program. None, with a line that says so, if the compiler or its runtime is not
/// installed.
fn compile(compiler: &str, flags: &[&str], source: &Path, dir: &Path) -> Option<PathBuf> {
    let program = dir.join("program");
    let built = installed(compiler).is_some_and(|name| {
        let mut cc = Command::new(name);
        cc.args(["-g", "-O1", "-pthread"]).args(flags).arg("-o").args([&program, source]);
        cc.output().is_ok_and(|out| out.status.success())
    });
    if !built {
        skipped!("no {compiler} {flags:?}");
    }
    built.then_some(program)
}

/// Returns the folder of clang's shared runtimes, which no loader knows.
fn runtimes(compiler: &str) -> String {
    let Some(name) = installed(compiler) else { return String::new() };
    let out = Command::new(name).arg("-print-file-name=libclang_rt.asan-x86_64.so").output();
    let path = out.map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
    let path = PathBuf::from(path.unwrap_or_default());
    path.parent().map(|dir| dir.display().to_string()).unwrap_or_default()
}

fn softring(program: &Path) -> Command {
    let mut softring = Command::new(env!("CARGO_BIN_EXE_softring"));
    softring.args(["run", "--quiet", "--deny", "--"]).arg(program);
    softring
}

#[test]
fn sanitizers_start_and_find_faults() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("san.c");
    std::fs::write(&source, PROGRAM).unwrap();
    let threads = ("cc", &["-fsanitize=thread"][..]);
    for (compiler, flags) in COMPILERS.into_iter().chain([threads]) {
        let Some(program) = compile(compiler, flags, &source, dir.path()) else { continue };
        let run = |args: &[&str]| {
            let mut softring = softring(&program);
            let out =
                softring.args(args).env("LD_LIBRARY_PATH", runtimes(compiler)).output().unwrap();
            (out.status.success(), String::from_utf8_lossy(&out.stderr).into_owned())
        };
        assert_eq!(run(&[]), (true, String::new()), "{compiler} {flags:?}");
        let (well, said) = run(&["freed"]);
        assert!(!well && said.contains("heap-use-after-free"), "{compiler} {flags:?}: {said}");
    }
}

/// Programs start whatever starts them: a shell by exec, a shell that forks, and posix_spawn(3) in
/// make(1).
#[test]
fn programs_start_sanitized_children() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("san.c");
    std::fs::write(&source, PROGRAM).unwrap();
    std::fs::write(dir.path().join("script"), "#!/bin/sh\nexec ./program\n").unwrap();
    std::fs::write(dir.path().join("Makefile"), "all:\n\t@./program\n").unwrap();
    for (compiler, flags) in COMPILERS {
        if compile(compiler, flags, &source, dir.path()).is_none() {
            continue;
        }
        let ways: [&[&str]; 5] = [
            &["sh", "-c", "exec ./program"],
            &["bash", "-c", "./program; ./program && PATH=. program"],
            &["env", "A=1", "./program"],
            &["sh", "script"],
            &["make", "-s"],
        ];
        for way in ways {
            if Command::new(way[0]).arg("--version").output().is_err() {
                skipped!("no {}", way[0]);
                continue;
            }
            let mut c = Command::new(env!("CARGO_BIN_EXE_softring"));
            c.args(["run", "--quiet", "--deny", "--"]).args(way).current_dir(dir.path());
            let out = c.env("LD_LIBRARY_PATH", runtimes(compiler)).output().unwrap();
            let said = String::from_utf8_lossy(&out.stderr);
            assert!(out.status.success() && said.is_empty(), "{compiler} {way:?}: {said}");
        }
    }
}

/// Returns ThreadSanitizer's summaries, and the exit code that the program has without them.
fn races(command: &mut Command) -> (BTreeSet<String>, Option<i32>) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/softring.tsan");
    let options = format!("exitcode=0 suppressions={file}");
    let out = command.env("TSAN_OPTIONS", options).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let sums = said.lines().filter(|line| line.starts_with("SUMMARY")).map(str::to_owned);
    let ran = out.stdout == b"handed over\n" || out.status.code() == Some(77);
    assert!(ran, "{command:?}: {said}");
    (sums.collect(), out.status.code())
}

#[test]
fn rings_add_no_data_races() {
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/hand_over.c");
    for compiler in ["cc", "clang"] {
        let Some(program) = compile(compiler, &["-fsanitize=thread"], &source, dir.path()) else {
            continue;
        };
        for how in ["nop", "msg", "eventfd", "worker"] {
            let (native, ended) = races(Command::new(&program).arg(how));
            let (ours, well) = races(softring(&program).arg(how));
            assert_eq!(well, Some(0), "{compiler} {how}: {ours:?}");
            if ended == Some(77) {
                skipped!("{compiler} {how}: the kernel gives no rings here to compare with");
                continue;
            }
            let only: Vec<_> = ours.difference(&native).collect();
            assert!(only.is_empty(), "{compiler} {how}: only under softring: {only:?}");
        }
    }
}
