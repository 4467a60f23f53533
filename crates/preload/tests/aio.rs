//! Kernel aio through the entry points: as without them, polled, and where the kernel has none.

mod common;

use common::{count, example, succeed, under};
use softring_testing::skipped;
use std::process::Command;

/// Returns the cases of one of the test program's lists.
fn cases(list: &str) -> Vec<String> {
    let out = succeed(Command::new(example("aio")).arg(list));
    String::from_utf8(out.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Runs every case of a list under the library; returns how many waits polled for events, how many
/// found them, and how many sleeps they took.
fn all(list: &str, set: &[(&str, &str)]) -> [u64; 3] {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut polls = [0; 3];
    for case in cases(list) {
        println!("{case} {set:?}");
        let mut c = under(example("aio"), "auto", "auto");
        let out = succeed(c.arg(&case).env("AIO_DIR", dir.path()).envs(set.iter().copied()));
        assert!(count(&out, "aio") > 0, "{case} went past us");
        for (sum, what) in polls.iter_mut().zip(["polled", "found", "sleeps"]) {
            *sum += count(&out, what);
        }
    }
    println!("{} waits polled, {} of them found; {} sleeps", polls[0], polls[1], polls[2]);
    polls
}

/// The cases hold on the kernel.
#[test]
fn the_kernel() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for case in ["--plain", "--kernels"].into_iter().flat_map(cases) {
        println!("{case}");
        succeed(Command::new(example("aio")).arg(&case).env("AIO_DIR", dir.path()));
    }
}

#[test]
fn plain_contexts_are_the_kernels() {
    for (list, engine) in [("--plain", "auto"), ("--kernels", "auto"), ("--kernels", "kernel")] {
        let polls = all(list, &[("SOFTRING_ENGINE", engine)]);
        assert_eq!(polls, [0; 3], "{list}: nobody asked for polling");
    }
}

#[test]
fn contexts_of_polled_iocbs() {
    let [polled, found, idle_sleeps] = all("--polled", &[]);
    assert!(polled >= found && found > 0 && idle_sleeps == 0, "{polled} {found} {idle_sleeps}");
}

/// A wait depends on no call that may bypass the library.
#[test]
fn unreported_calls_on_polled_contexts() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for case in cases("--unreported") {
        for intercept in ["auto", "patch", "sigsys", "none"] {
            for policy in ["default", "hybrid"] {
                println!("{case} {intercept} {policy}");
                let mut c = under(example("aio"), "auto", intercept);
                c.arg(&case).env("AIO_DIR", dir.path()).env("SOFTRING_POLL", policy);
                succeed(&mut c);
            }
        }
    }
}

/// Inline calls work, as libaio had them.
#[test]
fn inline_calls() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let run = |case: &str, intercept: &str, hipri: &str| {
        let mut c = under(example("aio"), "auto", intercept);
        c.arg(case).env("AIO_INLINE", "1").env("AIO_DIR", dir.path());
        succeed(c.env("SOFTRING_AIO_HIPRI", hipri))
    };
    for case in ["direct", "partial", "signals", "fork", "polled", "polled_unmarked", "mixed"] {
        let out = run(case, "patch", "0");
        assert!(count(&out, "patched") > 0, "{case}");
    }
    for case in ["direct", "signals", "polled_unmarked"] {
        let out = run(case, "sigsys", "1");
        assert!(count(&out, "trapped") > 0, "{case}");
    }
    // Calls that are not reported do no harm.
    assert_eq!(count(&run("direct", "none", "0"), "aio"), 0);
    assert_eq!(count(&run("direct", "sigsys", "0"), "trapped"), 0);
}

#[test]
fn every_context_polled() {
    all("--kernels", &[("SOFTRING_AIO_HIPRI", "1")]);
    for list in ["--plain", "--polled"] {
        let [polled, found, idle_sleeps] = all(list, &[("SOFTRING_AIO_HIPRI", "1")]);
        assert!(
            polled >= found && found > 0 && idle_sleeps == 0,
            "{list}: {polled} {found} {idle_sleeps}"
        );
    }
}

/// Every case holds by each policy; the policies that poll also sleep.
#[test]
fn waiters_by_a_policy() {
    for policy in ["hybrid", "adaptive", "block"] {
        let forced = ("SOFTRING_POLL", policy);
        all("--kernels", &[forced, ("SOFTRING_AIO_HIPRI", "1")]);
        for (list, hipri) in [("--plain", "1"), ("--polled", "0")] {
            let [polled, _, idle_sleeps] = all(list, &[forced, ("SOFTRING_AIO_HIPRI", hipri)]);
            let seen = (polled > 0, idle_sleeps > 0);
            let polls = policy != "block";
            assert_eq!(seen, (polls, polls), "{list}, {policy}: {polled} {idle_sleeps}");
        }
    }
}

#[test]
fn emulated_contexts() {
    all("--plain", &[("AIO_DENIED", "1")]);
    all("--polled", &[("AIO_DENIED", "1")]);
}

#[test]
fn no_emulation_with_engine_kernel() {
    let mut c = under(example("aio"), "kernel", "auto");
    assert!(!c.arg("direct").env("AIO_DENIED", "1").output().unwrap().status.success());
}

/// Other processes want every processor: a thread that polls gives its own away, and sleeps for its
/// events about as often as one that does not poll.
#[test]
fn polling_yields_the_processor() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let slept = |set: &[(&str, &str)]| {
        let mut c = under(example("aio"), "auto", "auto");
        c.arg("contended").env("AIO_DIR", dir.path()).envs(set.iter().copied());
        let out = String::from_utf8(succeed(&mut c).stdout).unwrap();
        let words: Vec<f64> = out.split_whitespace().filter_map(|w| w.parse().ok()).collect();
        println!("{set:?}: {out}");
        words[1] / words[0]
    };
    let plain = slept(&[]);
    if plain < 0.5 {
        return skipped!("this disk has nobody wait for it");
    }
    for policy in ["spin", "hybrid", "adaptive"] {
        let polled = slept(&[("SOFTRING_AIO_HIPRI", "1"), ("SOFTRING_POLL", policy)]);
        assert!(polled > plain / 8.0, "{policy}: {polled} sleeps per read, not {plain}");
    }
}
