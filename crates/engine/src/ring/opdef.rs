//! What a row of the op table says. The rows themselves are in [`ops::table`](crate::ops::table);
//! a request carries its own. Kernel counterpart: `struct io_issue_def`.

use crate::io::persistent;
use crate::ring::ctx::Ctx;
use crate::ring::request::{Call, Req};
use softring_host::sys::nr::{EPOLLONESHOT, EPOLLPRI, EPOLLRDHUP};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

/// What one attempt at a request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Finished; the value is the CQE's `res` (negative: `-errno`).
    Done(i32),
    /// One result of a multishot request, which goes on.
    More(i32),
    /// As `More`, and there is no further result yet: it waits before its next attempt.
    MoreThenWait(i32),
    /// The request would block: [`submit::route`](crate::submit::route) chooses where it waits.
    Retry,
    /// As `Retry`, and its file is ready, though a call could wait all the same: no further attempt
    /// but a worker's.
    Punt,
    /// Finished with that value, but its CQE comes with the next task work.
    Later(i32),
    /// The request waits in the timeout queue, as `OpState::Timeout` says.
    Timed,
    /// The request waits in the poll set for these `EPOLL*` events.
    Polled(u32),
    /// A thread waits for what `OpState::Sleep` says.
    Sleeps,
    /// Another ring, or who delivers to one, completes it by its id.
    Elsewhere,
}

// Two words of 32 bits, which a function returns in registers.
const _: () = assert!(size_of::<Outcome>() == 8);

/// May an attempt block?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Try {
    /// An attempt on the submitter: never block, answer [`Outcome::Retry`] instead.
    Nonblock,
    /// An attempt on a worker: block as long as it takes.
    Block,
}

/// How an opcode runs.
#[derive(Clone, Copy)]
pub(crate) enum Issue {
    /// A call under the ring's lock, with the ring's state; never blocks.
    Ring(fn(&mut Ctx, &mut Req) -> Outcome),
    /// System calls only, on any thread.
    Call(fn(&mut Call, Try) -> Outcome),
}

/// How much of an opcode is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// As the kernel's.
    Full,
    /// As the kernel's but for what the note says.
    Partial(&'static str),
    /// Answers this, as a kernel without it does, and the probe says so.
    Refused(Errno),
}

/// One row.
#[derive(Clone, Copy)]
pub struct OpDef {
    pub name: &'static str,
    /// The kernel that brought it.
    pub since: &'static str,
    pub(crate) bits: u64,
    pub(crate) prep: fn(&mut Ctx, &mut Req) -> Result<()>,
    pub(crate) issue: Issue,
    /// The bit of `ioprio` that sends a request to the poll set before its first attempt.
    pub(crate) poll_first: u16,
    /// The bit of `ioprio` that says not to wait once an attempt has found nothing.
    pub(crate) dont_wait: u16,
    /// What filters may load of its SQE beyond what all have.
    pub(crate) filtered: Option<Filtered>,
    /// The fast path: the CQE's `res` for an SQE without flags (but FIXED_FILE) that ends at once;
    /// `None` sends it the long way, as if nothing had been tried.
    pub(crate) fast: Option<fn(&mut Ctx, &io_uring_sqe) -> Option<i32>>,
    /// A step under the lock after a `Call`: installs descriptors, selects results.
    pub(crate) finish: Option<fn(&mut Ctx, &mut Req)>,
    /// The operation ends with a failure: what it has done before may count all the same.
    pub(crate) fail: Option<fn(&mut Ctx, &mut Req)>,
    /// Is the result a failure that its issue hands back, where others keep theirs as the result
    /// (see [`HANDS_BACK`])?
    pub(crate) hands_back: Option<fn(&Req, i32) -> bool>,
    /// Whether the call, which a worker makes as a rule, cannot block for this request.
    pub(crate) never_blocks: Option<fn(&Req) -> bool>,
    /// The operation waits for what only it can ask for.
    pub(crate) waiting: Option<&'static Waiting>,
    pub support: Support,
}

/// What an operation says that waits for an event of its own kind.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// The event has come; `Retry`: it was for somebody else.
    pub(crate) ready: fn(&mut Call) -> Outcome,
    /// The result of a request that is cancelled.
    pub(crate) cancel: fn(&Call) -> i32,
    /// The task that submitted it has ended; its result.
    pub(crate) orphan: fn() -> i32,
}

