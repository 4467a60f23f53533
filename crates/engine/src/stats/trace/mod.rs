//! The trace: every step of every request, written into shared memory while somebody reads it
//! (`softring trace`).
//!
//! Where it is. A process makes a memfd called [`NAME`] with its first ring, found through
//! `/proc/PID/fd` as the statistics page is, of which no more than the first page is ever touched
//! unless somebody traces. Where its environment names a tracer (`Watcher::Trace`) the
//! process sends it the memfd, and waits until that has turned the trace on, so that nothing is
//! lost of what it does first; nor when it ends, as the tracer has the memory as well.
//!
//! Who turns it on. The reader, by writing until when it wants events into [`Header::until`], again
//! and again: a reader that dies leaves nothing on. It is the one word that anybody else may
//! write; who may open the memfd may as well read all of the process's memory.
//!
//! What it costs. Off: a read of that word in each `enter`, and a read of a byte of the ring's own
//! in each step. On: one or two clock reads and 32 bytes per step, 32 or 64 more for its SQE. If
//! descriptors are to be named, an fstat(2) per request as well. The clock is the processor's time
//! stamp counter where the kernel itself trusts it, half as dear as CLOCK_MONOTONIC; the reader
//! finds out how the two go together.
//!
//! # Layout and protocol
//! A [`Header`], a [`Head`] per chunk, and the chunks: each [`TRACE_EVENTS`] slots of four words.
//! An event takes one, and more where it has more to tell: those follow in the same chunk, and are
//! told of together.
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
//! writer's words could come before the reader's reads of the old ones. [`protocol`] has the steps,
//! and `verify::trace` has loom try every order of them. Nothing is ever overwritten: where no
//! chunk is free the event is refused and counted ([`Header::dropped`]). Events of different rings
//! come in no order; their times tell.
//!
//! The reader trusts no word: the memory is the program's, too. The writer reads nothing back but
//! `until`, and `state` where it takes a chunk: what others write there can at worst garble the
//! trace.

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
pub(crate) use writer::{Span, now, ns_until};

/// What the memfd is called.
pub const NAME: &str = "softring-trace";
/// The first word.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"srtrace\0");
/// The layout, and the meaning of the events.
pub(crate) const VERSION: u64 = 2;

/// A request's step, or a stretch of a thread's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// An SQE was taken: `data` is its user_data, `value` its fd. More words: the rest of the SQE
    /// ([`Event::sqe`]).
    #[default]
    Submit = 1,
    /// An SQE taken, tried and done in one: `data` is its user_data, `req` how many ticks it took.
    /// More words: the rest of the SQE.
    Inline,
    /// First attempt, or the decision where to wait instead.
    Issue,
    /// The request waits for readiness.
    Armed,
    /// Tried again, as its file is ready.
    Reissue,
    /// The request waits for a worker, or is with one.
    Punt,
    /// The request is with the kernel's aio.
    Aio,
    /// The request is with a modelled disk, which has it done in `value` ns.
    Model,
    /// A wait with its own owner: a timeout, a poll, a futex, a child.
    Queued,
    /// The request waits behind a barrier.
    Drained,
    /// A CQE of a request that goes on: `value` is its result, `flags` and more words are as with
    /// `Done`.
    More,
    /// The request has ended; `value` is its result, `flags` has the low flags of its CQE, or
    /// [`NO_CQE`]. More words: the flags if some are higher, and what a CQE of 32 bytes has
    /// besides.
    Done,
    /// A thread was in `enter` from `data` on; `value` SQEs were asked for.
    Enter,
    /// The thread slept there.
    Sleep,
    /// The thread slept there, between two polls for completions, for `value` ns unless `req` of
    /// them came before.
    IdleSleep,
    /// A worker ran a request.
    Work,
    /// A pass of an SQ thread that had work.
    Pass,
    /// The reactor drove a ring.
    Drive,
    /// Bytes that an SQE points to, with the number of its request; `value` tells which
    /// ([`TEXT_FIRST`] and the others), `data` how many bytes there are, which follow as more
    /// words.
    Text,
    /// What the descriptor `value`, or with [`FIXED`] in `flags` the slot, means from now on: a
    /// path of `data` bytes follows, as proc(5) has it. Only if names were asked for.
    Name,
    /// The same of a socket: `req` is [`LOCAL`] or [`PEER`], and a `sockaddr` follows. `opcode` is
    /// the socket's type.
    Address,
}

impl Step {
    const ALL: [Step; 21] = [
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
    ];

    /// Is it a stretch of a thread's time, which begins at `data`?
    pub const fn is_span(self) -> bool {
        self as u8 >= Step::Enter as u8 && self as u8 <= Step::Drive as u8
    }
}

/// A bit in `flags` of an ended request: no CQE tells of it.
pub const NO_CQE: u8 = 1 << 7;
/// A bit in `flags` of a name: of a slot of the table of registered files.
pub const FIXED: u8 = 1;
/// A mark in `value` of a text: the path, or name, that `addr` points to.
pub(crate) const TEXT_FIRST: i32 = 0;
/// The second path.
pub const TEXT_SECOND: i32 = 1;
/// A structure: a socket's address, `openat2`'s `open_how`, a timeout's time in ns.
pub const TEXT_STRUCTURE: i32 = 2;
/// A mark in `req` of an address: that of this end, or of the other.
pub const LOCAL: u32 = 0;
pub(crate) const PEER: u32 = 1;
/// A bit in the header: descriptors are to be named.
pub(crate) const WANT_NAMES: u64 = 1;

