//! `softring bench`: the same load through the kernel's io_uring, softring and others, in
//! interleaved rounds.
//!
//! [`runner`] starts one [`worker`] process per engine and round; a worker runs one [`job`] with
//! one [`client`] under [`load`], and reports. [`stats`] and [`summary`] make the table,
//! [`warnings`] names doubts about it, [`plot`] draws it. [`reissue`], [`sqpoll`], [`polled`] and
//! [`hybrid`] are measurements of their own.

mod buf;
mod calls;
mod client;
mod echo;
pub mod file;
mod flags;
pub mod hybrid;
pub mod job;
mod libaio;
mod load;
mod options;
mod pbuf;
mod peer;
mod phase;
pub mod plot;
pub mod polled;
mod pool;
mod posix_aio;
mod reissue;
mod rings;
pub mod runner;
pub mod sqpoll;
mod stats;
pub mod summary;
mod timers;
pub mod uring;
mod wakes;
mod warnings;
pub mod worker;

use crate::cli::{BenchArgs, BenchOf, Driver, Op, Rw, name_of};
use crate::{fail, out};
use clap::ValueEnum;
use file::{Need, Target};
use job::{Job, Report};
use runner::Runner;
use serde::Serialize;
use summary::Summary;
use warnings::Warning;

/// Seed of the pattern and of random offsets, where the user need not choose one.
const SEED: u64 = 0x50f7_2146;

/// An engine that was not measured.
#[derive(Debug, Serialize)]
pub struct Skipped {
    pub engine: Driver,
    pub why: String,
}

/// The whole result, for JSON output.
#[derive(Debug, Serialize)]
struct Outcome<'a> {
    softring: &'static str,
    kernel: String,
    job: &'a Job,
    engines: Vec<Summary>,
    skipped: Vec<Skipped>,
    warnings: Vec<Warning>,
}

/// Runs `softring bench`.
pub fn command(args: &BenchArgs) -> anyhow::Result<()> {
    match &args.of {
        Some(BenchOf::Reissue(args)) => return reissue::command(args),
        Some(BenchOf::Sqpoll(args)) => return sqpoll::command(args),
        Some(BenchOf::Polled(args)) => return polled::command(args),
        Some(BenchOf::Hybrid(args)) => return hybrid::command(args),
        None => {}
    }
    options::check(args)?;
    let job = job(args)?;
    flags::check(&job)?;
    plot::check(args.plot.as_deref())?;
    let (engines, skipped) = available(&args.engines, args.op)?;
    let target = target(args, &job)?;
    let mut job = job;
    if let Some(t) = &target {
        (job.path, job.size) = (t.path.clone(), t.size);
        if !job.direct && !writes(job.rw) {
            t.warm()?;
        }
    }
    let once = matches!(job.op, Op::Idle | Op::IdleSockets);
    let pairs = if once { 1 } else { args.pairs };
    let bar = out::progress(u64::from(pairs) * engines.len() as u64);
    let runs = rounds(&Runner { deny: args.deny, options: &[] }, &job, &engines, pairs, &bar)?;
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

/// Returns the engines asked for that can be measured here, and those that cannot.
pub fn available(asked: &[Driver], op: Op) -> anyhow::Result<(Vec<Driver>, Vec<Skipped>)> {
    let (mut engines, mut skipped) = (Vec::new(), Vec::new());
    for &engine in asked {
        if let Some(why) = cannot(engine, op) {
            skipped.push(Skipped { engine, why: why.into() });
        } else if let Some(why) = runner::unavailable(engine) {
            skipped.push(Skipped { engine, why });
        } else if !engines.contains(&engine) {
            engines.push(engine);
        }
    }
    if engines.is_empty() {
        let able = |e: &Driver| cannot(*e, op).is_none();
        if !asked.iter().any(able) {
            let able: Vec<String> =
                Driver::value_variants().iter().filter(|e| able(e)).map(|e| name_of(*e)).collect();
            let what = format!("none of these engines supports --op {}", name_of(op));
            let epoll =
                if asked.contains(&Driver::Epoll) { "; epoll is for --op echo" } else { "" };
            return Err(fail::usage(what, format!("use --engines {}{epoll}", able.join(", "))));
        }
        let why: Vec<String> =
            skipped.iter().map(|s| format!("{}: {}", name_of(s.engine), s.why)).collect();
        let hint = "see softring doctor; --engines=pool,posix-aio,libaio,calls need no io_uring";
        return Err(fail::work_hint(format!("nothing to measure: {}", why.join("; ")), hint));
    }
    Ok((engines, skipped))
}

/// Returns the reason why an engine has no way to do `op`; None if it has one.
fn cannot(engine: Driver, op: Op) -> Option<&'static str> {
    match (engine, op) {
        (Driver::Kernel | Driver::Softring, _) | (Driver::Epoll, Op::Echo) => None,
        (Driver::Epoll, _) => Some("is an echo server only"),
        (_, Op::Rw) => None,
        (Driver::Calls, Op::Poll | Op::MsgRing | Op::Futex | Op::Setup) => None,
        _ => Some("has no rings to measure"),
    }
}

