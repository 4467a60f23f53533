//! Warnings about a doubtful result, and what to do about it.

use super::file::Target;
use super::job::Job;
use super::summary::Summary;
use crate::cli::{Op, name_of};
use serde::Serialize;
use softring_uapi::IORING_SETUP_IOPOLL;
use std::fs;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileTypeExt;

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    pub what: String,
    pub advice: &'static str,
}

/// Bound of (max − min) / median of the rounds, above which a warning is given.
const SPREAD: f64 = 0.10;
/// Number of I/Os below which a handful of them makes the 99th percentile.
const FEW_IOS: u64 = 1000;

/// Returns all warnings about these results.
pub fn of(job: &Job, target: Option<&Target>, rows: &[Summary]) -> Vec<Warning> {
    let mut list = Vec::new();
    let mut warn = |what: String, advice| list.push(Warning { what, advice });
    if cfg!(debug_assertions) {
        warn("this softring is a debug build".into(), "build with --release to measure");
    }
    if matches!(job.op, Op::Idle | Op::IdleSockets) {
        return list;
    }
    for r in rows.iter().filter(|r| r.spread > SPREAD) {
        let what = format!("{}: the rounds differ by {:.0} %", name_of(r.engine), r.spread * 100.0);
        warn(what, "end other programs, or use more --pairs or longer --seconds");
    }
    if rows.iter().flat_map(|r| &r.runs).any(|r| r.ios < FEW_IOS) {
        warn(format!("fewer than {FEW_IOS} operations in a round"), "use longer --seconds");
    }
    if rows.first().is_some_and(|r| r.runs.len() < 5) && rows.len() > 1 {
        warn("fewer than five rounds: ratios are uncertain".into(), "use --pairs 5 or more");
    }
    machine(rows, &mut list);
    if job.op == Op::Rw {
        if let Some(t) = target {
            storage(job, t, &mut list);
        }
        clock(&mut list);
    }
    list
}

fn text(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|s| s.trim().to_owned())
}

/// Warns of other work of the machine meanwhile.
fn machine(rows: &[Summary], list: &mut Vec<Warning>) {
    let mut warn = |what: String, advice| list.push(Warning { what, advice });
    let cpus = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
    let sum =
        |f: fn(&super::job::Report) -> f64| rows.iter().flat_map(|r| &r.runs).map(f).sum::<f64>();
    let whole = sum(|r| r.seconds) * 1e6 * cpus;
    let others = (sum(|r| r.machine_us as f64) - sum(|r| r.cpu_us() as f64)) / whole;
    if others > 0.10 {
        let what = format!("other work took {:.0} % of the CPUs in that time", others * 100.0);
        warn(what, "end other programs; write-back and interrupts count here too");
    }
    let steal = sum(|r| r.steal_us as f64) / whole;
    if steal > 0.01 {
        let what = format!("the hypervisor took {:.0} % of the CPUs away", steal * 100.0);
        warn(what, "measure on a dedicated machine, or trust only the ratios of pairs");
    }
    let governor = text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    if let Some(g) = governor.filter(|g| g != "performance") {
        let advice = "as root: cpupower frequency-set -g performance";
        warn(format!("the CPU frequency governor is {g}"), advice);
    }
}

fn storage(job: &Job, target: &Target, list: &mut Vec<Warning>) {
    let mut warn = |what: String, advice| list.push(Warning { what, advice });
    let queue = |file: &str| queue_file(target, file);
    if job.direct {
        // The scheduler in use stands in brackets.
        let all = queue("scheduler").unwrap_or_default();
        let chosen = all.split(['[', ']']).nth(1).unwrap_or("none");
        if chosen != "none" {
            let advice = "as root: echo none > /sys/block/DEVICE/queue/scheduler";
            warn(format!("the I/O scheduler {chosen} is between the load and the device"), advice);
        }
    } else if let Some(free) = available_memory()
        && target.size > free / 2
    {
        let advice = "use a smaller --size, or --direct";
        warn("free memory is too small to cache all reads of the file".into(), advice);
    }
    if job.setup_flags & IORING_SETUP_IOPOLL != 0 && queue("io_poll").as_deref() != Some("1") {
        let advice = "load the driver with poll queues (nvme.poll_queues=N)";
        warn("IOPOLL is set, but the device has no poll queues".into(), advice);
    }
}

/// Reads a file of the queue folder of the block device under `target`.
fn queue_file(target: &Target, file: &str) -> Option<String> {
    let meta = target.file.metadata().ok()?;
    let device = meta.file_type().is_block_device();
    let dev = if device { meta.st_rdev() } else { meta.st_dev() };
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let at = format!("/sys/dev/block/{major}:{minor}");
    // A partition's queue is that of the disk above it.
    text(&format!("{at}/queue/{file}")).or_else(|| text(&format!("{at}/../queue/{file}")))
}

fn available_memory() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Warns of a clock that only a system call can read: that is a large part of a short I/O.
fn clock(list: &mut Vec<Warning>) {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let quick = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];
    if let Some(c) = text(path).filter(|c| !quick.contains(&c.as_str())) {
        let what = format!("the clock source {c} is slow to read");
        list.push(Warning { what, advice: "use tsc if the machine has a stable one" });
    }
}
