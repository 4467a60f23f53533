//! `softring bench sqpoll`: reads at a steady rate through an SQ thread, the kernel's and ours:
//! their latencies, and the processor time of the SQ thread.

pub mod client;
mod sleeps;

use self::sleeps::Sleeps;
use super::job::{Job, Report};
use super::runner::{Runner, unavailable};
use super::stats::{Ratio, median, ratio};
use super::summary::{count, time};
use crate::bench::file::{self, Need};
use crate::cli::{Driver, Op, Rw, SqpollArgs};
use crate::{fail, out};
use comfy_table::{Cell, CellAlignment};
use serde::Serialize;

/// The sides that are compared, each with its options for `softring run`. The others are compared
/// with the first, if it is there.
const SIDES: [(&str, Driver, &[&str]); 4] = [
    ("kernel", Driver::Kernel, &[]),
    ("spin", Driver::Softring, &["--sq-idle=spin"]),
    ("sleep", Driver::Softring, &["--sq-idle=sleep"]),
    ("no-stats", Driver::Softring, &["--sq-idle=spin", "--no-stats"]),
];

/// Returns the names of the sides that can be compared.
pub fn names() -> Vec<&'static str> {
    SIDES.iter().map(|side| side.0).collect()
}

/// One side at one rate: medians, and ratios to the first side, by pairs.
#[derive(Debug, Serialize)]
struct Row {
    rate: u32,
    side: &'static str,
    iops: f64,
    p50_ns: f64,
    p99_ns: f64,
    p999_ns: f64,
    /// Share of one processor, in percent.
    sq_thread_cpu: f64,
    iops_ratio: Option<Ratio>,
    p99_ratio: Option<Ratio>,
    runs: Vec<Report>,
}

/// The whole result, for JSON output.
#[derive(Debug, Serialize)]
struct Outcome {
    softring: &'static str,
    kernel: String,
    job: Job,
    rows: Vec<Row>,
    /// Sleeps measured here, which limit what the side `sleep` can reach.
    sleeps: Vec<Sleeps>,
    skipped: Vec<String>,
}

/// Runs `softring bench sqpoll`.
pub fn command(args: &SqpollArgs) -> anyhow::Result<()> {
    let (mut sides, mut skipped) = (Vec::new(), Vec::new());
    for side in SIDES.iter().filter(|side| args.sides.iter().any(|s| s == side.0)) {
        match unavailable(side.1) {
            Some(why) => skipped.push(format!("{}: {why}", side.0)),
            None => sides.push(*side),
        }
    }
    if sides.is_empty() {
        let why = format!("nothing to measure: {}", skipped.join("; "));
        return Err(fail::work_hint(why, "see softring doctor"));
    }
    let need = Need {
        size: args.size,
        bs: 4096,
        writes: false,
        verify: false,
        direct: args.direct,
        seed: 1,
    };
    let target = file::temporary(args.dir.as_deref(), &need)?;
    if !args.direct {
        target.warm()?;
    }
    let job = Job { path: target.path.clone(), size: target.size, ..job(args) };
    let bar = out::progress(u64::from(args.pairs) * (args.rates.len() * sides.len()) as u64);
    let mut rows = Vec::new();
    for &rate in &args.rates {
        let mut runs: Vec<Vec<Report>> = vec![Vec::new(); sides.len()];
        for round in 0..args.pairs {
            let mut order: Vec<usize> = (0..sides.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for i in order {
                let (name, driver, options) = sides[i];
                bar.set_message(format!("{name}, {rate}/s"));
                let job = Job { driver, rate, ..job.clone() };
                runs[i].push(Runner { deny: false, options }.run(&job)?);
                bar.inc(1);
            }
        }
        let first = runs[0].clone();
        let named = sides.iter().zip(runs);
        rows.extend(named.map(|(side, runs)| row(rate, side.0, runs, &first)));
    }
    bar.finish_and_clear();
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let idle_sleeps = sides.iter().any(|side| side.0 == "sleep");
    let rated = args.rates.iter().filter(|rate| idle_sleeps && **rate > 0);
    let sleeps = rated.map(|rate| Sleeps::measure(*rate)).collect();
    let outcome =
        Outcome { softring: env!("CARGO_PKG_VERSION"), kernel, job, rows, sleeps, skipped };
    if args.json { out::json(&outcome) } else { print(&outcome, sides[0].0) }
}

fn job(args: &SqpollArgs) -> Job {
    Job {
        driver: Driver::Kernel,
        op: Op::Sqpoll,
        path: String::new(),
        size: 0,
        bs: 4096,
        depth: args.depth,
        batch: 1,
        wait: 0,
        threads: 1,
        pool_threads: 1,
        seconds: args.seconds,
        warmup: args.warmup,
        rw: Rw::Randread,
        rwmix: 100,
        direct: args.direct,
        fixed_files: false,
        setup_flags: 0,
        slat: false,
        verify: false,
        seed: 1,
        once: false,
        connections: 0,
        multishot: false,
        count: 0,
        rate: 0,
        sq_idle: args.idle_ms,
    }
}

fn row(rate: u32, side: &'static str, runs: Vec<Report>, first: &[Report]) -> Row {
    let all = |f: fn(&Report) -> f64| runs.iter().map(f).collect::<Vec<f64>>();
    let pairs = |f: fn(&Report) -> f64| {
        let each: Vec<f64> = runs.iter().zip(first).map(|(a, b)| f(a) / f(b)).collect();
        ratio(&each)
    };
    Row {
        rate,
        side,
        iops: median(&all(Report::iops)),
        p50_ns: median(&all(|r| r.lat.p50 as f64)),
        p99_ns: median(&all(|r| r.lat.p99 as f64)),
        p999_ns: median(&all(|r| r.lat.p999 as f64)),
        sq_thread_cpu: median(&all(|r| r.sq_cpu.unwrap_or(f64::NAN))),
        iops_ratio: pairs(Report::iops),
        p99_ratio: pairs(|r| r.lat.p99 as f64),
        runs,
    }
}

fn print(o: &Outcome, first: &str) -> anyhow::Result<()> {
    let how = if o.job.direct { "O_DIRECT" } else { "cached" };
    let rounds = o.rows.first().map_or(0, |r| r.runs.len());
    let Job { bs, depth, seconds, .. } = o.job;
    out::line(&format!(
        "{how} random reads of {bs} bytes by SQPOLL, at most {depth} in flight; {rounds} round(s) \
         of {seconds} s, medians; ratios to {first}, of pairs"
    ))?;
    let header =
        ["rate", "side", "IOPS", "p50", "p99", "p99.9", "SQ thread", "IOPS ratio", "p99 ratio"];
    let mut t = out::table(&header);
    let ratio = |r: &Option<Ratio>| {
        r.map_or_else(String::new, |r| format!("{:.3} [{:.3}, {:.3}]", r.median, r.low, r.high))
    };
    for r in &o.rows {
        let rate = if r.rate == 0 { "most".to_owned() } else { count(f64::from(r.rate)) };
        let cells = [
            rate,
            r.side.to_owned(),
            count(r.iops),
            time(r.p50_ns),
            time(r.p99_ns),
            time(r.p999_ns),
            format!("{:.0} %", r.sq_thread_cpu),
            ratio(&r.iops_ratio),
            ratio(&r.p99_ratio),
        ];
        t.add_row(cells.map(|c| Cell::new(c).set_alignment(CellAlignment::Right)));
    }
    out::line(&t.to_string())?;
    o.sleeps.iter().try_for_each(|s| out::line(&s.text()))?;
    o.skipped.iter().try_for_each(|why| out::line(&format!("Skipped {why}.")))
}
