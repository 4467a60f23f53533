//! `softring trace`, on programs that run under the library; without that library next to the
//! executable the tests say that they were skipped.

mod common;

use common::{ME, library, softring, text};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A load for `softring worker`, which `bench` starts for one measurement.
fn job(op: &str, seconds: f64, path: &Path) -> Value {
    json!({
        "driver": "softring", "op": op, "path": path, "size": 65536, "bs": 4096, "depth": 4,
        "batch": 4, "wait": 1, "threads": 1, "pool_threads": 1, "seconds": seconds, "warmup": 0.0,
        "rw": "randread", "rwmix": 0, "direct": false, "setup_flags": 0, "slat": false,
        "verify": false, "seed": 0, "once": false, "count": 100,
    })
}

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Dir {
        let dir = Dir(tempfile::tempdir().expect("a folder"));
        fs::write(dir.at("data"), vec![0u8; 65536]).expect("a file");
        dir
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A file with a job in it.
    fn job(&self, op: &str, seconds: f64) -> PathBuf {
        let at = self.at(&format!("{op}-{seconds}.json"));
        fs::write(&at, job(op, seconds, &self.at("data")).to_string()).expect("a file");
        at
    }

    fn trace(&self) -> Value {
        let bytes = fs::read(self.at("out.json")).expect("a trace");
        serde_json::from_slice(&bytes).expect("JSON")
    }

    /// `softring trace OPTIONS`, with a job on standard input.
    fn start(&self, job: Option<&Path>, options: &[&str]) -> Child {
        let mut c = Command::new(ME);
        c.args(["trace", "-o"]).arg(self.at("out.json")).args(options);
        c.stdout(Stdio::null()).stderr(Stdio::piped());
        c.stdin(job.map_or_else(Stdio::null, |at| fs::File::open(at).expect("a job").into()));
        c.spawn().expect("softring starts")
    }
}

fn wait(child: Child) -> (Option<i32>, String) {
    let o = child.wait_with_output().expect("it ends");
    (o.status.code(), text(&o.stderr))
}

/// A worker that runs for a minute under the library; it is ended with this value.
struct Load(Child);

