//! The trace: every step of every request, written into shared memory while somebody reads it
//! (`softring trace`).
//!
//! **Place.** A process makes a memfd called [`NAME`] with its first ring, found through
//! `/proc/PID/fd` like the statistics page. No more than its first page is ever touched unless
//! somebody traces. If its environment names a tracer (`Watcher::Trace`), the process sends it the
//! memfd and waits until the tracer has turned the trace on, so that none of its first events is
//! lost. Its last events are not lost either, as the tracer has the memory as well.
//!
//! **Switch.** The reader turns the trace on by writing into [`Header::until`], again and again,
//! until when it wants events: a reader that dies leaves nothing on. Who may open the memfd for
//! that may as well read all of the process's memory.
//!
//! **Cost.** Off: a read of that word in each `enter`, and a read of a byte of the ring's own in
//! each step. On: one or two clock reads and 32 bytes per step, and up to 64 more for its SQE.
//! Requests that are nothing but an opcode and a user_data, as most NOPs, and that follow each
//! other in a call, are a run: the clock is read at its end, and the time since the event before is
//! shared out evenly. If descriptors are to be named, an fstat(2) per request as well. The clock is
//! the processor's time stamp counter if the kernel itself trusts it, half as dear as
//! CLOCK_MONOTONIC; the reader finds out the relation of the two.
//!
//! # Layout and protocol
//! A [`Header`], a [`Head`] per chunk, and the chunks: each [`TRACE_EVENTS`] slots of four words.
//! An event takes one slot, and more if it has more words: those slots follow in the same chunk,
//! and are published together. The events of a run are, too. A ring writes into one chunk at a
//! time, under its own lock, so that there is never more than one writer; it makes one atomic
//! read-modify-write per chunk. The reader takes new events of all chunks, also of those half full,
//! and frees those that their writers are through with:
//!
//! ```text
//! writer                                  reader
//! state: FREE -> 1      (cas, acquire)    n = state          (acquire)
//! the n-th event's words                  events up to n
//! state = 1 + n         (release)         full or closed: state = FREE   (release)
//! ```
//!
//! Without the release of `1 + n` the reader would see half an event; without that of FREE a new
//! writer's words could come before the reader's reads of the old ones. [`protocol`] has the steps,
//! and `verify::trace` has loom try every order of them. Nothing is ever overwritten: if no chunk
//! is free, the event is refused and counted ([`Header::dropped`]). Events of different rings come
//! in no order; only their times give it.
//!
//! The reader trusts no word: the memory is the program's, too. Of the words that others may write,
//! the writer reads only those of the header, and `state` when it takes a chunk: wrong values can
//! at worst garble the trace.

use core::sync::atomic::{AtomicU32, AtomicU64};

use softring_host::limits::{TRACE_CHUNKS, TRACE_EVENTS};
use softring_uapi::io_uring_sqe;

mod buffer;
mod clock;
mod names;
pub(crate) mod protocol;
pub mod read;
mod writer;

pub use buffer::disable;
pub(crate) use buffer::prepare;
pub use clock::Clock;
pub(crate) use writer::Writer;
pub(crate) use writer::{Span, now, ns_until, ticks_between};

/// Name of the memfd.
pub const NAME: &str = "softring-trace";
/// Value of the first word.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"srtrace\0");
/// Version of the layout, and of the meaning of the events.
pub(crate) const VERSION: u64 = 3;

/// A request's step, or a stretch of a thread's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// SQE taken: `data` is its user_data, `value` its fd. More words: the rest of the SQE
    /// ([`Event::sqe`]). No more words: the rest is 0, but the fd is -1 if `flags` is [`NO_FD`].
    #[default]
    Submit = 1,
    /// SQE taken, tried and done in one: `data` is its user_data, `req` its duration in ticks, or
    /// its share of a run's. More words, and `flags`: as with `Submit`.
    Inline,
    /// First attempt, or the decision where to wait instead.
    Issue,
    /// Wait of the request for readiness.
    Armed,
    /// Repeated attempt, as the file is ready.
    Reissue,
    /// Wait of the request for a worker, or its run there.
    Punt,
    /// Start of the request in the kernel's aio.
    Aio,
    /// Start of the request on a modelled disk, which has it done in `value` ns.
    Model,
    /// Wait with its own owner: a timeout, a poll, a futex, a child.
    Queued,
    /// Wait of the request behind a barrier.
    Drained,
    /// CQE of a request that goes on: `value` is its result, `flags` and more words are as with
    /// `Done`.
    More,
    /// End of the request: `value` is its result, `flags` has the low flags of its CQE, or
    /// [`NO_CQE`]. More words: the flags if some are higher, and the rest of a CQE of 32 bytes.
    Done,
    /// Time of a thread in `enter` from `data` on; `value` SQEs were asked for.
    Enter,
    /// Sleep of the thread there.
    Sleep,
    /// Sleep of the thread there, between two polls for completions, for `value` ns unless `req` of
    /// them came before.
    IdleSleep,
    /// Run of a request by a worker.
    Work,
    /// Pass of an SQ thread that had work.
    Pass,
    /// Time in which the reactor drove a ring.
    Drive,
    /// Bytes that an SQE points to, with the number of its request. `value` gives their kind
    /// ([`TEXT_FIRST`] and the others), `data` their number; the bytes follow as more words.
    Text,
    /// Name of the descriptor `value`, or with [`FIXED`] in `flags` of the slot, from now on: a
    /// path of `data` bytes follows, as proc(5) has it. Only if names were asked for.
    Name,
    /// Name of a socket: `req` is [`LOCAL`] or [`PEER`], and a `sockaddr` follows. `opcode` is the
    /// socket's type.
    Address,
    /// Fault injected into the request: `value` is its number (`softring_faults::Fault`).
    Fault,
}

