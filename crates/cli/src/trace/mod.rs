//! `softring trace`: writes the steps of every request as a Chrome trace.
//! `softring_engine::stats::trace` records the steps.

mod counters;
mod faults;
mod find;
mod json;
mod output;
mod readers;
mod record;
pub mod session;
mod svg;
mod tracks;

pub use readers::Readers;

use crate::cli::{Engine, TraceArgs};
use crate::strace::select::{Ops, Select};
use crate::{fail, out};
use anyhow::Context;
pub use faults::fault_name;
use flate2::Compression;
use flate2::write::GzEncoder;
use output::Output;
use record::Record;
use session::{Session, Sink};
use softring_engine::stats::trace::Event;
use softring_engine::stats::trace::read::Source;
use std::fs;
use std::io::BufWriter;
use std::path::Path;

const NOTHING_SEEN: &str = "hint: softring saw no activity of its rings; it does not see \
                            short-lived processes that cannot reach it (another network namespace, \
                            a sandbox)";

impl Sink for Record {
    fn event(&mut self, process: u32, source: &Source, event: Event, more: &[u64]) {
        self.add(process, source, event, more);
    }

    fn passed(&mut self, _: &Readers) {}
}

/// Runs `softring trace`.
pub fn command(args: &TraceArgs) -> anyhow::Result<()> {
    refuse_kernel(args.under.engine)?;
    crate::bench::plot::check(args.svg.as_deref())?;
    let found = args.pid.map(session::find).transpose()?;
    let output = Output::open(&args.output)?;
    let mut session = match found {
        Some(found) => Session::attach(found, !args.no_paths)?,
        None => Session::start(&args.under, &args.command, !args.no_paths)?,
    };
    let mut record = Record::new(args.keep);
    let status = session.follow(args.seconds, &mut record)?;
    if let Some(code) = session.never_ran(status) {
        output.discard();
        std::process::exit(code);
    }
    let readers = &session.readers;
    record.dropped = readers.dropped();
    let written = write(args, output, readers, &mut record)?;
    report(args, &record, &written, &readers.missing());
    session::end_as(status)
}

/// Fails, as there is nothing to see of the kernel's rings.
pub fn refuse_kernel(engine: Option<Engine>) -> anyhow::Result<()> {
    match engine {
        Some(Engine::Kernel) => {
            Err(fail::usage("the kernel's rings cannot be traced", "leave --engine out"))
        }
        _ => Ok(()),
    }
}

/// Says that nothing came. `attached`: the trace was of a running process, not of a program that it
/// started.
pub fn nothing_seen(attached: bool) {
    out::note(match attached {
        true => "hint: no ring of softring was active during the trace",
        // A process that cannot reach us is searched for in /proc, and may have ended before.
        false => NOTHING_SEEN,
    });
}

/// Writes the trace.
fn write(
    args: &TraceArgs,
    output: Output,
    readers: &Readers,
    record: &mut Record,
) -> anyhow::Result<json::Written> {
    let events = record.by_time();
    let first = events.iter().map(|k| record::began(&k.event)).min().unwrap_or(0);
    let start = readers.ns(first);
    let at = |ticks| readers.ns(ticks).saturating_sub(start) as f64 / 1000.0;
    let about = serde_json::json!({
        "softring": env!("CARGO_PKG_VERSION"),
        "of": title(args),
        "clock": "CLOCK_MONOTONIC",
        "start_ns": start,
        "dropped": record.dropped,
        "left_out": record.left_out,
    });
    let select = Select { ops: Ops::of(&args.ops), failed: args.failed, slow: args.slow };
    let written = output.write(|file| {
        let out = BufWriter::new(file);
        if !is_gzip(&args.output) {
            return json::write(out, &events, record, select, at, &about);
        }
        let mut out = GzEncoder::new(out, Compression::default());
        let written = json::write(&mut out, &events, record, select, at, &about)?;
        out.try_finish().context("cannot write the trace")?;
        Ok(written)
    })?;
    if let Some(path) = &args.svg {
        let picture = svg::draw(&events, record, at);
        fs::write(path, picture).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(written)
}

fn is_gzip(path: &Path) -> bool {
    path.extension().is_some_and(|ext| ext == "gz")
}

fn title(args: &TraceArgs) -> String {
    match args.pid {
        Some(pid) => format!("process {pid}"),
        None => {
            let words: Vec<_> = args.command.iter().map(|w| w.to_string_lossy()).collect();
            words.join(" ")
        }
    }
}

fn report(args: &TraceArgs, record: &Record, written: &json::Written, missing: &[String]) {
    let at = args.output.display();
    let lost = match record.dropped {
        0 => String::new(),
        n => format!(", {n} dropped because they came too fast"),
    };
    let old = match record.left_out {
        0 => String::new(),
        n => format!(", the oldest {n} left out (--keep)"),
    };
    out::note(&format!(
        "trace: {} events, {} requests{lost}{old}: {at}",
        written.events, written.requests
    ));
    for who in missing {
        out::note(&format!("not traced: {who}"));
    }
    if written.events == 0 && record.dropped == 0 && missing.is_empty() {
        nothing_seen(args.pid.is_some());
    }
}