fn writes(rw: Rw) -> bool {
    !matches!(rw, Rw::Read | Rw::Randread)
}

/// Makes the job that the options describe, without its file.
fn job(args: &BenchArgs) -> anyhow::Result<Job> {
    let bs = u32::try_from(args.bs).ok().filter(|b| *b <= 64 << 20);
    let bs = bs.ok_or_else(|| fail::usage("--bs is too large", "the maximum is 64m"))?;
    let unit = if args.direct { 512 } else { 8 };
    if bs % unit != 0 && (args.direct || args.verify || writes(args.rw)) {
        let hint = format!("use a multiple of {unit}");
        let why = if args.direct {
            "O_DIRECT needs whole sectors"
        } else {
            "the pattern consists of whole words"
        };
        return Err(fail::usage(format!("--bs {bs} is not possible: {why}"), hint));
    }
    let batch = args.batch.unwrap_or(args.depth);
    if args.op == Op::Rw && (batch > args.depth || args.wait > args.depth) {
        return Err(fail::usage("--batch and --wait cannot exceed --depth", "raise --depth"));
    }
    if args.verify && args.rw == Rw::Write {
        return Err(fail::usage("--verify needs reads, and --rw write has none", "use randrw"));
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
        fixed_files: args.fixed_files,
        slat: args.slat,
        verify: args.verify,
        seed: SEED,
        once: false,
        connections: args.connections,
        multishot: args.multishot,
        count: args.count,
        rate: 0,
        sq_idle: 0,
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

/// Runs every engine once per round. The order is reversed each round, so that a machine that gets
/// slower or faster meanwhile favours none.
pub fn rounds(
    runner: &Runner<'_>,
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

/// Describes the load in one line.
fn describe(job: &Job) -> String {
    let Job { batch, bs, connections, count, depth, threads, .. } = *job;
    match job.op {
        Op::Nop => format!("NOP, batch {batch}, {threads} thread(s)"),
        Op::Setup => format!("ring set-up and exit, {depth} entries"),
        Op::Idle => format!("idle rings of {depth} entries"),
        Op::Echo | Op::EchoLoad => {
            let how = if job.multishot { "multishot RECV" } else { "RECV" };
            format!("TCP echo, {connections} connection(s), {bs} bytes, {how}")
        }
        Op::IdleSockets => format!("{connections} connections that wait for data"),
        Op::Poll => format!("POLL_ADD and its wake-up, {depth} eventfd(s)"),
        Op::TimeoutAdd => format!("TIMEOUT, {count} armed, batch {batch}"),
        Op::TimeoutCancel => format!("TIMEOUT_REMOVE, {count} armed, batch {batch}"),
        Op::TimeoutExpire => format!("TIMEOUT, {count} that expire at once"),
        Op::MsgRing => format!("MSG_RING between two threads, {depth} each way"),
        Op::Futex => format!("FUTEX_WAIT and FUTEX_WAKE, {depth} futex(es)"),
        Op::Sqpoll => "SQPOLL".into(),
        Op::Rw => {
            let cache = if job.direct { "O_DIRECT" } else { "buffered" };
            let (rw, size) = (name_of(job.rw), job.size >> 20);
            format!("{rw} {cache}, {bs} bytes, depth {depth}, {threads} thread(s), {size} MiB")
        }
    }
}

/// Returns the name of one operation.
fn unit(op: Op) -> &'static str {
    match op {
        Op::Idle | Op::IdleSockets => "",
        Op::Nop => "NOP",
        Op::Setup => "ring",
        Op::Echo | Op::EchoLoad => "request",
        Op::Poll => "poll",
        Op::TimeoutAdd | Op::TimeoutCancel | Op::TimeoutExpire => "timeout",
        Op::MsgRing => "message",
        Op::Futex => "wake",
        Op::Rw | Op::Sqpoll => "I/O",
    }
}

fn print(o: &Outcome<'_>) -> anyhow::Result<()> {
    let runs = o.engines.first().map_or(0, |e| e.runs.len());
    out::line(&format!("{}; {runs} round(s), medians", describe(o.job)))?;
    let table = match o.job.op {
        Op::Idle => summary::idle_table(&o.engines),
        Op::IdleSockets => summary::waiting_table(&o.engines),
        op => summary::table(&o.engines, unit(op)),
    };
    out::line(&table.to_string())?;
    if let Some(t) = summary::split_table(&o.engines) {
        out::line(&t.to_string())?;
    }
    if let Some(r) = o.engines.iter().find_map(|e| e.iops_ratio).filter(|r| r.confidence > 0.0) {
        let percent = r.confidence * 100.0;
        out::line(&format!(
            "Ratios compare pairs of runs: median [{percent:.0} % confidence interval]."
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
