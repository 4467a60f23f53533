//! The programs of `examples/buggy`: each has a bug that shows only when a fault is injected.

mod common;

use common::{ME, library, text};
use serde_json::Value;
use softring_testing::skipped;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

/// Number of runs of each program without faults.
const RUNS: usize = 5;
/// Most attempts to have a failure again.
const ATTEMPTS: u32 = 10;
/// Exit code of a program that finds no ring here.
const NO_RING: i32 = 2;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/buggy")
}

/// Builds all programs into a folder; returns their names, those of the twins left out.
fn build(dir: &Path) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(sources()).expect("the folder of examples") {
        let source = entry.expect("an entry").path();
        if source.extension().is_none_or(|ext| ext != "c") {
            continue;
        }
        let name = source.file_stem().expect("a name").to_string_lossy().into_owned();
        for (define, end) in [("-UFIXED", ""), ("-DFIXED", "-fixed")] {
            let mut cc = Command::new("cc");
            cc.args(["-O1", "-Wall", "-Wextra", "-Werror", define, "-o"]);
            let Ok(o) = cc.arg(dir.join(format!("{name}{end}"))).arg(&source).output() else {
                skipped!("no C compiler");
                return None;
            };
            assert!(o.status.success(), "{name}: {}", text(&o.stderr));
        }
        names.push(name);
    }
    assert!(names.len() >= 12, "{names:?}");
    names.sort();
    Some(names)
}

fn run(before: &[&str], program: &Path, dir: &Path) -> Output {
    let mut words = before.iter().map(Path::new).chain([program]);
    let mut c = Command::new(words.next().expect("a program"));
    c.args(words).current_dir(dir).output().expect("it starts")
}

#[test]
fn nothing_is_wrong_without_faults() {
    let dir = tempfile::tempdir().unwrap();
    let Some(names) = build(dir.path()) else { return };
    let softring = [ME, "run", "--engine=user", "--quiet", "--"];
    for name in names.iter().flat_map(|name| [name.clone(), format!("{name}-fixed")]) {
        for before in [&[][..], &softring[..]] {
            for _ in 0..RUNS {
                let o = run(before, &dir.path().join(&name), dir.path());
                if o.status.code() == Some(NO_RING) && before.is_empty() {
                    skipped!("{name}: {}", text(&o.stderr).trim());
                    break;
                }
                assert!(o.status.success(), "{before:?} {name}: {}", text(&o.stderr));
            }
        }
    }
}

/// Returns the faults that show the bug of a program; None: only a power cut does.
fn faults(name: &str) -> Option<&'static str> {
    match name {
        "fsync-rename" | "torn-wal" => None,
        "fsync-result" => Some("hostile"),
        _ => Some("legal"),
    }
}

/// Tries seeds of a program, each in an empty folder; returns the result.
fn explore(program: &Path, faults: &str, seeds: &str, dir: &Path) -> Value {
    let (json, empty) = (dir.join("result.json"), dir.join("empty"));
    fs::create_dir_all(&empty).unwrap();
    let _ = fs::remove_file(&json);
    let mut c = Command::new(ME);
    c.args(["explore", "--seeds", seeds, "--faults", faults, "--json"]).arg(&json);
    // Most runs wait for what is late.
    c.args(["--jobs", "8", "--with"]).arg(&empty).arg("--").arg(program);
    let o = c.output().expect("softring starts");
    let text = text(&o.stderr);
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap_or_default())
        .unwrap_or_else(|e| panic!("{}: {e}: {text}", program.display()));
    let failed = report["failed"].as_u64().expect("a number") > 0;
    assert_eq!(o.status.code(), Some(i32::from(failed)), "{text}");
    report
}

/// Replaces numbers by a `#`.
fn folded(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            c => out.push(c),
        }
    }
    out
}

/// Finds the bug of a program within 200 seeds, and has it again by the SPEC that is left.
fn find(name: &str, faults: &str, dir: &Path) {
    let program = dir.join(name);
    let steps = ["0..10", "10..50", "50..200"].iter();
    let found = steps.map(|seeds| explore(&program, faults, seeds, dir)).find(|r| r["failed"] != 0);
    let Some(report) = found else { panic!("{name}: nothing found within 200 seeds") };
    let mut failures = report["failures"].as_array().expect("a list").iter();
    let Some(failure) = failures.find(|f| f["reproduced"] == true) else {
        panic!("{name}: no failure comes again: {report}");
    };
    let (spec, pattern) = (failure["spec"].as_str().expect("a SPEC"), &failure["pattern"]);
    assert_eq!(failure["ending"]["exit"], 1, "{name}: {failure}");
    // Where time has a part in it, as in how much the CQ holds, once in some runs is enough.
    let again = || {
        let o = run(&[ME, "run", "--faults", spec, "--quiet", "--"], &program, dir);
        o.status.code() == Some(1) && pattern == folded(text(&o.stderr).trim()).as_str()
    };
    assert!((0..ATTEMPTS).any(|_| again()), "{name}: {spec}: not again {pattern}");
}

#[test]
fn every_bug_is_found_within_200_seeds() {
    let dir = tempfile::tempdir().unwrap();
    let Some(names) = build(dir.path()).filter(|_| library()) else { return };
    for name in names {
        if let Some(faults) = faults(&name) {
            find(&name, faults, dir.path());
        }
    }
}

/// Checks that seeds find nothing in the twins.
fn twins_are_right(seeds: &str) {
    let dir = tempfile::tempdir().unwrap();
    let Some(names) = build(dir.path()).filter(|_| library()) else { return };
    for name in names {
        let program = dir.path().join(format!("{name}-fixed"));
        let report = explore(&program, faults(&name).unwrap_or("legal"), seeds, dir.path());
        assert_eq!(report["failed"], 0, "{name}: {report}");
    }
}

#[test]
fn nothing_is_found_in_a_twin() {
    twins_are_right("0..200");
}

#[test]
#[ignore = "takes minutes"]
fn nothing_is_found_in_a_twin_in_2000_seeds() {
    twins_are_right("0..2000");
}
