//! Eventfds: when they are written, and how often a ring signals its own.

use super::program::{Cell, Host, Slot, Sqe, Step, Val};
use super::seen::{Seen, buffers, reads, res, slot, writes};
use softring_uapi::*;

/// Returns whether the request is the LINK_TIMEOUT behind a write that the kernel delays.
pub fn eventfd_written_at_once(seen: &Seen) -> bool {
    let Some((ring, own)) = seen.request() else { return false };
    let before = seen.before(ring, own);
    let eventfd = |sqe: &Sqe| matches!(seen.file(ring, sqe), Some(Slot::Event | Slot::Sem));
    let (kernel, softring) = seen.results();
    own.op == IORING_OP_LINK_TIMEOUT
        && seen.defers(ring)
        && before.is_some_and(|sqe| writes(sqe.op) && eventfd(sqe))
        && kernel == [res(libc::ENOENT)]
        && softring == [res(libc::ECANCELED)]
}

/// Returns whether a poll of an eventfd differs beside a write to one from memory that has been
/// given up or read into: the write may add nothing.
pub fn nothing_written(seen: &Seen) -> bool {
    let eventfd =
        |(ring, sqe): (u8, &Sqe)| matches!(seen.file(ring, sqe), Some(Slot::Event | Slot::Sem));
    let changed = |buf: &u8| {
        seen.sqes().any(|(_, sqe)| {
            (reads(sqe.op) || sqe.op == IORING_OP_MADVISE) && buffers(sqe).contains(buf)
        })
    };
    let nothing =
        |of: (u8, &Sqe)| writes(of.1.op) && eventfd(of) && buffers(of.1).iter().any(changed);
    let (kernel, softring) = seen.results();
    let polled = seen.request().is_some_and(|own| own.1.op == IORING_OP_POLL_ADD && eventfd(own));
    polled
        && matches!(kernel[..], [mask] if mask > 0)
        && softring.is_empty()
        && seen.sqes().any(nothing)
}

/// Returns whether a request has read a count from the ring's own eventfd.
pub fn own_eventfd_read(seen: &Seen) -> bool {
    let reads = |(ring, sqe): (u8, &Sqe)| {
        reads(sqe.op) && slot(sqe) == Some(Slot::RingEvent) && (seen.defers(0) || seen.defers(ring))
    };
    seen.what.ud.is_none() && seen.what.text.starts_with("buf") && seen.sqes().any(reads)
}

/// Returns whether only softring signalled an eventfd for a worker's CQE on a DEFER_TASKRUN ring.
pub fn worker_not_first(seen: &Seen) -> bool {
    let mut steps = seen.program.steps.iter();
    let asked = steps.any(|step| {
        matches!(step, Step::Register { ring, op: IORING_REGISTER_EVENTFD_ASYNC, .. }
            if seen.defers(*ring))
    });
    let text = format!("{} / 8", super::report::ret(res(libc::EAGAIN)));
    asked && reads_count(seen) && seen.what.text == text
}

/// Returns whether the program itself reads the ring's own eventfd.
fn reads_count(seen: &Seen) -> bool {
    let step = seen.program.steps.get(seen.what.step);
    matches!(step, Some(Step::Host(Host::Read(Slot::RingEvent, _))))
}

/// Returns whether an eventfd was signalled once more, beside a timeout of no time.
pub fn signalled_once_more(seen: &Seen) -> bool {
    let none = |cell: &Cell| *cell == Cell::U64(Val::Num(0));
    let at_once = |(_, sqe): (u8, &Sqe)| {
        sqe.op == IORING_OP_TIMEOUT
            && matches!(&sqe.addr, Val::Mem(cells) if cells.iter().all(none))
    };
    let mut counts = seen.what.text.split(" / ").map(|n| u8::from_str_radix(n.get(..2)?, 16).ok());
    let (kernel, softring) = (counts.next().flatten(), counts.next().flatten());
    reads_count(seen)
        && kernel.zip(softring).is_some_and(|(k, s)| s == k + 1)
        && seen.sqes().any(at_once)
}
