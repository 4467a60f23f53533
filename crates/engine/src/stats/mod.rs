//! Statistics: one page per process, which anybody with the right to look at the process may read
//! while it runs.
//!
//! The page is a memfd called [`NAME`], found through `/proc/PID/fd`; it goes with its process, so
//! that nothing is to be cleaned up. It is sealed against writing by anyone but who made it. All of
//! it are 64-bit words in the machine's byte order: a [`Header`], and behind it sections of equal
//! slots, of which the header tells where they are ([`Section`]):
//!
//! * rings ([`RingStats`]). The first slot, whose `id` stays 0, holds the sums of the rings that
//!   have ended. What else has `id` 0 is free;
//! * pools of workers ([`PoolStats`]), which rings name;
//! * latency histograms ([`Hist`]), each of one operation of one ring, which the ring names;
//! * threads that poll ([`MeterStats`]); those with `id` 0 are free.
//!
//! [`read`] takes all this apart; `docs/STATS.md` tells it to people.
//!
//! Writers never lock for it: a ring's words, and its histograms, are written under that ring's
//! lock, a pool's under that pool's, a meter's by its thread. Reading costs the program nothing. A
//! word may be newer than the one before it; none ever goes back but gauges, or with its ring. A
//! reader reads `id` before and after: if it has changed, the slot has a new owner.
//!
//! A forked child makes its own page when it first submits. [`VERSION`] changes with the meaning of
//! a word; words are only ever added at the end of a structure, whose size the header tells.

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

/// What the memfd is called.
pub const NAME: &str = "softring-stats";
/// The first word.
pub const MAGIC: u64 = u64::from_le_bytes(*b"softring");
/// The layout.
pub const VERSION: u64 = 4;

/// A counter. One thread at a time writes it, under its ring's lock or because it is its own, so
/// adding is a load and a store; whoever else reads it sees a value that was right a moment ago.
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

    /// Another value of a gauge.
    #[inline]
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }
}

/// Where the slots of one kind are.
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
    /// The process that writes. A copy that a fork has left behind names the parent.
    pub pid: Count,
    /// Bytes of the header: a section that would lie behind them is not there.
    pub header_size: Count,
    /// When the page was made, in ns of CLOCK_BOOTTIME.
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

/// What became of attempts at files that can be polled (`submit::arm`).
#[derive(Debug, Default)]
#[repr(C)]
pub struct Reissue {
    /// Requests whose first attempt had something to tell: no wait.
    pub at_once: Count,
    /// Arm steps that answered OK: the request waits for readiness.
    pub armed: Count,
    /// The ones of those that the poll behind the arming found ready. Where that poll is a wait of
    /// the program's, a wait that took less than two microseconds counts: it cannot have slept.
    pub ready_at_arm: Count,
    /// Attempts made again because of readiness.
    pub reissued: Count,
    /// Arm steps that failed: a worker waits instead.
    pub aborted: Count,
    /// Requests that were issued again so often that a worker waits instead.
    pub capped: Count,
}

/// Where requests went that did not end when they were submitted.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Routes {
    /// Requests to the poll set, by reissue.
    pub(crate) poll: Count,
    /// Requests to the kernel's aio.
    pub(crate) aio: Count,
    /// Requests to a worker.
    pub worker: Count,
    /// Completed as a modelled disk would (`io::model`).
    pub(crate) model: Count,
    /// Requests to their own owner: timeouts, POLL_ADD, futexes, messages, children.
    pub(crate) queued: Count,
}

/// What threads that wait by polling did between their polls (`policy::hybrid`).
#[derive(Debug, Default)]
#[repr(C)]
pub struct IdleSleeps {
    /// Sleeps taken.
    pub idle_sleeps: Count,
    /// The ones of those that ended before what they waited for was there.
    pub(crate) under: Count,
    /// The ones of those that found it there.
    pub(crate) over: Count,
    /// Time spent in sleeps, in ns: processor time that spinning would have cost.
    pub(crate) spared_ns: Count,
    /// Time spent spinning, in ns.
    pub(crate) spun_ns: Count,
}

