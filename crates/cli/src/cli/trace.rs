//! The command line of `softring trace`.

use super::{UnderArgs, process, seconds};
use crate::strace::select::{Ops, duration, ops};
use clap::{ArgAction, Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const TRACE_AFTER: &str = "\
The file has Chrome's Trace Event Format: open it in ui.perfetto.dev or chrome://tracing, \
also compressed (.json.gz). Each ring has tracks of its requests, with their file, offset, \
length and result, and counters of requests in flight and of IOPS. Each thread has a track of \
its activity: calls of io_uring_enter (\"sqes\": number of SQEs submitted, \"slept\": µs asleep), \
sleeps, runs of workers, passes of SQ threads. If one thread takes a request and another \
completes it, an arrow leads from the first to the second.

\"route\" tells what a request waited for; several waits are slices in it. armed: waits for \
readiness. reissue: tried again when ready. punted: waits for a worker, or runs on one. aio: \
with the kernel's aio. model: with a modelled disk. queued: a timeout, a poll or a futex in \
its own queue. drained: behind a barrier. \"inline\": completed when taken.

-e, --failed and --slow choose requests; counters and tracks of threads stay whole.

The program always runs with softring's rings, and softring trace traces its children, too. \
Requests that were in flight when the trace began are not shown. Memory is bounded on both sides: \
events that come faster than softring can read them are dropped and counted, and only the newest \
--keep events are kept.";

#[derive(Debug, Args)]
#[command(after_help = TRACE_AFTER)]
pub struct TraceArgs {
    /// File for the trace; compressed if the name ends with .gz
    #[arg(long, short, default_value = "softring-trace.json", value_name = "FILE.json[.gz]")]
    #[arg(value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// Trace this running process (until it ends, or Ctrl-C)
    #[arg(long, short, value_name = "PID", value_parser = process)]
    #[arg(conflicts_with_all = ["command", "UnderArgs"])]
    pub pid: Option<i32>,
    /// Stop tracing after S seconds
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Number of events to keep
    #[arg(long, default_value_t = 500_000, value_name = "N")]
    pub keep: usize,
    /// Record only these operations, or with ! all but these: READ,WRITE or '!NOP'
    #[arg(short = 'e', long = "trace", value_name = "OP,...", value_parser = ops)]
    #[arg(action = ArgAction::Append)]
    pub ops: Vec<Ops>,
    /// Only requests that failed
    #[arg(long, short = 'Z')]
    pub failed: bool,
    /// Only requests that took at least TIME: 10ms, 200us
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub slow: Option<Duration>,
    /// Leave out paths of descriptors, to save the program an fstat(2) per request
    #[arg(long)]
    pub no_paths: bool,
    /// Also draw a few requests, starting with the first that waited
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
    #[command(flatten)]
    pub under: UnderArgs,
    /// The program and its arguments
    #[arg(required_unless_present = "pid", trailing_var_arg = true)]
    #[arg(value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}
