//! The options of `metrics`, `stat` and `top`.

use super::{UnderArgs, process, seconds};
use crate::top::Sort;
use clap::{Args, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

const STATS_AFTER: &str = "\
inline: completed when submitted. poll: waited for readiness. aio: went to the kernel's aio. \
worker: went to a worker thread. queued: timeouts, polls, futexes and the like. A request counts \
only under its first route.

at once: attempts on pollable files that did not have to wait. armed: waits for readiness. at arm: \
armed waits whose file was already ready. reissued: attempts repeated when the file was ready. \
aborted: requests that went to a worker because no wait was possible. capped: requests that went \
to a worker after 128 attempts in vain.

SqThread, SqThreadCpu, SqTotalTime, SqWorkTime: as in the fdinfo of the kernel's rings with \
SQPOLL: the SQ thread, its processor, the processor time that the thread has used, and the \
processor time of the passes in which there was work. Rings that share an SQ thread show the same \
values. meter: the same values of a thread of the program, by softring_meter_create(). Counters \
only grow: take differences.";

#[derive(Debug, Args)]
#[command(after_help = STATS_AFTER)]
pub struct StatsArgs {
    /// Show only this process (default: all that you may inspect)
    #[arg(long, short, value_name = "PID", value_parser = process)]
    pub pid: Option<i32>,
    /// Include rings without requests
    #[arg(long)]
    pub all: bool,
    /// Machine-readable output: as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub format: Format,
}

/// Output format of statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for people
    Table,
    /// One document, with all counters
    Json,
    /// Text exposition format, for node_exporter's textfile collector
    Prometheus,
}

impl StatsArgs {
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

const STAT_AFTER: &str = "\
The summary goes to standard error, because standard output belongs to the program; with -p the \
summary goes to standard output.

When softring stat starts the program, all its processes count, also grandchildren and short-lived \
ones: each process passes its statistics page to softring stat. If a process cannot do this \
(another network namespace, a sandbox), and with -p, softring stat searches /proc fifty times a \
second, and may miss processes with a shorter life.

A latency is the time from when a request was taken from the submission queue to when its CQE was \
written. Every request that waits is timed. Of the requests that complete at once, one request in \
509 is timed and stands for all. With SQPOLL the SQ thread takes the request, so the latency does \
not include the time in the queue before that. docs/STATS.md says more.

The program always runs with softring's rings, because softring cannot count the kernel's rings. \
With -r a number is the mean of all runs, and +- is its standard error; the first run that fails \
is the last. With -I each line is a count of one interval; counts of 0 are left out.

The exit code and the signal are the program's own.";

#[derive(Debug, Args)]
#[command(after_help = STAT_AFTER)]
pub struct StatArgs {
    /// Watch this process until it ends, or until Ctrl-C
    #[arg(long, short, value_name = "PID", value_parser = process)]
    #[arg(conflicts_with_all = ["command", "UnderArgs"])]
    pub pid: Option<i32>,
    /// Stop watching after S seconds
    #[arg(long, value_name = "S", value_parser = seconds, requires = "pid")]
    pub seconds: Option<f64>,
    /// Machine-readable output (JSON)
    #[arg(long)]
    pub json: bool,
    /// Run the program N times, and report means and standard errors
    #[arg(long, short, value_name = "N", default_value_t = 1, conflicts_with = "pid")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Also print counts every MS milliseconds
    #[arg(long, short = 'I', value_name = "MS", conflicts_with_all = ["json", "repeat"])]
    #[arg(value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    pub interval: Option<u64>,
    /// File for the summary
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub under: UnderArgs,
    /// The program and its arguments
    #[arg(required_unless_present = "pid", trailing_var_arg = true)]
    #[arg(value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

const TOP_AFTER: &str = "\
On a terminal, keys sort (i IOPS, b bytes, c CPU, l latency, f in flight, p PID), fold (space) and \
quit (q); h shows all keys. In a pipe, or with --once, top prints plain lines.

Each process has a line, followed by lines for its rings and for its threads that poll. IOPS: \
completions per second. P50, P99: latency of the requests that completed since the last refresh. \
INFL: requests in flight. CPU%: processor time; for a thread that polls, the share of a processor \
that the thread holds. WORK%: the share of a processor in which the thread had work. ROUTES: the \
routes of the requests, as in softring metrics.

Only root sees processes of other users.";

#[derive(Debug, Args)]
#[command(after_help = TOP_AFTER)]
pub struct TopArgs {
    /// Seconds between refreshes
    #[arg(long, short, default_value_t = 1.0, value_name = "S", value_parser = delay)]
    pub delay: f64,
    /// Show only this process
    #[arg(long, short, value_name = "PID", value_parser = process)]
    pub pid: Option<i32>,
    /// Sort order
    #[arg(long, short, value_enum, default_value_t = Sort::Iops, value_name = "BY")]
    pub sort: Sort,
    /// Print one refresh, after the delay, and exit
    #[arg(long)]
    pub once: bool,
    /// Machine-readable output (JSON); without --once, a line for each refresh
    #[arg(long)]
    pub json: bool,
}

/// Parses a number of seconds, from a tenth on.
fn delay(s: &str) -> Result<f64, String> {
    let s = seconds(s)?;
    if s >= 0.1 { Ok(s) } else { Err("must be at least 0.1".to_owned()) }
}
