//! Programs that put seccomp filters on themselves: the library calls nothing that they did not
//! call before, the kernel's rings stay what they were, and a line reports a ring or a request that
//! cannot be had.

mod common;

use common::{EPERM, deny_rings, example, under};
use softring_testing::skipped;
use std::process::{Command, Output};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns what the program of steps prints, and its exit code.
fn output_of(out: &Output) -> (String, Option<i32>) {
    (text(&out.stdout), out.status.code())
}

fn steps(engine: &str, steps: &[&str]) -> Command {
    let mut c = under(example("filters"), engine, "auto");
    c.env_remove("SOFTRING_QUIET").args(steps);
    c
}

/// Returns whether the kernel gives rings here.
fn kernel_gives_rings() -> bool {
    let plain = Command::new(example("filters")).arg("ring").output().unwrap();
    output_of(&plain).0 == "ring 1 1\nend\n"
}

/// Checks that the kernel's rings, and what the program's own filters leave of them, are as without
/// the library.
fn same(what: &[&str]) {
    if !kernel_gives_rings() {
        return skipped!("the kernel gives no rings here");
    }
    let plain = Command::new(example("filters")).args(what).output().unwrap();
    let with = steps("auto", what).output().unwrap();
    assert_eq!(output_of(&plain), output_of(&with), "{what:?}: {}", text(&with.stderr));
}

fn says(engine: &str, what: &[&str], stdout: &str, line: &str) {
    let out = steps(engine, what).output().unwrap();
    let (said, lines) = (text(&out.stdout), text(&out.stderr));
    assert_eq!(said, stdout, "{what:?}: {} {lines}", out.status);
    assert!(out.status.success() && lines.contains(line), "{what:?}: {} {lines}", out.status);
}

const CLONES: &str = "kill=56,57,58,435";

#[test]
fn strict_mode_makes_no_calls() {
    for engine in ["auto", "user", "kernel"] {
        let out = steps(engine, &["strict"]).output().unwrap();
        assert_eq!(output_of(&out), ("strict\n".into(), Some(3)), "{engine}: {}", out.status);
    }
}

#[test]
fn softring_avoids_calls_that_a_filter_kills_for() {
    for call in ["14", "39", "61", "186", "228", "257", "56", "435"] {
        let kill = format!("kill={call}");
        for engine in ["auto", "user"] {
            for what in [&[&kill[..]][..], &["ring", &kill]] {
                let out = steps(engine, what).output().unwrap();
                assert!(out.status.success(), "{engine} {what:?}: {}", out.status);
            }
        }
    }
}

/// The library makes none of these calls for fork(3) and dlopen(3) either.
#[test]
fn children_and_libraries_are_made_under_the_programs_own_filter() {
    for call in ["14", "39", "228", "17,18"] {
        for ring in ["ring", "fork"] {
            same(&[ring, &format!("kill={call}"), "fork", "load", "fork"]);
        }
    }
}

#[test]
fn rings_of_the_kernel_stay_under_the_programs_own_filter() {
    for action in ["kill", "eperm"] {
        let only = format!("only={action},425,426,427");
        same(&["ring", &only, "ring"]);
        same(&[&only, "ring"]);
        let clones = CLONES.replace("kill", action);
        same(&["ring", &clones, "ring"]);
        same(&[&clones, "ring"]);
    }
    // This filter is not reported.
    same(&["inline=kill,56,57,58,435,61", "ring", "ring"]);
    for call in ["14", "39", "61", "186", "202", "228"] {
        same(&[&format!("kill={call}"), "ring"]);
    }
}

#[test]
fn without_threads_a_ring_is_refused_with_a_line() {
    let line = "softring needs clone3(2), and a seccomp policy kills a program for this call";
    says("user", &[CLONES, "ring"], "no ring: 1\nend\n", line);
    says("user", &["ring", CLONES, "ring"], "ring 1 1\nno ring: 1\nend\n", line);
    let only = "only=kill";
    says("user", &[only, "ring"], "no ring: 1\nend\n", line);
    says("user", &["kill=56", "ring"], "ring 1 1\nend\n", "user space");
    says("auto", &["kill=425,435", "ring"], "no ring: 38\nend\n", "clone3(2)");
    says("user", &["kill=14", "ring"], "no ring: 1\nend\n", "rt_sigprocmask(2)");
    for action in ["kill", "eperm"] {
        says("user", &[&format!("{action}=334"), "ring"], "no ring: 1\nend\n", "needs rseq(2)");
    }
    says("user", &["kill=273", "ring"], "no ring: 1\nend\n", "needs set_robust_list(2)");
    says("user", &["eperm=273", "ring"], "ring 1 1\nend\n", "user space");
    let out = deny_rings(&mut steps("auto", &["kill=39", "ring"]), EPERM).output().unwrap();
    assert_eq!(output_of(&out).0, "no ring: 1\nend\n", "{}", text(&out.stderr));
}

