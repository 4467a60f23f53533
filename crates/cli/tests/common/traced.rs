//! `softring trace` on a load, and the rules that a trace must obey.

use super::{ME, softring, text};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Returns a load for `softring worker`, which `bench` starts for one measurement.
pub fn job(op: &str, seconds: f64, path: &Path) -> Value {
    json!({
        "driver": "softring", "op": op, "path": path, "size": 65536, "bs": 4096, "depth": 4,
        "batch": 4, "wait": 1, "threads": 1, "pool_threads": 1, "seconds": seconds, "warmup": 0.0,
        "rw": "randread", "rwmix": 0, "direct": false, "setup_flags": 0, "slat": false,
        "verify": false, "seed": 0, "once": false, "count": 100,
    })
}

pub struct Dir(pub tempfile::TempDir);

impl Dir {
    pub fn new() -> Dir {
        let dir = Dir(tempfile::tempdir().expect("a folder"));
        fs::write(dir.at("data"), vec![0u8; 65536]).expect("a file");
        dir
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Makes a file with a job in it.
    pub fn job(&self, op: &str, seconds: f64) -> PathBuf {
        let at = self.at(&format!("{op}-{seconds}.json"));
        fs::write(&at, job(op, seconds, &self.at("data")).to_string()).expect("a file");
        at
    }

    pub fn trace(&self) -> Value {
        let bytes = fs::read(self.at("out.json")).expect("a trace");
        serde_json::from_slice(&bytes).expect("JSON")
    }

    /// Starts `softring trace OPTIONS`, with a job on standard input.
    pub fn start(&self, job: Option<&Path>, options: &[&str]) -> Child {
        let mut c = Command::new(ME);
        c.args(["trace", "-o"]).arg(self.at("out.json")).args(options);
        c.stdout(Stdio::null()).stderr(Stdio::piped());
        c.stdin(job.map_or_else(Stdio::null, |at| fs::File::open(at).expect("a job").into()));
        c.spawn().expect("softring starts")
    }
}

pub fn wait(child: Child) -> (Option<i32>, String) {
    let o = child.wait_with_output().expect("it ends");
    (o.status.code(), text(&o.stderr))
}

/// A worker that runs for a minute under the library; it is ended with this value.
pub struct Load(pub Child);

impl Load {
    pub fn start(dir: &Dir, op: &str) -> Load {
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

    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn events(trace: &Value) -> &Vec<Value> {
    trace["traceEvents"].as_array().expect("a list")
}

/// Events by process and thread.
type Thread = (u64, Option<u64>);

/// Checks the slices of threads, and the arrows between them, by the rules of the Trace Event
/// Format. Slices of one thread lie beside or inside each other. An arrow has one beginning and one
/// end, not before it; in a whole trace, each lies in a slice of its thread, to which it is bound.
fn check_threads(trace: &Value) {
    let mut slices: BTreeMap<Thread, Vec<(u64, u64)>> = BTreeMap::new();
    let mut arrows: BTreeMap<u64, Vec<(String, u64, Thread)>> = BTreeMap::new();
    // Times are in whole ns: sums of fractions of a µs do not always match.
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
            // Times are rounded: a slice may seem to begin as another ends.
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

/// Number of the first track of requests: above those of threads.
const TRACKS: u64 = 5_000_000;

/// Returns the slices of requests; those inside them show what they waited for.
pub fn requests(trace: &Value) -> impl Iterator<Item = &Value> {
    let on_track = |e: &&Value| e["ph"] == "X" && e["tid"].as_u64() >= Some(TRACKS);
    let ended = |e: &&Value| !e["args"]["res"].is_null() || !e["args"]["unfinished"].is_null();
    events(trace).iter().filter(on_track).filter(ended)
}

/// Checks that an event has what the Trace Event Format asks for, by its phase. No event has a
/// phase of those that come in pairs without an id (B and E): a slice has its length (X).
fn check_event(e: &Value) {
    let is = |key: &str, kind: fn(&Value) -> bool| e.get(key).is_some_and(kind);
    let time = |v: &Value| v.as_f64().is_some_and(|n| n >= 0.0);
    let ph = e["ph"].as_str().expect("a phase");
    assert!(is("pid", Value::is_u64) && is("name", Value::is_string), "{e}");
    let thread = is("tid", Value::is_u64);
    match ph {
        "M" => {
            let whose = e["name"].as_str().expect("a name");
            assert!(whose == "process_name" && !thread || whose == "thread_name" && thread, "{e}");
            assert!(e["args"]["name"].is_string(), "{e}");
        }
        // A process has counters, a thread has none.
        "C" => {
            let args = e["args"].as_object().expect("series");
            let numbers = !args.is_empty() && args.values().all(Value::is_number);
            assert!(is("ts", time) && numbers, "{e}");
        }
        "X" => assert!(thread && is("ts", time) && is("dur", time), "{e}"),
        "i" => assert!(thread && is("ts", time) && e["s"] == "t", "{e}"),
        "s" | "f" => {
            let named = is("id", Value::is_u64) && is("cat", Value::is_string);
            assert!(thread && is("ts", time) && named, "{e}");
        }
        _ => panic!("{e}"),
    }
    assert!(e.get("args").is_none_or(Value::is_object), "{e}");
}

/// Checks that the trace is as the format asks and all slices nest. Returns the number of requests
/// by the name of their track.
pub fn check(trace: &Value) -> BTreeMap<String, u64> {
    assert!(["ms", "ns"].iter().any(|unit| trace["displayTimeUnit"] == *unit));
    events(trace).iter().for_each(check_event);
    check_threads(trace);
    let mut names: BTreeMap<(u64, u64), String> = BTreeMap::new();
    let mut processes = BTreeSet::new();
    for e in events(trace) {
        let ph = e["ph"].as_str().unwrap();
        let (pid, tid) = (e["pid"].as_u64().unwrap(), e["tid"].as_u64());
        match (ph, tid) {
            ("M", Some(tid)) => {
                let name = e["args"]["name"].as_str().expect("a name").to_owned();
                names.insert((pid, tid), name);
            }
            ("M", None) => _ = processes.insert(pid),
            ("C", None) => {
                assert!(e["args"]["n"].as_f64() >= Some(0.0), "{e}");
                assert!(e["name"].as_str().unwrap().contains("ring "), "{e}");
            }
            (_, Some(tid)) => {
                assert!(["X", "i", "s", "f"].contains(&ph), "{e}");
                assert!(e["ts"].as_f64() >= Some(0.0) && names.contains_key(&(pid, tid)), "{e}");
                assert!(ph != "X" || e["dur"].as_f64() >= Some(0.0), "{e}");
            }
            _ => panic!("{e}"),
        }
        assert!(processes.contains(&pid), "{e}");
    }
    let mut all = BTreeMap::new();
    for e in requests(trace) {
        let track = (e["pid"].as_u64().unwrap(), e["tid"].as_u64().unwrap());
        *all.entry(names[&track].clone()).or_default() += 1;
    }
    assert_eq!(trace["otherData"]["requests"].as_u64(), Some(all.values().sum()));
    all
}
