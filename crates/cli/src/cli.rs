//! The command line, as data: help, the man page and the shell completions are generated from these
//! definitions.

use crate::bench::polled::Disk;
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum, ValueHint};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;

mod stats;
mod trace;

pub use stats::{Format, StatArgs, StatsArgs, TopArgs};
pub use trace::TraceArgs;

const AFTER: &str = "\
Exit codes: 0 done, 1 the work failed, 2 usage or an error of softring itself. \
`softring run` passes the program's own exit code or signal through.";

/// Run io_uring programs where io_uring is denied.
#[derive(Debug, Parser)]
#[command(name = "softring", version, after_help = AFTER, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program with softring under it
    Run(RunArgs),
    /// Show what denies io_uring here, what works instead, and what to change
    Doctor(DoctorArgs),
    /// Show what the rings of running programs did: counters by ring and operation
    Stats(StatsArgs),
    /// Write down every step of every request, for a viewer of traces
    Trace(TraceArgs),
    /// Run a program, or watch one, and tell at its end what its rings did
    Stat(StatArgs),
    /// Show what the rings of running programs do now, and keep showing it
    Top(TopArgs),
    /// Deny io_uring to a program, run it anyway, and measure: needs nothing installed
    Demo(DemoArgs),
    /// Measure the same load through the kernel's io_uring, softring and others
    Bench(Box<BenchArgs>),
    /// Run a program with the io_uring system calls denied, and nothing else changed
    #[command(hide = true)]
    Deny(DenyArgs),
    /// Run one measurement (JSON in, JSON out)
    #[command(hide = true)]
    Worker,
    /// Write the man page or the shell completions
    #[command(hide = true)]
    Gen(GenArgs),
}

/// Whose rings the program gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// The kernel's where it is allowed, softring's where it is not
    Auto,
    /// Always softring's
    User,
    /// Always the kernel's
    Kernel,
}

/// How the program's io_uring system calls reach softring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Door {
    /// Patched call sites; the trap for those that cannot be patched
    Auto,
    /// Patched call sites only
    Patch,
    /// The SIGSYS trap: slower, reaches every call site
    Sigsys,
    /// libc's syscall() only
    None,
}

/// What SQ threads do between submissions, until sq_thread_idle is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SqIdle {
    /// Look at the queue without a pause, as the kernel's do
    Spin,
    /// Sleep towards the next submission where that spares processor time
    Nap,
}

/// How threads of the program wait for I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Poll {
    /// Look without a pause
    Spin,
    /// Nap until shortly before the next completion is due, then look
    Hybrid,
    /// Spin, nap or block, by queue depth and by who else wants the processor
    Adaptive,
    /// Sleep until something completes
    Block,
}

/// The name of a value as the command line spells it.
pub fn name_of<T: ValueEnum>(v: T) -> String {
    v.to_possible_value().map_or_else(String::new, |p| p.get_name().to_owned())
}

const RUN_AFTER: &str = "\
--model PATH=DISK: DISK is a preset (nvme-gen4, nvme-gen5, cloud-ssd, hdd, null), or KEY:VALUE \
with commas between, or both; READ/WRITE where a value differs by direction. Only I/O through \
rings of softring's is modelled; --engine=auto means user then.

latency: of one request, as in 80us/15us. jitter: its standard deviation, as in 8us or 10%. dist: \
fixed, normal or lognormal. slow: a second mode, as in 2ms@1%. iops, bw: bounds per second, in \
powers of 1000, as in 1m/215k and 6800m. queues: requests that are worked on at once. seek: added \
where a request does not follow the last one. pollqueues: 1 if an IOPOLL ring sees completions \
without an interrupt. irq: what that takes. data: none moves no data, for benchmarks. seed: of the \
distributions.

softring run --model '/data=nvme-gen4' -- CMD
softring run --model '/data=latency:80us/15us,jitter:10%,iops:500k,bw:3g,queues:32' -- CMD";

