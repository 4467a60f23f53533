//! The options of `softring bench`.

use super::{Poll, bytes, seconds, some_seconds};
use crate::bench::polled::Disk;
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Operation that is measured.
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

/// Engine that does the I/O.
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

/// Benchmarks of their own kind.
#[derive(Debug, Subcommand)]
pub enum BenchOf {
    /// Reads whose data come just after they were tried: issued again, or left to a worker
    Reissue(ReissueArgs),
    /// Reads at a steady rate through an SQ thread: latencies, and that thread's processor time
    Sqpoll(SqpollArgs),
    /// Rules for sleeping while I/O is polled for, tried on traces
    Hybrid(crate::bench::hybrid::HybridArgs),
    /// Cost and gain of waiting by polling: four ways, on real and modelled disks
    Polled(PolledArgs),
}

const POLLED_AFTER: &str = "\
Sequential reads and writes of 128 KiB, random reads and writes of 4 KiB, past the page cache, by \
one thread; each with --depths in flight, on each of --disks, for each of --policies, in turns.

block: a plain ring, on which the thread sleeps until there is a completion. spin: an IOPOLL ring, \
on which it polls without a pause. hybrid: it sleeps until one is about to come. adaptive: one of \
these, by what is in flight and who else wants to run. Every worker runs under softring, with \
io_uring denied.

A modelled disk (nvme-gen4 and so on: see softring run --help) lies in memory, and moves no data \
unless --data is given: a real one moves them without the processor.

floor: the least that hybrid can take with many in flight, measured here. What submitting and \
completing take at spin's rate, on a disk that takes no time; for a real disk, by a plain ring \
that submits all that may be in flight and sleeps once for all of it. To that are added sleeps, \
one after the other, each as long as completions may lie unseen: a quarter of what one of spin's \
requests takes. Where sleeps of that length cost more than they spare, the floor is spinning.

--plot has each row run once more by hybrid, traced, and draws its sleeps: for how long each was \
to last, and when the first completion was there. On a modelled disk that is known, on a real one \
it is when the thread found it.";

#[derive(Debug, Args)]
#[command(after_help = POLLED_AFTER)]
pub struct PolledArgs {
    /// Disks to measure on
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    #[arg(default_value = "real,nvme-gen4,nvme-gen5")]
    pub disks: Vec<Disk>,
    /// I/Os in flight
    #[arg(long, value_delimiter = ',', default_value = "64,1", value_name = "LIST")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub depths: Vec<u32>,
    /// Policies to measure
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    #[arg(default_value = "block,spin,hybrid,adaptive")]
    pub policies: Vec<Poll>,
    /// Rounds; in each, every way to wait runs once
    #[arg(long, default_value_t = 5, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub pairs: u32,
    /// Seconds per measurement
    #[arg(long, default_value_t = 1.0, value_name = "S", value_parser = some_seconds)]
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
    /// Folder for the file on the real disk [default: TMPDIR, or /tmp]
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// Move data on modelled disks, too
    #[arg(long)]
    pub data: bool,
    /// Machine-readable output (JSON)
    #[arg(long)]
    pub json: bool,
    /// Also draw the result: CPU against latency, and where sleeps end against when completions
    /// come
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub plot: Option<PathBuf>,
}

const SQPOLL_AFTER: &str = "\
The client never waits: it reads the clock, submits what is due by moving the tail, and polls \
the completion queue. Latency counts from the moment at which a request was due. Where there \
are two processors, the client has the first and the SQ thread (SQ_AFF) the second.

kernel: the kernel's SQPOLL. spin, sleep: softring's with --sq-idle. no-stats: spin, without \
statistics and without the SQ thread's work meter.";

