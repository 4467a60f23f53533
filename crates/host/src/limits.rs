//! Bounds of our own, each with its reason.

use core::time::Duration;

/// Buckets of hashed work: the kernel's `IO_WQ_NR_HASH_BUCKETS` (one per bit of a long). Keys that
/// share a bucket wait for each other, as there.
pub const WORKER_HASH_BUCKETS: usize = 64;

/// Most workers of one account, whatever is asked for: the default `pid_max`, beyond which no
/// thread gets a number.
pub const WORKERS_MAX: u32 = 32768;

/// Bytes of a worker's stack. A worker runs one system call with a few structs on its stack: 256
/// KiB holds that many times over, and is only reserved, not touched.
pub const WORKER_STACK: usize = 256 * 1024;

/// Time after which an idle worker leaves: the kernel's `WORKER_IDLE_TIMEOUT`.
pub const WORKER_IDLE: Duration = Duration::from_secs(5);

/// Most bounded workers per CPU: the kernel takes the smaller of this and the SQ's entries.
pub const WORKERS_PER_CPU: u32 = 4;

/// Most threads of a ring that sleep without a futex to wait for: a burst of waits leaves them
/// behind for the next burst. To start a thread costs ten times a wait by an existing one, so a
/// program whose bursts are larger pays for it.
pub const IDLE_FUTEX_WAITERS: usize = 64;

/// Interval at which a blocked worker is signalled again until its item is done (see `io::worker`):
/// long enough to cost nothing, short enough that a person does not notice a first signal that came
/// a moment too soon.
pub const WORKER_SIGNAL_EVERY: Duration = Duration::from_millis(1);

/// Workers that are signalled again in each [`WORKER_SIGNAL_EVERY`], of those that were signalled
/// at the same time: 8000 signals a second take a few per cent of one processor.
pub(crate) const SIGNALLED_EACH_TIME: u32 = 8;

/// Longest CPU mask taken from a program, in bytes: 8192 CPUs, the most that x86-64 kernels are
/// built for.
pub const CPU_MASK_BYTES: usize = 1024;

/// Bound of the file numbers whose registration in a poll set is remembered, a byte each: the
/// default of `fs.nr_open`.
pub const ONE_SHOTS_MAX: usize = 1 << 20;

/// Number of waits for readiness before a request goes to a worker: the kernel counts
/// `APOLL_MAX_RETRY` down before each wait, to 0.
pub const MAX_ARMS: u8 = 127;

/// Most iocbs of one aio context: a ring's entries; more would exhaust `fs.aio-max-nr` (65536) for
/// everybody.
pub const AIO_DEPTH_MAX: u32 = 4096;

/// Contexts of ended rings that are cached for the next rings. [`AIO_CACHED_DEPTH`]: their iocbs in
/// all. A part of `fs.aio-max-nr`, which all processes share.
pub const AIO_CACHED: usize = 4;
pub const AIO_CACHED_DEPTH: u32 = 2048;

/// Events that one blocking io_pgetevents takes: 1 KiB of stack, and a batch's worth.
pub const AIO_WAIT_BATCH: usize = 32;

/// Iocbs of a program's that are inspected in one go: 2 KiB of stack.
pub const AIO_BATCH: usize = 32;

/// Submissions of a program's aio context that are inspected for polled iocbs: inspecting takes
/// longer than many a submission, and a program that polls does so from the start.
pub const AIO_INSPECTED: u32 = 64;

/// Longest time that the end of an aio context waits for threads that peek at its completion
/// memory. They leave at the next peek, unless a signal handler on top of one of them ends the
/// context.
pub const AIO_LEAVE: Duration = Duration::from_millis(100);

/// Files on modelled devices that are remembered, each with a second descriptor if it was opened
/// with O_DIRECT; the oldest goes.
pub const MODELLED_FILES: usize = 64;

/// Rings of one process for which statistics are kept, with the sums of ended rings: as many as fit
/// into two megabytes, which are only touched when used.
pub const STATS_RINGS: usize = 1024;
/// Pools of workers for which statistics are kept: each ring may have one of its own.
pub const STATS_POOLS: usize = 1024;
/// Latency histograms of one process: two operations for each ring, in four megabytes, which are
/// only touched when used.
pub const STATS_HISTS: usize = 2048;
/// Threads of one process whose work is metered on its page: more than a machine has processors to
/// poll with.
pub const STATS_METERS: usize = 1024;

/// Chunks of a trace: one for each ring that has something to tell, and those that wait for their
/// reader. Rings write as many within a tenth of a second at a million requests a second.
pub const TRACE_CHUNKS: usize = 2048;

/// Events of one chunk: a page of memory.
pub const TRACE_EVENTS: usize = 128;
