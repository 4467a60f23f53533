//! Tests of `softring trace` on programs that run under the library; without that library next to
//! the executable the tests say that they were skipped.

mod common;

use common::traced::{Dir, Load, check, events, job, requests, wait};
use common::{ME, library, softring, text};
use serde_json::Value;
use softring_testing::skipped;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn a_program_from_its_start_to_its_end() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    for (op, what) in [("rw", "read"), ("poll", "poll_add"), ("timeout-cancel", "timeout")] {
        let picture = dir.at("out.svg").display().to_string();
        let child = dir.start(Some(&dir.job(op, 0.05)), &["--svg", &picture, "--", ME, "worker"]);
        let (code, stderr) = wait(child);
        assert_eq!(code, Some(0), "{stderr}");
        let trace = dir.trace();
        let tracks = check(&trace);
        // The program may have made another ring before.
        let track = tracks.keys().next().expect("a track");
        let ring = track.split(' ').take(2).collect::<Vec<_>>().join(" ");
        assert!(ring.starts_with("ring "), "{tracks:?}");
        assert!(requests(&trace).any(|e| e["name"] == what), "{what}");
        assert!(
            events(&trace).iter().any(|e| e["ph"] == "C" && e["name"] == format!("IOPS, {ring}"))
        );
        assert!(events(&trace).iter().any(|e| e["ph"] == "X" && e["name"] == "enter"));
        assert!(stderr.contains("requests"), "{stderr}");
        let process = events(&trace).iter().find(|e| e["name"] == "process_name").unwrap();
        assert_eq!(process["args"]["name"], "softring");
        let drawn = fs::read_to_string(picture).expect("a picture");
        assert!(drawn.starts_with("<svg") && drawn.contains(&format!("{ring} {what}")), "{drawn}");
    }
}

/// A request tells what it did, in few bytes; only operations that are asked for are there.
#[test]
fn requests_carry_their_arguments() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let (job, out) = (dir.job("rw", 0.2), dir.at("out.json"));
    let (code, stderr) = wait(dir.start(Some(&job), &["--", ME, "worker"]));
    assert_eq!(code, Some(0), "{stderr}");
    let trace = dir.trace();
    let all = requests(&trace).filter(|e| e["name"] == "read").count() as u64;
    let path = dir.at("data").display().to_string();
    for e in requests(&trace).filter(|e| e["name"] == "read") {
        let args = &e["args"];
        assert!(args["off"].as_u64().is_some_and(|off| off % 4096 == 0 && off < 65536), "{e}");
        assert_eq!((args["len"].as_u64(), args["res"].as_u64()), (Some(4096), Some(4096)), "{e}");
        assert_eq!(args["path"], path.as_str(), "{e}");
        assert!(args["inline"] == true || args["route"].is_string(), "{e}");
    }
    let size = fs::metadata(&out).expect("a trace").len();
    assert!(all > 100 && size / all <= 300, "{size} bytes for {all} requests");
    // The same load gives a packed trace, without what was not asked for.
    let packed = dir.at("out.json.gz").display().to_string();
    let options = ["-o", &packed, "-e", "!read", "--slow", "0ns", "--no-paths", "--"];
    let mut c = Command::new(ME);
    c.arg("trace").args(options).args([ME, "worker"]).stdin(fs::File::open(&job).unwrap());
    let o = c.output().expect("it runs");
    assert!(o.status.success(), "{}", text(&o.stderr));
    let unpacked = Command::new("gzip").args(["-dc", &packed]).output().expect("gzip");
    let trace: Value = serde_json::from_slice(&unpacked.stdout).expect("JSON");
    check(&trace);
    assert!(requests(&trace).all(|e| e["name"] != "read"));
    assert!(events(&trace).iter().any(|e| e["name"] == "enter"));
}