#[derive(Debug, Args)]
#[command(after_help = SQPOLL_AFTER)]
pub struct SqpollArgs {
    /// Requests per second, one after the other; 0: as many as there can be
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2000,10000,50000")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub rates: Vec<u32>,
    /// Sides to measure; the first is what the others are compared with
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "kernel,spin,sleep")]
    #[arg(value_parser = crate::bench::sqpoll::names())]
    pub sides: Vec<String>,
    /// Value of sq_thread_idle, in ms
    #[arg(long, default_value_t = 1000, value_name = "MS")]
    pub idle_ms: u32,
    /// I/Os in flight at most
    #[arg(long, default_value_t = 64, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub depth: u32,
    /// Bytes of the temporary file; suffixes k, m, g
    #[arg(long, default_value = "64m", value_parser = bytes)]
    pub size: u64,
    /// Folder for the temporary file [default: TMPDIR, or /tmp]
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// Bypass the page cache (O_DIRECT)
    #[arg(long)]
    pub direct: bool,
    /// Seconds per measurement
    #[arg(long, default_value_t = 1.0, value_name = "S", value_parser = some_seconds)]
    pub seconds: f64,
    /// Seconds of load before each measurement
    #[arg(long, default_value_t = 0.3, value_name = "S", value_parser = seconds)]
    pub warmup: f64,
    /// Rounds; in each, every side runs once
    #[arg(long, default_value_t = 5, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub pairs: u32,
    /// Machine-readable output (JSON)
    #[arg(long)]
    pub json: bool,
}

const REISSUE_AFTER: &str = "\
Four lines, of a TCP stream on the loopback and of a pipe:

data ready: the data are there when the read is tried.
ready at arm, reissued: they come after the attempt, before the first poll of what is armed; it is \
issued again.
queueing to a worker: the same, but the request is given to a worker. Until io_uring_enter \
returns.
completion through a worker: until the completion is seen, by a thread that spins for it, so \
that waking a sleeper does not count.

Softring's engine runs inside this process. Each io_uring_enter submits the read and the write \
that brings its data, which every line's time includes: the write comes first for the first line, \
and second for the others. For the worker's lines a seccomp filter has the arming fail. The \
engine's counters must confirm that each read went the way that it stands for.

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
    #[arg(long, default_value_t = 2.0, value_name = "S", value_parser = some_seconds)]
    pub seconds: f64,
    /// Machine-readable output (JSON)
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
    /// Options that are on the command line, by the names of their fields.
    #[arg(skip)]
    pub given: Vec<String>,
    /// Operation to measure
    #[arg(long, value_enum, default_value_t = Op::Rw)]
    pub op: Op,
    /// Use this file (default: a temporary one in --dir)
    #[arg(long, value_hint = ValueHint::FilePath, conflicts_with = "device")]
    pub file: Option<PathBuf>,
    /// Use this block device
    #[arg(long, value_hint = ValueHint::FilePath)]
    pub device: Option<PathBuf>,
    /// Folder for the temporary file [default: TMPDIR, or /tmp]
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
    #[arg(long, default_value_t = 2.0, value_name = "S", value_parser = some_seconds)]
    pub seconds: f64,
    /// Seconds of load before each measurement
    #[arg(long, default_value_t = 0.2, value_name = "S", value_parser = seconds)]
    pub warmup: f64,
    /// Rounds; in each, every engine runs once
    #[arg(long, default_value_t = 5, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub pairs: u32,
    /// Engines to measure; the first is what the others are compared with
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
    /// Machine-readable output (JSON)
    #[arg(long)]
    pub json: bool,
    /// Also draw the result
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub plot: Option<PathBuf>,
}

/// Parses a set-up flag by its kernel name, with or without the prefix.
fn setup_flag(s: &str) -> Result<u32, String> {
    use softring_uapi::SETUP_NAMES;
    let upper = s.trim().to_ascii_uppercase();
    let name = upper.strip_prefix("IORING_SETUP_").unwrap_or(&upper);
    let bit = SETUP_NAMES.iter().position(|n| *n == name);
    bit.map(|b| 1 << b).ok_or_else(|| format!("no such flag; known: {}", SETUP_NAMES.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setup_flags_by_name() {
        assert_eq!(setup_flag("single_issuer"), Ok(1 << 12));
        assert_eq!(setup_flag("IORING_SETUP_IOPOLL"), Ok(1));
        assert!(setup_flag("NOPE").is_err());
    }
}
