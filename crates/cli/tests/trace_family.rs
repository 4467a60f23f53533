//! Tests of `softring trace -- CMD` on all processes of a command; without the library next to the
//! executable the tests say that they were skipped.

mod common;

use common::traced::{Dir, check, events, wait};
use common::{ME, for_everybody, library, text};
use serde_json::{Value, json};
use softring_testing::skipped;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

#[test]
fn children_have_tracks_of_their_own() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let job = dir.job("rw", 0.05);
    let one = format!("{ME} worker < {}", job.display());
    let both = format!("{one} > /dev/null & {one} > /dev/null; wait; exit 7");
    let (code, stderr) = wait(dir.start(None, &["--", "sh", "-c", &both]));
    assert_eq!(code, Some(7), "{stderr}");
    let trace = dir.trace();
    check(&trace);
    let pids: BTreeSet<u64> = events(&trace).iter().filter_map(|e| e["pid"].as_u64()).collect();
    assert_eq!(pids.len(), 2, "{pids:?}");
}

/// Runs a load under another command. Returns the trace, which is checked, and what was said; None
/// if the command does not work here.
fn traced_by(dir: &Dir, seconds: f64, through: &[&str]) -> Option<(Value, String)> {
    let mut works = Command::new(through[0]);
    works.args(&through[1..]).arg("true").stderr(Stdio::null());
    if !works.status().is_ok_and(|s| s.success()) {
        skipped!("{} does not work here", through.join(" "));
        return None;
    }
    let job = dir.job("rw", seconds);
    let options = [&["--"], through, &[ME, "worker"]].concat();
    let (code, stderr) = wait(dir.start(Some(&job), &options));
    assert_eq!(code, Some(0), "{stderr}");
    let trace = dir.trace();
    let requests: u64 = check(&trace).values().sum();
    assert!(requests > 100, "{requests}: {stderr}");
    Some((trace, stderr))
}

#[test]
fn another_user_in_the_family() {
    let rights = fs::metadata("/proc/self").expect("proc").uid() == 0;
    let (dir, Some(own)) = (Dir::new(), for_everybody().filter(|_| library() && rights)) else {
        return skipped!("takes root, and the library");
    };
    // The load is too short for a process that is found later.
    let job = dir.job("nop", 0.01);
    let me = own.path().join("softring");
    let other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    // A process that is root of its own namespace has no number for us, and asks to be found.
    let root = [&other[..], &["unshare", "--map-root-user"]].concat();
    for through in [&other[..], &root] {
        let works = Command::new(through[0]).args(&through[1..]).arg("true").status();
        if !works.is_ok_and(|s| s.success()) {
            skipped!("{} does not work here", through.join(" "));
            continue;
        }
        let mut c = Command::new(&me);
        c.args(["trace", "-o"]).arg(dir.at("out.json")).arg("--").args(through);
        c.arg(&me).arg("worker");
        c.stdin(fs::File::open(&job).unwrap()).stdout(Stdio::null()).stderr(Stdio::piped());
        let (code, stderr) = wait(c.spawn().expect("softring starts"));
        assert_eq!(code, Some(0), "{stderr}");
        let requests: u64 = check(&dir.trace()).values().sum();
        assert!(requests > 100 && !stderr.contains("not traced"), "{requests}: {stderr}");
    }
}

#[test]
fn other_namespaces_in_the_family() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let pids = ["unshare", "--pid", "--fork", "--mount-proc"];
    if let Some((trace, stderr)) = traced_by(&dir, 0.1, &pids) {
        let all = events(&trace);
        let process = all.iter().find(|e| e["name"] == "process_name").expect("a process");
        assert!(process["pid"].as_u64() > Some(1), "as we know it: {process}");
        let thread = all.iter().find(|e| e["name"] == "thread_name" && e["tid"] != json!(0));
        let thread = thread.expect("a thread");
        assert!(
            thread["args"]["name"].as_str().is_some_and(|n| n.contains("softring")),
            "{stderr}"
        );
    }
    // The process has no abstract socket of ours: it is found in /proc, a few ms later.
    traced_by(&dir, 0.5, &["unshare", "--net"]);
}

