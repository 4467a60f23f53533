//! Statistics: one page per process, which anybody with the right to inspect the process may read
//! while it runs.
//!
//! The page is a memfd called [`NAME`], found through `/proc/PID/fd`. It goes with its process, so
//! there is nothing to clean up. It is sealed against writing by anyone but its maker. It consists
//! of 64-bit words in the machine's byte order: a [`Header`], and behind it sections of equal
//! slots, whose places the header gives ([`Section`]):
//!
//! * rings ([`RingStats`]). The first slot, whose `id` stays 0, holds the sums of the rings that
//!   have ended. Any other slot with `id` 0 is free;
//! * pools of workers ([`PoolStats`]), which rings name;
//! * latency histograms ([`Hist`]), each of one operation of one ring, which the ring names;
//! * threads that poll ([`MeterStats`]); those with `id` 0 are free.
//!
//! [`read`] takes all this apart; `docs/STATS.md` documents it for people.
//!
//! Writers never lock for it: a ring's words, and its histograms, are written under that ring's
//! lock, a pool's under that pool's, a meter's by its thread. Reading costs the program nothing. A
//! word may be newer than the one before it. No word goes back, except gauges, and words whose ring
//! ends. A reader reads `id` before and after: if it has changed, the slot has a new owner.
//!
//! A forked child makes its own page when it first submits. [`VERSION`] changes with the meaning of
//! a word; words are only ever added at the end of a structure, whose size the header gives.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use softring_uapi::IORING_OP_LAST;

pub mod clean;
mod hist;
pub mod meter;
mod of_process;
mod page;
pub mod read;
mod slot;
pub mod trace;
pub mod watcher;

pub use hist::{BUCKETS, Hist, bounds};
pub(crate) use of_process::AT_FORK;
pub use page::disable;
pub(crate) use page::enabled;
pub(crate) use slot::{CounterSlot, PoolSlot};

/// Name of the memfd.
pub const NAME: &str = "softring-stats";
/// Value of the first word.
pub const MAGIC: u64 = u64::from_le_bytes(*b"softring");
/// Version of the layout.
pub const VERSION: u64 = 4;

/// A counter. One thread at a time writes it, under its ring's lock or because it is its own, so
/// adding is a load and a store; any other reader sees a value that was right a moment ago.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Adds the value to another counter, and starts from 0 again.
    #[inline]
    fn move_to(&self, sum: &Count) {
        let n = self.get();
        if n != 0 {
            sum.add(n);
            self.set(0);
        }
    }

    /// Sets the value of a gauge.
    #[inline]
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }
}

/// Place of the slots of one kind.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Section {
    /// Bytes from the start of the page to the first slot.
    pub(crate) at: Count,
    /// Bytes per slot.
    pub(crate) size: Count,
    /// Slots that there is room for.
    pub(crate) room: Count,
    /// Slots from the first on that have been used: what is behind them was never written.
    pub(crate) used: Count,
}

/// The start of the page.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Header {
    pub magic: Count,
    pub version: Count,
    /// Process that writes. A copy that a fork has left behind names the parent.
    pub pid: Count,
    /// Bytes of the header: a section that would lie behind them does not exist.
    pub header_size: Count,
    /// Time at which the page was made, in ns of CLOCK_BOOTTIME.
    pub(crate) made: Count,
    /// Rings made while the page was full: they are counted nowhere.
    pub(crate) unseen_rings: Count,
    /// Operations of rings that no histogram was left for: their latencies are counted nowhere.
    pub(crate) unseen_hists: Count,
    pub rings: Section,
    pub(crate) pools: Section,
    pub hists: Section,
    pub(crate) meters: Section,
}

/// Outcomes of attempts on files that can be polled (`submit::arm`).
#[derive(Debug, Default)]
#[repr(C)]
pub struct Reissue {
    /// Requests whose first attempt had a result: no wait.
    pub at_once: Count,
    /// Arm steps that returned OK: the request waits for readiness.
    pub armed: Count,
    /// Armed requests that the poll behind the arming found ready. If that poll is a wait of the
    /// program's, a wait of less than two microseconds counts: it cannot have slept.
    pub ready_at_arm: Count,
    /// Attempts made again because of readiness.
    pub reissued: Count,
    /// Arm steps that failed: a worker waits instead.
    pub aborted: Count,
    /// Requests that were issued again so often that a worker waits instead.
    pub capped: Count,
}

/// Routes of requests that did not end when they were submitted.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Routes {
    /// Requests to the poll set, by reissue.
    pub(crate) poll: Count,
    /// Requests to the kernel's aio.
    pub(crate) aio: Count,
    /// Requests to a worker.
    pub worker: Count,
    /// Requests completed as a modelled disk would (`io::model`).
    pub(crate) model: Count,
    /// Requests to their own owner: timeouts, POLL_ADD, futexes, messages, children.
    pub(crate) queued: Count,
}

/// Counters of the time between polls of threads that wait by polling (`policy::hybrid`).
#[derive(Debug, Default)]
#[repr(C)]
pub struct IdleSleeps {
    /// Sleeps taken.
    pub idle_sleeps: Count,
    /// Sleeps that ended before their completions were there.
    pub(crate) under: Count,
    /// Sleeps that found their completions there.
    pub(crate) over: Count,
    /// Time spent in sleeps, in ns: processor time that spinning would have cost.
    pub(crate) spared_ns: Count,
    /// Time spent spinning, in ns.
    pub(crate) spun_ns: Count,
}

