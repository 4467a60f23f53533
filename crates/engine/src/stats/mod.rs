//! Statistics: one page per process, which anybody with the right to look at the process may read
//! while it runs.
//!
//! The page is a memfd called [`NAME`], found through `/proc/PID/fd`; it goes with its process, so
//! that nothing is to be cleaned up. It is sealed against writing by anyone but who made it. All of
//! it are 64-bit words in the machine's byte order: a [`Header`], behind it one [`RingStats`] per
//! ring, and where the header says one [`MeterStats`] per thread that polls ([`meter`]). The first
//! [`RingStats`], whose `id` stays 0, holds the sums of the rings that have ended. What else has
//! `id` 0 is free. [`read`] takes it apart.
//!
//! Writers never lock for it: a ring's words are written under that ring's lock, a meter's by its
//! thread. Reading costs the program nothing. A word may be newer than the one before it; none ever
//! goes back but with its ring. A reader looks at `id` before and after: if it has changed, the
//! place has a new owner.
//!
//! A forked child makes its own page when it first submits. [`VERSION`] changes with the meaning of
//! a word; words are only ever added at the end of a structure, whose size the header tells.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::abi::IORING_OP_LAST;

pub mod meter;
mod page;
pub mod read;
pub mod trace;

pub use page::{Place, disable, enabled, fork_child};

/// What the memfd is called.
pub const NAME: &str = "softring-stats";
/// The first word.
pub const MAGIC: u64 = u64::from_le_bytes(*b"softring");
/// The layout.
pub const VERSION: u64 = 3;

/// A counter. One thread at a time writes it, under its ring's lock or because it is its own, so
/// adding is a load and a store; whoever else reads it sees a value that was right a moment ago.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Count(AtomicU64);

impl Count {
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }
}

/// The start of the page.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Header {
    pub magic: Count,
    pub version: Count,
    /// The process that writes. A copy that a fork has left behind names the parent.
    pub pid: Count,
    /// Bytes before the first ring.
    pub header_size: Count,
    /// Bytes per ring.
    pub ring_size: Count,
    /// Rings that there is room for, with that of the sums.
    pub rings: Count,
    /// When the page was made, in ns of CLOCK_BOOTTIME.
    pub made: Count,
    /// Rings made while the page was full: they are counted nowhere.
    pub unseen: Count,
    /// Bytes before the first meter.
    pub meters_at: Count,
    /// Bytes per meter.
    pub meter_size: Count,
    /// Meters that there is room for.
    pub meters: Count,
}

/// What became of attempts at files that can be polled (`req::arm`).
#[derive(Debug, Default)]
#[repr(C)]
pub struct Reissue {
    /// Requests whose first attempt had something to tell: no wait.
    pub at_once: Count,
    /// Arm steps that answered OK: the request waits for readiness.
    pub armed: Count,
    /// Of those, the ones that the look behind the arming found ready. Where that look is a wait of
    /// the program's, one that took less than two microseconds counts: it cannot have slept.
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
    /// To the poll set, by reissue.
    pub poll: Count,
    /// To the kernel's aio.
    pub aio: Count,
    /// To a worker.
    pub worker: Count,
    /// Completed as a modelled disk would (`transport::model`).
    pub model: Count,
    /// To their own owner: timeouts, POLL_ADD, futexes, messages, children.
    pub queued: Count,
}

/// What threads that wait by polling did between their looks (`wait::hybrid`).
#[derive(Debug, Default)]
#[repr(C)]
pub struct Naps {
    /// Naps taken.
    pub naps: Count,
    /// Of those, the ones that ended before what they waited for was there.
    pub under: Count,
    /// Of those, the ones that found it there.
    pub over: Count,
    /// Time spent in naps, in ns: processor time that spinning would have cost.
    pub spared_ns: Count,
    /// Time spent spinning, in ns.
    pub spun_ns: Count,
}

/// Bytes of a meter's name; what is shorter ends with a 0.
pub const METER_NAME: usize = 32;

/// All that is counted of one thread that polls. Times are processor time of that one thread, as
/// the kernel's `SqTotalTime` and `SqWorkTime` are, and never go back.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct MeterStats {
    /// Which meter of its process, from 1 on; 0: none.
    pub id: Count,
    /// [`meter::Kind`]
    pub kind: Count,
    pub tid: Count,
    /// The processor that it last worked on.
    pub cpu: Count,
    /// What the thread had used before it had the meter, in ns: what its clock (schedstat(5)) says
    /// beyond that is its total, also while it polls in vain and writes nothing here.
    pub base_ns: Count,
    /// Time used, in µs, as of the last look at the clock.
    pub total_us: Count,
    /// Time used for work, in µs.
    pub work_us: Count,
    /// Stretches of work.
    pub stretches: Count,
    pub name: [Count; METER_NAME / 8],
    /// Naps of an SQ thread between submissions (`wait::sqpoll`), those of them that found
    /// something submitted meanwhile, and the time spent in them in µs.
    pub naps: Count,
    pub naps_over: Count,
    pub napped_us: Count,
}

/// All that is counted of one ring.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct RingStats {
    /// Which ring of its process, from 1 on; 0: none.
    pub id: Count,
    /// Its setup flags.
    pub flags: Count,
    pub sq_entries: Count,
    pub cq_entries: Count,
    /// Calls of enter that submitted something.
    pub enters: Count,
    /// CQEs with a negative result.
    pub errors: Count,
    /// The thread that submits for it (SQPOLL), whose meter has the rest; 0: none.
    pub sq_thread: Count,
    pub routes: Routes,
    pub reissue: Reissue,
    pub naps: Naps,
    /// SQEs taken, by opcode; the last stands for opcodes that do not exist.
    pub ops: [Count; OPS],
}

/// Words for opcodes.
pub const OPS: usize = IORING_OP_LAST as usize + 1;

impl Default for RingStats {
    fn default() -> Self {
        RingStats {
            id: Count::default(),
            flags: Count::default(),
            sq_entries: Count::default(),
            cq_entries: Count::default(),
            enters: Count::default(),
            errors: Count::default(),
            sq_thread: Count::default(),
            routes: Routes::default(),
            reissue: Reissue::default(),
            naps: Naps::default(),
            ops: [const { Count(AtomicU64::new(0)) }; OPS],
        }
    }
}

impl RingStats {
    /// `n` SQEs of one opcode were taken.
    #[inline]
    pub fn count_ops(&self, opcode: u8, n: u32) {
        self.ops[usize::from(opcode).min(OPS - 1)].add(u64::from(n));
    }
}
