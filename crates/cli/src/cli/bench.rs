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
    /// Set-up and close of a ring
    Setup,
    /// Memory of an idle ring
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
    /// --count timeouts that expire at one moment
    TimeoutExpire,
    /// MSG_RING between two threads: --depth messages, then as many back
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
    /// Plain system calls: the least that user space must do (rw, poll, msg-ring, futex, setup)
    Calls,
}

/// Benchmarks of their own kind.
#[derive(Debug, Subcommand)]
pub enum BenchOf {
    /// Reads whose data arrive just after the first attempt: reissue against a worker
    Reissue(ReissueArgs),
    /// Reads at a steady rate through an SQ thread: latency, and CPU time of the thread
    Sqpoll(SqpollArgs),
    /// Sleep rules of polling threads, simulated on traces
    Hybrid(crate::bench::hybrid::HybridArgs),
    /// CPU time and latency of four wait policies, on real and modelled disks
    Polled(PolledArgs),
}

const POLLED_AFTER: &str = "\
One thread reads and writes past the page cache: sequentially in blocks of 128 KiB, and at random \
in blocks of 4 KiB. Each of these four loads runs with each of --depths requests in flight, on \
each of --disks, under each of --policies, in turns.

block: on a plain ring, the thread sleeps until there is a completion. spin: on an IOPOLL ring, \
the thread polls without a pause. hybrid: the thread sleeps until shortly before the next \
completion is due, then polls. adaptive: one of these three, by queue depth and by other load on \
the processor. Every worker process runs under softring, with io_uring denied.

A modelled disk (nvme-gen4 and so on: see softring run --help) exists only in memory. A modelled \
disk moves no data unless --data is given, because a real disk moves data without the processor.

floor: the least CPU time that hybrid can use with many requests in flight, measured here. The \
first part is the CPU time to submit and complete requests at spin's rate. For a modelled disk \
this part is measured on a disk that takes no time; for a real disk, on a plain ring that submits \
all --depths requests and sleeps once for all of them. The second part is the CPU time of sleeps, \
one after the other, each as long as completions may stay unseen: a quarter of the latency of \
spin's requests. Where such sleeps cost more than they save, the floor is the cost of spinning.

--plot runs each row of hybrid once more, traced, and draws the sleeps: the planned end of each \
sleep, and the time of the first completion. On a modelled disk this time is known; on a real disk \
it is the time at which the thread found the completion.";

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
    /// Rounds; each round runs every policy once
    #[arg(long, default_value_t = 5, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub pairs: u32,
    /// Seconds per measurement
    #[arg(long, default_value_t = 1.0, value_name = "S", value_parser = some_seconds)]
    pub seconds: f64,
    /// Seconds of load before each measurement
    #[arg(long, default_value_t = 0.2, value_name = "S", value_parser = seconds)]
    pub warmup: f64,
    /// Threads that keep processors busy during the measurement
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
    /// Also draw the result: CPU against latency, and ends of sleeps against completions
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub plot: Option<PathBuf>,
}

const SQPOLL_AFTER: &str = "\
The client never waits: it reads the clock, submits the requests that are due by moving the tail, \
and polls the completion queue. Latency counts from the time at which a request was due. On a \
machine with two processors or more, the client runs on the first and the SQ thread (SQ_AFF) on \
the second.

kernel: the kernel's SQPOLL. spin, sleep: softring's SQPOLL with --sq-idle=spin or sleep. \
no-stats: spin, without statistics and without the SQ thread's work meter.";

#[derive(Debug, Args)]
#[command(after_help = SQPOLL_AFTER)]
pub struct SqpollArgs {
    /// Rates to measure, in requests per second; 0: as many as possible
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2000,10000,50000")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub rates: Vec<u32>,
    /// Sides to measure; the others are compared with the first
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "kernel,spin,sleep")]
    #[arg(value_parser = crate::bench::sqpoll::names())]
    pub sides: Vec<String>,
    /// Value of sq_thread_idle, in ms
    #[arg(long, default_value_t = 1000, value_name = "MS")]
    pub idle_ms: u32,
    /// Maximum number of I/Os in flight
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
    /// Rounds; each round runs every side once
    #[arg(long, default_value_t = 5, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub pairs: u32,
    /// Machine-readable output (JSON)
    #[arg(long)]
    pub json: bool,
}

const REISSUE_AFTER: &str = "\
The command prints four lines, for a TCP stream on the loopback and for a pipe:

data ready: the data are there at the first attempt of the read.
ready at arm, reissued: the data arrive after the first attempt and before the first poll of the \
armed request; softring issues the request again.
queueing to a worker: the same, but the request goes to a worker. The time ends when \
io_uring_enter returns.
completion through a worker: the time ends when a spinning thread sees the completion, so the \
wake-up of a sleeping thread does not count.

The engine of softring runs inside this process. Each io_uring_enter submits the read and the \
write that brings its data, and every line's time includes both. The write comes first for the \
first line, and second for the others. For the lines of the worker, a seccomp filter makes the \
arming fail. The engine's counters must confirm that each read took the path of its line.

The share of reads that are ready at arm without such help is measured on the same stream: once \
with a thread that writes at --rate, and once with a thread that writes as fast as it can.";

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
    /// Write rate for the share of reads that are ready at arm, in Mbit/s
    #[arg(long, default_value_t = 5, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rate: u32,
    /// Seconds per stream
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
    /// Allow writing to the given file or device; its contents are lost
    #[arg(long)]
    pub overwrite: bool,
    /// Bytes of the file to use; suffixes k, m, g
    #[arg(long, default_value = "256m", value_parser = bytes)]
    pub size: u64,
    /// Reads, writes or both
    #[arg(long, value_enum, default_value_t = Rw::Randread)]
    pub rw: Rw,
    /// Percentage of reads in randrw
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
    /// Maximum number of I/Os per submission (default: the depth)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub batch: Option<u32>,
    /// Minimum number of completions per wait
    #[arg(long, default_value_t = 1, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub wait: u32,
    /// Threads that submit, each with its own ring
    #[arg(long, default_value_t = 1, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: u32,
    /// Pool threads for each thread that submits
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
    /// Timeouts to arm
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub count: u32,
    /// Seconds per measurement
    #[arg(long, default_value_t = 2.0, value_name = "S", value_parser = some_seconds)]
    pub seconds: f64,
    /// Seconds of load before each measurement
    #[arg(long, default_value_t = 0.2, value_name = "S", value_parser = seconds)]
    pub warmup: f64,
    /// Rounds; each round runs every engine once
    #[arg(long, default_value_t = 5, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub pairs: u32,
    /// Engines to measure; the others are compared with the first
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
    /// Use the file by a registered slot, to compare with a run by plain descriptor
    #[arg(long)]
    pub fixed_files: bool,
    /// Submit and wait in two system calls, to measure slat and clat separately
    #[arg(long)]
    pub slat: bool,
    /// Verify every block read (the file is filled with a pattern first)
    #[arg(long)]
    pub verify: bool,
    /// Deny io_uring to every engine but kernel, as in a container
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
