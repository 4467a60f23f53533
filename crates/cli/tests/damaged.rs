//! Programs that are damaged, or of another machine: one sentence and its next step, and exit code
//! 2, or the program runs as it does alone.

mod common;

use common::{ME, text};
use softring_testing::skipped;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn file(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}

fn run(options: &[&str], program: &Path) -> Output {
    Command::new(ME).arg("run").args(options).arg("--").arg(program).output().unwrap()
}

/// Tests that a file is refused with a sentence that holds `what`, and a hint.
#[track_caller]
fn refused(program: &Path, what: &str) {
    refused_as(program, what, &[&["--engine=kernel"], &["--engine=user"], &["--deny"]]);
}

#[track_caller]
fn refused_as(program: &Path, what: &str, ways: &[&[&str]]) {
    for options in ways {
        let o = run(options, program);
        let said = text(&o.stderr);
        assert_eq!(o.status.code(), Some(2), "{program:?} {options:?}: {said}");
        let lines: Vec<&str> = said.lines().collect();
        let [error, hint] = lines[..] else { panic!("{program:?} {options:?}: {said}") };
        assert!(error.starts_with("softring: error: ") && error.contains(what), "{said}");
        assert!(hint.starts_with("softring: hint: "), "{said}");
    }
}

#[test]
fn damaged_files_are_refused_in_one_sentence() {
    const SEGMENTS: usize = 64;
    const SEGMENT: usize = 56;
    const INTERP: u8 = 3;
    let dir = tempfile::tempdir().unwrap();
    let whole = fs::read("/bin/true").unwrap();
    let whole = &whole[..];
    refused(&file(dir.path(), "magic", &whole[..5]), "Exec format error");
    for len in [51, 63, 100, 200] {
        let program = file(dir.path(), &format!("cut{len}"), &whole[..len]);
        refused(&program, "is neither a whole ELF program nor a script");
    }
    let mut bytes = whole.to_vec();
    bytes[16] = 9;
    refused(&file(dir.path(), "type", &bytes), "Exec format error");
    let is_interp = |n: &usize| whole[SEGMENTS + n * SEGMENT] == INTERP;
    let interp = SEGMENTS + (0..13).find(is_interp).unwrap() * SEGMENT;
    let word = |at: usize| u64::from_le_bytes(whole[at..at + 8].try_into().unwrap());
    let (at, len) = (word(interp + 8) as usize, word(interp + 32) as usize);
    let named = |name: &str, path: &[u8], len: usize| {
        let mut bytes = whole.to_vec();
        bytes[at..at + path.len()].copy_from_slice(path);
        bytes[interp + 32..interp + 40].copy_from_slice(&(len as u64).to_le_bytes());
        file(dir.path(), name, &bytes)
    };
    // The kernel takes a name of at most 4096 bytes, with a NUL at its end.
    let lengths = [("none", 0), ("open", len - 1), ("long", 4097), ("longer", 1 << 40)];
    for (name, len) in lengths {
        refused(&named(name, &[], len), "does not name its dynamic linker as it should");
    }
    refused(&named("empty", &[0], 1), "does not name its dynamic linker as it should");
    for (name, path, code, what) in [
        ("dir", &b"/tmp\0"[..], 126, "which is not a regular file"),
        ("lost", b"/no/such\0", 127, "which does not exist here"),
    ] {
        let program = named(name, path, path.len());
        assert!(Command::new(&program).output().is_err(), "the kernel runs {name}");
        let o = run(&["--engine=user"], &program);
        assert_eq!(o.status.code(), Some(code), "{name}: {}", text(&o.stderr));
        assert!(text(&o.stderr).contains(what), "{name}: {}", text(&o.stderr));
    }
}

/// A program that ends at its first instruction ends there, untouched.
#[test]
fn programs_that_cannot_begin_end_as_they_do_alone() {
    const PF_R: u8 = 4;
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = exits(dir.path(), "whole", &[], "mov $231, %eax\nmov $7, %edi\nsyscall")
    else {
        return skipped!("no program can be built");
    };
    let whole = fs::read(&program).unwrap();
    let (mut zero, mut far, mut no_code) = (whole.clone(), whole.clone(), whole.clone());
    zero[24..32].fill(0);
    far[24..32].copy_from_slice(&0x7000_0000_u64.to_le_bytes());
    for header in 0..usize::from(whole[56]) {
        no_code[64 + 56 * header + 4] = PF_R;
    }
    for (name, bytes) in [("zero", zero), ("far", far), ("no_code", no_code)] {
        let program = file(dir.path(), name, &bytes);
        let alone = Command::new(&program).output().unwrap().status;
        assert_eq!(alone.signal(), Some(11), "{name}");
        for options in [&["--engine=kernel"][..], &["--engine=user"], &["--deny"]] {
            let o = run(options, &program);
            let said = text(&o.stderr);
            assert_eq!((o.status.signal(), &*said), (Some(11), ""), "{name} {options:?}");
        }
    }
}