/// A thread sleeps most of the time on a modelled disk of a millisecond.
#[test]
fn idle_sleeps_are_slices() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let mut load = job("rw", 0.2, &dir.at("data"));
    load["direct"] = true.into();
    let at = dir.at("direct.json");
    fs::write(&at, load.to_string()).expect("a file");
    let model = format!("--model={}=latency:1ms", dir.0.path().display());
    let options = ["--engine=user", "--poll=hybrid", &model, "--", ME, "worker"];
    let (code, stderr) = wait(dir.start(Some(&at), &options));
    if code != Some(0) && stderr.contains("O_DIRECT") {
        return skipped!("{stderr}");
    }
    assert_eq!(code, Some(0), "{stderr}");
    let trace = dir.trace();
    check(&trace);
    let all = events(&trace);
    let idle_sleeps = all.iter().filter(|e| e["ph"] == "X" && e["name"] == "sleep");
    let lengths: Vec<f64> =
        idle_sleeps.map(|e| e["args"]["length"].as_f64().expect("a time")).collect();
    assert!(lengths.len() >= 5 && lengths.iter().any(|us| *us > 0.0), "{lengths:?}");
    assert!(lengths.iter().all(|us| *us <= 4000.0), "the longest is NAP_MAX: {lengths:?}");
}

/// Returns the threads whose name begins with `start`, and what each did.
fn named(trace: &Value, start: &str) -> BTreeMap<u64, BTreeSet<String>> {
    let all = events(trace);
    let names = all.iter().filter(|e| e["name"] == "thread_name");
    let ours = names.filter(|e| e["args"]["name"].as_str().unwrap().starts_with(start));
    let slices = |tid: &Value| {
        let of = all.iter().filter(|e| e["ph"] == "X" && e["tid"] == *tid);
        of.map(|e| e["name"].as_str().unwrap().to_owned()).collect()
    };
    ours.map(|e| (e["tid"].as_u64().unwrap(), slices(&e["tid"]))).collect()
}

#[test]
fn an_sq_thread_has_a_track_of_its_own() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let mut load = job("nop", 0.1, &dir.at("data"));
    load["setup_flags"] = 2.into();
    let at = dir.at("threaded.json");
    fs::write(&at, load.to_string()).expect("a file");
    let (code, stderr) = wait(dir.start(Some(&at), &["--engine=user", "--", ME, "worker"]));
    assert_eq!(code, Some(0), "{stderr}");
    let trace = dir.trace();
    assert!(check(&trace).values().sum::<u64>() > 10);
    let threads = named(&trace, "iou-sqp-");
    assert_eq!(threads.len(), 1, "{threads:?}");
    let (tid, did) = threads.first_key_value().unwrap();
    assert!(did.contains("SQ pass") && !did.contains("enter"), "{did:?}");
    let all = events(&trace).iter().filter(|e| e["name"] == "SQ pass");
    let mut passes = all.map(|e| e["tid"].as_u64().unwrap());
    assert!(passes.all(|at| at == *tid), "it alone passes over queues");
}

#[test]
fn workers_have_tracks_of_their_own() {
    let conformance = Path::new(ME).with_file_name("conformance");
    if !library() {
        return;
    }
    if !conformance.exists() {
        return skipped!("no {}", conformance.display());
    }
    let dir = Dir::new();
    // The program runs more than once: nobody can tell the thread names of a process that has
    // ended.
    let one = format!("{} one sync::fsync", conformance.display());
    let some = format!("for i in 1 2 3 4 5 6; do {one} > /dev/null || exit; done");
    let found = (0..10).any(|_| {
        let (code, stderr) = wait(dir.start(None, &["--engine=user", "--", "sh", "-c", &some]));
        assert_eq!(code, Some(0), "{stderr}");
        let trace = dir.trace();
        check(&trace);
        let threads = named(&trace, "iou-wrk-");
        assert!(threads.values().all(|did| !did.contains("enter")), "{threads:?}");
        threads.values().any(|did| did.contains("fsync"))
    });
    assert!(found, "no worker with a name did what it is for");
}