/// Delay with which completions of modelled disks were seen, after the model had them done
/// (`io::model::late`).
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Late {
    /// Number of completions, and the sum of their delays in ns.
    pub(crate) seen: Count,
    pub(crate) ns: Count,
    /// Median and 99th percentile of this ring so far, in ns, to six per cent; written now and
    /// then.
    pub(crate) p50_ns: Count,
    pub(crate) p99_ns: Count,
}

/// Bytes of a meter's name; a shorter name ends with a 0.
pub(crate) const METER_NAME: usize = 32;

/// Counters of one thread that polls. Times are processor time of that one thread, as the kernel's
/// `SqTotalTime` and `SqWorkTime` are, and never go back.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct MeterStats {
    /// Number of the meter in its process, from 1 on; 0: none.
    pub(crate) id: Count,
    /// Owner of the thread ([`meter::Kind`]).
    pub(crate) kind: Count,
    pub(crate) tid: Count,
    /// Processor that the thread last worked on.
    pub(crate) cpu: Count,
    /// Time that the thread had used before it had the meter, in ns. Its clock (schedstat(5))
    /// beyond that is its total, also while it polls in vain and writes nothing here.
    pub(crate) base_ns: Count,
    /// Time used, in µs, as of the last read of the clock.
    pub(crate) total_us: Count,
    /// Time used for work, in µs.
    pub(crate) work_us: Count,
    /// Stretches of work.
    pub(crate) stretches: Count,
    pub(crate) name: [Count; METER_NAME / 8],
    /// Sleeps of an SQ thread between submissions (`drive::sqpoll`), those of them that found
    /// something submitted meanwhile, and the time spent in them in µs.
    pub(crate) idle_sleeps: Count,
    pub(crate) idle_sleeps_over: Count,
    pub(crate) idle_slept_us: Count,
}

/// Counters of one ring.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct RingStats {
    /// Number of the ring in its process, from 1 on; 0: none.
    pub id: Count,
    /// Setup flags of the ring.
    pub(crate) flags: Count,
    pub(crate) sq_entries: Count,
    pub(crate) cq_entries: Count,
    /// Thread that submits for the ring (SQPOLL), whose meter has the rest; 0: none.
    pub(crate) sq_thread: Count,
    /// Slot of its workers' pool, from 1 on; 0: none yet.
    pub(crate) pool: Count,
    /// Requests in flight: taken and not completed.
    pub(crate) in_flight: Count,
    /// Calls of enter that submitted something.
    pub(crate) enters: Count,
    /// Requests that ended with a negative result.
    pub(crate) errors: Count,
    /// CQEs posted to the completion queue.
    pub(crate) cqes: Count,
    /// CQEs that found the queue full, and were kept.
    pub(crate) overflowed: Count,
    /// Bytes that reads and receives returned.
    pub(crate) read_bytes: Count,
    /// Bytes that writes and sends transferred.
    pub(crate) written_bytes: Count,
    pub routes: Routes,
    pub reissue: Reissue,
    pub idle_sleeps: IdleSleeps,
    /// SQEs taken, by opcode; the last word is for opcodes that do not exist.
    pub(crate) ops: [Count; OPS],
    /// Requests that ended with a negative result, by opcode.
    pub(crate) op_errors: [Count; OPS],
    /// Slot of the opcode's histogram, from 1 on; 0: none.
    pub op_hists: [Count; OPS],
    pub(crate) late: Late,
}

/// Number of words for opcodes.
pub const OPS: usize = IORING_OP_LAST as usize + 1;

impl Default for RingStats {
    fn default() -> Self {
        let ops = || [const { Count(AtomicU64::new(0)) }; OPS];
        RingStats {
            id: Count::default(),
            flags: Count::default(),
            sq_entries: Count::default(),
            cq_entries: Count::default(),
            sq_thread: Count::default(),
            pool: Count::default(),
            in_flight: Count::default(),
            enters: Count::default(),
            errors: Count::default(),
            cqes: Count::default(),
            overflowed: Count::default(),
            read_bytes: Count::default(),
            written_bytes: Count::default(),
            routes: Routes::default(),
            reissue: Reissue::default(),
            idle_sleeps: IdleSleeps::default(),
            ops: ops(),
            op_errors: ops(),
            op_hists: ops(),
            late: Late::default(),
        }
    }
}

impl RingStats {
    /// Counts `n` SQEs of one opcode as taken.
    #[inline]
    pub(crate) fn count_ops(&self, opcode: u8, n: u32) {
        self.ops[row(opcode)].add(u64::from(n));
    }

    /// Counts a request that failed.
    pub(crate) fn count_error(&self, opcode: u8) {
        self.errors.add(1);
        self.op_errors[row(opcode)].add(1);
    }
}

/// Returns the index of an opcode's words.
fn row(opcode: u8) -> usize {
    usize::from(opcode).min(OPS - 1)
}

/// Workers of a ring, or of several that share them, of both accounts.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct PoolStats {
    /// Workers for calls that end (regular files).
    pub(crate) bound: Workers,
    /// Workers for calls that may not end (pipes, sockets).
    pub(crate) unbound: Workers,
}

/// Workers of one account.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Workers {
    /// Threads that exist.
    pub(crate) workers: Count,
    /// Threads that wait for work; the others run something.
    pub(crate) idle: Count,
    /// Requests that wait for a worker.
    pub(crate) queued: Count,
    /// Most workers that may exist.
    pub(crate) max: Count,
}
