//! `softring bench polled`: the cost and the gain of waiting by polling. The table of the kernel's
//! hybrid polling patch (128k reads and writes, 4k random reads and writes, many and one in flight)
//! for four policies, on a real disk and on modelled ones.
//!
//! Every round runs all four policies of a row, in turn; [`row`] sums up, [`target`] judges,
//! [`draw`] draws.

mod draw;
mod floor;
mod idle_sleeps;
mod row;
mod target;

use super::file::{self, Need, Target};
use super::job::{Job, Report};
use super::plot;
use super::runner::Runner;
use crate::cli::{Driver, Op, Poll as Policy, PolledArgs, Rw, name_of};
use crate::{fail, out};
use anyhow::Context;
use clap::ValueEnum;
use floor::Floor;
use idle_sleeps::IdleSleeps;
use row::Row;
use serde::{Deserialize, Serialize};
use softring_uapi::{IORING_SETUP_HYBRID_IOPOLL, IORING_SETUP_IOPOLL};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

/// Most seconds of a run that are traced: every request makes a few events.
const TRACED: f64 = 0.25;

/// Returns the set-up flags of the ring of a program with this policy. One that blocks makes a
/// plain ring.
fn flags(policy: Policy) -> u32 {
    match policy {
        Policy::Block => 0,
        Policy::Hybrid => IORING_SETUP_IOPOLL | IORING_SETUP_HYBRID_IOPOLL,
        Policy::Spin | Policy::Adaptive => IORING_SETUP_IOPOLL,
    }
}

/// Disk that the file is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Disk {
    /// The disk that --dir is on
    Real,
    /// Modelled, with a file in memory
    NvmeGen4,
    /// Modelled, with a file in memory
    NvmeGen5,
    /// Modelled, with a file in memory
    CloudSsd,
}

/// One line of the source's table.
#[derive(Clone, Copy, Debug)]
struct Load {
    name: &'static str,
    rw: Rw,
    bs: u32,
    /// The source's CPU %, and the most that hybrid polling may need here.
    cpu: (f64, f64),
}

const LOADS: [Load; 4] = [
    Load { name: "read 128k", rw: Rw::Read, bs: 128 << 10, cpu: (44.0, 30.0) },
    Load { name: "write 128k", rw: Rw::Write, bs: 128 << 10, cpu: (32.0, 25.0) },
    Load { name: "randread 4k", rw: Rw::Randread, bs: 4096, cpu: (100.0, 60.0) },
    Load { name: "randwrite 4k", rw: Rw::Randwrite, bs: 4096, cpu: (15.0, 12.0) },
];

/// The whole result, for JSON output.
#[derive(Debug, Serialize)]
struct Outcome {
    softring: &'static str,
    kernel: String,
    pairs: u32,
    seconds: f64,
    busy: u32,
    real_data: bool,
    rows: Vec<Row>,
    targets: Vec<target::Target>,
}

/// Runs `softring bench polled`.
pub fn command(args: &PolledArgs) -> anyhow::Result<()> {
    plot::check(args.plot.as_deref())?;
    if let Some(why) = super::runner::unavailable(Driver::Softring) {
        return Err(fail::work(why));
    }
    let stop = AtomicBool::new(false);
    let rows = thread::scope(|scope| {
        for _ in 0..args.busy {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let rows = rows(args);
        stop.store(true, Relaxed);
        rows
    })?;
    let targets = target::judge(&rows);
    if let Some(path) = &args.plot {
        draw::draw(path, &rows)?;
    }
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let outcome = Outcome {
        softring: env!("CARGO_PKG_VERSION"),
        kernel,
        pairs: args.pairs,
        seconds: args.seconds,
        busy: args.busy,
        real_data: args.data,
        rows,
        targets,
    };
    if args.json { out::json(&outcome) } else { print(&outcome) }
}

fn rows(args: &PolledArgs) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let cells = args.disks.len() * args.depths.len() * LOADS.len();
    let bar = out::progress(cells as u64 * u64::from(args.pairs));
    for &disk in &args.disks {
        let dir = folder(args, disk)?;
        let need = Need {
            size: args.size,
            bs: 128 << 10,
            writes: true,
            verify: false,
            direct: true,
            seed: super::SEED,
        };
        let file = file::temporary(Some(&dir), &need)?;
        for &depth in &args.depths {
            for load in LOADS {
                bar.set_message(format!("{}, {}, depth {depth}", name_of(disk), load.name));
                rows.push(one(args, disk, &dir, &file, load, depth, &bar)?);
            }
        }
    }
    bar.finish_and_clear();
    Ok(rows)
}