/// Returns the memory of the trace that a process holds, in blocks of 512 bytes.
fn held(pid: &str) -> u64 {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).expect("a process");
    let mut at = links.filter_map(|link| {
        let link = link.ok()?.path();
        let to = fs::read_link(&link).ok()?;
        to.to_string_lossy().starts_with("/memfd:softring-trace").then_some(link)
    });
    fs::metadata(at.next().expect("a trace")).expect("its memory").blocks()
}

#[test]
fn a_killed_tracer_leaves_no_memory() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let load = Load::start(&dir, "nop");
    let mut tracer = dir.start(None, &["-p", &load.pid(), "--keep", "1000"]);
    std::thread::sleep(Duration::from_millis(500));
    tracer.kill().unwrap();
    tracer.wait().unwrap();
    let most = held(&load.pid());
    assert!(most > 2048, "{most} blocks");
    let start = Instant::now();
    // The header's page and the chunks' heads are left.
    while held(&load.pid()) > 8 + 256 + 8 {
        let left = held(&load.pid());
        assert!(start.elapsed() < Duration::from_secs(20), "{left} blocks of {most}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_running_process_in_bounded_memory() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let load = Load::start(&dir, "nop");
    // A second trace shows that the first leaves nothing on.
    for _ in 0..2 {
        let options = ["-p", &load.pid(), "--seconds", "0.3", "--keep", "1000"];
        let (code, stderr) = wait(dir.start(None, &options));
        assert_eq!(code, Some(0), "{stderr}");
        let trace = dir.trace();
        check(&trace);
        let other = &trace["otherData"];
        assert_eq!(other["events"].as_u64(), Some(1000), "{other}");
        assert!(other["left_out"].as_u64() > Some(0), "{other}");
    }
    // Ctrl-C ends a trace without a limit, and the trace is whole.
    let tracer = dir.start(None, &["-p", &load.pid(), "--keep", "1000"]);
    std::thread::sleep(Duration::from_millis(300));
    let sent = Command::new("kill").args(["-INT", &tracer.id().to_string()]).status();
    assert!(sent.is_ok_and(|s| s.success()));
    assert_eq!(wait(tracer).0, Some(0));
    check(&dir.trace());
}

#[test]
fn a_process_that_is_killed() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let load = Load::start(&dir, "poll");
    let tracer = dir.start(None, &["-p", &load.pid(), "--keep", "5000"]);
    std::thread::sleep(Duration::from_millis(300));
    drop(load);
    let (code, stderr) = wait(tracer);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(!check(&dir.trace()).is_empty(), "{stderr}");

    let o = dir.start(None, &["--", "sh", "-c", "kill -9 $$"]).wait_with_output().unwrap();
    let stderr = text(&o.stderr);
    assert_eq!(o.status.signal(), Some(9), "as the program did: {stderr}");
    assert!(stderr.contains("0 events"), "{stderr}");
}

/// The tracer ends with a process that nobody waits for.
#[test]
fn a_zombie_counts_as_ended() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let mut load = Load::start(&dir, "poll");
    let tracer = dir.start(None, &["-p", &load.pid()]);
    std::thread::sleep(Duration::from_millis(300));
    load.0.kill().unwrap();
    let (code, stderr) = wait(tracer);
    assert_eq!(code, Some(0), "{stderr}");
}

#[test]
fn untraceable_processes_are_reported() {
    let dir = Dir::new();
    let out = dir.at("out.json").display().to_string();
    let me = std::process::id().to_string();
    for (pid, why) in [("999999999", "no process"), (&me, "cannot be traced")] {
        let o = softring(&["trace", "-o", &out, "-p", pid]);
        assert_eq!(o.status.code(), Some(1));
        assert!(text(&o.stderr).contains(why), "{}", text(&o.stderr));
    }
    assert_eq!(softring(&["trace", "-o", &out]).status.code(), Some(2));
    assert_eq!(softring(&["trace", "-o", "/nowhere/x", "--", "true"]).status.code(), Some(2));
}
