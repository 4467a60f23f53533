//! Signals that a write sends: SIGPIPE where nobody reads, SIGXFSZ beyond RLIMIT_FSIZE. The
//! kernel's ring makes some writes on workers, which take no signals. Where the submitter makes
//! such a write here, it blocks the signals, and takes what the write has sent.

use crate::ops::rw::writes;
use crate::ring::opdef::{Outcome, Try};
use crate::ring::request::{Call, OpState};
use softring_host::fd::kind::Kind;
use softring_host::signal::BlockAll;
use softring_host::substitute::limits_file_size;
use softring_host::sys;

/// `SIGPIPE` and `SIGXFSZ`, as a set of signals.
const SIGNALS: u64 = 1 << (13 - 1) | 1 << (25 - 1);

/// Makes an attempt at a read or write, without its signals if the kernel's ring would make it on
/// a worker: a write to a stream that is asynchronous, waits for others or continues a worker's
/// chain, and each write to a file in memory.
pub(crate) fn attempt(
    call: &mut Call,
    (kind, how): (Kind, Try),
    attempt: impl FnOnce(&mut Call) -> Outcome,
) -> Outcome {
    let sends = how == Try::Nonblock
        && writes(call.opcode)
        && match kind {
            Kind::Pollable => matches!(&call.state, OpState::Rw(rw) if rw.by_worker),
            Kind::Memory => limits_file_size(),
            _ => false,
        };
    if sends { unsignalled(call, attempt) } else { attempt(call) }
}

#[cold]
fn unsignalled(call: &mut Call, attempt: impl FnOnce(&mut Call) -> Outcome) -> Outcome {
    let blocked = BlockAll::begin();
    // One that is pending already is the program's.
    let pending = || sys::pending_signals() & SIGNALS;
    let before = if blocked.before() & SIGNALS != 0 { pending() } else { 0 };
    let outcome = attempt(call);
    // Not by the outcome: a write that sends one in its middle ends with a short count.
    let sent = pending() & !before;
    if sent != 0 {
        sys::take_signal(sent);
    }
    outcome
}