#[derive(Debug, Args)]
#[command(after_help = RUN_AFTER)]
pub struct RunArgs {
    /// Whose rings the program gets
    #[arg(long, value_enum, default_value_t = Engine::Auto, value_name = "WHICH")]
    pub engine: Engine,
    /// How the program's system calls reach softring
    #[arg(long, value_enum, default_value_t = Door::Auto, value_name = "DOOR")]
    pub door: Door,
    /// No notice line and no warnings
    #[arg(long, short)]
    pub quiet: bool,
    /// First deny the io_uring system calls (EPERM) to the program, as Docker's default profile
    /// does
    #[arg(long)]
    pub deny: bool,
    /// Poll for the completions of kernel aio (libaio), instead of sleeping for them
    #[arg(long)]
    pub aio_hipri: bool,
    /// Have I/O on a file, or on all files in a folder, complete as on a disk described in numbers
    #[arg(long, value_name = "PATH=DISK", action = ArgAction::Append)]
    #[arg(value_hint = ValueHint::AnyPath)]
    pub model: Vec<OsString>,
    /// Wait for O_DIRECT reads and writes this way on every ring, polled (IOPOLL) or not; where
    /// --engine says nothing else, all rings are softring's
    #[arg(long, value_enum, value_name = "HOW")]
    pub poll: Option<Poll>,
    /// Keep no statistics that `softring stats` could show
    #[arg(long)]
    pub no_stats: bool,
    /// What SQ threads (SQPOLL) do between submissions
    #[arg(long, value_enum, default_value_t = SqIdle::Spin, value_name = "HOW")]
    pub sq_idle: SqIdle,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    #[arg(value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct DenyArgs {
    /// The error number that io_uring_setup, _enter and _register answer
    #[arg(long, default_value_t = 1, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=133))]
    pub errno: u16,
    /// Deny the calls of kernel aio (io_setup and the others) as well
    #[arg(long)]
    pub aio: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    #[arg(value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Where the temporary file goes (default: TMPDIR, or /tmp)
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// Seconds per measurement
    #[arg(long, default_value_t = 1.5, value_name = "S", value_parser = seconds)]
    pub seconds: f64,
}

#[derive(Debug, Args)]
pub struct GenArgs {
    /// What to write
    #[arg(value_enum)]
    pub what: GenWhat,
    /// Into which folder
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum GenWhat {
    Man,
    Completions,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// Reads and writes, as --rw says
    Rw,
    /// NOP requests, --batch of them per system call
    Nop,
    /// Making a ring and closing it
    Setup,
    /// Memory of a ring that does nothing
    Idle,
    /// A TCP echo server on the loopback: --connections, --bs, --multishot
    Echo,
    /// Memory and CPU time of --connections that wait for data
    IdleSockets,
    /// POLL_ADD of --depth eventfds, woken by writes
    Poll,
    /// Arming --count timeouts
    TimeoutAdd,
    /// Cancelling --count armed timeouts
    TimeoutCancel,
    /// --count timeouts that end at one moment
    TimeoutExpire,
    /// MSG_RING between two threads, --depth messages there, then as many back
    MsgRing,
    /// FUTEX_WAIT on --depth futexes, woken by FUTEX_WAKE
    Futex,
    /// The client of echo
    #[value(skip)]
    EchoLoad,
    /// Reads through an SQ thread
    #[value(skip)]
    Sqpoll,
}

/// Reads or writes, in order or at random places; fio's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rw {
    Read,
    Write,
    Randread,
    Randwrite,
    Randrw,
}

/// What does the I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// The kernel's io_uring
    Kernel,
    /// The same client, on softring
    Softring,
    /// A pool of threads calling pread and pwrite
    Pool,
    /// aio_read and aio_write of libc
    PosixAio,
    /// The kernel's io_submit, as libaio uses it
    Libaio,
    /// epoll_wait, recv and send: the echo server without a ring
    Epoll,
}

