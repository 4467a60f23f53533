//! The command line of `softring strace`.

use super::{UnderArgs, process, seconds};
use crate::strace::select::{Ops, duration, ops};
use clap::{ArgAction, Args, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const STRACE_AFTER: &str = "\
Each line shows a request: [pid PROCESS] (with tid THREAD for a thread other than the first), the \
time when the request was taken, the ring, the operation with its arguments, the result, <seconds \
until its CQE>, and the route. Before the first line of a process in a container, a line names the \
container.

inline: completed when submitted. aio: went to the kernel's aio. poll: waited for readiness. \
worker: went to a worker thread. model: went to a modelled disk. queued: a timeout, a poll, a \
futex. drained: waited behind a barrier. link N: the N-th request of a chain.

The flags of a CQE follow the result, without their prefix. A multishot request has a line for \
each CQE, with MORE on all but the last; BUFFER(N) is the buffer that the request took. `(no \
CQE)`: the SQE asked for no CQE. <unfinished ...>: the request had not completed when the trace \
ended. <... OP resumed>: the request began before the trace.

The program always runs with softring's rings, and softring strace traces its children, too. The \
exit code and the signal are the program's own. Unlike strace(1), softring strace does not stop \
the program at each request: a line comes up to a twentieth of a second late, and events that come \
faster than softring can read them are lost, and counted in a line of their own.

softring strace -y -e READ,WRITE -- CMD
softring strace --slow 10ms -o slow.txt -p PID";

/// Digits of a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Precision {
    S,
    Ms,
    Us,
    Ns,
}

impl Precision {
    pub fn digits(self) -> usize {
        self as usize * 3
    }
}

#[derive(Debug, Args)]
#[command(after_help = STRACE_AFTER)]
pub struct StraceArgs {
    /// Trace this running process (until it ends, or Ctrl-C)
    #[arg(long, short, value_name = "PID", value_parser = process)]
    #[arg(conflicts_with_all = ["command", "UnderArgs"])]
    pub pid: Option<i32>,
    /// Stop tracing after S seconds
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Show only these operations, or with ! all but these: READ,WRITE or '!NOP'
    #[arg(short = 'e', long = "trace", value_name = "OP,...", value_parser = ops)]
    #[arg(action = ArgAction::Append)]
    pub ops: Vec<Ops>,
    /// Show the path of each descriptor, or the addresses of a socket
    #[arg(short = 'y', long = "decode-fds")]
    pub names: bool,
    /// Only requests that failed
    #[arg(long, short = 'Z', alias = "failed-only")]
    pub failed: bool,
    /// Only requests that took at least TIME: 10ms, 200us
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub slow: Option<Duration>,
    /// Print only a table at the end: requests, errors and time by operation
    #[arg(long = "summary-only", short = 'c')]
    pub summary: bool,
    /// Print the lines, then the table of -c
    #[arg(long = "summary", short = 'C')]
    pub summary_too: bool,
    /// File for the lines, instead of standard error
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Print times in whole seconds; twice: with microseconds (default); thrice: since 1970
    #[arg(short = 't', action = ArgAction::Count)]
    pub time: u8,
    /// Print the time since the previous line
    #[arg(short = 'r', long = "relative-timestamps")]
    pub relative: bool,
    /// Precision of latencies
    #[arg(short = 'T', long = "syscall-times", value_enum, value_name = "UNIT")]
    #[arg(num_args = 0..=1, require_equals = true, default_value = "us")]
    #[arg(default_missing_value = "us")]
    pub precision: Precision,
    /// Also print user_data and addresses of memory
    #[arg(short = 'v', long = "no-abbrev")]
    pub verbose: bool,
    /// Follow children (always on)
    #[arg(short = 'f', long = "follow-forks")]
    pub follow: bool,
    #[command(flatten)]
    pub under: UnderArgs,
    /// The program and its arguments
    #[arg(required_unless_present = "pid", trailing_var_arg = true)]
    #[arg(value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}