/// How late completions of modelled disks were seen: after the model had them done
/// (`io::model::late`).
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Late {
    /// Completions, and the sum of their times in ns.
    pub(crate) seen: Count,
    pub(crate) ns: Count,
    /// Median and 99th percentile of this ring so far, in ns, to six per cent; written now and
    /// then.
    pub(crate) p50_ns: Count,
    pub(crate) p99_ns: Count,
}

/// Bytes of a meter's name; what is shorter ends with a 0.
pub(crate) const METER_NAME: usize = 32;

/// All that is counted of one thread that polls. Times are processor time of that one thread, as
/// the kernel's `SqTotalTime` and `SqWorkTime` are, and never go back.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct MeterStats {
    /// The number of the meter of its process, from 1 on; 0: none.
    pub(crate) id: Count,
    /// [`meter::Kind`]
    pub(crate) kind: Count,
    pub(crate) tid: Count,
    /// The processor that it last worked on.
    pub(crate) cpu: Count,
    /// What the thread had used before it had the meter, in ns: what its clock (schedstat(5)) says
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

/// All that is counted of one ring.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct RingStats {
    /// The number of the ring of its process, from 1 on; 0: none.
    pub id: Count,
    /// The ring's setup flags.
    pub(crate) flags: Count,
    pub(crate) sq_entries: Count,
    pub(crate) cq_entries: Count,
    /// The thread that submits for it (SQPOLL), whose meter has the rest; 0: none.
    pub(crate) sq_thread: Count,
    /// The slot of its workers' pool, from 1 on; 0: it has none yet.
    pub(crate) pool: Count,
    /// Requests taken that have not ended.
    pub(crate) in_flight: Count,
    /// Calls of enter that submitted something.
    pub(crate) enters: Count,
    /// Requests that ended with a negative result.
    pub(crate) errors: Count,
    /// CQEs that came into the queue.
    pub(crate) cqes: Count,
    /// CQEs that found it full, and were kept.
    pub(crate) overflowed: Count,
    /// Bytes that reads and receives brought.
    pub(crate) read_bytes: Count,
    /// Bytes that writes and sends took.
    pub(crate) written_bytes: Count,
    pub routes: Routes,
    pub reissue: Reissue,
    pub idle_sleeps: IdleSleeps,
    /// SQEs taken, by opcode; the last stands for opcodes that do not exist.
    pub(crate) ops: [Count; OPS],
    /// Requests that ended with a negative result, by opcode.
    pub(crate) op_errors: [Count; OPS],
    /// The slot of the opcode's histogram, from 1 on; 0: it has none.
    pub op_hists: [Count; OPS],
    pub(crate) late: Late,
}

/// Words for opcodes.
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
    /// `n` SQEs of one opcode were taken.
    #[inline]
    pub(crate) fn count_ops(&self, opcode: u8, n: u32) {
        self.ops[row(opcode)].add(u64::from(n));
    }

    /// A request failed.
    pub(crate) fn count_error(&self, opcode: u8) {
        self.errors.add(1);
        self.op_errors[row(opcode)].add(1);
    }
}

/// Where an opcode's words are.
fn row(opcode: u8) -> usize {
    usize::from(opcode).min(OPS - 1)
}

/// The workers of a ring, or of several that share them, of both accounts.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct PoolStats {
    /// Workers of what ends (regular files).
    pub(crate) bound: Workers,
    /// Workers of what may not (pipes, sockets).
    pub(crate) unbound: Workers,
}

/// The workers of one account.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Workers {
    /// Threads that there are.
    pub(crate) workers: Count,
    /// The ones of those that wait for work; the others run something.
    pub(crate) idle: Count,
    /// Requests that wait for a worker.
    pub(crate) queued: Count,
    /// Most workers that there may be.
    pub(crate) max: Count,
}
