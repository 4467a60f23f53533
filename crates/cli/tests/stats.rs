//! Test of `softring stats` on a program that runs under the library; without that library next to
//! the executable the test says that it was skipped.
#![allow(unsafe_code)]

mod common;

use common::load::{Load, wait_for};
use common::{ME, library, nops, softring, text};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::Duration;

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
fn sq_threads_report_their_times() {
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
fn rings_without_a_request_are_folded() {
    if !library() {
        return;
    }
    let mut c = Command::new(ME);
    c.args(["run", "--engine=user", "--quiet", "--"]).arg(nops()).args(["rings", "40"]);
    let mut child = c.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id().to_string();
    let submitted = |r: &Value| r["submitted"].as_u64().unwrap();
    let rings = |p: &Value| p[0]["rings"].as_array().map_or(0, Vec::len);
    let page = wait_for(&pid, |p| rings(p) == 40 && submitted(&p[0]["rings"][0]) == 1);
    assert_eq!(page[0]["rings"].as_array().unwrap().iter().map(submitted).sum::<u64>(), 1);
    let shown = |args: &[&str]| text(&softring(&[&["stats", "-p", &pid], args].concat()).stdout);
    let (few, all) = (shown(&[]), shown(&["--all"]));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(few.contains("40 open ring(s)"), "{few}");
    assert!(few.contains("39 ring(s) without a request; --all shows them."), "{few}");
    assert!(few.contains("ring 1: nop 1"), "{few}");
    assert!(!few.contains("ring 2") && few.lines().count() < 20, "{few}");
    assert!(!all.contains("without a request") && all.contains("ring 40:"), "{all}");
}

#[test]
fn programs_without_statistics_are_reported() {
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

#[test]
fn prometheus_can_read_it() {
    if !library() {
        return;
    }
    let load = Load::with_flags(&[], 1 << 1);
    wait_for(&load.pid(), |p| p[0]["rings"][0]["submitted"].as_u64() > Some(1000));
    let o = softring(&["stats", "--format", "prometheus"]);
    assert!(o.status.success(), "{}", text(&o.stderr));
    let shown = text(&o.stdout);
    let samples = exposition::check(&shown);
    let mine = format!("pid=\"{}\"", load.pid());
    for name in [
        "softring_requests_total",
        "softring_in_flight_requests",
        "softring_thread_work_seconds_total",
        "softring_request_duration_seconds_bucket",
        "softring_request_duration_seconds_sum",
    ] {
        assert!(samples.iter().any(|s| s.0 == name && s.1.contains(&mine)), "{name}: {shown}");
    }
    let both = softring(&["stats", "--json", "--format", "prometheus"]);
    assert_eq!(both.status.code(), Some(2));
}

/// Check of a text against the rules of Prometheus' text format, and of its names. Panics if the
/// text breaks one.
mod exposition {
    use std::collections::HashMap;

    fn name_is_right(name: &str) -> bool {
        let first = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        first && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
    }

    /// Parses labels between braces; returns them and the rest of the line.
    fn labels(mut text: &str) -> (Vec<(String, String)>, &str) {
        let mut all = Vec::new();
        loop {
            let (name, rest) = text.split_once("=\"").expect("a label");
            assert!(name_is_right(name), "{name}");
            let mut value = String::new();
            let mut chars = rest.char_indices();
            let end = loop {
                match chars.next().expect("the end of a value") {
                    (at, '"') => break at,
                    (_, '\\') => match chars.next() {
                        Some((_, c @ ('\\' | '"' | 'n'))) => value.push(c),
                        other => panic!("escaped: {other:?}"),
                    },
                    (_, c) => value.push(c),
                }
            };
            all.push((name.to_owned(), value));
            match rest[end + 1..].strip_prefix(',') {
                Some(next) => text = next,
                None => return (all, rest[end + 1..].strip_prefix("} ").expect("} and a value")),
            }
        }
    }

    /// Checks a text; returns each sample: name, labels as they stand, value.
    pub fn check(text: &str) -> Vec<(String, String, f64)> {
        assert!(text.ends_with('\n'));
        let (mut types, mut current) = (HashMap::new(), String::new());
        let (mut samples, mut below) = (Vec::new(), HashMap::<String, f64>::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("help");
                assert!(!help.is_empty() && name_is_right(name), "{line}");
                continue;
            }
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a type");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                // All lines of a metric stand together: its type is told once.
                assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "{line}");
                current = name.to_owned();
                continue;
            }
            let (name, rest) = line.split_once('{').expect("labels");
            let (labels, value) = labels(rest);
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
            assert!(value >= 0.0, "{line}");
            let part = name.strip_prefix(&current).unwrap_or_else(|| panic!("{line}"));
            let histogram = types[&current] == "histogram";
            assert_eq!(histogram, ["_bucket", "_sum", "_count"].contains(&part), "{line}");
            assert!(histogram || part.is_empty(), "{line}");
            let others: Vec<_> = labels.iter().filter(|(name, _)| name != "le").collect();
            let key = format!("{current} {others:?}");
            if part == "_bucket" {
                assert!(labels.iter().any(|(name, _)| name == "le"), "{line}");
                let before = below.insert(key, value).unwrap_or(0.0);
                assert!(value >= before, "buckets add up: {line}");
            } else if part == "_count" {
                assert_eq!(below[&key], value, "{line}");
            }
            let shown = rest.rsplit_once('}').expect("checked").0;
            samples.push((name.to_owned(), shown.to_owned(), value));
        }
        let mut all: Vec<_> = samples.iter().map(|s| (&s.0, &s.1)).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), samples.len(), "a sample told twice");
        samples
    }
}
