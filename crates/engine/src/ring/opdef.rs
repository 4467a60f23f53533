//! Format of a row of the op table. The rows are in [`ops::table`](crate::ops::table); a request
//! refers to its row. Kernel counterpart: `struct io_issue_def`.

use crate::io::persistent;
use crate::io::token::ReqId;
use crate::memory::sqe::Sqe;
use crate::ring::ctx::Ctx;
use crate::ring::request::{Call, Req};
use softring_host::sys::nr::{EPOLLONESHOT, EPOLLPRI, EPOLLRDHUP};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

/// Outcome of one attempt at a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Finished; the value is the CQE's `res` (negative: `-errno`).
    Done(i32),
    /// One result of a multishot request, which goes on.
    More(i32),
    /// One result of a multishot request that must wait before its next attempt.
    MoreThenWait(i32),
    /// The request would block: [`submit::route`](crate::submit::route) chooses where it waits.
    Retry,
    /// The request would block although its file is ready: only a worker makes a further attempt.
    Punt,
    /// Finished with this value, but the CQE comes with the next task work.
    Later(i32),
    /// The request waits in the timeout queue, by its `OpState::Timeout`.
    Timed,
    /// The request waits in the poll set for these `EPOLL*` events.
    Polled(u32),
    /// The request waits in a thread, by its `OpState::Sleep`.
    Sleeps,
    /// The request is completed by its id: by another ring, or by a thread that delivers to one.
    Elsewhere,
}

// The value is two words of 32 bits, which a function returns in registers.
const _: () = assert!(size_of::<Outcome>() == 8);

/// Permission of an attempt to block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Try {
    /// An attempt on the submitter: never block, return [`Outcome::Retry`] instead.
    Nonblock,
    /// An attempt on a worker: block as long as it takes.
    Block,
}

/// The issue function of an opcode.
#[derive(Clone, Copy)]
pub(crate) enum Issue {
    /// A call under the ring's lock, with the ring's state; never blocks.
    Ring(fn(&mut Ctx, &mut Req) -> Outcome),
    /// System calls only, on any thread.
    Call(fn(&mut Call, Try) -> Outcome),
}

/// Extent of support for an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// The kernel's behaviour.
    Full,
    /// The kernel's behaviour, except for the note.
    Partial(&'static str),
    /// Failure with this error, as on a kernel without the opcode; the probe reports it so.
    Refused(Errno),
}

/// A row of the op table.
#[derive(Clone, Copy)]
pub struct OpDef {
    pub name: &'static str,
    /// Version of the first kernel with the opcode.
    pub since: &'static str,
    pub(crate) bits: u64,
    pub(crate) prep: fn(&mut Ctx, &mut Req) -> Result<()>,
    pub(crate) issue: Issue,
    /// The bit of `ioprio` that sends a request to the poll set before its first attempt.
    pub(crate) poll_first: u16,
    /// The bit of `ioprio` that says not to wait after an attempt that has found nothing.
    pub(crate) dont_wait: u16,
    /// Fields of its SQE that filters may load, beyond the common ones.
    pub(crate) filtered: Option<Filtered>,
    /// The fast path: returns the CQE's `res` for an SQE without flags (but FIXED_FILE) that ends
    /// at once; `None` makes a request of it, as if nothing had been tried.
    pub(crate) fast: Option<fn(&mut Ctx, &Sqe) -> Option<i32>>,
    /// A step under the lock after a `Call`: installs descriptors, selects results.
    pub(crate) finish: Option<fn(&mut Ctx, &mut Req)>,
    /// A step for an operation that fails: its earlier progress may still count.
    pub(crate) fail: Option<fn(&mut Ctx, &mut Req)>,
    /// Predicate: the issue function returns this failure, rather than storing it as the result
    /// (see [`ISSUE_FAILS`]).
    pub(crate) issue_fails: Option<fn(&Req, i32) -> bool>,
    /// Predicate: the call cannot block for this request, though a worker makes it as a rule.
    pub(crate) never_blocks: Option<fn(&Req) -> bool>,
    /// Functions of an operation that waits for an event of its own kind.
    pub(crate) waiting: Option<&'static Waiting>,
    /// A step for an armed request whose file is ready, instead of another attempt; takes epoll's
    /// events.
    pub(crate) fired: Option<fn(&mut Ctx, ReqId, u32)>,
    /// Returns the result for a file that knows no waiting, if no worker waits instead.
    pub(crate) unpollable: Option<fn(&Req) -> i32>,
    /// Looks up the second file of an operation that has two.
    pub(crate) second_file: Option<fn(&mut Ctx, &mut Req) -> Result<()>>,
    /// Returns the error of an operation that no ring can be the file of.
    pub(crate) ring_error: Option<fn(&Call) -> Errno>,
    /// Returns what follows an attempt that would block.
    pub(crate) would_block: Option<fn(&Req) -> Blocked>,
    /// Predicate: a request that waits for its socket asks for its submitter's rights when it is
    /// tried again. Without it, each request on a unix socket does.
    pub(crate) passes_creds: Option<fn(&Req) -> bool>,
    pub support: Support,
}