/// What is measured in a way of its own.
#[derive(Debug, Subcommand)]
pub enum BenchOf {
    /// Reads whose data come just after they were tried: issued again, or left to a worker
    Reissue(ReissueArgs),
    /// Reads at a steady rate through an SQ thread: latencies, and that thread's processor time
    Sqpoll(SqpollArgs),
    /// Rules for napping while I/O is polled for, tried on traces
    Hybrid(crate::bench::hybrid::HybridArgs),
    /// What it costs and gains to wait by polling: four ways, on real and modelled disks
    Polled(PolledArgs),
}

const POLLED_AFTER: &str = "\
Sequential reads and writes of 128 KiB, random reads and writes of 4 KiB, past the page cache, by \
one thread; each with --depths in flight, on each of --disks, for each of --policies, in turns.

block: a plain ring, on which the thread sleeps until there is a completion. spin: an IOPOLL ring, \
on which it looks without a pause. hybrid: it naps until one is about to come. adaptive: one of \
these, by what is in flight and who else wants to run. Every worker runs under softring, with \
io_uring denied.

A modelled disk (nvme-gen4 and so on: see softring run --help) lies in memory, and moves no data \
unless --data is given: a real one moves them without the processor. What submitting and \
completing take by themselves, measured on a disk that takes no time, is shown beside it.";

#[derive(Debug, Args)]
#[command(after_help = POLLED_AFTER)]
pub struct PolledArgs {
    /// What the file is on
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    #[arg(default_value = "real,nvme-gen4,nvme-gen5")]
    pub disks: Vec<Disk>,
    /// I/Os in flight
    #[arg(long, value_delimiter = ',', default_value = "64,1", value_name = "LIST")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub depths: Vec<u32>,
    /// How the thread waits
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    #[arg(default_value = "block,spin,hybrid,adaptive")]
    pub policies: Vec<Poll>,
    /// Rounds; in each, every way to wait runs once
    #[arg(long, default_value_t = 5, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub pairs: u32,
    /// Seconds per measurement
    #[arg(long, default_value_t = 1.0, value_name = "S", value_parser = seconds)]
    pub seconds: f64,
    /// Seconds of load before each measurement
    #[arg(long, default_value_t = 0.2, value_name = "S", value_parser = seconds)]
    pub warmup: f64,
    /// Threads that do nothing but keep processors busy meanwhile
    #[arg(long, default_value_t = 0, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1024))]
    pub busy: u32,
    /// Bytes of the file; suffixes k, m, g
    #[arg(long, default_value = "256m", value_parser = bytes)]
    pub size: u64,
    /// Where the file on the real disk goes (default: TMPDIR, or /tmp)
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// Move data on modelled disks, too
    #[arg(long)]
    pub data: bool,
    /// For programs
    #[arg(long)]
    pub json: bool,
    /// Also draw the result: CPU against latency
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub plot: Option<PathBuf>,
}

const SQPOLL_AFTER: &str = "\
The client never waits: it looks at the clock, submits what is due by moving the tail, and looks \
at the completion queue. Latency counts from the moment at which a request was due. Where there \
are two processors, the client has the first and the SQ thread (SQ_AFF) the second.

kernel: the kernel's SQPOLL. spin, nap: softring's with --sq-idle. no-stats: spin, without \
statistics and without the SQ thread's work meter.";

#[derive(Debug, Args)]
#[command(after_help = SQPOLL_AFTER)]
pub struct SqpollArgs {
    /// Requests per second, one after the other; 0: as many as there can be
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2000,10000,50000")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub rates: Vec<u32>,
    /// Who is measured; the first of these is what the others are compared with
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "kernel,spin,nap")]
    #[arg(value_parser = crate::bench::sqpoll::names())]
    pub sides: Vec<String>,
    /// sq_thread_idle, in ms
    #[arg(long, default_value_t = 1000, value_name = "MS")]
    pub idle_ms: u32,
    /// I/Os in flight at most
    #[arg(long, default_value_t = 64, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub depth: u32,
    /// Bytes of the temporary file; suffixes k, m, g
    #[arg(long, default_value = "64m", value_parser = bytes)]
    pub size: u64,
    /// Where the temporary file goes (default: TMPDIR, or /tmp)
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// Bypass the page cache (O_DIRECT)
    #[arg(long)]
    pub direct: bool,
    /// Seconds per measurement
    #[arg(long, default_value_t = 1.0, value_name = "S", value_parser = seconds)]
    pub seconds: f64,
    /// Seconds of load before each measurement
    #[arg(long, default_value_t = 0.3, value_name = "S", value_parser = seconds)]
    pub warmup: f64,
    /// Rounds; in each, every side runs once
    #[arg(long, default_value_t = 5, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub pairs: u32,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