#[test]
fn a_ring_without_a_file_is_refused_with_a_line() {
    says("user", &["eperm=5,262", "ring"], "ring 1 1\nend\n", "user space");
    says("user", &["eperm=5,262,332", "ring"], "no ring: 1\nend\n", "needs fstat(2)");
    says("user", &["eperm=72", "ring"], "no ring: 1\nend\n", "needs fcntl(2)");
    says("user", &["eperm=77,18", "ring"], "no ring: 1\nend\n", "needs ftruncate(2)");
}

/// Each of io_uring's calls is checked again when the program has another filter.
#[test]
fn a_filter_on_a_ring_call_makes_later_rings_softrings() {
    if !kernel_gives_rings() {
        return skipped!("the kernel gives no rings here");
    }
    for call in ["425", "426", "427"] {
        for action in ["eperm", "kill"] {
            let filter = format!("{action}={call}");
            let what = ["ring", &filter, "ring"];
            says("auto", &what, "ring 1 1\nring 1 1\nend\n", "runs in user space");
        }
    }
}

/// A filter is not reported: a refused call shows when it is made.
#[test]
fn substitutes_are_taken_when_a_call_is_refused_later() {
    let with_substitute =
        ["441", "281,441", "232", "213", "291", "290", "319", "77", "302", "327,328", "312", "434"];
    for calls in with_substitute {
        let inline = format!("inline=eperm,{calls}");
        let stops = Command::new("timeout")
            .args(["-s", "KILL", "60"])
            .arg(example("filters"))
            .args(["keep", "poll", &inline, "poll", "read", "ring"])
            .env("LD_PRELOAD", common::library())
            .env("SOFTRING_ENGINE", "user")
            .output()
            .unwrap();
        let want = "poll 1\npoll 1\nread 1\nring 1 1\nend\n";
        assert_eq!(output_of(&stops).0, want, "{calls}: {}", text(&stops.stderr));
    }
}

#[test]
fn a_request_that_needs_a_refused_call_is_reported() {
    for action in ["kill", "eperm"] {
        let filter = format!("{action}=233");
        let out = steps("user", &["keep", "read", &filter, "poll"]).output().unwrap();
        let said = text(&out.stderr);
        assert!(out.status.success(), "{action}: {} {said}", out.status);
        assert_eq!(said.matches("softring needs epoll_ctl(2)").count(), 1, "{said}");
        let eventfds = format!("{action}=284,290");
        says("user", &["keep", &eventfds, "poll"], "poll -38\nend\n", "eventfd2(2)");
    }
    for what in ["kill=302", "eperm=302", "kill=204"] {
        says("user", &["keep", what, "poll", "read"], "poll 1\nread 1\nend\n", "user space");
    }
}

/// A needed call without a substitute ends the program, as `docs/LIMITATIONS.md` says.
#[test]
fn a_filter_that_kills_for_its_calls_ends_a_ring() {
    let out = steps("user", &["keep", "kill=72", "read"]).output().unwrap();
    assert_eq!(output_of(&out), (String::new(), None), "{} {}", out.status, text(&out.stderr));
}

/// A child inherits the trap of its parent, so that its own calls do not reach the kernel.
#[test]
fn an_inherited_trap_does_not_count_as_a_killing_policy() {
    if !kernel_gives_rings() {
        return skipped!("the kernel gives no rings here");
    }
    let mut c = under("sh", "auto", "sigsys");
    c.env_remove("SOFTRING_QUIET").arg("-c");
    let script = format!("{} ring; true", example("filters").display());
    let out = c.arg(script).output().unwrap();
    let said = text(&out.stderr);
    assert_eq!(text(&out.stdout), "ring 1 1\nend\n", "{said}");
    assert!(said.contains("it has inherited softring's SIGSYS trap"), "{said}");
    assert!(!said.contains("kills"), "{said}");
}

#[test]
fn another_trap_does_not_count_as_softrings() {
    let what = ["trap=425,426,427", "ring"];
    says(
        "auto",
        &what,
        "ring 1 1\nend\n",
        "a policy kills a program that asks the kernel for io_uring",
    );
}

/// The program sees its own mask, whatever the trap needs.
#[test]
fn a_program_sees_sigsys_as_blocked() {
    for (intercept, how) in [("auto", "mask"), ("auto", "raw-mask"), ("sigsys", "mask")] {
        let mut c = under(example("filters"), "auto", intercept);
        let all = ["shown", how, "ring", "shown", "raise", "ring", "shown"];
        let out = deny_rings(c.args(all), EPERM).output().unwrap();
        let want = "blocked false false\nring 1 1\nblocked true true\nring 1 1\n\
                    blocked true true\nend\n";
        assert_eq!(
            output_of(&out).0,
            want,
            "{intercept} {how}: {} {}",
            out.status,
            text(&out.stderr)
        );
    }
}

#[test]
fn a_sigsys_that_was_blocked_comes_when_it_is_unblocked() {
    for (how, back) in [("mask", "raw-unmask"), ("raw-mask", "unmask")] {
        let mut c = under(example("filters"), "auto", "sigsys");
        let out = c.args([how, "raise", "shown", back, "shown"]).output().unwrap();
        assert_eq!(output_of(&out), ("blocked true true\n".into(), None), "{}", text(&out.stderr));
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&out.status), Some(libc::SIGSYS));
    }
}