/// The kernel reads 256 bytes of a `#!` line. Without a whole name there the file goes to the
/// shell, as with execvp(3).
#[test]
fn long_interpreter_lines_are_read_as_by_the_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let path = |n: usize| format!("{}bin/sh", "/".repeat(n - "bin/sh".len()));
    let lines = [
        path(253),
        path(254),
        path(300),
        format!("/bin/sh {}", " ".repeat(300)),
        format!("{} /bin/sh", " ".repeat(300)),
        format!("/bin/sh -{}", "e".repeat(244)),
    ];
    for (n, line) in lines.iter().enumerate() {
        let text = format!("#!{line}\nexit 7\n");
        let script = file(dir.path(), &n.to_string(), text.as_bytes());
        let mut shell = Command::new("sh");
        let alone = shell.args(["-c", "exec \"$0\""]).arg(&script).output().unwrap();
        for options in [&["--engine=kernel"][..], &["--engine=user"]] {
            let o = run(options, &script);
            let said = common::text(&o.stderr);
            assert_eq!(o.status.code(), alone.status.code(), "{line:?}: {said}");
            assert_eq!(o.status.code(), Some(7), "{line:?}: {said}");
        }
    }
}

#[test]
fn programs_of_other_machines_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = fs::read("/bin/true").unwrap();
    bytes[18..20].copy_from_slice(&243u16.to_le_bytes());
    let program = file(dir.path(), "foreign", &bytes);
    let o = run(&["--engine=user"], &program);
    let said = text(&o.stderr);
    assert_eq!(o.status.code(), Some(2), "{said}");
    assert!(said.contains("is a 64-bit riscv program, but softring here is 64-bit"), "{said}");
    // The kernel may have an interpreter for it (binfmt_misc).
    let alone = Command::new(&program).output();
    let o = run(&["--engine=kernel"], &program);
    match alone {
        Ok(alone) => assert_eq!(o.status.code(), alone.status.code(), "{}", text(&o.stderr)),
        Err(_) => assert_eq!(o.status.code(), Some(2), "{}", text(&o.stderr)),
    }
}

/// Builds a program that exits with 7, without a C library.
fn exits(dir: &Path, name: &str, how: &[&str], code: &str) -> Option<PathBuf> {
    let (source, program) = (dir.join("source.s"), dir.join(name));
    let end = ".section .note.GNU-stack, \"\", @progbits\n";
    fs::write(&source, format!(".globl _start\n_start: {code}\n{end}")).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-nostdlib", "-static", "-o"]).arg(&program).arg(&source).args(how);
    let built = cc.output().is_ok_and(|o| o.status.success());
    built.then_some(program)
}

#[test]
fn programs_of_32_bits_run_on_the_kernels_rings() {
    let dir = tempfile::tempdir().unwrap();
    let code = "mov $1, %eax\nmov $7, %ebx\nint $0x80";
    let Some(program) = exits(dir.path(), "small", &["-m32"], code) else {
        return skipped!("the compiler makes no 32-bit programs");
    };
    if Command::new(&program).output().map(|o| o.status.code()).ok() != Some(Some(7)) {
        return skipped!("the kernel runs no 32-bit programs");
    }
    let o = run(&["--engine=user"], &program);
    assert_eq!(o.status.code(), Some(2), "{}", text(&o.stderr));
    let o = run(&["--engine=kernel"], &program);
    assert_eq!((o.status.code(), text(&o.stderr)), (Some(7), String::new()));
    let o = run(&[], &program);
    let said = text(&o.stderr);
    if o.status.code() != Some(2) {
        assert_eq!(o.status.code(), Some(7), "{said}");
        assert!(said.contains("warning: ") && said.contains("runs without softring"), "{said}");
    }
}

/// The kernel asks neither for the class nor for the order of bytes that a file claims to have.
#[test]
fn a_wrong_class_is_ignored_as_by_the_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let code = "mov $231, %eax\nmov $7, %edi\nsyscall";
    let Some(program) = exits(dir.path(), "whole", &[], code) else {
        return skipped!("no program can be built");
    };
    let whole = fs::read(&program).unwrap();
    for (at, value) in [(4, 1), (4, 0), (5, 2), (6, 9)] {
        let mut bytes = whole.clone();
        bytes[at] = value;
        let program = file(dir.path(), &format!("class{at}{value}"), &bytes);
        let alone = Command::new(&program).output().unwrap().status.code();
        for options in [&["--engine=kernel"][..], &["--engine=user"]] {
            let o = run(options, &program);
            assert_eq!((alone, o.status.code()), (Some(7), Some(7)), "{}", text(&o.stderr));
        }
    }
}

/// A packed program's own code is not in its file.
#[test]
fn packed_programs_run_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = exits(dir.path(), "whole", &[], "mov $231, %eax\nmov $7, %edi\nsyscall")
    else {
        return skipped!("no program can be built");
    };
    let mut bytes = fs::read(&program).unwrap();
    let headers = 64 + 56 * usize::from(bytes[56]);
    bytes[headers + 4..headers + 8].copy_from_slice(b"UPX!");
    let program = file(dir.path(), "packed", &bytes);
    refused_as(&program, "is packed (UPX)", &[&["--engine=user"], &["--deny"]]);
    let o = run(&["--engine=kernel"], &program);
    assert_eq!((o.status.code(), text(&o.stderr)), (Some(7), String::new()));
    let o = run(&[], &program);
    let said = text(&o.stderr);
    assert!(said.contains("is packed (UPX)"), "{said}");
    if o.status.code() != Some(2) {
        assert_eq!(o.status.code(), Some(7), "{said}");
        assert!(said.contains("warning: ") && said.contains("the kernel's rings"), "{said}");
    }
}