/// One event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Time in ticks of the clock that the header names.
    pub time: u64,
    /// Data by step: a user_data, or when a stretch began.
    pub data: u64,
    /// The number of the request of its ring, from 1 on; 0: none.
    pub req: u32,
    /// The thread that wrote it.
    pub tid: u32,
    pub step: Step,
    pub opcode: u8,
    /// Flags by step: flags of a CQE, or of a name.
    pub flags: u8,
    pub value: i32,
}

/// Slots that belong to one event, at most: it and its words.
const MOST_SLOTS: usize = 32;
/// Bytes of a text that are kept.
pub(crate) const MOST_TEXT: usize = (MOST_SLOTS - 1) * 32;

impl Event {
    /// `slots` more slots belong to it.
    const fn words(&self, slots: u8) -> [u64; 4] {
        let low = self.step as u64
            | (self.opcode as u64) << 8
            | (self.flags as u64) << 16
            | (slots as u64) << 24;
        let ids = self.req as u64 | (self.tid as u64) << 32;
        [self.time, self.data, ids, low | (self.value.cast_unsigned() as u64) << 32]
    }

    /// None if there is no such step.
    fn from_words([time, data, ids, last]: [u64; 4]) -> Option<Event> {
        let step = *Step::ALL.get((last as u8).checked_sub(1)? as usize)?;
        let (req, tid) = (ids as u32, (ids >> 32) as u32);
        let [_, opcode, flags, ..] = last.to_le_bytes();
        let value = ((last >> 32) as u32).cast_signed();
        Some(Event { time, data, req, tid, step, opcode, flags, value })
    }

    /// How many slots after this one belong to it.
    const fn slots([.., last]: [u64; 4]) -> u32 {
        last.to_le_bytes()[3] as u32
    }

    /// The SQE, of a request's first event with its words; none if those are not all there.
    pub fn sqe(&self, more: &[u64]) -> Option<io_uring_sqe> {
        let [head, off, addr, ops, rest @ ..] = more else { return None };
        let [b, a3, pad, ..] = *rest else {
            return Some(unpack([*head, *off, *addr, *ops, self.data, 0, 0, 0]));
        };
        Some(unpack([*head, *off, *addr, *ops, self.data, b, a3, pad]))
    }

    /// All flags of the CQE, of an event that tells of one with its words.
    pub fn cqe_flags(&self, more: &[u64]) -> u32 {
        more.first().map_or(u32::from(self.flags & !NO_CQE), |&word| word as u32)
    }
}

/// The words of an SQE in memory but for its user_data, which the event has; the last four only if
/// one of them says something.
pub(crate) fn pack(sqe: &io_uring_sqe) -> ([u64; 8], usize) {
    let head = u64::from(sqe.opcode)
        | u64::from(sqe.flags) << 8
        | u64::from(sqe.ioprio) << 16
        | u64::from(sqe.fd.cast_unsigned()) << 32;
    let ops = u64::from(sqe.len) | u64::from(sqe.op_flags) << 32;
    let extra = u64::from(sqe.buf_index)
        | u64::from(sqe.personality) << 16
        | u64::from(sqe.file_index) << 32;
    let n = if extra | sqe.addr3 | sqe.pad2 == 0 { 4 } else { 8 };
    ([head, sqe.off, sqe.addr, ops, extra, sqe.addr3, sqe.pad2, 0], n)
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

/// The clock that the times are of.
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
    /// The process that made it, as that knows itself. A copy that a fork has left behind names the
    /// parent.
    pub pid: AtomicU64,
    pub(crate) chunks: AtomicU64,
    /// Events per chunk.
    pub(crate) events: AtomicU64,
    /// Events are wanted until then, in ticks; 0: none are.
    pub(crate) until: AtomicU64,
    /// [`Ticks`]
    pub(crate) clock: AtomicU64,
    /// The process that reads.
    pub(crate) reader: AtomicU64,
    /// Events for which no chunk was free.
    pub(crate) dropped: AtomicU64,
    /// Where the search for a free chunk begins.
    pub(crate) cursor: AtomicU64,
    /// What is wanted besides: [`WANT_NAMES`].
    pub(crate) wants: AtomicU64,
}

/// A chunk's own account.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Head {
    /// As [`protocol::State`] has it.
    pub(crate) state: AtomicU32,
    /// The process whose events they are.
    pub(crate) pid: AtomicU32,
    /// The number of the ring of that process.
    pub(crate) ring: AtomicU64,
    /// The ring's setup flags.
    pub(crate) flags: AtomicU64,
    /// The process's name.
    pub(crate) comm: [AtomicU64; 2],
}

const HEADS: usize = 4096;
const DATA: usize = HEADS + TRACE_CHUNKS * size_of::<Head>();
const SIZE: usize = DATA + TRACE_CHUNKS * TRACE_EVENTS * 32;
