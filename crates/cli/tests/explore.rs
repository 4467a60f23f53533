//! `softring explore`, with programs that fail by themselves for some seeds.

mod common;

use common::{ME, library, softring, text};
use serde_json::Value;
use softring_testing::skipped;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Runs a shell script for each seed, without faults.
fn explore(options: &[&str], script: &str) -> Output {
    let before = ["explore", "--faults", "none"];
    softring(&[&before[..], options, &["--", "sh", "-c", script]].concat())
}

/// Returns what `--json` has of a script's runs.
fn report(options: &[&str], script: &str) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("result.json");
    let options = [&["--json", json.to_str().unwrap()], options].concat();
    let o = explore(&options, script);
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap_or_default())
        .unwrap_or_else(|e| panic!("{e}: {}", text(&o.stderr)));
    let failed = report["failed"].as_u64().unwrap() > 0;
    assert_eq!(o.status.code(), Some(i32::from(failed)), "{}", text(&o.stderr));
    report
}

fn one(report: &Value) -> &Value {
    let failures = report["failures"].as_array().unwrap();
    assert_eq!(failures.len(), 1, "{report}");
    &failures[0]
}

#[test]
fn passing_programs_end_with_0() {
    if !library() {
        return;
    }
    let o = explore(&["--seeds", "5"], "exit 0");
    assert_eq!(o.status.code(), Some(0), "{}", text(&o.stderr));
    assert_eq!(text(&o.stdout), "5 runs (seeds 0..5), 0 failed\n");
    assert_eq!(text(&o.stderr), "");
}

