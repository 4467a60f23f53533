//! Every case on the kernel and on softring through each door: no difference that the documentation does not name.

use softring_conformance::report::{self, Counts, Outcome, Row};
use softring_conformance::target::{Launcher, Target};
use softring_conformance::{Door, case, coverage, suite};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Builds `libsoftring.so` as this test was built, and answers where it is.
fn library() -> PathBuf {
    let exe = Path::new(env!("CARGO_BIN_EXE_conformance"));
    let dir = exe.parent().expect("the program lies in a directory");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "softring-preload"]);
    match dir.file_name().and_then(|n| n.to_str()) {
        Some("debug") | None => {}
        Some(profile) => {
            build.args(["--profile", profile]);
        }
    }
    let built = build.status().expect("cargo can be started");
    assert!(built.success(), "libsoftring.so does not build");
    dir.join("libsoftring.so")
}

#[test]
fn softring_answers_as_the_kernel_does() {
    let exe = PathBuf::from(env!("CARGO_BIN_EXE_conformance"));
    let launcher = Launcher::new(exe, Some(library()), Duration::from_secs(20)).expect("scratch");
    let mut rows = Vec::new();
    let mut doors = Vec::new();
    for door in Door::ALL {
        match launcher.no_ring(Target::Softring(door)) {
            None => doors.push(door),
            Some(why) => rows.extend(case::all().map(|c| Row::skipped(c, door, &why))),
        }
    }
    let cases: Vec<_> = case::all().collect();
    rows.extend(suite::run(&launcher, &cases, &doors, 2).expect("the cases can be run"));
    if let Some(why) = unfinished() {
        for row in &mut rows {
            if let Outcome::Differs(_) = row.outcome {
                row.outcome = Outcome::Skip(why.clone());
            }
        }
    }
    print_skips(&rows);
    println!("{}", report::table(&rows));
    let mut faults = 0;
    for row in &rows {
        if let Outcome::Differs(lines) = &row.outcome {
            faults += 1;
            println!("{} on {}:\n    {}", row.case, row.target, lines.join("\n    "));
        }
    }
    assert_eq!(faults, 0, "see above; `conformance all --case NAME` runs one alone");
}

/// Why a difference says nothing yet: an engine without all of its operations cannot agree with the kernel.
fn unfinished() -> Option<String> {
    let lacks = |op: &&u8| !softring_engine::opdef::OPS[usize::from(**op)].supported();
    let missing = coverage::OPS.iter().filter(lacks).count();
    (missing > 0).then(|| format!("differs, while the engine lacks {missing} operations"))
}

/// Each reason once, with its count: a skip is no pass.
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
        println!("skipped {n} on {target}: {why}");
    }
    println!("{} skipped in all", Counts::of(rows.iter()).skip);
}
