//! The trace: every step of every request, written into shared memory while somebody reads it
//! (`softring trace`).
//!
//! Where it is. A process makes a memfd called [`NAME`] with its first ring, found through
//! `/proc/PID/fd` as the statistics page is, of which no more than the first page is ever touched
//! unless somebody traces. Where its environment names a tracer (`stats::watcher::TRACE`) the
//! process sends it the memfd, and waits until that has turned the trace on, so that nothing is
//! lost of what it does first; nor when it ends, as the tracer has the memory as well.
//!
//! Who turns it on. The reader, by writing until when it wants events into [`Header::until`], again
//! and again: a reader that dies leaves nothing on. It is the one word that anybody else may
//! write; who may open the memfd may as well read all of the process's memory.
//!
//! What it costs. Off: a look at that word in each `enter`, and a look at a byte of the ring's own
//! in each step. On: one or two clock reads and 32 bytes per step. The clock is the processor's
//! time stamp counter where the kernel itself trusts it, half as dear as CLOCK_MONOTONIC; the
//! reader finds out how the two go together.
//!
//! # Layout and protocol
//! A [`Header`], a [`Head`] per chunk, and the chunks: each [`TRACE_EVENTS`] events of four words.
//! A ring writes into one chunk at a time, under its own lock, so that there is never more than one
//! writer; it takes an atomic read-modify-write once per chunk. The reader takes what is there of
//! all chunks, also of those half full, and frees those that their writers are through with:
//!
//! ```text
//! writer                                  reader
//! state: FREE -> 1      (cas, acquire)    n = state          (acquire)
//! the n-th event's words                  events up to n
//! state = 1 + n         (release)         full or closed: state = FREE   (release)
//! ```
//!
//! Without the release of `1 + n` the reader would see half an event; without that of FREE a new
//! writer's words could come before the reader's looks at the old ones. `verify::trace` has both.
//! Nothing is ever overwritten: where no chunk is free the event is refused and counted
//! ([`Header::dropped`]). Events of different rings come in no order; their times tell.
//!
//! The reader trusts no word: the memory is the program's, too. The writer reads nothing back but
//! `until`, and `state` where it takes a chunk: what others write there can at worst garble the
//! trace.

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::host::limits::{TRACE_CHUNKS, TRACE_EVENTS};

mod buffer;
mod clock;
pub mod read;
mod writer;

use super::watcher;
pub use buffer::disable;
pub(crate) use buffer::{AT_FORK, prepare};
pub use clock::Clock;
pub(crate) use writer::Writer;
pub(crate) use writer::{Span, now, ns_until};

/// What the memfd is called.
pub const NAME: &str = "softring-trace";
/// The first word.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"srtrace\0");
/// The layout, and the meaning of the events.
pub(crate) const VERSION: u64 = 1;

/// A request's step, or a stretch of a thread's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// An SQE was taken: `data` is its user_data, `value` its fd.
    Submit = 1,
    /// Taken, tried and done in one: `data` is its user_data, `req` how many ticks it took.
    Inline,
    /// First attempt, or the decision where to wait instead.
    Issue,
    /// It waits for readiness.
    Armed,
    /// Tried again, as its file is ready.
    Reissue,
    /// It waits for a worker, or is with one.
    Punt,
    /// It is with the kernel's aio.
    Aio,
    /// It is with a modelled disk, which has it done in `value` ns.
    Model,
    /// With its own owner: a timeout, a poll, a futex, a child.
    Queued,
    /// It waits behind a barrier.
    Drained,
    /// A CQE of a request that goes on.
    More,
    /// It has ended; `value` is its result.
    Done,
    /// A thread was in `enter` from `data` on; `value` SQEs were asked for.
    Enter,
    /// It slept there.
    Sleep,
    /// It napped there, between two looks for completions, for `value` ns unless `req` of them came
    /// before.
    Nap,
    /// A worker ran a request.
    Work,
    /// A pass of an SQ thread that had work.
    Pass,
    /// The reactor drove a ring.
    Drive,
}

impl Step {
    const ALL: [Step; 18] = [
        Step::Submit,
        Step::Inline,
        Step::Issue,
        Step::Armed,
        Step::Reissue,
        Step::Punt,
        Step::Aio,
        Step::Model,
        Step::Queued,
        Step::Drained,
        Step::More,
        Step::Done,
        Step::Enter,
        Step::Sleep,
        Step::Nap,
        Step::Work,
        Step::Pass,
        Step::Drive,
    ];

    /// Is it a stretch of a thread's time, which begins at `data`?
    pub const fn is_span(self) -> bool {
        self as u8 >= Step::Enter as u8
    }
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// In ticks of the clock that the header names.
    pub time: u64,
    /// By step: a user_data, or when a stretch began.
    pub data: u64,
    /// Which request of its ring, from 1 on; 0: none.
    pub req: u32,
    /// The thread that wrote it.
    pub tid: u32,
    pub step: Step,
    pub opcode: u8,
    pub value: i32,
}

impl Event {
    const fn words(&self) -> [u64; 4] {
        let low = self.step as u64 | (self.opcode as u64) << 8;
        let ids = self.req as u64 | (self.tid as u64) << 32;
        [self.time, self.data, ids, low | (self.value.cast_unsigned() as u64) << 32]
    }

    /// None if there is no such step.
    fn from_words([time, data, ids, last]: [u64; 4]) -> Option<Event> {
        let step = *Step::ALL.get((last as u8).checked_sub(1)? as usize)?;
        let (req, tid) = (ids as u32, (ids >> 32) as u32);
        let (opcode, value) = ((last >> 8) as u8, ((last >> 32) as u32).cast_signed());
        Some(Event { time, data, req, tid, step, opcode, value })
    }
}

/// Which clock the times are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Ticks {
    /// The processor's time stamp counter.
    Counter = 0,
    /// CLOCK_MONOTONIC in ns.
    Monotonic = 1,
}

/// The start of the memory.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Header {
    pub magic: AtomicU64,
    pub version: AtomicU64,
    /// Who made it, as that knows itself. A copy that a fork has left behind names the parent.
    pub pid: AtomicU64,
    pub chunks: AtomicU64,
    /// Events per chunk.
    pub events: AtomicU64,
    /// Events are wanted until then, in ticks; 0: none are.
    pub until: AtomicU64,
    /// [`Ticks`]
    pub clock: AtomicU64,
    /// The process that reads.
    pub reader: AtomicU64,
    /// Events for which no chunk was free.
    pub dropped: AtomicU64,
    /// Where the search for a free chunk begins.
    pub cursor: AtomicU64,
}

/// A chunk's own account.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Head {
    /// 0: free; else one more than the events written, with [`CLOSED`] if no more will come.
    pub state: AtomicU32,
    /// Whose events they are.
    pub pid: AtomicU32,
    /// Which ring of that process.
    pub ring: AtomicU64,
    /// The ring's setup flags.
    pub flags: AtomicU64,
    /// The process's name.
    pub comm: [AtomicU64; 2],
}

/// Its writer has left the chunk before it was full.
pub(crate) const CLOSED: u32 = 1 << 31;

const HEADS: usize = 4096;
const DATA: usize = HEADS + TRACE_CHUNKS * size_of::<Head>();
const SIZE: usize = DATA + TRACE_CHUNKS * TRACE_EVENTS * 32;
