//! `softring bench`: the same load through the kernel's io_uring, softring and others, in
//! interleaved rounds.
//!
//! [`runner`] starts one [`worker`] process per engine and round; a worker runs one [`job`] with
//! one [`client`] under [`load`], and reports. [`stats`] and [`summary`] make the table,
//! [`warnings`] doubts it, [`plot`] draws it.

mod buf;
mod client;
pub mod file;
pub mod job;
mod libaio;
mod load;
mod phase;
mod plot;
mod pool;
mod posix_aio;
mod rings;
pub mod runner;
mod stats;
pub mod summary;
mod uring;
mod warnings;
pub mod worker;

use crate::cli::{BenchArgs, Driver, Op, Rw, name_of};
use crate::{fail, out};
use file::{Need, Target};
use job::{Job, Report};
use runner::Runner;
use serde::Serialize;
use summary::Summary;
use warnings::Warning;

/// The pattern's seed where the user needs no say in it.
const SEED: u64 = 0x50f7_2146;

/// An engine that was not measured.
#[derive(Debug, Serialize)]
pub struct Skipped {
    pub engine: Driver,
    pub why: String,
}

/// Everything, for programs.
#[derive(Debug, Serialize)]
struct Outcome<'a> {
    softring: &'static str,
    kernel: String,
    job: &'a Job,
    engines: Vec<Summary>,
    skipped: Vec<Skipped>,
    warnings: Vec<Warning>,
}

/// `softring bench`
pub fn command(args: &BenchArgs) -> anyhow::Result<()> {
    let (engines, skipped) = available(&args.engines, args.op)?;
    let job = job(args)?;
    let target = target(args, &job)?;
    let mut job = job;
    if let Some(t) = &target {
        (job.path, job.size) = (t.path.clone(), t.size);
        if !job.direct && !writes(job.rw) {
            t.warm()?;
        }
    }
    let pairs = if job.op == Op::Idle { 1 } else { args.pairs };
    let bar = out::progress(u64::from(pairs) * engines.len() as u64);
    let runs = rounds(&Runner { deny: args.deny }, &job, &engines, pairs, &bar)?;
    bar.finish_and_clear();
    let rows = summary::summarize(runs);
    let warnings = warnings::of(&job, target.as_ref(), &rows);
    if let Some(path) = &args.plot {
        plot::draw(path, &describe(&job), &rows)?;
    }
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let softring = env!("CARGO_PKG_VERSION");
    let outcome = Outcome { softring, kernel, job: &job, engines: rows, skipped, warnings };
    if args.json { out::json(&outcome) } else { print(&outcome) }
}

/// Which of the engines asked for can be measured here.
pub fn available(asked: &[Driver], op: Op) -> anyhow::Result<(Vec<Driver>, Vec<Skipped>)> {
    let (mut engines, mut skipped) = (Vec::new(), Vec::new());
    for &engine in asked {
        if op != Op::Rw && !matches!(engine, Driver::Kernel | Driver::Softring) {
            skipped.push(Skipped { engine, why: "has no rings to measure".into() });
        } else if let Some(why) = runner::unavailable(engine) {
            skipped.push(Skipped { engine, why });
        } else if !engines.contains(&engine) {
            engines.push(engine);
        }
    }
    if engines.is_empty() {
        let why: Vec<String> =
            skipped.iter().map(|s| format!("{}: {}", name_of(s.engine), s.why)).collect();
        let hint = "see softring doctor; --engines=pool,posix-aio,libaio need no io_uring";
        return Err(fail::work_hint(format!("nothing to measure: {}", why.join("; ")), hint));
    }
    Ok((engines, skipped))
}

fn writes(rw: Rw) -> bool {
    !matches!(rw, Rw::Read | Rw::Randread)
}