#[test]
fn failures_are_grouped() {
    if !library() {
        return;
    }
    let script = "case $SOFTRING_SEED in \
                  *3) echo \"byte $SOFTRING_SEED\" >&2; exit 7;; *5) kill -SEGV $$;; esac";
    let report = report(&["--seeds", "20..40"], script);
    assert_eq!((report["runs"].as_u64(), report["failed"].as_u64()), (Some(20), Some(4)));
    let failures = report["failures"].as_array().unwrap();
    let row = |f: &Value| (f["ending"].to_string(), f["pattern"].clone(), f["seeds"].to_string());
    let rows: Vec<_> = failures.iter().map(row).collect();
    assert!(
        rows.contains(&(r#"{"exit":7}"#.into(), "byte #".into(), "[23,33]".into())),
        "{rows:?}"
    );
    assert!(rows.contains(&(r#"{"signal":11}"#.into(), "".into(), "[25,35]".into())), "{rows:?}");
    let replay = failures.iter().map(|f| f["replay"].as_str().unwrap());
    assert!(replay.clone().any(|r| r.starts_with("SOFTRING_SEED=23 softring run ")), "{report}");
}

#[test]
fn the_table_is_for_people() {
    if !library() {
        return;
    }
    let o = explore(
        &["--seeds", "3..=4"],
        "test ${SOFTRING_SEED:-0} != 4 || { echo bad 12 >&2; exit 2; }",
    );
    let out = text(&o.stdout);
    assert_eq!(o.status.code(), Some(1), "{}", text(&o.stderr));
    for part in ["exit 2", "bad 12", "SOFTRING_SEED=4", "2 runs (seeds 3..5), 1 failed, all alike"]
    {
        assert!(out.contains(part), "{part}: {out}");
    }
}

#[test]
fn a_run_has_a_fresh_copy() {
    if !library() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("state"), "old").unwrap();
    let with = dir.path().to_str().unwrap();
    let script = "test \"$(cat state)\" = old && echo new > state && test ! -e other && : > other";
    let report = report(&["--seeds", "8", "--with", with, "--jobs", "2"], script);
    assert_eq!(
        (report["runs"].as_u64(), report["failed"].as_u64()),
        (Some(8), Some(0)),
        "{report}"
    );
    assert_eq!(fs::read_to_string(dir.path().join("state")).unwrap(), "old");
    assert!(!dir.path().join("other").exists());
}

#[test]
fn the_checker_decides_after_a_run() {
    if !library() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let check = "read n < out; test \"$n\" != 2 || { echo \"out has $n\" >&2; exit 9; }";
    let options = ["--seeds", "4", "--with", dir.path().to_str().unwrap(), "--check", check];
    let report = report(&options, "echo ${SOFTRING_SEED:-0} > out");
    let failure = one(&report);
    assert_eq!(failure["ending"]["check"], 9, "{report}");
    assert_eq!(
        (&failure["message"], failure["seeds"].to_string()),
        (&"out has 2".into(), "[2]".into())
    );
}

#[test]
fn a_hang_is_a_failure_and_nothing_is_left() {
    if !library() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    // A child that is left behind counts, too.
    let script = format!(
        "sleep 1000 & echo $! >> {}; test ${{SOFTRING_SEED:-0}} != 1 || wait",
        pids.display()
    );
    let report = report(&["--seeds", "2", "--timeout", "500ms"], &script);
    assert_eq!(one(&report)["ending"], "hang", "{report}");
    for pid in fs::read_to_string(&pids).unwrap().lines() {
        let start = Instant::now();
        while Path::new("/proc").join(pid).exists() {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            if stat.contains(") Z ") {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(10), "{pid} lives");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Source of a program that waits for a READ of a pipe, unless there is no seed.
const HANGS: &str = r#"
#include "ring.h"
int main(void)
{
	struct ring ring;
	int pipes[2];
	char byte;

	if (!getenv("SOFTRING_SEED"))
		return 0;
	need(pipe2(pipes, O_CLOEXEC), "pipe2");
	ring_init(&ring, 4, 0);
	return ring_do(&ring, OP_READ, pipes[0], &byte, 1, 0);
}
"#;

#[test]
fn a_hang_tells_what_is_in_flight() {
    if !library() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("hangs.c"), dir.path().join("hangs"));
    fs::write(&source, HANGS).unwrap();
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/buggy");
    let mut cc = Command::new("cc");
    let Ok(o) = cc.arg("-I").arg(header).arg("-o").args([&program, &source]).output() else {
        skipped!("no C compiler");
        return;
    };
    assert!(o.status.success(), "{}", text(&o.stderr));
    let mut c = Command::new(ME);
    c.args(["explore", "--faults=none", "--seeds=1", "--timeout=1s", "--keep"]).arg(dir.path());
    let o = c.arg("--").arg(&program).output().unwrap();
    let out = text(&o.stdout);
    assert_eq!(o.status.code(), Some(1), "{}", text(&o.stderr));
    let line = out.lines().find(|line| line.contains("in flight: ")).unwrap_or_default();
    for part in ["ring ", "READ(", "<pipe:", ", poll, for 1."] {
        assert!(line.contains(part), "{part}: {out}");
    }
    assert!(dir.path().join("seed-0/trace.json.gz").metadata().unwrap().len() > 100);
}

#[test]
fn an_allowed_exit_code_is_no_failure() {
    if !library() {
        return;
    }
    let report =
        report(&["--seeds", "3", "--allow-exit", "4"], "test -z \"$SOFTRING_SEED\" || exit 4");
    assert_eq!(report["failed"], 0, "{report}");
}

#[test]
fn usage_errors_end_with_2() {
    if !library() {
        return;
    }
    let cases: [(&[&str], &str); 5] = [
        (&["--faults", "seed=3", "--", "true"], "counts the seeds"),
        (&["--faults", "short-raed=1", "--", "true"], "column 1"),
        (&["--faults", "none", "--", "false"], "fails without faults"),
        (&["--faults", "none", "--", "no-such-program"], "not found"),
        (&["--shard", "auto/4", "--", "true"], "--shard 1/4"),
    ];
    for (words, part) in cases {
        let mut c = Command::new(ME);
        for (name, _) in std::env::vars().filter(|v| v.0.contains("INDEX") || v.0.contains("SEQ")) {
            c.env_remove(name);
        }
        let o = c.arg("explore").args(words).output().unwrap();
        assert_eq!(o.status.code(), Some(2), "{words:?}: {}", text(&o.stderr));
        assert!(text(&o.stderr).contains(part), "{words:?}: {}", text(&o.stderr));
    }
}

/// Stops a campaign by SIGINT in its fourth run, whose second has failed.
fn stopped_ends_with_the_table_so_far(words: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let (json, there) = (dir.path().join("result.json"), dir.path().join("there"));
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let script = format!(
        "echo data >f; case $SOFTRING_SEED in 1) echo bad >&2; exit 1;; \
         3) : > {}; sleep 1000;; esac",
        there.display()
    );
    // What starts the tests in the background may have SIGINT ignored, and an explorer keeps that.
    let mut c = Command::new("env");
    c.args(["--default-signal=INT", ME]).args(words).args(["--seeds=1000", "--jobs=1", "--json"]);
    c.arg(&json).arg("--with").arg(&empty).args(["--", "sh", "-c", &script]);
    let child = c.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while !there.exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "seed 3 is not tried");
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let o = child.wait_with_output().unwrap();
    assert_eq!(o.status.signal(), Some(2), "{words:?}: {}", text(&o.stderr));
    let out = text(&o.stdout);
    assert!(
        out.contains("3 runs") && out.contains("1 failed, all alike; stopped by a signal"),
        "{words:?}: {out}"
    );
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["stopped"], true, "{report}");
}

#[test]
fn ctrl_c_ends_with_the_table_so_far() {
    if !library() {
        return;
    }
    stopped_ends_with_the_table_so_far(&["explore", "--faults=none"]);
    stopped_ends_with_the_table_so_far(&["crash", "explore", "--crash=end"]);
}

/// Runs a campaign in shares, each of which finds its number in the environment; returns their
/// results.
fn shares(dir: &Path, shard: &str, of: u64, variables: impl Fn(u64) -> Vec<(&'static str, u64)>) {
    for n in 0..of {
        let mut c = Command::new(ME);
        c.args(["explore", "--faults=none", "--seeds=10", "--shard", shard, "--json"]);
        c.arg(dir.join(format!("{n}.json"))).args(["--", "sh", "-c"]);
        c.arg("case $SOFTRING_SEED in 2|7) echo bad >&2; exit 1;; esac");
        c.envs(variables(n).into_iter().map(|(name, value)| (name, value.to_string())));
        let o = c.output().unwrap();
        assert!(matches!(o.status.code(), Some(0 | 1)), "{}", text(&o.stderr));
    }
}

#[test]
fn shares_are_merged() {
    if !library() {
        return;
    }
    type Variables = fn(u64) -> Vec<(&'static str, u64)>;
    let engines: [(&str, Variables); 5] = [
        ("auto/3", |n| vec![("JOB_COMPLETION_INDEX", n)]),
        ("auto/3", |n| vec![("PARALLEL_SEQ", n + 1)]),
        ("auto", |n| {
            let (id, count) = ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT");
            vec![(id, n + 1), ("SLURM_ARRAY_TASK_MIN", 1), (count, 3)]
        }),
        ("auto", |n| vec![("BUILDKITE_PARALLEL_JOB", n), ("BUILDKITE_PARALLEL_JOB_COUNT", 3)]),
        ("auto", |n| vec![("SOFTRING_SHARD_INDEX", n), ("SOFTRING_SHARD_COUNT", 3)]),
    ];
    for (shard, variables) in engines {
        let dir = tempfile::tempdir().unwrap();
        shares(dir.path(), shard, 3, variables);
        let at = |name: &str| dir.path().join(name).display().to_string();
        let (all, xml) = (at("all.json"), at("all.xml"));
        let files = [at("0.json"), at("1.json"), at("2.json")];
        let mut words = vec!["explore", "merge", "--json", &all, "--junit", &xml];
        words.extend(files.iter().map(String::as_str));
        let o = softring(&words);
        assert_eq!(o.status.code(), Some(1), "{}", text(&o.stderr));
        assert_eq!(text(&o.stderr), "");
        let report: Value = serde_json::from_slice(&fs::read(&all).unwrap()).unwrap();
        assert_eq!((&report["runs"], &report["failed"]), (&10.into(), &2.into()));
        assert_eq!(one(&report)["seeds"].to_string(), "[2,7]", "{report}");
        let xml = fs::read_to_string(&xml).unwrap();
        assert!(
            xml.contains("tests=\"1\" failures=\"1\"") && xml.contains("message=\"bad\""),
            "{xml}"
        );
        let o = softring(&["explore", "merge", &files[0], &files[2]]);
        assert!(text(&o.stderr).contains("shards that are missing: 2/3"), "{}", text(&o.stderr));
    }
}