/// What filters may load of an operation's SQE (`struct io_uring_bpf_ctx`).
#[derive(Clone, Copy)]
pub(crate) struct Filtered {
    /// Bytes.
    pub(crate) len: u8,
    /// Writes them.
    pub(crate) fill: fn(&Req, &mut [u8]),
}

/// `fd` names a file that must be open.
pub(crate) const FILE: u64 = 1 << 0;
/// Waits for input.
pub(crate) const POLLIN: u64 = 1 << 1;
/// Waits for output.
pub(crate) const POLLOUT: u64 = 1 << 2;
/// `ioprio` is read by prep (else it must be 0).
pub(crate) const IOPRIO: u64 = 1 << 3;
/// Allowed on IOPOLL rings.
pub(crate) const IOPOLL: u64 = 1 << 4;
/// IOSQE_BUFFER_SELECT is legal.
pub(crate) const BUFSEL: u64 = 1 << 5;
/// May block whatever the file: a worker runs it, never the submitter.
pub(crate) const ASYNC: u64 = 1 << 6;
/// Writes of one file are serialised on workers.
pub(crate) const HASH: u64 = 1 << 7;
/// Runs in the unbounded account when its file is not a regular one.
pub(crate) const UNBOUND: u64 = 1 << 8;
/// Eligible for kernel aio.
pub(crate) const AIO: u64 = 1 << 9;
/// A second file is looked up with the first.
pub(crate) const FILE_IN: u64 = 1 << 10;
/// When the call itself fails, a chain goes on, and a skipped CQE stays skipped: the kernel's issue
/// functions of these do not mark the request as failed.
pub(crate) const LENIENT: u64 = 1 << 11;
/// The operation's result counts bytes: read with [`POLLIN`], written with [`POLLOUT`].
pub(crate) const BYTES: u64 = 1 << 12;
/// The call asks for the rights of who makes it: it names a file, changes one (whose set-user-id
/// bit goes if the writer may not keep it), or a socket passes them on.
pub(crate) const CREDS: u64 = 1 << 13;
/// The operation takes provided buffers as a bundle does, also where it takes one.
pub(crate) const SELECT_MANY: u64 = 1 << 14;
/// Each failure of its issue is handed back: from a worker's hand task work ends the request.
pub(crate) const HANDS_BACK: u64 = 1 << 15;
/// The operation searches for other requests.
pub(crate) const SEARCHES: u64 = 1 << 16;
/// A cancellation tells how many of it there were.
pub(crate) const COUNTED: u64 = 1 << 17;
/// `fd` is a number that it closes.
pub(crate) const CLOSES: u64 = 1 << 18;
/// The operation receives from a socket.
pub(crate) const RECEIVES: u64 = 1 << 19;
/// What it transfers stands in a message: its buffer is kept apart from the SQE's copy.
pub(crate) const MESSAGE: u64 = 1 << 20;
/// The operation reads a file or a stream, once, into one buffer.
pub(crate) const READS_ONCE: u64 = 1 << 21;
/// The operation reads whenever there is something; the first attempt only arms it.
pub(crate) const READS_MANY: u64 = 1 << 22;
/// The operation sends without a copy, as far as the socket can.
pub(crate) const ZERO_COPY: u64 = 1 << 23;
/// A bit of `ioprio` has it work in a registered buffer.
pub(crate) const FIXED_BY_FLAG: u64 = 1 << 24;
/// The operation asked for that buffer before its socket, up to 6.18.
pub(crate) const BUFFER_FIRST: u64 = 1 << 25;
/// One of those that wait for one file is woken at a time.
pub(crate) const EXCLUSIVE: u64 = 1 << 26;
/// Where it is polled first, nobody asks what its file is.
pub(crate) const ANY_FILE: u64 = 1 << 27;
/// Only the call's own failure breaks a chain, not that of what follows it.
pub(crate) const CALL_FAILS: u64 = 1 << 28;
/// The operation asks for readiness, and nothing else: with the events that its SQE names.
pub(crate) const POLLS: u64 = 1 << 29;
/// A command of its file's own.
pub(crate) const COMMANDS: u64 = 1 << 30;
/// The operation's SQE has 128 bytes.
pub(crate) const DOUBLE: u64 = 1 << 31;
/// The number in its `fd` names no file.
pub(crate) const NO_FD: u64 = 1 << 32;
/// The structure that it keeps beside its path is the program's own.
pub(crate) const STRUCTURE: u64 = 1 << 33;