impl Load {
    fn start(dir: &Dir, op: &str) -> Load {
        let mut c = Command::new(ME);
        c.args(["run", "--engine=user", "--quiet", "--", ME, "worker"]);
        c.stdin(fs::File::open(dir.job(op, 60.0)).expect("a job")).stdout(Stdio::null());
        let load = Load(c.spawn().expect("softring starts"));
        let (pid, start) = (load.pid(), Instant::now());
        while !text(&softring(&["stats", "-p", &pid]).stdout).contains("ring ") {
            assert!(start.elapsed() < Duration::from_secs(20), "no ring");
            std::thread::sleep(Duration::from_millis(20));
        }
        load
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn events(trace: &Value) -> &Vec<Value> {
    trace["traceEvents"].as_array().expect("a list")
}

/// By process and thread.
type Thread = (u64, Option<u64>);

/// What threads did, and the arrows between that, by the rules of the Trace Event Format: slices of
/// one thread lie beside or inside each other; an arrow has one beginning and one end, not before
/// it, and in a trace that is whole each lies in a slice of its thread, to which it is bound.
fn check_threads(trace: &Value) {
    let mut slices: BTreeMap<Thread, Vec<(u64, u64)>> = BTreeMap::new();
    let mut arrows: BTreeMap<u64, Vec<(String, u64, Thread)>> = BTreeMap::new();
    // In whole ns: sums of fractions of a µs do not always match.
    let ns = |v: &Value| (v.as_f64().expect("a number") * 1000.0).round() as u64;
    for e in events(trace) {
        let thread = (e["pid"].as_u64().unwrap(), e["tid"].as_u64());
        let ph = e["ph"].as_str().unwrap();
        match ph {
            "X" => {
                let (ts, dur) = (ns(&e["ts"]), ns(&e["dur"]));
                slices.entry(thread).or_default().push((ts, ts + dur));
            }
            "s" | "f" => {
                assert!(ph == "s" || e["bp"] == "e", "{e}");
                let id = e["id"].as_u64().expect("a number");
                arrows.entry(id).or_default().push((ph.to_owned(), ns(&e["ts"]), thread));
            }
            _ => {}
        }
    }
    let whole = ["left_out", "dropped", "unfinished"]
        .iter()
        .all(|n| trace["otherData"][n].as_u64().is_none_or(|n| n == 0));
    for (thread, slices) in &mut slices {
        slices.sort_by_key(|&(from, to)| (from, std::cmp::Reverse(to)));
        let mut open: Vec<u64> = Vec::new();
        for &(from, to) in slices.iter() {
            // Times are rounded: one may seem to begin as another ends.
            while open.last().is_some_and(|end| *end <= from + 1) {
                open.pop();
            }
            assert!(open.last().is_none_or(|end| to <= *end + 1), "{thread:?}: {from} to {to}");
            open.push(to);
        }
    }
    for (id, ends) in &arrows {
        let [(s, began, _), (f, ended, _)] = &ends[..] else { panic!("{id}: {ends:?}") };
        assert!(s == "s" && f == "f" && began <= ended, "{id}: {ends:?}");
        for (_, at, thread) in ends.iter().filter(|_| whole) {
            let around = |(from, to): &(u64, u64)| *from <= *at + 1 && *at <= *to + 1;
            let bound = slices.get(thread).is_some_and(|all| all.iter().any(around));
            assert!(bound, "{id}: nothing at {at} of {thread:?}");
        }
    }
}

/// Looks whether all slices nest, and answers requests by the name of their track.
fn check(trace: &Value) -> BTreeMap<String, u64> {
    check_threads(trace);
    let mut open: BTreeMap<String, Vec<(String, f64)>> = BTreeMap::new();
    let mut tracks: BTreeMap<String, String> = BTreeMap::new();
    let mut requests = BTreeMap::new();
    let mut named = BTreeSet::new();
    for e in events(trace) {
        let (ph, name) = (e["ph"].as_str().unwrap(), e["name"].as_str().unwrap().to_owned());
        let thread = (e["pid"].as_u64().unwrap(), e["tid"].as_u64());
        if ph == "M" {
            named.insert((thread, name));
            continue;
        }
        let ts = e["ts"].as_f64().unwrap();
        assert!(ts >= 0.0 && named.contains(&(thread, "thread_name".into())), "{e}");
        assert!(named.contains(&((thread.0, None), "process_name".into())), "{e}");
        let id = e["id2"]["local"].as_str().unwrap_or_default().to_owned();
        match ph {
            "X" => assert!(e["dur"].as_f64() >= Some(0.0), "{e}"),
            "n" => _ = tracks.entry(id).or_insert(name),
            "b" => {
                let slices = open.entry(id.clone()).or_default();
                if slices.is_empty() {
                    *requests.entry(tracks[&id].clone()).or_default() += 1;
                }
                slices.push((name, ts));
            }
            "e" => {
                let (began, at) = open.get_mut(&id).and_then(Vec::pop).expect("a begin");
                assert!(began == name && at <= ts, "{e}");
            }
            _ => assert!(["s", "f"].contains(&ph), "{e}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "something has not ended");
    assert_eq!(trace["otherData"]["requests"].as_u64(), Some(requests.values().sum()));
    requests
}

#[test]
fn an_older_trace_stays_where_there_is_nothing_to_trace() {
    let dir = Dir::new();
    fs::write(dir.at("out.json"), "older").expect("a file");
    let me = std::process::id().to_string();
    let (code, said) = wait(dir.start(None, &["-p", &me]));
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(fs::read(dir.at("out.json")).expect("a file"), b"older");
}

#[test]
fn a_program_from_its_start_to_its_end() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    for (op, what) in [("rw", "read"), ("poll", "poll_add"), ("timeout-cancel", "timeout")] {
        let picture = dir.at("out.svg").display().to_string();
        let child = dir.start(Some(&dir.job(op, 0.05)), &["--svg", &picture, "--", ME, "worker"]);
        let (code, told) = wait(child);
        assert_eq!(code, Some(0), "{told}");
        let trace = dir.trace();
        let requests = check(&trace);
        // It may have made one before.
        let track = requests.keys().next().expect("a track");
        let ring = track.split(' ').take(2).collect::<Vec<_>>().join(" ");
        assert!(ring.starts_with("ring "), "{requests:?}");
        let begun = |e: &&Value| e["ph"] == "b" && e["name"] == what;
        assert!(events(&trace).iter().any(|e| begun(&e)), "{what}");
        assert!(events(&trace).iter().any(|e| e["ph"] == "X" && e["name"] == "enter"));
        assert!(told.contains("requests"), "{told}");
        let process = events(&trace).iter().find(|e| e["name"] == "process_name").unwrap();
        assert_eq!(process["args"]["name"], "softring");
        let drawn = fs::read_to_string(picture).expect("a picture");
        assert!(drawn.starts_with("<svg") && drawn.contains(&format!("{ring} {what}")), "{drawn}");
    }
}

/// On a modelled disk of a millisecond a thread naps most of the time.
#[test]
fn naps_are_slices() {
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
    let (code, told) = wait(dir.start(Some(&at), &options));
    if code != Some(0) && told.contains("O_DIRECT") {
        return println!("skipped: {told}");
    }
    assert_eq!(code, Some(0), "{told}");
    let trace = dir.trace();
    check(&trace);
    let all = events(&trace);
    let naps = all.iter().filter(|e| e["ph"] == "X" && e["name"] == "nap");
    let lengths: Vec<f64> = naps.map(|e| e["args"]["length"].as_f64().expect("a time")).collect();
    assert!(lengths.len() >= 5 && lengths.iter().any(|us| *us > 0.0), "{lengths:?}");
    assert!(lengths.iter().all(|us| *us <= 4000.0), "the longest is NAP_MAX: {lengths:?}");
}

/// The threads of one name, and what each did.
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
    let (code, told) = wait(dir.start(Some(&at), &["--engine=user", "--", ME, "worker"]));
    assert_eq!(code, Some(0), "{told}");
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
        return println!("skipped: no {}", conformance.display());
    }
    let dir = Dir::new();
    // More than once: of a process that has ended nobody can tell its threads' names.
    let one = format!("{} one sync::fsync", conformance.display());
    let some = format!("for i in 1 2 3 4 5 6; do {one} > /dev/null || exit; done");
    let found = (0..10).any(|_| {
        let (code, told) = wait(dir.start(None, &["--engine=user", "--", "sh", "-c", &some]));
        assert_eq!(code, Some(0), "{told}");
        let trace = dir.trace();
        check(&trace);
        let threads = named(&trace, "iou-wrk-");
        assert!(threads.values().all(|did| !did.contains("enter")), "{threads:?}");
        threads.values().any(|did| did.contains("fsync"))
    });
    assert!(found, "no worker with a name did what it is for");
}

#[test]
fn children_have_tracks_of_their_own() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let job = dir.job("rw", 0.05);
    let one = format!("{ME} worker < {}", job.display());
    let both = format!("{one} > /dev/null & {one} > /dev/null; wait; exit 7");
    let (code, told) = wait(dir.start(None, &["--", "sh", "-c", &both]));
    assert_eq!(code, Some(7), "{told}");
    let trace = dir.trace();
    check(&trace);
    let pids: BTreeSet<u64> = events(&trace).iter().filter_map(|e| e["pid"].as_u64()).collect();
    assert_eq!(pids.len(), 2, "{pids:?}");
}

#[test]
fn a_running_process_in_bounded_memory() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let load = Load::start(&dir, "nop");
    // More than once: the first leaves nothing on.
    for _ in 0..2 {
        let options = ["-p", &load.pid(), "--seconds", "0.3", "--keep", "1000"];
        let (code, told) = wait(dir.start(None, &options));
        assert_eq!(code, Some(0), "{told}");
        let trace = dir.trace();
        check(&trace);
        let other = &trace["otherData"];
        assert_eq!(other["events"].as_u64(), Some(1000), "{other}");
        assert!(other["left_out"].as_u64() > Some(0), "{other}");
    }
    // Ctrl-C ends a trace without a limit, and it is whole.
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
    let (code, told) = wait(tracer);
    assert_eq!(code, Some(0), "{told}");
    assert!(!check(&dir.trace()).is_empty(), "{told}");

    let o = dir.start(None, &["--", "sh", "-c", "kill -9 $$"]).wait_with_output().unwrap();
    let told = text(&o.stderr);
    assert_eq!(o.status.signal(), Some(9), "as the program did: {told}");
    assert!(told.contains("0 events"), "{told}");
}

/// A process that nobody waits for is no reason to go on.
#[test]
fn a_zombie_has_ended() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let mut load = Load::start(&dir, "poll");
    let tracer = dir.start(None, &["-p", &load.pid()]);
    std::thread::sleep(Duration::from_millis(300));
    load.0.kill().unwrap();
    let (code, told) = wait(tracer);
    assert_eq!(code, Some(0), "{told}");
}

/// What could not be traced leaves the trace of before.
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

#[test]
fn what_cannot_be_traced_says_so() {
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