/// Continuation of a request after an attempt that would block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// The request waits, for readiness if its file can be polled.
    Waits,
    /// A worker makes the next attempt, and waits with it.
    Punts,
    /// The request does not wait.
    Fails(Errno),
}

/// Functions of an operation that waits for an event of its own kind.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Returns the outcome after the event; `Retry`: the event was for another request.
    pub(crate) ready: fn(&mut Call) -> Outcome,
    /// Returns the result of a request that is cancelled.
    pub(crate) cancel: fn(&Call) -> i32,
    /// Returns the result of a request whose submitting task has ended.
    pub(crate) orphan: fn() -> i32,
}

/// Fields of an operation's SQE that filters may load (`struct io_uring_bpf_ctx`).
#[derive(Clone, Copy)]
pub(crate) struct Filtered {
    /// Number of bytes.
    pub(crate) len: u8,
    /// Writes the bytes.
    pub(crate) fill: fn(&Req, &mut [u8]),
}

/// Opcode whose `fd` must name an open file.
pub(crate) const FILE: u64 = 1 << 0;
/// Opcode that waits for input.
pub(crate) const POLLIN: u64 = 1 << 1;
/// Opcode that waits for output.
pub(crate) const POLLOUT: u64 = 1 << 2;
/// Opcode whose prep reads `ioprio` (else it must be 0).
pub(crate) const IOPRIO: u64 = 1 << 3;
/// Opcode allowed on IOPOLL rings.
pub(crate) const IOPOLL: u64 = 1 << 4;
/// Opcode that allows IOSQE_BUFFER_SELECT.
pub(crate) const BUFSEL: u64 = 1 << 5;
/// Opcode that may block on any file: a worker runs it, never the submitter.
pub(crate) const ASYNC: u64 = 1 << 6;
/// Opcode whose writes of one file are serialised on workers.
pub(crate) const HASH: u64 = 1 << 7;
/// Opcode that runs in the unbounded account if its file is not a regular one.
pub(crate) const UNBOUND: u64 = 1 << 8;
/// Opcode eligible for kernel aio.
pub(crate) const AIO: u64 = 1 << 9;
/// Opcode that always uses a registered buffer.
pub(crate) const FIXED: u64 = 1 << 10;
/// Opcode whose failing call breaks no chain and leaves a skipped CQE skipped: the kernel's issue
/// function does not mark the request as failed.
pub(crate) const LENIENT: u64 = 1 << 11;
/// Opcode whose result counts bytes: read with [`POLLIN`], written with [`POLLOUT`].
pub(crate) const BYTES: u64 = 1 << 12;
/// Opcode whose call depends on the caller's credentials: it names a file, changes one (whose
/// set-user-id bit is cleared if the writer may not keep it), or passes the credentials on by a
/// socket.
pub(crate) const CREDS: u64 = 1 << 13;
/// Opcode that takes provided buffers as a bundle does, even a single one.
pub(crate) const SELECT_MANY: u64 = 1 << 14;
/// Opcode whose issue function returns each failure: task work then ends a worker's request.
pub(crate) const ISSUE_FAILS: u64 = 1 << 15;
/// Opcode that searches for other requests.
pub(crate) const SEARCHES: u64 = 1 << 16;
/// Opcode of which a cancellation reports the number cancelled.
pub(crate) const COUNTED: u64 = 1 << 17;
/// Opcode whose `fd` is a number that it closes.
pub(crate) const CLOSES: u64 = 1 << 18;
/// Opcode that receives from a socket.
pub(crate) const RECEIVES: u64 = 1 << 19;
/// Opcode whose transfer is described by a message: its buffer is kept apart from the SQE's copy.
pub(crate) const MESSAGE: u64 = 1 << 20;
/// Opcode that reads a file or a stream, once, into one buffer.
pub(crate) const READS_ONCE: u64 = 1 << 21;
/// Opcode that reads whenever there is data; the first attempt only arms it.
pub(crate) const READS_MANY: u64 = 1 << 22;
/// Opcode that sends without a copy, as far as the socket can.
pub(crate) const ZERO_COPY: u64 = 1 << 23;
/// Opcode that uses a registered buffer if a bit of `ioprio` says so.
pub(crate) const FIXED_BY_FLAG: u64 = 1 << 24;
/// Opcode that looked its registered buffer up before its socket, before 7.2.
pub(crate) const BUFFER_FIRST: u64 = 1 << 25;
/// Opcode whose waiters for one file are woken one at a time.
pub(crate) const EXCLUSIVE: u64 = 1 << 26;
/// Opcode whose file kind is not checked when it is polled first.
pub(crate) const ANY_FILE: u64 = 1 << 27;
/// Opcode of which only the call's own failure breaks a chain, not that of its `finish` step.
pub(crate) const CALL_FAILS: u64 = 1 << 28;
/// Opcode that only waits for readiness, with the events that its SQE names.
pub(crate) const POLLS: u64 = 1 << 29;
/// File-specific command.
pub(crate) const COMMANDS: u64 = 1 << 30;
/// Opcode with an SQE of 128 bytes.
pub(crate) const DOUBLE: u64 = 1 << 31;
/// Opcode whose `fd` names no file.
pub(crate) const NO_FD: u64 = 1 << 32;
/// Opcode whose structure beside its path comes from the program.
pub(crate) const STRUCTURE: u64 = 1 << 33;