/// A process that cannot be read may have done anything.
#[test]
fn untraceable_children_are_named() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let one = format!("{ME} worker < {} > /dev/null", dir.job("nop", 0.3).display());
    let many = format!("ulimit -n 1000 || exit 9; for i in $(seq 20); do {one} & done; wait");
    let out = dir.at("out.json").display().to_string();
    let limited = format!("ulimit -n 14; exec {ME} trace -o {out} -- sh -c \"$0\"");
    let o = Command::new("sh").args(["-c", &limited, &many]).output().expect("it runs");
    let stderr = text(&o.stderr);
    if o.status.code() == Some(9) {
        return skipped!("only root can raise a limit");
    }
    assert!(o.status.success(), "{stderr}");
    assert!(stderr.contains("not traced: ") && stderr.contains("ulimit -n"), "{stderr}");
    assert!(!stderr.contains("saw no activity"), "{stderr}");
}

/// A tracer that sleeps holds nobody up for long, and names the processes that it has missed.
#[test]
fn processes_traced_too_late_are_named() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let job = dir.job("nop", 0.01);
    let script = format!("kill -STOP $PPID; {ME} worker < {}; kill -CONT $PPID", job.display());
    let (code, stderr) = wait(dir.start(None, &["--", "sh", "-c", &script]));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        stderr.contains("not traced: process") && stderr.contains("began too late"),
        "{stderr}"
    );
    assert!(!stderr.contains("saw no activity"), "{stderr}");
}

/// Programs end at once, one after another in one process and many beside each other.
#[test]
fn none_is_missed_however_short_it_lives() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let job = dir.job("timeout-cancel", 0.01);
    let one = format!("{ME} worker < {} > /dev/null", job.display());
    let many = format!("for i in 1 2 3 4 5 6 7 8; do {one} & {one}; done; wait; exec {one}");
    let (code, stderr) = wait(dir.start(None, &["--", "sh", "-c", &many]));
    assert_eq!(code, Some(0), "{stderr}");
    let trace = dir.trace();
    check(&trace);
    let pids: BTreeSet<u64> = events(&trace).iter().filter_map(|e| e["pid"].as_u64()).collect();
    assert_eq!(pids.len(), 17, "{stderr}");
}

/// A process with a number that is used again is another process.
#[test]
fn a_reused_pid_is_not_traced() {
    let alone = ["--pid", "--fork", "--mount-proc", "sh", "-c"];
    let can = "echo 100 > /proc/sys/kernel/ns_last_pid";
    let mut c = Command::new("unshare");
    let can = c.args(alone).arg(can).stderr(Stdio::null()).status().is_ok_and(|s| s.success());
    if !library() || !can {
        return skipped!("takes the library, and a pid namespace");
    }
    let dir = Dir::new();
    let (job, out) = (dir.job("poll", 60.0), dir.at("out.json"));
    let load = format!("{ME} run --engine=user --quiet -- {ME} worker < {}", job.display());
    let script = format!(
        "{load} > /dev/null & first=$!
        until {ME} stats -p $first 2> /dev/null | grep -q 'ring '; do sleep 0.1; done
        {ME} trace -o {} -p $first & tracer=$!
        sleep 0.5
        kill -9 $first; wait $first
        echo $((first - 1)) > /proc/sys/kernel/ns_last_pid
        {load} > /dev/null & second=$!
        wait $tracer; echo traced $?
        [ $first = $second ] && echo again; kill -9 $second",
        out.display()
    );
    let o = Command::new("unshare").args(alone).arg(&script).output().expect("it runs");
    let said = text(&o.stdout);
    assert_eq!(said, "traced 0\nagain\n", "{}", text(&o.stderr));
    let pids: BTreeSet<u64> =
        events(&dir.trace()).iter().filter_map(|e| e["tid"].as_u64()).collect();
    assert!(!pids.is_empty());
}
