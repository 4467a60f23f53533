//! `softring stats`, on a program that runs under the library; without that library next to the
//! executable the test says that it was skipped.

mod common;

use common::{ME, library, softring, text};
use serde_json::Value;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A program that submits NOPs for a while; it is ended with this value.
struct Load(Child);

impl Load {
    fn start(options: &[&str]) -> Load {
        Load::with_flags(options, 0)
    }

    fn with_flags(options: &[&str], setup_flags: u32) -> Load {
        let mut c = Command::new(ME);
        c.args(["run", "--engine=user", "--quiet"]).args(options);
        // What `bench` starts for one measurement, with the job on its standard input.
        c.args(["--", ME, "worker"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = c.spawn().expect("softring starts");
        let job = serde_json::json!({
            "driver": "softring", "op": "nop", "path": "", "size": 0, "bs": 4096, "depth": 8,
            "batch": 8, "wait": 1, "threads": 1, "pool_threads": 1, "seconds": 60.0, "warmup": 0.0,
            "rw": "read", "rwmix": 0, "direct": false, "setup_flags": setup_flags, "slat": false,
            "verify": false, "seed": 0, "once": false,
        });
        let stdin = child.stdin.take().expect("a pipe");
        serde_json::to_writer(stdin, &job).expect("a job");
        Load(child)
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

/// What is told of a process once `there` likes it.
fn wait_for(pid: &str, there: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let o = softring(&["stats", "-p", pid, "--json"]);
        let seen: Option<Value> = serde_json::from_slice(&o.stdout).ok();
        if let Some(page) = seen.filter(|p| there(p)) {
            return page;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{}", text(&o.stderr));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_running_program_is_shown() {
    if !library() {
        return;
    }
    let load = Load::start(&[]);
    let page = wait_for(&load.pid(), |p| p[0]["rings"][0]["submitted"].as_u64() > Some(0));
    let ring = &page[0]["rings"][0];
    assert_eq!(page[0]["pid"].to_string(), load.pid());
    assert_eq!(
        (&ring["ops"]["nop"], &ring["routes"]["inline"]),
        (&ring["submitted"], &ring["submitted"])
    );
    assert_eq!((ring["errors"].as_u64(), ring["routes"]["worker"].as_u64()), (Some(0), Some(0)));
    let o = softring(&["stats"]);
    let table = text(&o.stdout);
    assert!(o.status.success() && table.contains(&format!("{} (", load.pid())), "{table}");
    assert!(table.contains("nop "), "{table}");
}

#[test]
fn sq_threads_tell_what_they_do() {
    if !library() {
        return;
    }
    const SQPOLL: u32 = 1 << 1;
    let load = Load::with_flags(&[], SQPOLL);
    let work = |p: &Value| p[0]["rings"][0]["SqWorkTime"].as_u64();
    let first = wait_for(&load.pid(), |p| work(p) > Some(0));
    let page = wait_for(&load.pid(), |p| work(p) > work(&first));
    let ring = &page[0]["rings"][0];
    let tid = ring["SqThread"].as_i64().expect("a number");
    let name = std::fs::read_to_string(format!("/proc/{}/task/{tid}/comm", load.pid())).unwrap();
    assert_eq!(name.trim_end(), format!("iou-sqp-{}", load.pid()));
    assert_eq!(page[0]["meters"][0]["tid"].as_i64(), Some(tid));
    assert!(ring["SqTotalTime"].as_u64() >= work(&page), "{ring}");
    assert!(ring["SqThreadCpu"].as_i64() >= Some(0), "{ring}");
    let table = text(&softring(&["stats", "-p", &load.pid()]).stdout);
    assert!(table.contains("SqWorkTime"), "{table}");
}

#[test]
fn what_keeps_none_says_so() {
    if !library() {
        return;
    }
    let load = Load::start(&["--no-stats"]);
    std::thread::sleep(Duration::from_millis(300));
    for (pid, why) in [(load.pid(), "keeps no statistics"), ("999999999".into(), "no process")] {
        let o = softring(&["stats", "-p", &pid]);
        assert_eq!(o.status.code(), Some(1));
        assert!(text(&o.stderr).contains(why), "{}", text(&o.stderr));
    }
    assert_eq!(softring(&["stats", "-p", "0"]).status.code(), Some(2));
}