impl OpDef {
    pub(crate) const fn has(&self, bit: u64) -> bool {
        self.bits & bit != 0
    }

    pub const fn supported(&self) -> bool {
        !matches!(self.support, Support::Refused(_))
    }

    /// Returns whether the operation writes to a file.
    pub(crate) const fn writes(&self) -> bool {
        self.has(AIO) && self.has(POLLOUT)
    }

    /// Returns the epoll events that a retry waits for, one-shot.
    pub(crate) const fn poll_events(&self) -> u32 {
        // A receiver is woken by readable data, also after the peer has shut down its direction.
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

/// Makes a row: opcode, kernel, bits, prep, issue.
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
        issue_fails: None,
        never_blocks: None,
        waiting: None,
        fired: None,
        unpollable: None,
        second_file: None,
        ring_error: None,
        would_block: None,
        passes_creds: None,
        support: Support::Full,
    }
}

/// Makes a row for an opcode that is not there: prep returns EINVAL.
pub(crate) const fn no(code: u8, since: &'static str) -> OpDef {
    let mut row = op(code, since, 0, refuse, Issue::Ring(refused));
    row.support = Support::Refused(Errno::EINVAL);
    row
}

/// Returns EINVAL as a kernel without the opcode does: `prep` of an opcode that is not there.
fn refuse(_: &mut Ctx, _: &mut Req) -> Result<()> {
    Err(Errno::EINVAL)
}