impl OpDef {
    pub(crate) const fn has(&self, bit: u64) -> bool {
        self.bits & bit != 0
    }

    pub const fn supported(&self) -> bool {
        !matches!(self.support, Support::Refused(_))
    }

    /// Does it write to a file?
    pub(crate) const fn writes(&self) -> bool {
        self.has(AIO) && self.has(POLLOUT)
    }

    /// The epoll events that a retry waits for, one-shot.
    pub(crate) const fn poll_events(&self) -> u32 {
        // What can be read when the peer has ended its direction is what wakes who receives.
        let dir = if self.has(POLLIN) { persistent::IN } else { persistent::OUT | EPOLLRDHUP };
        dir | EPOLLPRI | EPOLLONESHOT
    }
}

impl core::fmt::Debug for OpDef {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("OpDef")
            .field("name", &self.name)
            .field("support", &self.support)
            .finish_non_exhaustive()
    }
}

/// A row: opcode, kernel, bits, prep, issue.
pub(crate) const fn op(
    code: u8,
    since: &'static str,
    bits: u64,
    prep: fn(&mut Ctx, &mut Req) -> Result<()>,
    issue: Issue,
) -> OpDef {
    OpDef {
        name: OP_NAMES[code as usize],
        since,
        bits,
        prep,
        issue,
        poll_first: 0,
        dont_wait: 0,
        filtered: None,
        fast: None,
        finish: None,
        fail: None,
        hands_back: None,
        never_blocks: None,
        waiting: None,
        support: Support::Full,
    }
}

/// A row that is not there (yet): prep answers EINVAL.
pub(crate) const fn no(code: u8, since: &'static str) -> OpDef {
    let mut row = op(code, since, 0, refuse, Issue::Ring(refused));
    row.support = Support::Refused(Errno::EINVAL);
    row
}

/// `prep` of an opcode that is not there: as a kernel that does not know it.
fn refuse(_: &mut Ctx, _: &mut Req) -> Result<()> {
    Err(Errno::EINVAL)
}

/// `issue` of an opcode that is never issued: prep has refused it, or it waits for another.
pub(crate) fn refused(_: &mut Ctx, _: &mut Req) -> Outcome {
    Outcome::Done(Errno::EINVAL.res())
}

/// What a row adds to [`op`].
impl OpDef {
    /// The operation's `Call` is followed by a step under the lock.
    pub(crate) const fn finish(mut self, finish: fn(&mut Ctx, &mut Req)) -> Self {
        self.finish = Some(finish);
        self
    }

    /// What it has done counts where it fails.
    pub(crate) const fn fail(mut self, fail: fn(&mut Ctx, &mut Req)) -> Self {
        self.fail = Some(fail);
        self
    }

    /// The operation's issue hands some failures back.
    pub(crate) const fn hands_back(mut self, handed_back: fn(&Req, i32) -> bool) -> Self {
        self.hands_back = Some(handed_back);
        self
    }

    /// The call of some requests cannot block.
    pub(crate) const fn never_blocks(mut self, never_blocks: fn(&Req) -> bool) -> Self {
        self.never_blocks = Some(never_blocks);
        self
    }

    /// The operation waits for an event of its own kind.
    pub(crate) const fn waiting(mut self, waiting: &'static Waiting) -> Self {
        self.waiting = Some(waiting);
        self
    }

    /// A bit of `ioprio` says to wait for readiness first.
    pub(crate) const fn poll_first(mut self, bit: u16) -> Self {
        self.poll_first = bit;
        self
    }

    /// A bit of `ioprio` says not to wait in vain.
    pub(crate) const fn dont_wait(mut self, bit: u16) -> Self {
        self.dont_wait = bit;
        self
    }

    /// Filters may load so many bytes of it, which `fill` writes.
    pub(crate) const fn filtered(mut self, len: u8, fill: fn(&Req, &mut [u8])) -> Self {
        self.filtered = Some(Filtered { len, fill });
        self
    }

    /// The operation has a fast path.
    pub(crate) const fn fast(mut self, fast: fn(&mut Ctx, &io_uring_sqe) -> Option<i32>) -> Self {
        self.fast = Some(fast);
        self
    }

    /// The operation is not all there.
    pub(crate) const fn partly(mut self, note: &'static str) -> Self {
        self.support = Support::Partial(note);
        self
    }
}