impl Step {
    const ALL: [Step; 22] = [
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
        Step::IdleSleep,
        Step::Work,
        Step::Pass,
        Step::Drive,
        Step::Text,
        Step::Name,
        Step::Address,
        Step::Fault,
    ];

    /// Returns whether the step is a stretch of a thread's time, which begins at `data`.
    pub const fn is_span(self) -> bool {
        self as u8 >= Step::Enter as u8 && self as u8 <= Step::Drive as u8
    }
}

/// Bit in `flags` of an ended request: there is no CQE for it.
pub const NO_CQE: u8 = 1 << 7;
/// Bit in `flags` of a request's first event without words: the SQE's fd is -1.
const NO_FD: u8 = 1;
/// Bit in `flags` of a name: that of a slot of the table of registered files.
pub const FIXED: u8 = 1;
/// Mark in `value` of a text: the path, or name, that `addr` points to.
pub(crate) const TEXT_FIRST: i32 = 0;
/// Mark of the second path.
pub const TEXT_SECOND: i32 = 1;
/// Mark of a structure: a socket's address, `openat2`'s `open_how`, a timeout's time in ns.
pub const TEXT_STRUCTURE: i32 = 2;
/// Mark in `req` of an address: that of this end, or of the other.
pub const LOCAL: u32 = 0;
pub(crate) const PEER: u32 = 1;
/// Bit in the header: descriptors are to be named.
pub(crate) const WANT_NAMES: u64 = 1;

/// One event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Time in ticks of the clock that the header names.
    pub time: u64,
    /// Data by step: a user_data, or the start of a stretch.
    pub data: u64,
    /// Number of the request in its ring, from 1 on; 0: none.
    pub req: u32,
    /// Thread that wrote the event.
    pub tid: u32,
    pub step: Step,
    pub opcode: u8,
    /// Flags by step: flags of a CQE, of an SQE without words, or of a name.
    pub flags: u8,
    pub value: i32,
}

/// Most slots that belong to one event: its own, and those of its words.
const MOST_SLOTS: usize = 32;
/// Most bytes of a text that are kept.
pub(crate) const MOST_TEXT: usize = (MOST_SLOTS - 1) * 32;

impl Event {
    /// Returns the words of the event, written by thread `tid`, to which `slots` more belong.
    #[inline(always)]
    const fn words(&self, tid: u32, slots: u8) -> [u64; 4] {
        let low = self.step as u64
            | (self.opcode as u64) << 8
            | (self.flags as u64) << 16
            | (slots as u64) << 24;
        let ids = self.req as u64 | (tid as u64) << 32;
        [self.time, self.data, ids, low | (self.value.cast_unsigned() as u64) << 32]
    }

    /// Returns the event of these words; none if there is no such step.
    fn from_words([time, data, ids, last]: [u64; 4]) -> Option<Event> {
        let step = *Step::ALL.get((last as u8).checked_sub(1)? as usize)?;
        let (req, tid) = (ids as u32, (ids >> 32) as u32);
        let [_, opcode, flags, ..] = last.to_le_bytes();
        let value = ((last >> 32) as u32).cast_signed();
        Some(Event { time, data, req, tid, step, opcode, flags, value })
    }

    /// Returns how many slots after this one belong to the event.
    const fn slots([.., last]: [u64; 4]) -> u32 {
        last.to_le_bytes()[3] as u32
    }

