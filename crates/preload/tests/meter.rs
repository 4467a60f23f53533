//! Work meters of a program in C, through the header, seen from inside and outside.

mod common;

use common::{library, succeed};
use softring_engine::stats::{NAME, read};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Builds examples/poll-loop.c, linked with the library if `linked`.
fn build(dir: &Path, linked: bool) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = dir.join(format!("poll-loop-{linked}"));
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Werror", "-o"]).arg(&program);
    cc.arg(root.join("examples/poll-loop.c")).arg("-I").arg(root.join("include"));
    if linked {
        let at = library().parent().unwrap().display().to_string();
        cc.arg("-Wl,--no-as-needed").arg(library()).arg(format!("-Wl,-rpath,{at}"));
    }
    succeed(&mut cc);
    program
}

/// Returns the four numbers of the program's line.
fn numbers(line: &str) -> Vec<u64> {
    line.split_whitespace().filter_map(|w| w.parse().ok()).collect()
}

/// Returns the page of a process, as anybody reads it.
fn page(pid: u32) -> read::Page {
    let dir = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let fds = dir.map(|e| e.unwrap().path());
    let is_page = |fd: &PathBuf| {
        let link = std::fs::read_link(fd).unwrap_or_default();
        link.to_string_lossy().starts_with(&format!("/memfd:{NAME}"))
    };
    let fd = fds.into_iter().find(is_page).expect("the process has a page");
    let file = std::fs::File::open(fd).unwrap();
    read::file(softring_host::sys::borrow(file.as_raw_fd()).unwrap()).unwrap()
}

fn finished(c: &mut Command) -> (Child, Vec<u64>) {
    let mut child = c.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, numbers(&line))
}

#[test]
fn a_known_load_is_measured_within_two_points() {
    let dir = tempfile::tempdir().unwrap();
    let program = build(dir.path(), true);
    for percent in [1, 10, 50, 90] {
        let mut c = Command::new(&program);
        let (mut child, n) = finished(c.args([&percent.to_string(), "0.6", "wait"]));
        let [work, total, seen_work, seen_total] = n[..] else { panic!("{n:?}") };
        let share = |work: u64, total: u64| work as f64 * 100.0 / total as f64;
        let (real, seen) = (share(work, total), share(seen_work, seen_total));
        println!("{percent} %: by hand {real:.2} %, by the meter {seen:.2} %");
        assert!((real - seen).abs() <= 2.0, "{percent} %: {real:.2} by hand, {seen:.2} metered");
        let page = page(child.id());
        let m = &page.meters[0];
        assert_eq!(
            (m.name(), m.tid(), m.work_us()),
            ("poll-loop".into(), child.id().into(), seen_work)
        );
        let stat = std::fs::read_to_string(format!("/proc/{0}/task/{0}/schedstat", child.id()));
        let ns = stat.unwrap().split_whitespace().next().unwrap().parse().unwrap();
        assert!((seen_total..seen_total + 50_000).contains(&m.total_us_at(ns)));
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn a_program_need_not_be_linked() {
    let dir = tempfile::tempdir().unwrap();
    let program = build(dir.path(), false);
    for (preload, meters) in [(true, true), (false, false)] {
        let mut c = Command::new(&program);
        c.args(["30", "0.05"]);
        if preload {
            c.env("LD_PRELOAD", library());
        }
        let out = succeed(&mut c);
        let n = numbers(&String::from_utf8_lossy(&out.stdout));
        assert_eq!(n[2] > 0 && n[3] > 0, meters, "{n:?}");
    }
    // Without a page the program counts for itself.
    let mut c = Command::new(&program);
    let out =
        succeed(c.args(["30", "0.05"]).env("LD_PRELOAD", library()).env("SOFTRING_STATS", "0"));
    assert!(numbers(&String::from_utf8_lossy(&out.stdout))[2] > 0);
}