const REISSUE_AFTER: &str = "\
Four lines, of a TCP stream on the loopback and of a pipe:

data ready: the data are there when the read is submitted.
ready at arm, reissued: they come after the attempt, before it is armed; it is issued again.
queueing to a worker: the same, but the request is given to a worker. From the moment at which \
that is decided to the return of io_uring_enter.
completion through a worker: until the completion is seen, by a thread that spins for it, so \
that waking a sleeper does not count.

Softring's engine runs inside this process, so that the data can be written at the right moment: \
a hook in its arm step writes to the other end and, for the worker's lines, has the arming fail. \
The time that the hook takes is not counted. Each read is one io_uring_enter. The engine's \
counters must confirm that each read went the way that it stands for.

The share of reads that go this way by themselves is measured on the same stream, with a thread \
that writes at the given rate, and with one that writes as fast as it can.";

#[derive(Debug, Args)]
#[command(after_help = REISSUE_AFTER)]
pub struct ReissueArgs {
    /// Reads per line
    #[arg(long, default_value_t = 20_000, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(10..=10_000_000))]
    pub reads: u32,
    /// Bytes per read
    #[arg(long, default_value_t = 1024, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub bytes: u32,
    /// Rate of the stream whose share is measured, in Mbit/s
    #[arg(long, default_value_t = 5, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rate: u32,
    /// Seconds of each such stream
    #[arg(long, default_value_t = 2.0, value_name = "S", value_parser = seconds)]
    pub seconds: f64,
    /// For programs
    #[arg(long)]
    pub json: bool,
    /// Also draw the result
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub plot: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub of: Option<BenchOf>,
    /// What is measured
    #[arg(long, value_enum, default_value_t = Op::Rw)]
    pub op: Op,
    /// Use this file (default: a temporary one in --dir)
    #[arg(long, value_hint = ValueHint::FilePath, conflicts_with = "device")]
    pub file: Option<PathBuf>,
    /// Use this block device
    #[arg(long, value_hint = ValueHint::FilePath)]
    pub device: Option<PathBuf>,
    /// Where the temporary file goes (default: TMPDIR, or /tmp)
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// Allow writing to the file or device given: what it holds is lost
    #[arg(long)]
    pub overwrite: bool,
    /// Bytes of the file to use; suffixes k, m, g
    #[arg(long, default_value = "256m", value_parser = bytes)]
    pub size: u64,
    /// Reads, writes or both
    #[arg(long, value_enum, default_value_t = Rw::Randread)]
    pub rw: Rw,
    /// Reads per hundred I/Os of randrw
    #[arg(long, default_value_t = 70, value_name = "PERCENT")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=100))]
    pub rwmix: u8,
    /// Bytes per I/O; suffixes k, m
    #[arg(long, default_value = "4k", value_parser = bytes)]
    pub bs: u64,
    /// I/Os in flight per thread
    #[arg(long, default_value_t = 32, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub depth: u32,
    /// I/Os submitted at once, at most (default: the depth)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub batch: Option<u32>,
    /// Completions waited for at once, at least
    #[arg(long, default_value_t = 1, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub wait: u32,
    /// Threads that submit, each with its own ring
    #[arg(long, default_value_t = 1, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: u32,
    /// Threads of the pool, for each thread that submits
    #[arg(long, default_value_t = 16, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub pool_threads: u32,
    /// TCP connections of echo and idle-sockets
    #[arg(long, default_value_t = 64, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=25_000))]
    pub connections: u32,
    /// Echo by multishot RECV into provided buffers
    #[arg(long)]
    pub multishot: bool,
    /// Timeouts armed
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub count: u32,
    /// Seconds per measurement
    #[arg(long, default_value_t = 2.0, value_name = "S", value_parser = seconds)]
    pub seconds: f64,
    /// Seconds of load before each measurement
    #[arg(long, default_value_t = 0.2, value_name = "S", value_parser = seconds)]
    pub warmup: f64,
    /// Rounds; in each, every engine runs once
    #[arg(long, default_value_t = 5, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub pairs: u32,
    /// What does the I/O; the first is what the others are compared with
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "kernel,softring",
        value_name = "LIST"
    )]
    pub engines: Vec<Driver>,
    /// Bypass the page cache (O_DIRECT)
    #[arg(long)]
    pub direct: bool,
    /// Flags for io_uring_setup, by kernel name: SINGLE_ISSUER,DEFER_TASKRUN
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = setup_flag)]
    pub setup_flags: Vec<u32>,
    /// Register the file, and name it by its slot: what a plain descriptor costs shows beside it
    #[arg(long)]
    pub fixed_files: bool,
    /// Submit and wait in two system calls, so that slat and clat can be told apart
    #[arg(long)]
    pub slat: bool,
    /// Verify every block read (the file is filled with a pattern first)
    #[arg(long)]
    pub verify: bool,
    /// Run all but the kernel's io_uring with io_uring denied, as in a container
    #[arg(long)]
    pub deny: bool,
    /// For programs
    #[arg(long)]
    pub json: bool,
    /// Also draw the result
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub plot: Option<PathBuf>,
}

