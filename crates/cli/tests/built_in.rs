//! Programs that bring softring along: `libsoftring.a`, which `dist/archive.sh` makes of cargo's
//! archive next to the executable.

mod common;

use common::{KERNEL, ME, library, text};
use softring_testing::skipped;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const TOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// The example, on liburing.
const COPY: &str = include_str!("../../../examples/built-in-c/copy.c");
/// Program that makes a ring by system calls of its own, or by syscall(2).
const RING: &str = include_str!("common/static.c");
const BEGIN: &str = "#include <softring.h>
    static void __attribute__((constructor)) begin(void) { softring_install(0); }";
const FEW: &str = "this program's io_uring runs in user space";

/// Makes the archive, once; says so if it cannot.
fn archive() -> Option<&'static Path> {
    static MADE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let make = || {
        let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libsoftring.a");
        let mut sh = Command::new("sh");
        sh.arg(Path::new(TOP).join("dist/archive.sh"));
        let o = sh.arg(Path::new(ME).with_file_name("libsoftring.a")).arg(&to).output();
        let o = o.map_err(|e| e.to_string())?;
        if o.status.success() { Ok(to) } else { Err(text(&o.stderr)) }
    };
    match MADE.get_or_init(make) {
        Ok(archive) => Some(archive).filter(|_| library()).map(|archive| &**archive),
        Err(e) => {
            skipped!("no libsoftring.a: {e}");
            None
        }
    }
}

/// Links a program with the archive; says so if it cannot be built.
fn build(dir: &Path, compiler: &str, how: &[&str], source: &str) -> Option<PathBuf> {
    let archive = archive()?;
    let (file, to) = (dir.join("source.c"), dir.join("program"));
    fs::write(&file, source).unwrap();
    let mut cc = Command::new(compiler);
    cc.args(["-w", "-O1", "-pthread", "-I"]).arg(Path::new(TOP).join("include"));
    match cc.arg("-o").arg(&to).arg(&file).args(how).arg(archive).output() {
        Ok(o) if o.status.success() => return Some(to),
        Ok(o) => skipped!("{compiler} {how:?}: {}", text(&o.stderr)),
        Err(e) => skipped!("{compiler}: {e}"),
    }
    None
}

/// Has a program copy a file, by a command in front of it; returns what it said.
#[track_caller]
fn copies(before: &[&str], program: &Path) -> String {
    let (from, to) = (program.with_extension("from"), program.with_extension("copy"));
    let mut contents = fs::read(ME).unwrap();
    contents.truncate(1_000_003);
    fs::write(&from, &contents).unwrap();
    let mut c = Command::new(ME);
    if before.is_empty() {
        c = Command::new(program);
    } else {
        c.args(before).arg("--").arg(program);
    }
    let o = c.arg(from).arg(&to).output().unwrap();
    let said = text(&o.stderr);
    assert_eq!(o.status.code(), Some(0), "{before:?} {}: {said}", program.display());
    assert!(fs::read(&to).unwrap() == contents, "{before:?}: the copy differs");
    fs::remove_file(to).unwrap();
    said
}

/// Checks that a program is served by its own copy, and by one copy under `softring run`.
#[track_caller]
fn is_served(program: &Path) {
    let kernels = copies(&[], program);
    assert!(kernels.is_empty() || kernels.contains(FEW), "{kernels}");
    let of_run = "(SOFTRING_ENGINE=user)";
    for (before, why) in [
        (&["deny"][..], "the kernel denies it here (EPERM)"),
        (&["run", "--deny"], "the kernel denies it here (EPERM)"),
        (&["run", "--deny", "--", "env"], "the kernel denies it here (EPERM)"),
        // The program's own copy obeys no variable, so this line is the other copy's.
        (&["run", "--engine=user"], of_run),
        (&["run", "--engine=user", "--intercept=patch"], of_run),
        (&["run", "--engine=user", "--intercept=sigsys"], of_run),
    ] {
        let said = copies(before, program);
        assert!(said.lines().count() == 1 && said.contains(why), "{before:?}: {said}");
    }
}

