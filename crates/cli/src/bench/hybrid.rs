//! `softring bench hybrid --simulate`: rules for sleeping, tried on traces in simulated time.

mod simulation;

use self::simulation::{Machine, RuleKind, Trace, TraceKind, run};
use super::plot;
use super::summary::{count, time};
use crate::{fail, out};
use clap::{Args, ValueHint};
use comfy_table::{Cell, CellAlignment};
use serde::Serialize;
use std::path::PathBuf;

const HYBRID_AFTER: &str = "\
The command simulates a device, a machine and a thread that polls. spin, block, hybrid and \
adaptive are the policies of softring run --poll. minimum/2 is the rule of Linux since 6.13: sleep \
for half of the shortest run time seen so far, from the moment at which a request is polled for. \
source is the rule of the first version of that patch: half of the last run time, less the \
lateness of the last sleep. mean/2 is the rule of blk-mq until 6.4.

x: latency as a multiple of spin's latency. unseen: time for which a finished request lay unseen \
because of a sleep. spun: time spent polling before a request finished. Both are averages per I/O.

Traces: constant (80 us), bimodal (25 or 100 us), heavy tail (at least 60 us, Pareto with exponent \
2), drifting (50 to 450 us), pausing (constant, but once in 500 requests the program waits eight \
minutes before it polls; that time does not count as CPU time), busy (one request after the other, \
19 us each, and 80 us in parallel to that), busy uneven (one request after the other, 19 us on \
average, exponential), eight units (each unit works on one request for 150 us, plus or minus a \
third), pipeline (800 us in parallel, behind a stage that takes 10 us per request).";

#[derive(Debug, Args)]
#[command(after_help = HYBRID_AFTER)]
pub struct HybridArgs {
    /// Run in simulated time
    #[arg(long)]
    pub simulate: bool,
    /// I/Os per rule and trace
    #[arg(long, default_value_t = 20_000, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    pub ios: u32,
    /// Queue depths
    #[arg(long, value_delimiter = ',', default_value = "1,64", value_name = "LIST")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub depths: Vec<u32>,
    /// Delay of a wake-up, in ns
    #[arg(long, default_value_t = 3_000, value_name = "NS")]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub late: u64,
    /// Processor time of a sleep, in ns
    #[arg(long, default_value_t = 2_500, value_name = "NS")]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub cpu: u64,
    /// Processor time of a submission, in ns
    #[arg(long, default_value_t = 1_000, value_name = "NS")]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub submit: u64,
    /// Seed of the traces' random numbers
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Machine-readable output (JSON)
    #[arg(long)]
    pub json: bool,
    /// Also draw the result
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub plot: Option<PathBuf>,
}

/// Result of one rule on one trace. Times in ns, averages per I/O.
#[derive(Debug, Serialize)]
struct Row {
    rule: &'static str,
    latency_ns: f64,
    latency_ratio: f64,
    p99_ns: u64,
    cpu_percent: f64,
    #[serde(rename = "oversleep_ns")]
    unseen_ns: f64,
    undersleep_ns: f64,
    idle_sleeps: f64,
    longest_idle_sleep_ns: u64,
    iops: f64,
}

#[derive(Debug, Serialize)]
struct Table {
    trace: &'static str,
    depth: usize,
    rows: Vec<Row>,
}

/// The whole result, for JSON output.
#[derive(Debug, Serialize)]
struct Outcome {
    softring: &'static str,
    ios: u32,
    seed: u64,
    timer_late_ns: u64,
    timer_cpu_ns: u64,
    tables: Vec<Table>,
}

/// Runs `softring bench hybrid`.
pub fn command(args: &HybridArgs) -> anyhow::Result<()> {
    plot::check(args.plot.as_deref())?;
    if !args.simulate {
        let hint = "softring bench hybrid --simulate";
        return Err(fail::usage("bench hybrid only measures the simulation", hint));
    }
    let machine = Machine { late: args.late, cpu: args.cpu, submit: args.submit };
    let mut tables = Vec::new();
    for kind in TraceKind::ALL {
        for &depth in &args.depths {
            tables.push(table(kind, depth as usize, machine, args));
        }
    }
    let outcome = Outcome {
        softring: env!("CARGO_PKG_VERSION"),
        ios: args.ios,
        seed: args.seed,
        timer_late_ns: args.late,
        timer_cpu_ns: args.cpu,
        tables,
    };
    if let Some(path) = &args.plot {
        draw(path, &outcome)?;
    }
    if args.json { out::json(&outcome) } else { print(&outcome) }
}

fn table(kind: TraceKind, depth: usize, machine: Machine, args: &HybridArgs) -> Table {
    let mut base = None;
    let row = |rule: RuleKind| {
        let mut trace = Trace::new(kind, args.seed);
        let o = run(&mut *rule.rule(machine, depth), &mut trace, machine, depth, args.ios as usize);
        Row {
            rule: rule.name(),
            latency_ns: o.latency,
            latency_ratio: o.latency / *base.get_or_insert(o.latency),
            p99_ns: o.p99,
            cpu_percent: o.cpu,
            unseen_ns: o.unseen,
            undersleep_ns: o.undersleep,
            idle_sleeps: o.idle_sleeps,
            longest_idle_sleep_ns: o.longest_idle_sleep,
            iops: o.iops,
        }
    };
    Table { trace: kind.name(), depth, rows: RuleKind::ALL.into_iter().map(row).collect() }
}

fn draw(path: &std::path::Path, o: &Outcome) -> anyhow::Result<()> {
    let title = format!("timers {} late, {} I/Os", time(o.timer_late_ns as f64), o.ios);
    let names: Vec<&str> = RuleKind::ALL.iter().map(|r| r.name()).collect();
    let point = |r: &Row| (r.latency_ratio, r.cpu_percent);
    let panel =
        |t: &Table| (format!("{}, depth {}", t.trace, t.depth), t.rows.iter().map(point).collect());
    let panels: Vec<_> = o.tables.iter().map(panel).collect();
    plot::draw_points(
        path,
        &title,
        &names,
        ["latency, as a multiple of spinning's", "CPU %"],
        &panels,
    )
}

fn print(o: &Outcome) -> anyhow::Result<()> {
    for t in &o.tables {
        out::line(&format!("{}, depth {}, {} I/Os", t.trace, t.depth, o.ios))?;
        let header =
            ["rule", "IOPS", "latency", "x", "p99", "CPU %", "unseen", "spun", "sleeps", "longest"];
        let mut table = out::table(&header);
        for r in &t.rows {
            let cells = [
                count(r.iops),
                time(r.latency_ns),
                format!("{:.2}", r.latency_ratio),
                time(r.p99_ns as f64),
                format!("{:.0}", r.cpu_percent),
                time(r.unseen_ns),
                time(r.undersleep_ns),
                format!("{:.2}", r.idle_sleeps),
                time(r.longest_idle_sleep_ns as f64),
            ];
            let right = |c| Cell::new(c).set_alignment(CellAlignment::Right);
            table.add_row([Cell::new(r.rule)].into_iter().chain(cells.map(right)));
        }
        out::line(&table.to_string())?;
    }
    Ok(())
}
