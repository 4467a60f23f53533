//! The command with the preload library under it. The tests need libsoftring.so next to the
//! executable, which `cargo build --workspace` puts there; without it they say that they were
//! skipped.

mod common;

use common::{ME, library, softring, text};
use serde_json::Value;
use softring_testing::skipped;
use std::process::Command;

#[test]
fn a_denied_program_gets_a_ring() {
    if !library() {
        return;
    }
    let o = softring(&["run", "--deny", "--quiet", "--", ME, "doctor", "--json"]);
    let report: Value = serde_json::from_slice(&o.stdout).expect("JSON");
    assert_eq!(report["verdict"]["rings"], "softring", "{report}");
    assert_eq!(report["checks"][0]["state"], "ok", "{report}");
}

#[test]
fn auto_takes_over_under_a_real_denial_and_says_so_once() {
    if !library() {
        return;
    }
    let o = softring(&["run", "--deny", "--engine=auto", "--", ME, "trial"]);
    assert!(text(&o.stdout).contains("softring"), "{}", text(&o.stdout));
    let said = text(&o.stderr);
    let notice = "this program's io_uring runs in user space: the kernel denies it here (EPERM)";
    assert_eq!(said.matches(notice).count(), 1, "{said}");
}

/// Messages of the library about doctor's own rings are not the program's.
#[test]
fn doctor_under_run_prints_its_report_alone() {
    if !library() {
        return;
    }
    for options in [&[][..], &["--deny"], &["--engine=kernel", "--deny"]] {
        let o = softring(&[&["run"], options, &["--", ME, "doctor", "--json"]].concat());
        let report: Value = serde_json::from_slice(&o.stdout).expect("JSON");
        let said = text(&o.stderr);
        let none = report["verdict"]["rings"] == "none";
        let error =
            "softring: error: programs get neither the kernel's rings nor softring's here\n";
        assert_eq!(said, if none { error } else { "" }, "{options:?}: {report}");
    }
}

/// The program gets the kernel's rings if they lack nothing of that release, softring's if they do.
#[test]
fn at_least_compares_the_kernels_features() {
    let doctor = |options: &[&str]| {
        let o = softring(&[&["run"], options, &["--", ME, "doctor", "--json"]].concat());
        let report: Value = serde_json::from_slice(&o.stdout).expect("JSON");
        assert_eq!(text(&o.stderr), "", "doctor's own rings are no news");
        let trial = softring(&[&["run"], options, &["--", ME, "trial"]].concat());
        (report, text(&trial.stderr))
    };
    let (report, _) = doctor(&["--engine=kernel"]);
    let rows = report["checks"].as_array().expect("rows");
    let lacking = rows.iter().find(|r| r["name"] == "kernel's rings lack").expect("the row");
    if !library() {
        return;
    }
    if lacking["state"] == "unknown" {
        return skipped!("what the kernel's rings lack: {}", lacking["found"]);
    }
    let newest = if lacking["found"] == "nothing" { "kernel" } else { "softring" };
    for (release, want) in [("5.1", Some("kernel")), ("6.18", None), ("7.2", Some(newest))] {
        let (report, said) = doctor(&[&format!("--at-least={release}")]);
        let rings = report["verdict"]["rings"].as_str();
        assert!(want.is_none_or(|want| rings == Some(want)), "{release}: {report}");
        let told = said.contains("runs in user space: the kernel's, Linux ");
        assert_eq!(told, rings == Some("softring"), "{release}: {said}");
    }
    for (options, want) in [
        (["--at-least=9.9", "--quiet"], "softring knows the releases from 5.1 to 7.2"),
        (["--at-least=6", "--quiet"], "not a release of Linux; for example 7.2"),
        (["--at-least=6.1", "--engine=user"], "leave out --engine"),
    ] {
        let o = softring(&["run", options[0], options[1], "--", "true"]);
        assert_eq!(o.status.code(), Some(2), "{options:?}");
        assert!(text(&o.stderr).contains(want), "{}", text(&o.stderr));
    }
}

#[test]
fn run_prints_one_notice_unless_quiet() {
    if !library() {
        return;
    }
    for (before, want) in [(None, "1"), (Some("0"), "0")] {
        let mut c = Command::new(ME);
        c.args(["run", "--", "env"]).env_remove("SOFTRING_NOTICE");
        let o = c.envs(before.map(|v| ("SOFTRING_NOTICE", v))).output().unwrap();
        let env = text(&o.stdout);
        let line = format!("SOFTRING_NOTICE={want}");
        assert!(env.lines().any(|l| l == line), "{env}");
    }
}

