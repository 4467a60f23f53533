//! Messages of a worker process: a job, which it is asked, and a report, which it answers. Both are
//! JSON.

use crate::cli::{Driver, Op, Rw};
use serde::{Deserialize, Serialize};

/// One measurement. Fields are named as in fio(1).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    pub driver: Driver,
    pub op: Op,
    /// File or device; unused by the operations that do no I/O.
    pub path: String,
    /// Bytes of the file that are used.
    pub size: u64,
    pub bs: u32,
    pub depth: u32,
    pub batch: u32,
    pub wait: u32,
    pub threads: u32,
    pub pool_threads: u32,
    pub seconds: f64,
    pub warmup: f64,
    pub rw: Rw,
    pub rwmix: u8,
    pub direct: bool,
    pub setup_flags: u32,
    /// Flag, true if requests name the file by its slot in the registered table.
    #[serde(default)]
    pub fixed_files: bool,
    /// Flag, true if submitting and waiting are two calls, each timed.
    pub slat: bool,
    /// Flag, true if every block read is compared with the pattern of `seed`.
    pub verify: bool,
    pub seed: u64,
    /// Flag, true for one pass over the whole file in order, however long it takes, instead of
    /// `seconds`.
    pub once: bool,
    /// Connections of the echo server.
    #[serde(default)]
    pub connections: u32,
    #[serde(default)]
    pub multishot: bool,
    /// Number of timeouts to arm.
    #[serde(default)]
    pub count: u32,
    /// Requests per second of SQPOLL; 0: as many as possible.
    #[serde(default)]
    pub rate: u32,
    /// The SQ thread's `sq_thread_idle`, in ms.
    #[serde(default)]
    pub sq_idle: u32,
}

/// A distribution of times, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Lat {
    pub mean: f64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

impl Lat {
    pub fn of(h: &hdrhistogram::Histogram<u64>) -> Lat {
        let q = |q| h.value_at_quantile(q);
        Lat { mean: h.mean(), p50: q(0.5), p90: q(0.9), p99: q(0.99), p999: q(0.999), max: h.max() }
    }
}

/// Cost of a ring that does nothing.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Idle {
    pub rings: u32,
    /// Private memory per ring, bytes.
    pub private: u64,
    /// Shared memory per ring (ring memory that is a file), bytes.
    pub shared: u64,
    /// Threads added, all rings together.
    pub threads: u64,
    /// Descriptors added, all rings together.
    pub fds: u64,
}

/// Cost of connections that wait for data.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Waiting {
    pub requests: u32,
    /// Private and shared memory of the process per request, bytes.
    pub memory: u64,
    /// Memory of the kernel's own objects per request, bytes; zero if /proc does not tell.
    pub kernel: u64,
    /// Descriptors added, all requests together.
    pub fds: u64,
    pub threads: u64,
    /// CPU time of the process while nothing happens, and the length of that time, microseconds.
    pub cpu_us: u64,
    pub waited_us: u64,
}

/// Result of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The side whose ring it was, by what /proc calls its descriptor; None without a ring or
    /// /proc.
    pub ring: Option<String>,
    pub ios: u64,
    pub bytes: u64,
    /// Blocks compared with the pattern.
    pub verified: u64,
    pub seconds: f64,
    /// CPU time of this process with all its threads, microseconds.
    pub user_us: u64,
    pub system_us: u64,
    /// Busy time of the whole machine, and the time that the hypervisor took from it, microseconds;
    /// zero without /proc.
    pub machine_us: u64,
    pub steal_us: u64,
    /// Latency from before submission to after completion; for NOP, of a whole batch.
    pub lat: Lat,
    pub slat: Option<Lat>,
    pub clat: Option<Lat>,
    pub idle: Option<Idle>,
    #[serde(default)]
    pub waiting: Option<Waiting>,
    /// Share of one processor that the SQ thread took, in percent.
    #[serde(default)]
    pub sq_cpu: Option<f64>,
}

impl Report {
    pub fn iops(&self) -> f64 {
        self.ios as f64 / self.seconds.max(1e-9)
    }

    pub fn cpu_us(&self) -> u64 {
        self.user_us + self.system_us
    }

    pub fn cpu_percent(&self) -> f64 {
        self.cpu_us() as f64 / (self.seconds.max(1e-9) * 1e4)
    }

    pub fn cpu_us_per_io(&self) -> f64 {
        self.cpu_us() as f64 / (self.ios.max(1)) as f64
    }
}