    /// Returns the SQE of a request's first event with its words; none if those are incomplete.
    pub fn sqe(&self, more: &[u64]) -> Option<io_uring_sqe> {
        let first = matches!(self.step, Step::Submit | Step::Inline);
        let [head, off, addr, ops, rest @ ..] = more else {
            let fd = if self.flags & NO_FD == 0 { 0 } else { -1 };
            let (opcode, user_data) = (self.opcode, self.data);
            let sqe = io_uring_sqe { opcode, fd, user_data, ..io_uring_sqe::default() };
            return (first && more.is_empty()).then_some(sqe);
        };
        let [b, a3, pad, ..] = *rest else {
            return Some(unpack([*head, *off, *addr, *ops, self.data, 0, 0, 0]));
        };
        Some(unpack([*head, *off, *addr, *ops, self.data, b, a3, pad]))
    }

    /// Returns all flags of the CQE, of an event for one with its words.
    pub fn cqe_flags(&self, more: &[u64]) -> u32 {
        more.first().map_or(u32::from(self.flags & !NO_CQE), |&word| word as u32)
    }
}

/// Words of an SQE that its first event has not: it has the opcode and the user_data.
pub(crate) enum Rest {
    /// No words, as all other fields are 0, but for an fd of -1; with the event's flags.
    None(u8),
    /// Words that most requests have.
    One([u64; 4]),
    Two([[u64; 4]; 2]),
}

impl Rest {
    #[inline(always)]
    pub(crate) fn of(sqe: &io_uring_sqe) -> Rest {
        const FD_NONE: u64 = (u32::MAX as u64) << 24;
        let head = u64::from(sqe.opcode)
            | u64::from(sqe.flags) << 8
            | u64::from(sqe.ioprio) << 16
            | u64::from(sqe.fd.cast_unsigned()) << 32;
        let ops = u64::from(sqe.len) | u64::from(sqe.op_flags) << 32;
        let extra = u64::from(sqe.buf_index)
            | u64::from(sqe.personality) << 16
            | u64::from(sqe.file_index) << 32;
        let words = [head, sqe.off, sqe.addr, ops];
        if extra | sqe.addr3 | sqe.pad2 != 0 {
            return Rest::Two([words, [extra, sqe.addr3, sqe.pad2, 0]]);
        }
        match (head >> 8, sqe.off | sqe.addr | ops) {
            (0, 0) => Rest::None(0),
            (FD_NONE, 0) => Rest::None(NO_FD),
            _ => Rest::One(words),
        }
    }
}

const fn unpack([head, off, addr, ops, user_data, extra, addr3, pad2]: [u64; 8]) -> io_uring_sqe {
    io_uring_sqe {
        opcode: head as u8,
        flags: (head >> 8) as u8,
        ioprio: (head >> 16) as u16,
        fd: ((head >> 32) as u32).cast_signed(),
        off,
        addr,
        len: ops as u32,
        op_flags: (ops >> 32) as u32,
        user_data,
        buf_index: extra as u16,
        personality: (extra >> 16) as u16,
        file_index: (extra >> 32) as u32,
        addr3,
        pad2,
    }
}

/// Clock of the times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Ticks {
    /// The processor's time stamp counter.
    Counter = 0,
    /// CLOCK_MONOTONIC in ns.
    Monotonic = 1,
}

/// Start of the memory.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Header {
    pub magic: AtomicU64,
    pub version: AtomicU64,
    /// Process that made the memory, by its own pid. A copy that a fork has left behind names the
    /// parent.
    pub pid: AtomicU64,
    pub(crate) chunks: AtomicU64,
    /// Events per chunk.
    pub(crate) events: AtomicU64,
    /// Time until which events are wanted, in ticks; 0: none are.
    pub(crate) until: AtomicU64,
    /// Clock of the times ([`Ticks`]).
    pub(crate) clock: AtomicU64,
    /// Process that reads.
    pub(crate) reader: AtomicU64,
    /// Events for which no chunk was free.
    pub(crate) dropped: AtomicU64,
    /// Chunk at which the search for a free one begins.
    pub(crate) cursor: AtomicU64,
    /// Further wishes: [`WANT_NAMES`].
    pub(crate) wants: AtomicU64,
}

/// Account of a chunk.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Head {
    /// State of the chunk ([`protocol::State`]).
    pub(crate) state: AtomicU32,
    /// Process that the events are of.
    pub(crate) pid: AtomicU32,
    /// Number of the ring in that process.
    pub(crate) ring: AtomicU64,
    /// Setup flags of the ring.
    pub(crate) flags: AtomicU64,
    /// Name of the process.
    pub(crate) comm: [AtomicU64; 2],
}

const HEADS: usize = 4096;
const DATA: usize = HEADS + TRACE_CHUNKS * size_of::<Head>();
const SIZE: usize = DATA + TRACE_CHUNKS * TRACE_EVENTS * 32;