/// Returns the folder for the file: one on a modelled disk must not wait for a real one.
fn folder(args: &PolledArgs, disk: Disk) -> anyhow::Result<PathBuf> {
    let memory = Path::new("/dev/shm");
    let dir = match (&args.dir, disk) {
        (Some(dir), Disk::Real) => dir.clone(),
        (None, Disk::Real) => std::env::temp_dir(),
        _ if memory.is_dir() => memory.to_owned(),
        (dir, _) => dir.clone().unwrap_or_else(std::env::temp_dir),
    };
    dir.canonicalize().with_context(|| format!("cannot find {}", dir.display()))
}

/// Returns the options for `softring run`.
fn options(args: &PolledArgs, disk: Disk, dir: &Path, name: &str, policy: Policy) -> Vec<String> {
    let data = if args.data { "real" } else { "none" };
    let model = format!("--model={}={name},data:{data}", dir.display());
    let poll = format!("--poll={}", name_of(policy));
    if disk == Disk::Real { vec![poll] } else { vec![model, poll] }
}

fn job(args: &PolledArgs, file: &Target, load: Load, depth: u32) -> Job {
    Job {
        driver: Driver::Softring,
        op: Op::Rw,
        path: file.path.clone(),
        size: file.size,
        bs: load.bs,
        depth,
        batch: depth,
        wait: 1,
        threads: 1,
        pool_threads: 1,
        seconds: args.seconds,
        warmup: args.warmup,
        rw: load.rw,
        rwmix: 0,
        direct: true,
        setup_flags: 0,
        fixed_files: false,
        slat: false,
        verify: false,
        seed: super::SEED,
        once: false,
        connections: 0,
        multishot: false,
        count: 0,
        rate: 0,
        sq_idle: 0,
    }
}

/// Measures one row: all policies in turn, the order reversed each round.
fn one(
    args: &PolledArgs,
    disk: Disk,
    dir: &Path,
    file: &Target,
    load: Load,
    depth: u32,
    bar: &indicatif::ProgressBar,
) -> anyhow::Result<Row> {
    let job = job(args, file, load, depth);
    let mut runs: Vec<(Policy, Vec<Report>)> =
        args.policies.iter().map(|p| (*p, Vec::new())).collect();
    let with = |policy: Policy, model: &str, wait: u32| {
        let options = options(args, disk, dir, model, policy);
        let job = Job { setup_flags: flags(policy), wait, ..job.clone() };
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        Runner { deny: true, options: &options }.run(&job)
    };
    for round in 0..args.pairs {
        let mut order: Vec<usize> = (0..runs.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for i in order {
            let report = with(runs[i].0, &name_of(disk), 1)?;
            runs[i].1.push(report);
        }
        bar.inc(1);
    }
    let mut row = row::sum(disk, load.name, depth, load.cpu, &runs);
    if let Some(spin) = row.of(Policy::Spin).filter(|_| depth > 1) {
        // Measures submitting and completing without waits; on a real disk, with as few waits as
        // possible.
        let minimal = match disk {
            Disk::Real => with(Policy::Block, "", depth)?,
            _ => with(Policy::Block, "null", 1)?,
        };
        row.floor = Some(Floor::measure(minimal.cpu_us_per_io(), spin.iops, spin.mean_ns));
    }
    if args.plot.is_some() && row.of(Policy::Hybrid).is_some() {
        let options = options(args, disk, dir, &name_of(disk), Policy::Hybrid);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let seconds = args.seconds.min(TRACED);
        let job = Job { setup_flags: flags(Policy::Hybrid), seconds, warmup: 0.0, ..job };
        let (_, events) = Runner { deny: true, options: &options }.run_traced(&job)?;
        row.idle_sleeps = Some(IdleSleeps::of(&events));
    }
    Ok(row)
}

fn print(o: &Outcome) -> anyhow::Result<()> {
    let busy = if o.busy > 0 { format!(", beside {} busy threads", o.busy) } else { String::new() };
    out::line(&format!("{} round(s) of {} s, medians{busy}", o.pairs, o.seconds))?;
    for row in &o.rows {
        out::line(&format!("\n{}, {}, depth {}", name_of(row.disk), row.load, row.depth))?;
        if let Some(floor) = &row.floor {
            out::line(&floor.text())?;
        }
        out::line(&row::table(row).to_string())?;
        if let Some(idle_sleeps) = &row.idle_sleeps {
            out::line(&idle_sleeps.text())?;
        }
    }
    if !o.targets.is_empty() {
        out::line("")?;
        out::line(&target::table(&o.targets).to_string())?;
    }
    Ok(())
}
