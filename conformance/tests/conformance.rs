//! Every case on the kernel and on softring through each entry point: each difference is one that
//! the documentation names.

mod built;

use softring_conformance::case::Case;
use softring_conformance::report::{self, Counts, Outcome, Row};
use softring_conformance::retries::{self, Budget};
use softring_conformance::target::Launcher;
use softring_conformance::{EntryPoint, case, recorded, suite};
use softring_testing::{remark, skipped};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

fn launcher() -> Launcher {
    let exe = PathBuf::from(env!("CARGO_BIN_EXE_conformance"));
    let library = built::library(env!("CARGO_BIN_EXE_conformance"));
    Launcher::new(exe, Some(library), Duration::from_secs(20), None).expect("scratch")
}

#[test]
fn softring_answers_as_the_kernel_does() {
    let launcher = launcher();
    let cases: Vec<_> = case::all().collect();
    agrees(&launcher, &cases, &EntryPoint::ALL);
}

/// Tests that on a modelled disk results and data are those of a real one.
#[test]
fn a_modelled_disk_changes_no_answer() {
    const FAMILIES: [&str; 9] =
        ["rw", "page_cache", "disk", "buffers", "slots", "link", "fuzz_found", "iopoll", "sqpoll"];
    let mut launcher = launcher();
    let cases: Vec<_> = case::all().filter(|c| FAMILIES.contains(&c.family)).collect();
    for model in ["null", "latency:200us,jitter:50%,queues:2"] {
        launcher.model = Some(model.into());
        agrees(&launcher, &cases, &[EntryPoint::Syscall]);
    }
}

/// Tests that workers do what kernel aio would do.
#[test]
fn without_kernel_aio_answers_are_the_same() {
    let mut launcher = launcher();
    launcher.no_aio = true;
    let cases: Vec<_> = case::all().collect();
    agrees(&launcher, &cases, &[EntryPoint::Syscall]);
}

/// Tests that SQ threads that sleep between submissions are only later.
#[test]
fn sq_threads_that_sleep_change_no_answer() {
    const FAMILIES: [&str; 2] = ["sqpoll", "sq_thread"];
    let mut launcher = launcher();
    launcher.sq_idle_sleep = true;
    // The other families have no ring with an SQ thread.
    let cases: Vec<_> = case::all().filter(|c| FAMILIES.contains(&c.family)).collect();
    agrees(&launcher, &cases, &[EntryPoint::Syscall]);
}

fn agrees(launcher: &Launcher, cases: &[&'static Case], entries: &[EntryPoint]) {
    let rows = suite::run(launcher, cases, entries, 2).expect("the cases can be run");
    print_skips(&rows);
    println!("{}", report::table(&rows));
    let mut faults = 0;
    for row in &rows {
        if let Outcome::Differs(lines) = &row.outcome {
            faults += 1;
            println!("{} on {}:\n    {}", row.case, row.target, lines.join("\n    "));
        }
    }
    let retried = retries::of(&rows);
    retried.iter().for_each(|r| remark!("{}", r.line(Budget::default())));
    let over = retried.iter().any(|r| r.is_over(Budget::default()));
    assert!(!over, "see above: too many differences agreed only when asked again");
    assert_eq!(faults, 0, "see above; `conformance all --case NAME` runs one alone");
}

/// Prints each reason once, with its count: a skip is no pass.
fn print_skips(rows: &[Row]) {
    let mut reasons: Vec<(&str, &str, usize)> = Vec::new();
    for row in rows {
        let Outcome::Skip(why) = &row.outcome else { continue };
        match reasons.iter_mut().find(|(t, w, _)| (*t, *w) == (&row.target, why)) {
            Some((_, _, n)) => *n += 1,
            None => reasons.push((&row.target, why, 1)),
        }
    }
    for (target, why, n) in &reasons {
        skipped!("{n} cases on {target}: {why}");
    }
    recorded::summary(rows).iter().for_each(|line| remark!("{line}"));
    println!("{} skipped in all", Counts::of(rows.iter()).skip);
}

/// Tests `conformance list | head`: a closed pipe is no error.
#[test]
fn a_closed_pipe_ends_the_program() {
    for args in [&["list"][..], &["list", "--json"]] {
        let mut c = Command::new(env!("CARGO_BIN_EXE_conformance"));
        c.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = c.spawn().expect("conformance starts");
        drop(child.stdout.take());
        let out = child.wait_with_output().expect("conformance ends");
        assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
        assert!(out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    }
}
