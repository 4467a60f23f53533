//! A process that is killed at any moment leaves nothing behind: no process, no thread, no file, no
//! name, and nothing that `softring top` shows.

mod common;

use common::load::job;
use common::{ME, library, softring, text};
use rustix::process::{Pid, Signal, kill_process, test_kill_process_group};
use serde_json::{Value, json};
use softring_uapi::IORING_SETUP_SQPOLL;
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Kills of each sort of load: from before there is a ring to long after.
const ROUNDS: u32 = 25;

fn names(dir: &str) -> BTreeSet<String> {
    let all = std::fs::read_dir(dir).into_iter().flatten().flatten();
    all.map(|e| e.file_name().to_string_lossy().into_owned()).collect()
}

/// Counts our names of sockets that are in no file system.
fn sockets() -> usize {
    let all = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    all.lines().filter(|l| l.contains("@softring")).count()
}

fn shown() -> Vec<u64> {
    let o = softring(&["top", "--once", "--json", "-d", "0.1"]);
    assert!(o.status.success(), "{}", text(&o.stderr));
    let all: Value = serde_json::from_slice(&o.stdout).expect("JSON");
    let all = all["processes"].as_array().expect("processes");
    all.iter().filter_map(|p| p["pid"].as_u64()).collect()
}

fn has_ring(pid: u32) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.contains("[io_uring]")
}

fn start(options: &[&str], load: &Value, dir: &Path) -> Child {
    let mut c = Command::new(ME);
    c.args(["run", "--engine=user", "--quiet"]).args(options).args(["--", ME, "worker"]);
    c.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = c.process_group(0).env("TMPDIR", dir).spawn().expect("softring starts");
    serde_json::to_writer(child.stdin.take().expect("a pipe"), load).expect("a job");
    child
}

/// Kills a child, and checks that it left no process.
fn kill(mut child: Child) {
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::KILL).expect("it runs for a minute");
    child.wait().expect("a child");
    let group = test_kill_process_group(pid);
    assert_eq!(group, Err(rustix::io::Errno::SRCH), "a process is left");
}

/// Returns the time that a load takes to have a ring here.
fn time_to_a_ring(load: &Value, dir: &Path) -> Duration {
    let (began, child) = (Instant::now(), start(&[], load, dir));
    while !has_ring(child.id()) {
        assert!(began.elapsed() < Duration::from_secs(20), "no ring");
        std::thread::sleep(Duration::from_millis(1));
    }
    kill(child);
    began.elapsed()
}

#[test]
fn a_kill_at_any_moment_leaves_nothing() {
    if !library() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (shared, named) = (names("/dev/shm"), sockets());
    let mut rings = job(60.0, 0);
    rings["op"] = json!("setup");
    let loads: [(&[&str], Value); 3] = [
        (&[], rings),
        (&[], job(60.0, IORING_SETUP_SQPOLL)),
        (&["--sq-idle=sleep"], job(60.0, IORING_SETUP_SQPOLL)),
    ];
    let most = 2 * time_to_a_ring(&loads[1].1, dir.path());
    let (mut killed, mut at_work) = (BTreeSet::new(), 0);
    for (options, load) in &loads {
        for round in 0..ROUNDS {
            let child = start(options, load, dir.path());
            std::thread::sleep(most * round / ROUNDS);
            at_work += u32::from(has_ring(child.id()));
            killed.insert(u64::from(child.id()));
            kill(child);
        }
    }
    println!("{} killed, {at_work} of them with a ring", killed.len());
    assert!(at_work > 0 && at_work < 3 * ROUNDS, "some before they had a ring, some after");
    let left: Vec<u64> = shown().into_iter().filter(|pid| killed.contains(pid)).collect();
    assert!(left.is_empty(), "shown though they are dead: {left:?}");
    assert_eq!(names(&dir.path().to_string_lossy()), BTreeSet::new(), "files are left");
    let more: Vec<String> = names("/dev/shm").difference(&shared).cloned().collect();
    // The fuzzer may run beside, with files of its own.
    let ours = |name: &String| name.contains("softring") && !name.starts_with("softring-fuzz-");
    assert!(!more.iter().any(ours), "files are left: {more:?}");
    assert!(sockets() <= named, "names of sockets are left");
}
