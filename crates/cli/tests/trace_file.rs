//! The file that `softring trace` writes to: an older trace in it stays until the new one is whole.

mod common;

use common::traced::{Dir, check, wait};
use common::{ME, library, text};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn an_older_trace_stays_if_tracing_fails() {
    let dir = Dir::new();
    fs::write(dir.at("out.json"), "older").expect("a file");
    let me = std::process::id().to_string();
    let (code, said) = wait(dir.start(None, &["-p", &me]));
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(fs::read(dir.at("out.json")).expect("a file"), b"older");
}

/// An older trace stays until the new one is whole.
#[test]
fn a_trace_that_cannot_be_written_leaves_an_older_one() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let (out, job) = (dir.at("out.json"), dir.job("nop", 0.05));
    fs::write(&out, "older").unwrap();
    // Only the tracer is limited: its child has as much as it likes.
    let limited = format!(
        "ulimit -S -f 10; exec {ME} trace -o {} -- \\
         sh -c 'ulimit -S -f unlimited; exec {ME} worker'",
        out.display()
    );
    let mut c = Command::new("sh");
    c.args(["-c", &limited]).stdin(fs::File::open(job).unwrap()).stderr(Stdio::piped());
    let o = c.output().expect("it runs");
    let stderr = text(&o.stderr);
    assert!(!o.status.success() && stderr.contains("cannot write"), "{stderr}");
    assert_eq!(fs::read_to_string(&out).unwrap(), "older");
    let left: Vec<_> = fs::read_dir(dir.0.path()).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
    // A new trace has the permissions that the old one had.
    fs::set_permissions(&out, fs::Permissions::from_mode(0o640)).unwrap();
    let job = dir.job("nop", 0.05);
    let (code, stderr) = wait(dir.start(Some(&job), &["--", ME, "worker"]));
    assert_eq!(code, Some(0), "{stderr}");
    check(&dir.trace());
    assert_eq!(fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o640);
}

/// The file that `trace` or `stat` was to write to stays as it was, and the end is told as by
/// `run`.
#[test]
fn a_program_that_never_ran_leaves_an_older_file() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let file = dir.at("out.json");
    let long = "a".repeat(300);
    let plain = dir.at("data").display().to_string();
    let starts = |way: &str, command: &[&str]| {
        let mut c = Command::new(ME);
        let o = c.args([way, "-q", "-o"]).arg(&file).arg("--").args(command).output().unwrap();
        (o.status.code(), text(&o.stderr))
    };
    for way in ["trace", "stat"] {
        for (program, code) in [("/nonexistent", 127), ("", 127), (&*long, 126), (&*plain, 126)] {
            fs::write(&file, "older").unwrap();
            let (ended, stderr) = starts(way, &[program]);
            assert_eq!(ended, Some(code), "{way} {program}: {stderr}");
            assert_eq!(fs::read_to_string(&file).unwrap(), "older", "{way} {program}");
            assert_eq!(stderr.lines().count(), 2, "{way} {program}: an error and a hint: {stderr}");
            fs::remove_file(&file).unwrap();
            starts(way, &[program]);
            assert!(!file.exists(), "{way} {program}: nothing is to be left");
        }
        // The exit code is the program's own.
        let (ended, stderr) = starts(way, &["sh", "-c", "exit 127"]);
        assert_eq!(ended, Some(127), "{way}: {stderr}");
        assert!(file.exists(), "{way}: {stderr}");
        fs::remove_file(&file).unwrap();
    }
}

/// A process that cannot reach the tracer, and is gone before it is searched for, is not seen.
#[test]
fn the_report_admits_unseen_processes() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let (code, stderr) = wait(dir.start(None, &["--", "true"]));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("saw no activity") && stderr.contains("does not see"), "{stderr}");
}

/// A trace that does not come about leaves the older one.
#[test]
fn a_program_that_does_not_start_leaves_an_older_trace() {
    let dir = Dir::new();
    fs::write(dir.at("out.json"), "older").unwrap();
    let mut tracer = dir.start(None, &["--", "sh", "-c", "sleep 60"]);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(fs::read_to_string(dir.at("out.json")).unwrap(), "older");
    let children = format!("/proc/{0}/task/{0}/children", tracer.id());
    let child = fs::read_to_string(children).unwrap();
    tracer.kill().unwrap();
    tracer.wait().unwrap();
    assert!(Command::new("kill").arg(child.trim()).status().unwrap().success());
    assert_eq!(
        fs::read_to_string(dir.at("out.json")).unwrap(),
        "older",
        "a tracer that was killed"
    );
}
