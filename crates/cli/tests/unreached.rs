//! Programs that start without the library while io_uring is softring's are named, once for each
//! run: with `--no-follow` those whose environment has no LD_PRELOAD (`follow.rs`). The tests need
//! libsoftring.so next to the executable, as `under.rs` does.

mod common;

use common::{ME, STARTS, build, library, text};
use softring_testing::skipped;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

/// Program that makes a ring, by libc's `syscall()` if there are arguments; exits with 0.
const RING: &str = r#"
#include <unistd.h>
static unsigned params[30];
int main(int argc, char **argv)
{
    long ret;
    (void)argv;
    if (argc > 1)
        return syscall(425, 4, params), 0;
    __asm__ volatile("movl $425, %%eax\n\tsyscall"
                     : "=&a"(ret) : "D"(4L), "S"(params) : "rcx", "r11", "memory");
    return 0;
}
"#;

/// Returns the lines that are said while the shell runs `script` in `dir`.
fn said(dir: &Path, options: &[&str], script: &str) -> Vec<String> {
    let mut c = Command::new(ME);
    c.args(["run", "--no-follow"]).args(options).args(["--", "sh", "-c", script]).current_dir(dir);
    let o = c.env_remove("SOFTRING_RUN").output().unwrap();
    let said = text(&o.stderr);
    assert!(o.status.success(), "{script}: {said}");
    said.lines().map(str::to_owned).collect()
}

/// Checks that one line is said, of `name`, with `why` in it.
#[track_caller]
fn named_once(dir: &Path, script: &str, name: &str, why: &str) {
    for options in [&["--deny"][..], &["--engine=user"]] {
        let lines = said(dir, options, script);
        assert_eq!(lines.len(), 1, "{script}: {lines:?}");
        let begins = format!("softring: {name} starts without softring (");
        assert!(lines[0].starts_with(&begins) && lines[0].contains(why), "{script}: {lines:?}");
    }
    assert_eq!(said(dir, &["--deny", "--quiet"], script), [""; 0], "{script}");
    assert_eq!(said(dir, &["--engine=kernel"], script), [""; 0], "{script}");
}

#[test]
fn unreached_programs_are_named_once() {
    if !library() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    build(dir, "ring", &[], RING).unwrap();
    let lost = "LD_PRELOAD is not in its environment";
    named_once(dir, "env -i ./ring; env -i ./ring", "./ring", lost);
    named_once(dir, "for i in 1 2 3; do LD_PRELOAD= ./ring; done", "./ring", lost);
    named_once(dir, "PATH=.:$PATH; env LD_PRELOAD= ring", "./ring", lost);
    named_once(dir, "env -i sh -c ./ring", "/bin/sh", "and so do its children");
    for launcher in ["nice", "timeout 9", "xargs -a /dev/null", "env"] {
        let name = launcher.split(' ').next().unwrap();
        let lines = said(dir, &["--deny"], &format!("env -i {launcher} ./ring"));
        let named = format!("{name} starts without softring (");
        assert!(lines.len() == 1 && lines[0].contains(&named), "{launcher}: {lines:?}");
    }
    if build(dir, "static", &["-static"], RING).is_some() {
        named_once(dir, "./static; (./static name); true", "./static", "is statically linked");
    }
    let rights = dir.join("rights");
    fs::copy(dir.join("ring"), &rights).unwrap();
    if chown(&rights, Some(65534), None).is_err() {
        return skipped!("set-user-id takes root");
    }
    fs::set_permissions(&rights, fs::Permissions::from_mode(0o4755)).unwrap();
    // --deny is left out: its filter comes with no_new_privs, under which such a file gives no
    // rights.
    let lines = said(dir, &["--engine=user"], "./rights; ./rights");
    let begins = "softring: ./rights starts without softring (it is set-user-id";
    assert!(lines.len() == 1 && lines[0].starts_with(begins), "{lines:?}");
}

/// Every function that starts a program names it; each has a run of its own.
#[test]
fn every_exec_function_is_checked() {
    if !library() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    build(dir, "ring", &[], RING).unwrap();
    build(dir, "start", &[], STARTS).unwrap();
    for way in 0..12 {
        let lines = said(dir, &["--deny"], &format!("./start {way}"));
        assert_eq!(lines.len(), 1, "{way}: {lines:?}");
        let name = if way < 10 { "ring" } else { "/bin/sh" };
        let expected = format!("{name} starts without softring");
        assert!(lines[0].contains(&expected), "{way}: {lines:?}");
    }
}

#[test]
fn helpers_without_rings_are_not_named() {
    if !library() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    build(dir, "plain", &[], "int main(void) { return 0; }").unwrap();
    build(
        dir,
        "still",
        &["-static"],
        "#include <stdio.h>\nint main(void) { return puts(\"\") < 0; }",
    );
    let script = "env -i ./plain; env -i ls; env -i cat /dev/null; [ ! -e still ] || ./still";
    assert_eq!(said(dir, &["--deny"], script), [""; 0]);
    // With the library there is nothing to name.
    build(dir, "ring", &[], RING).unwrap();
    let lines = said(dir, &["--deny"], "./ring");
    assert!(lines.len() == 1 && lines[0].contains("runs in user space"), "{lines:?}");
}

/// The loader is told of capabilities that no_new_privs keeps from the program.
#[test]
fn capabilities_under_no_new_privs_are_named() {
    if !library() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (dir, lib) = (dir.path(), Path::new(ME).with_file_name("libsoftring.so"));
    build(dir, "ring", &[], RING).unwrap();
    for from in [Path::new(ME), &lib] {
        fs::copy(from, dir.join(from.file_name().unwrap())).unwrap();
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
    let run = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        Command::new(words[0]).args(&words[1..]).current_dir(dir).output()
    };
    if !run("setcap cap_net_bind_service=ep ring").is_ok_and(|o| o.status.success()) {
        return skipped!("no setcap(8), or no right to use it");
    }
    let other = "setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs \
                 ./softring run --deny --";
    let o = run(&format!("{other} ./ring")).unwrap();
    assert_eq!(o.status.code(), Some(2), "{}", text(&o.stderr));
    assert!(text(&o.stderr).contains("has file capabilities"), "{}", text(&o.stderr));
    let o = run(&format!("{other} sh -c ./ring")).unwrap();
    assert!(text(&o.stderr).contains("or has capabilities)"), "{}", text(&o.stderr));
}
