//! RLIMIT_FSIZE, which does not apply to the kernel's rings but does to softring's files in memory;
//! and RLIMIT_AS.

mod common;

use common::{example, library};
use std::process::{Command, Output};

/// Runs the example `pages` with `ulimit OPTIONS`, in units of 512 bytes.
fn limited(options: &str) -> Output {
    run("pages", options)
}

fn run(name: &str, options: &str) -> Output {
    with(name, "on", options)
}

fn with(name: &str, arg: &str, options: &str) -> Output {
    let mut c = Command::new("sh");
    c.args(["-c", &format!("ulimit {options} && exec \"$0\" \"$1\"")]).arg(example(name));
    c.arg(arg).env("LD_PRELOAD", library()).env("SOFTRING_ENGINE", "user");
    c.output().unwrap()
}

#[test]
fn a_soft_limit_on_file_sizes_is_lifted() {
    for limit in ["-S -f 0", "-S -f 8", "-S -f 400000"] {
        let out = limited(limit);
        assert!(out.status.success(), "{limit}: {out:?}");
    }
}

#[test]
fn a_soft_limit_is_lifted_by_one_thread_at_a_time() {
    let out = run("crowd", "-S -f 2048");
    assert!(out.status.success(), "{out:?}");
}

#[test]
fn a_hard_limit_below_a_ring_is_reported() {
    let out = limited("-f 400000");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    let line = said.lines().find(|l| l.starts_with("softring: ")).unwrap_or_default();
    assert!(line.contains("204800000 bytes") && line.contains("ulimit -f"), "{said}");
    assert!(said.contains("os error 12"), "{said}");
    let out = limited("-f 600000");
    assert!(out.status.success(), "{out:?}");
}

/// Setup of one more ring fails without memory for it, and the program does not end.
#[test]
fn rings_end_before_memory_does() {
    for kib in (300..7000).step_by(400) {
        let out = with("scarce", &kib.to_string(), "-c 0");
        assert!(out.status.success(), "{kib} KiB: {out:?}");
    }
}