/// A count of bytes: digits and an optional binary suffix.
pub fn bytes(s: &str) -> Result<u64, String> {
    let lower = s.trim().to_ascii_lowercase();
    let cut = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let (digits, unit) = lower.split_at(cut);
    let shift = match unit {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(format!("unknown unit '{unit}': use k, m, g or t")),
    };
    let n: u64 = digits.parse().map_err(|_| "not a number".to_owned())?;
    n.checked_mul(1 << shift).filter(|&n| n > 0).ok_or_else(|| "out of range".to_owned())
}

/// A positive number of seconds, at most an hour.
fn seconds(s: &str) -> Result<f64, String> {
    let v: f64 = s.parse().map_err(|_| "not a number".to_owned())?;
    if v.is_finite() && (0.0..=3600.0).contains(&v) {
        Ok(v)
    } else {
        Err("must be between 0 and 3600".to_owned())
    }
}

/// A setup flag by its kernel name, with or without the prefix.
fn setup_flag(s: &str) -> Result<u32, String> {
    use softring_engine::abi::SETUP_NAMES;
    let upper = s.trim().to_ascii_uppercase();
    let name = upper.strip_prefix("IORING_SETUP_").unwrap_or(&upper);
    let bit = SETUP_NAMES.iter().position(|n| *n == name);
    bit.map(|b| 1 << b).ok_or_else(|| format!("no such flag; known: {}", SETUP_NAMES.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn byte_counts() {
        assert_eq!(bytes("4k"), Ok(4096));
        assert_eq!(bytes("1GiB"), Ok(1 << 30));
        assert_eq!(bytes("512"), Ok(512));
        for bad in ["", "k", "4x", "0", "99999999999g", "-1"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn setup_flags_by_name() {
        assert_eq!(setup_flag("single_issuer"), Ok(1 << 12));
        assert_eq!(setup_flag("IORING_SETUP_IOPOLL"), Ok(1));
        assert!(setup_flag("NOPE").is_err());
    }

    #[test]
    fn options_of_the_program_are_its_own() {
        let cli = Cli::parse_from(["softring", "run", "--quiet", "ls", "--engine", "x"]);
        let Command::Run(a) = cli.command else { panic!("run expected") };
        assert!(a.quiet);
        assert_eq!(a.command, ["ls", "--engine", "x"]);
    }
}
