//! Programs that a program under softring starts with an environment of its own making have
//! softring, too, and see the environment that they were given.

mod common;

use common::{ME, STARTS, build, library, text};
use softring_testing::skipped;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Output};

/// Program that exits with 0 if it gets a ring, by an inline call.
const RING: &str = r#"
static unsigned params[30];
int main(void)
{
    long ret;
    __asm__ volatile("movl $425, %%eax\n\tsyscall"
                     : "=&a"(ret) : "D"(4L), "S"(params) : "rcx", "r11", "memory");
    return ret < 0;
}
"#;

/// Program that prints its environment, as five places have it, and that of a shell that it starts.
const SHOW: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void list(const char *what, char **strings)
{
    printf("%s:", what);
    for (; strings && *strings; strings++)
        printf(" %s", *strings);
    puts("");
}
int main(int argc, char **argv, char **envp)
{
    char text[4096] = "", *args[] = { "show", "once", 0 }, **before = environ;
    FILE *f = fopen("/proc/self/environ", "r");
    size_t n = f ? fread(text, 1, sizeof text, f) : 0;
    (void)argc;
    list("environ", environ);
    list("envp", envp);
    printf("getenv: %s %s\n", getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") : "none",
           getenv("SOFTRING_ENGINE") ? "some" : "none");
    while (n > 0 && text[n - 1] == 0)
        n--;
    for (size_t i = 0; i < n; i++)
        if (text[i] == 0)
            text[i] = ' ';
    printf("proc: %.*s\n", (int)n, text);
    fflush(stdout);
    if (argv[1])
        return 0;
    system("test -z \"$SOFTRING_ENGINE$SOFTRING_FOLLOWED\" && ./ring && echo system ok");
    pclose(popen("./ring && echo popen ok", "w"));
    if (environ != before)
        puts("environ has moved");
    list("after", environ);
    fflush(stdout);
    setenv("B", "2", 1);
    return execv("./show", args);
}
"#;

fn run(dir: &Path, options: &[&str], script: &str) -> Output {
    let mut c = Command::new(ME);
    c.arg("run").args(options).args(["--", "sh", "-c", script]).current_dir(dir);
    c.env_remove("SOFTRING_RUN").output().unwrap()
}

/// Checks that the script ends with 0 where its programs get softring's rings, and that softring
/// prints only the notice.
#[track_caller]
fn follows(dir: &Path, script: &str) {
    let o = run(dir, &["--deny"], script);
    let said = text(&o.stderr);
    assert!(o.status.success(), "{script}: {}\n{said}", o.status);
    assert!(said.lines().all(|line| line.contains("runs in user space")), "{script}: {said}");
    let o = run(dir, &["--deny", "--no-follow"], script);
    assert!(!o.status.success(), "{script}: --no-follow");
}

#[test]
fn programs_with_emptied_environments_have_rings() {
    if !library() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    build(dir, "ring", &[], RING);
    for script in [
        "env -i ./ring",
        "LD_PRELOAD= ./ring",
        "unset LD_PRELOAD; ./ring",
        "env -i sh -c 'env -i sh -c ./ring'",
        "env -i nice ./ring",
        "env -i A=1 PATH=.:/bin:/usr/bin ring",
        "env -u LD_PRELOAD -u SOFTRING_NOTICE ./ring",
        "printf '#!/bin/sh\nexec ./ring' >script && chmod +x script && env -i ./script",
        "(sleep 0.1; unset LD_PRELOAD; exec ./ring) & wait $!",
    ] {
        follows(dir, script);
    }
    let o = run(dir, &["--deny"], "SOFTRING_FOLLOW=0 LD_PRELOAD= ./ring");
    assert_eq!(o.status.code(), Some(1), "{}", text(&o.stderr));
    // The options hold for these programs: the kernel's rings, or a modelled disk's notice.
    let o = run(dir, &["--engine=kernel", "--deny"], "env -i ./ring");
    assert_eq!(o.status.code(), Some(1), "{}", text(&o.stderr));
    let o = run(dir, &["--deny", "--quiet"], "env -i ./ring");
    assert_eq!((o.status.code(), text(&o.stderr).as_str()), (Some(0), ""));
}

#[test]
fn every_exec_function_follows() {
    if !library() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    build(dir, "ring", &[], RING);
    build(dir, "start", &[], STARTS);
    for way in 0..15 {
        follows(dir, &format!("./start {way}"));
    }
}

#[test]
fn the_environment_is_the_given_one() {
    if !library() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    build(dir, "ring", &[], RING);
    build(dir, "show", &[], SHOW);
    build(dir, "other.so", &["-shared"], "int other;");
    for (given, preload) in [("A=1", "none"), ("A=1 LD_PRELOAD=./other.so", "./other.so")] {
        let o = run(dir, &["--deny", "--quiet"], &format!("env -i {given} ./show"));
        let first =
            format!("environ: {given}\nenvp: {given}\ngetenv: {preload} none\nproc: {given}\n");
        let second = format!(
            "system ok\npopen ok\nafter: {given}\nenviron: {given} B=2\nenvp: {given} B=2\n\
             getenv: {preload} none\nproc: {given} B=2\n"
        );
        assert_eq!(text(&o.stdout), first + &second, "{}", text(&o.stderr));
        assert_eq!(text(&o.stderr), "");
    }
    if build(dir, "show", &["-static"], SHOW).is_some() {
        let o = run(dir, &["--deny", "--quiet"], "env -i A=1 ./show once");
        assert!(text(&o.stdout).starts_with("environ: A=1\nenvp: A=1\n"), "{}", text(&o.stdout));
    }
}

#[test]
fn programs_that_gain_rights_are_left_alone() {
    if !library() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    build(dir, "show", &[], SHOW);
    let show = dir.join("show");
    if chown(&show, Some(65534), None).is_err() {
        return skipped!("set-user-id takes root");
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&show, fs::Permissions::from_mode(0o4755)).unwrap();
    let o = run(dir, &["--engine=user", "--quiet"], "env -i A=1 ./show once");
    assert!(text(&o.stdout).starts_with("environ: A=1\nenvp: A=1\n"), "{}", text(&o.stdout));
}
