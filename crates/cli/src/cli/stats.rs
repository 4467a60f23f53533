//! The options of `metrics`, `stat` and `top`.

use super::{UnderArgs, process, seconds};
use crate::top::Sort;
use clap::{Args, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

const STATS_AFTER: &str = "\
inline: ended when they were submitted. poll: waited for readiness. aio: went to the kernel's \
aio. worker: went to a thread. queued: timeouts, polls, futexes and the like. A request is \
counted where it went first.

at once: attempts at what can be polled that did not have to wait. armed: waits for readiness. \
at arm: of those, ready when they were armed. reissued: attempts made again when ready. \
aborted: waits that went to a worker, as none was possible. capped: the same after 128 attempts \
in vain.

SqThread, SqThreadCpu, SqTotalTime, SqWorkTime: as in the fdinfo of the kernel's rings with \
SQPOLL: the thread that submits, its processor, the processor time that it has used, and that of \
the passes in which there was work. Rings that share a thread show the same. meter: the same of \
a thread of the program's own, by softring_meter_create(). Counters only grow: take differences.";

#[derive(Debug, Args)]
#[command(after_help = STATS_AFTER)]
pub struct StatsArgs {
    /// Only this process (default: all that you may look at)
    #[arg(long, short, value_name = "PID", value_parser = process)]
    pub pid: Option<i32>,
    /// Include rings that never had a request
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
The summary goes to standard error, as standard output is the program's; with -p to standard \
output.

Of a program that is started here every process counts, also grandchildren, however short it \
lives: each hands its page over. Where it cannot (another network namespace, a sandbox), and \
with -p, processes are looked for in /proc fifty times a second: one that lives shorter may be \
missed.

A latency is the time from when a request was taken from the submission queue to when its CQE was \
written. What waits is timed; of what ends at once one request in 509, which stands for all. With \
SQPOLL the SQ thread takes it: how long the request lay in the queue before that is not in it. \
docs/STATS.md says more.

The program runs with softring's rings, also where the kernel would give it some, of which there \
is nothing to count. With -r a number is the mean of all runs, and +- the standard error of that; \
the first run that fails is the last. With -I a line is a count of the stretch that ended then; \
counts that are 0 are left out.

Exit code and signal are the program's own.";

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
    /// Report what was done every MS milliseconds, too
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
On a terminal: keys sort (i IOPS, b bytes, c CPU, l latency, f in flight, p PID), fold (space) and \
quit (q); h shows them all. In a pipe, or with --once: plain lines.

A line is a process, below it its rings, below those threads that poll. IOPS: completions per \
second. P50, P99: how long what ended since the last refresh took. INFL: requests in flight. CPU%: \
processor time; of a thread that polls, what it holds of a processor, and WORK% the part of it in \
which it had work. ROUTES: where requests went, as softring metrics tells.

Processes of other users are shown to root only.";

#[derive(Debug, Args)]
#[command(after_help = TOP_AFTER)]
pub struct TopArgs {
    /// Seconds between refreshes
    #[arg(long, short, default_value_t = 1.0, value_name = "S", value_parser = delay)]
    pub delay: f64,
    /// Only this process
    #[arg(long, short, value_name = "PID", value_parser = process)]
    pub pid: Option<i32>,
    /// Sort order
    #[arg(long, short, value_enum, default_value_t = Sort::Iops, value_name = "BY")]
    pub sort: Sort,
    /// Print one refresh, after the delay, and exit
    #[arg(long)]
    pub once: bool,
    /// Machine-readable output (JSON); without --once a line for each refresh
    #[arg(long)]
    pub json: bool,
}

/// Parses a number of seconds, from a tenth on.
fn delay(s: &str) -> Result<f64, String> {
    let s = seconds(s)?;
    if s >= 0.1 { Ok(s) } else { Err("must be at least 0.1".to_owned()) }
}