/// Returns EINVAL: `issue` of an opcode that prep refuses, or that only waits for another.
pub(crate) fn refused(_: &mut Ctx, _: &mut Req) -> Outcome {
    Outcome::Done(Errno::EINVAL.res())
}

/// Additions of a row to [`op()`].
impl OpDef {
    /// Adds a step under the lock after the operation's `Call`.
    pub(crate) const fn finish(mut self, finish: fn(&mut Ctx, &mut Req)) -> Self {
        self.finish = Some(finish);
        self
    }

    /// Adds a step for failures: earlier progress counts.
    pub(crate) const fn fail(mut self, fail: fn(&mut Ctx, &mut Req)) -> Self {
        self.fail = Some(fail);
        self
    }

    /// Adds a predicate for the failures that the issue function returns.
    pub(crate) const fn issue_fails(mut self, issue_fails: fn(&Req, i32) -> bool) -> Self {
        self.issue_fails = Some(issue_fails);
        self
    }

    /// Adds the predicate for requests whose call cannot block.
    pub(crate) const fn never_blocks(mut self, never_blocks: fn(&Req) -> bool) -> Self {
        self.never_blocks = Some(never_blocks);
        self
    }

    /// Adds the functions of an operation that waits for an event of its own kind.
    pub(crate) const fn waiting(mut self, waiting: &'static Waiting) -> Self {
        self.waiting = Some(waiting);
        self
    }

    /// Adds the step for an armed request whose file is ready.
    pub(crate) const fn fired(mut self, fired: fn(&mut Ctx, ReqId, u32)) -> Self {
        self.fired = Some(fired);
        self
    }

    /// Adds the result for a file that knows no waiting.
    pub(crate) const fn unpollable(mut self, unpollable: fn(&Req) -> i32) -> Self {
        self.unpollable = Some(unpollable);
        self
    }

    /// Adds the look-up of a second file.
    pub(crate) const fn second_file(mut self, f: fn(&mut Ctx, &mut Req) -> Result<()>) -> Self {
        self.second_file = Some(f);
        self
    }

    /// Adds the error of a request whose file is a ring.
    pub(crate) const fn ring_error(mut self, ring_error: fn(&Call) -> Errno) -> Self {
        self.ring_error = Some(ring_error);
        self
    }

    /// Adds the function that says what follows an attempt that would block.
    pub(crate) const fn would_block(mut self, would_block: fn(&Req) -> Blocked) -> Self {
        self.would_block = Some(would_block);
        self
    }

    /// Adds the predicate for requests that ask for their submitter's rights when tried again.
    pub(crate) const fn passes_creds(mut self, passes_creds: fn(&Req) -> bool) -> Self {
        self.passes_creds = Some(passes_creds);
        self
    }

    /// Adds the bit of `ioprio` that says to wait for readiness first.
    pub(crate) const fn poll_first(mut self, bit: u16) -> Self {
        self.poll_first = bit;
        self
    }

    /// Adds the bit of `ioprio` that says not to wait in vain.
    pub(crate) const fn dont_wait(mut self, bit: u16) -> Self {
        self.dont_wait = bit;
        self
    }

    /// Adds the bytes of its SQE that filters may load; `fill` writes them.
    pub(crate) const fn filtered(mut self, len: u8, fill: fn(&Req, &mut [u8])) -> Self {
        self.filtered = Some(Filtered { len, fill });
        self
    }

    /// Adds a fast path.
    pub(crate) const fn fast(mut self, fast: fn(&mut Ctx, &Sqe) -> Option<i32>) -> Self {
        self.fast = Some(fast);
        self
    }

    /// Marks the operation as partially supported.
    pub(crate) const fn partly(mut self, note: &'static str) -> Self {
        self.support = Support::Partial(note);
        self
    }
}