#[test]
fn programs_of_liburing_get_rings_of_their_own() {
    for how in [
        &["-static", "-no-pie", "-luring"][..],
        &["-static-pie", "-fPIE", "-luring"],
        &["-static", "-s", "-flto", "-Wl,--gc-sections", "-luring"],
        // liburing alone is static, or nothing is.
        &["-l:liburing.a"],
        &["-luring"],
    ] {
        let dir = tempfile::tempdir().unwrap();
        if let Some(program) = build(dir.path(), "cc", how, COPY) {
            is_served(&program);
        }
    }
}

fn run(before: &[&str], program: &Path, variables: &[(&str, &str)]) -> Output {
    let mut c = Command::new(ME);
    c.args(before).arg("--").arg(program).envs(variables.iter().copied());
    c.stdin(fs::File::open(ME).unwrap()).output().unwrap()
}

/// The program's system calls come from instructions of its own, and from syscall(2) of glibc and
/// of musl.
#[test]
fn programs_without_liburing_get_rings_of_their_own() {
    for (compiler, how) in [
        ("cc", &["-static"][..]),
        ("cc", &["-static", "-DINLINE"]),
        ("cc", &[]),
        ("musl-gcc", &[&["-static"], KERNEL].concat()),
        ("musl-gcc", &[&["-static", "-DINLINE"], KERNEL].concat()),
        ("musl-gcc", KERNEL),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let source = format!("{RING}\n{BEGIN}");
        let Some(program) = build(dir.path(), compiler, how, &source) else { continue };
        for before in [&["deny"][..], &["run", "--deny"]] {
            let o = run(before, &program, &[]);
            let said = text(&o.stderr);
            assert_eq!(o.status.code(), Some(0), "{compiler} {how:?} {before:?}: {said}");
            assert!(said.contains(FEW) && said.lines().count() == 1, "{said}");
            let own = fs::read(ME).unwrap();
            assert!(o.stdout.ends_with(&own), "{compiler} {how:?} {before:?}: the copy differs");
        }
    }
}

#[test]
fn forked_children_make_rings() {
    let dir = tempfile::tempdir().unwrap();
    let source = format!("{}\n{BEGIN}", include_str!("common/forks.c"));
    for how in [&["-static"][..], &[]] {
        if let Some(program) = build(dir.path(), "cc", how, &source) {
            let o = run(&["deny"], &program, &[]);
            assert!(o.status.success(), "{how:?}: {}{}", text(&o.stdout), text(&o.stderr));
        }
    }
}

/// A library that a program opens later makes its calls by instructions of its own.
#[test]
fn libraries_that_are_opened_later_get_rings() {
    let dir = tempfile::tempdir().unwrap();
    let (file, lib) = (dir.path().join("ring.c"), dir.path().join("ring.so"));
    fs::write(&file, RING).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-w", "-O1", "-shared", "-fPIC", "-DINLINE", "-Dmain=ring_main", "-o"]);
    assert!(cc.arg(&lib).arg(&file).output().unwrap().status.success());
    let source = format!(
        r#"#include <dlfcn.h>
        {BEGIN}
        int main(int argc, char **argv)
        {{
            int (*ring)(int, char **) = dlsym(dlopen("{}", RTLD_NOW), "ring_main");
            return ring(argc, argv);
        }}"#,
        lib.display()
    );
    let Some(program) = build(dir.path(), "cc", &[], &source) else { return };
    let o = run(&["deny"], &program, &[]);
    let said = text(&o.stderr);
    assert_eq!(o.status.code(), Some(0), "{said}");
    assert!(said.contains(FEW) && said.lines().count() == 1, "{said}");
}

/// Program that installs with the flags in its argument, again, and makes a ring by
/// `softring_setup`; prints what each answers.
const FLAGS: &str = r#"
    #include <errno.h>
    #include <softring.h>
    #include <stdio.h>
    #include <stdlib.h>
    int main(int argc, char **argv)
    {
        unsigned params[30] = {0};
        int installed, again, ring;
        if (getenv("LATE"))
            setenv("NEW", "1", 1);
        errno = 0;
        installed = softring_install(FLAGS);
        printf("%d %d ", installed, installed ? errno : 0);
        again = softring_install(FLAGS);
        ring = softring_setup(1, (void *)params);
        printf("%d ring %s %d\n", again, ring < 0 ? "no" : "yes", ring < 0 ? errno : 0);
        return 0;
    }"#;

