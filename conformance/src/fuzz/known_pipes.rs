//! Polls of pipes, which the kernel wakes for other reasons than new data.

use super::program::{Fd, Slot, Sqe};
use super::seen::{Seen, reads, res, writes};
use softring_uapi::*;

/// Returns the pipe that a file is an end of.
fn pipe(slot: Slot) -> Option<u8> {
    match slot {
        Slot::PipeR | Slot::PipeW => Some(0),
        Slot::NbR | Slot::NbW => Some(1),
        Slot::FullR | Slot::FullW => Some(2),
        _ => None,
    }
}

/// Returns the pipe of the POLL_ADD that differs.
fn polled(seen: &Seen) -> Option<u8> {
    let (ring, own) = seen.request().filter(|(_, s)| s.op == IORING_OP_POLL_ADD)?;
    seen.file(ring, own).and_then(pipe)
}

/// Same as [`polled`] for a READ_MULTISHOT that finds no buffer when it is woken.
fn waited_for(seen: &Seen) -> Option<u8> {
    let (ring, own) = seen.request().filter(|(_, s)| s.op == IORING_OP_READ_MULTISHOT)?;
    let no_buffer = seen.results().0 == [res(libc::ENOBUFS)];
    seen.file(ring, own).and_then(pipe).filter(|_| no_buffer)
}

/// Returns whether a failed write woke a poll of a pipe. If one CQ had more when idle: whether
/// there is such a poll.
pub fn woken_by_failed_write(seen: &Seen) -> bool {
    let failed = |polled: u8| {
        let to_it = |(ring, sqe): (u8, &Sqe)| {
            writes(sqe.op)
                && seen.file(ring, sqe).and_then(pipe) == Some(polled)
                && seen.kernel.results_of(sqe.ud).any(|told| told == res(libc::EFAULT))
        };
        seen.sqes().any(to_it)
    };
    if seen.when_idle() {
        let woken = |(ring, sqe): (u8, &Sqe)| {
            sqe.op == IORING_OP_POLL_ADD
                && seen.kernel.results_of(sqe.ud).any(|told| told > 0)
                && seen.file(ring, sqe).and_then(pipe).is_some_and(failed)
        };
        return seen.sqes().any(woken);
    }
    let (kernel, softring) = seen.results();
    // The request waits on, perhaps until it is removed.
    let waits_on = softring.len() < kernel.len() || softring == [res(libc::ECANCELED)];
    waits_on && polled(seen).or_else(|| waited_for(seen)).is_some_and(failed)
}

/// Returns whether a poll of a pipe differs after another request has read the data that were
/// spliced there.
pub fn woken_unsaid(seen: &Seen) -> bool {
    let own = polled(seen);
    let splices = |sqe: &Sqe| {
        [IORING_OP_SPLICE, IORING_OP_TEE].contains(&sqe.op)
            && matches!(sqe.fd, Fd::Slot(slot) if pipe(slot) == own)
    };
    let receives = |ring, sqe: &Sqe| {
        (reads(sqe.op) || sqe.op == IORING_OP_READ_MULTISHOT)
            && seen.file(ring, sqe).and_then(pipe) == own
    };
    let (kernel, softring) = seen.results();
    own.is_some()
        && (kernel.is_empty() || kernel == [res(libc::ECANCELED)])
        && matches!(softring[..], [res] if res > 0)
        && seen.sqes().any(|(_, sqe)| splices(sqe))
        && seen.sqes().any(|(ring, sqe)| receives(ring, sqe))
}