/// The job as the options have it, without its file.
fn job(args: &BenchArgs) -> anyhow::Result<Job> {
    let bs = u32::try_from(args.bs).ok().filter(|b| *b <= 64 << 20);
    let bs = bs.ok_or_else(|| fail::usage("--bs is too large", "64m is the most"))?;
    let unit = if args.direct { 512 } else { 8 };
    if bs % unit != 0 && (args.direct || args.verify || writes(args.rw)) {
        let hint = format!("take a multiple of {unit}");
        return Err(fail::usage(format!("--bs {bs} does not fit what is asked"), hint));
    }
    let batch = args.batch.unwrap_or(args.depth);
    if args.op == Op::Rw && (batch > args.depth || args.wait > args.depth) {
        return Err(fail::usage("--batch and --wait cannot exceed --depth", "raise --depth"));
    }
    if args.verify && args.rw == Rw::Write {
        return Err(fail::usage("--verify has nothing to read in --rw write", "use randrw"));
    }
    Ok(Job {
        driver: Driver::Kernel,
        op: args.op,
        path: String::new(),
        size: args.size,
        bs,
        depth: args.depth,
        batch,
        wait: args.wait,
        threads: args.threads,
        pool_threads: args.pool_threads,
        seconds: args.seconds,
        warmup: args.warmup,
        rw: args.rw,
        rwmix: args.rwmix,
        direct: args.direct,
        setup_flags: args.setup_flags.iter().fold(0, |a, f| a | f),
        slat: args.slat,
        verify: args.verify,
        seed: SEED,
        once: false,
    })
}

fn target(args: &BenchArgs, job: &Job) -> anyhow::Result<Option<Target>> {
    if args.op != Op::Rw {
        return Ok(None);
    }
    let need = Need {
        size: args.size,
        bs: u64::from(job.bs),
        writes: writes(job.rw),
        verify: job.verify,
        direct: job.direct,
        seed: job.seed,
    };
    let target = match (&args.file, &args.device) {
        (Some(path), _) => file::existing(path, false, args.overwrite, &need)?,
        (None, Some(path)) => file::existing(path, true, args.overwrite, &need)?,
        (None, None) => file::temporary(args.dir.as_deref(), &need)?,
    };
    Ok(Some(target))
}

/// Every engine once per round, the order turned round each time, so that a machine that gets
/// slower or faster meanwhile favours none.
pub fn rounds(
    runner: &Runner,
    job: &Job,
    engines: &[Driver],
    pairs: u32,
    bar: &indicatif::ProgressBar,
) -> anyhow::Result<Vec<(Driver, Vec<Report>)>> {
    let mut runs: Vec<(Driver, Vec<Report>)> = engines.iter().map(|e| (*e, Vec::new())).collect();
    for round in 0..pairs {
        let mut order: Vec<usize> = (0..engines.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for i in order {
            let (driver, reports) = &mut runs[i];
            bar.set_message(name_of(*driver));
            reports.push(runner.run(&Job { driver: *driver, ..job.clone() })?);
            bar.inc(1);
        }
    }
    Ok(runs)
}

/// The load in one line.
fn describe(job: &Job) -> String {
    match job.op {
        Op::Nop => format!("NOP, batch {}, {} thread(s)", job.batch, job.threads),
        Op::Setup => format!("ring set-up and exit, {} entries", job.depth),
        Op::Idle => format!("idle rings of {} entries", job.depth),
        Op::Rw => {
            let cache = if job.direct { "O_DIRECT" } else { "buffered" };
            let (rw, size) = (name_of(job.rw), job.size >> 20);
            let (bs, depth, threads) = (job.bs, job.depth, job.threads);
            format!("{rw} {cache}, {bs} bytes, depth {depth}, {threads} thread(s), {size} MiB")
        }
    }
}

fn print(o: &Outcome<'_>) -> anyhow::Result<()> {
    let runs = o.engines.first().map_or(0, |e| e.runs.len());
    out::line(&format!("{}; {runs} round(s), medians", describe(o.job)))?;
    let io = match o.job.op {
        Op::Idle => "",
        Op::Nop => "NOP",
        Op::Setup => "ring",
        Op::Rw => "I/O",
    };
    if o.job.op == Op::Idle {
        out::line(&summary::idle_table(&o.engines).to_string())?;
    } else {
        out::line(&summary::table(&o.engines, io).to_string())?;
    }
    if let Some(t) = summary::split_table(&o.engines) {
        out::line(&t.to_string())?;
    }
    if let Some(r) = o.engines.iter().find_map(|e| e.iops_ratio).filter(|r| r.confidence > 0.0) {
        let percent = r.confidence * 100.0;
        out::line(&format!(
            "Ratios are of pairs: median [interval of {percent:.0} % confidence]."
        ))?;
    }
    for s in &o.skipped {
        out::line(&format!("Skipped {}: {}.", name_of(s.engine), s.why))?;
    }
    for w in &o.warnings {
        out::line(&format!("Warning: {}.\n  {}.", w.what, w.advice))?;
    }
    Ok(())
}