fn answers(flags: u32, variables: &[(&str, &str)]) -> Option<(String, String)> {
    let dir = tempfile::tempdir().unwrap();
    let how = format!("-DFLAGS={flags}");
    let program = build(dir.path(), "cc", &["-static", &how], FLAGS)?;
    let o = run(&["deny"], &program, variables);
    Some((text(&o.stdout), text(&o.stderr)))
}

#[test]
fn the_program_says_whether_the_environment_counts() {
    let kernels = [("SOFTRING_ENGINE", "kernel"), ("SOFTRING_QUIET", "1")];
    let Some((answer, said)) = answers(0, &kernels) else { return };
    assert_eq!(answer, "0 0 0 ring yes 0\n");
    assert!(said.contains(FEW), "{said}");
    let (answer, said) = answers(1, &kernels).unwrap();
    assert_eq!((&*answer, &*said), ("0 0 0 ring no 1\n", ""));
    let (answer, said) = answers(2, &[]).unwrap();
    assert_eq!((&*answer, &*said), ("0 0 0 ring yes 0\n", ""));
}

/// Under `softring run` the calls by name go to the copy that serves the program.
#[test]
fn calls_by_name_reach_the_copy_that_works() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build(dir.path(), "cc", &["-static", "-DFLAGS=0"], FLAGS) else { return };
    for intercept in ["auto", "patch", "sigsys"] {
        let o = run(&["run", "--deny", "--intercept", intercept], &program, &[]);
        let (answer, said) = (text(&o.stdout), text(&o.stderr));
        assert_eq!(answer, "0 0 0 ring yes 0\n", "{intercept}: {said}");
        assert!(said.contains(FEW) && said.lines().count() == 1, "{intercept}: {said}");
    }
}

/// After a failure io_uring is as it was: denied.
#[test]
fn what_cannot_be_installed_is_an_error() {
    let Some((answer, _)) = answers(4, &[]) else { return };
    assert_eq!(answer, format!("-1 {} -1 ring no 1\n", libc::EINVAL));
    let (answer, _) = answers(0, &[("LATE", "1")]).unwrap();
    assert_eq!(answer, format!("-1 {} -1 ring no 1\n", libc::ENOTSUP));
}

/// In a program, whatever its language, names must not collide; and what else it is linked with
/// must make no difference.
#[test]
fn the_archive_defines_the_functions_of_the_header_alone() {
    let Some(archive) = archive() else { return };
    let names = |option: &str| {
        let o = Command::new("nm").args(["-P", "--extern-only", option]).arg(archive).output();
        let listed = text(&o.unwrap().stdout);
        let names = listed.lines().filter_map(|line| line.split_once(' ')).map(|(name, _)| name);
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    // A program with these names would hide those of a library that `softring run` brings.
    let dir = tempfile::tempdir().unwrap();
    let program = build(dir.path(), "cc", &["-rdynamic", "-DFLAGS=0"], FLAGS).unwrap();
    let o = Command::new("nm").args(["-D", "--defined-only"]).arg(program).output().unwrap();
    assert!(!text(&o.stdout).contains("softring_"), "{}", text(&o.stdout));
    let header = fs::read_to_string(Path::new(TOP).join("include/softring.h")).unwrap();
    let defined = names("--defined-only");
    let undeclared = defined.iter().find(|name| !header.contains(&format!("{name}(")));
    assert_eq!((undeclared, defined.len()), (None, 10), "{defined:?}");
    let sections = ["__start_softring_", "__stop_softring_"];
    let known = ["_DYNAMIC", "__errno_location", "_r_debug", "dl_iterate_phdr", "environ"];
    let others = names("--undefined-only").into_iter().filter(|name| {
        let never = name.starts_with("softring_without_");
        !never && !known.contains(&&**name) && !sections.iter().any(|s| name.starts_with(s))
    });
    assert_eq!(others.collect::<Vec<_>>(), Vec::<String>::new());
}