#[test]
fn bench_measures_and_verifies_softring_under_denial() {
    if !library() {
        return;
    }
    let o = softring(&[
        "bench",
        "--engines=softring,pool",
        "--deny",
        "--verify",
        "--rw=randrw",
        "--seconds=0.1",
        "--pairs=1",
        "--size=1m",
        "--json",
    ]);
    assert!(o.status.success(), "{}", text(&o.stderr));
    let result: Value = serde_json::from_slice(&o.stdout).expect("JSON");
    let run = &result["engines"][0]["runs"][0];
    assert!(run["verified"].as_u64().unwrap() > 0, "{run}");
    assert!(run["ring"].as_str().unwrap().contains("memfd"), "{run}");
}

#[test]
fn the_demo_fails_works_and_measures() {
    if !library() {
        return;
    }
    let o = softring(&["demo", "--seconds=0.05"]);
    let shown = text(&o.stdout);
    assert!(o.status.success(), "{shown}{}", text(&o.stderr));
    for part in ["it fails: io_uring_setup", "every byte correct", "blocks verified", "POSIX aio"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

/// Runs reads of a modelled file, by a program that knows nothing of the model.
fn reads(folder: &std::path::Path, options: &[&str]) -> Value {
    let file = folder.join("data");
    std::fs::write(&file, vec![7; 1 << 20]).unwrap();
    let mut c = Command::new(ME);
    c.args(["run", "--quiet"]).args(options).args(["--", ME, "worker"]);
    c.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = c.spawn().expect("softring starts");
    let job = serde_json::json!({
        "driver": "softring", "op": "rw", "path": file, "size": 1 << 20, "bs": 4096, "depth": 1,
        "batch": 1, "wait": 1, "threads": 1, "pool_threads": 1, "seconds": 0.2, "warmup": 0.0,
        "rw": "randread", "rwmix": 0, "direct": false, "setup_flags": 0, "slat": false,
        "verify": false, "seed": 1, "once": false,
    });
    serde_json::to_writer(child.stdin.take().expect("a pipe"), &job).expect("a job");
    let o = child.wait_with_output().unwrap();
    assert!(o.status.success());
    serde_json::from_slice(&o.stdout).expect("JSON")
}

#[test]
fn a_modelled_disk_takes_its_time() {
    if !library() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    let elsewhere = tempfile::tempdir().unwrap();
    for (model, least) in [
        (format!("{path}=latency:3ms"), 3_000_000),
        (format!("{path}/data=hdd,latency:4ms,seek:0"), 4_000_000),
        (format!("{}=latency:1s", elsewhere.path().display()), 0),
    ] {
        std::fs::write(folder.path().join("data"), b"").unwrap();
        let report = reads(folder.path(), &["--model", &model]);
        let p50 = report["lat"]["p50"].as_u64().unwrap();
        // The histogram is right to one per cent.
        assert!(p50 + p50 / 50 >= least && p50 < 500_000_000, "{model}: {report}");
        assert!(report["ring"].as_str().unwrap().contains("memfd"), "softring's: {report}");
    }
}

#[test]
fn wait_policies_are_compared_on_a_modelled_disk() {
    if !library() {
        return;
    }
    let plot = tempfile::NamedTempFile::new().unwrap();
    let o = softring(&[
        "bench",
        "polled",
        "--disks=nvme-gen4,cloud-ssd",
        "--depths=1",
        "--pairs=1",
        "--seconds=0.05",
        "--warmup=0",
        "--size=4m",
        "--json",
        "--plot",
        plot.path().to_str().unwrap(),
    ]);
    assert!(o.status.success(), "{}", text(&o.stderr));
    let result: Value = serde_json::from_slice(&o.stdout).expect("JSON");
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 8);
    for row in &rows[..4] {
        let ways = row["ways"].as_array().unwrap();
        assert_eq!(ways.len(), 4);
        let least = if row["load"].as_str().unwrap().contains("read") { 60e3 } else { 10e3 };
        for way in ways {
            assert!(way["p50_ns"].as_f64().unwrap() > least, "{way}");
        }
    }
    assert!(!result["targets"].as_array().unwrap().is_empty());
    // On every machine a thread sleeps for a read that takes a millisecond; with one in flight,
    // there is nothing to coalesce.
    let idle_sleeps = &rows[6]["idle_sleeps"];
    let of = |what: &str| idle_sleeps[what].as_u64().unwrap();
    assert_eq!((&rows[6]["disk"], &rows[6]["load"]), (&"cloud-ssd".into(), &"randread 4k".into()));
    assert!(
        of("idle_sleeps") > 0 && of("aimed") == of("idle_sleeps") && of("over") <= of("aimed"),
        "{idle_sleeps}"
    );
    let drawing = std::fs::read_to_string(plot.path()).unwrap();
    assert!(
        drawing.contains("adaptive") && drawing.contains("completion, from the start"),
        "no sleeps drawn"
    );
}
