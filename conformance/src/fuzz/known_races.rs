//! Races of two workers, or of a worker and the task.

use super::program::{Fd, Host, Slot, Sqe, Step};
use super::seen::{Seen, reads, res, sends};
use softring_uapi::*;

const LINKED: u8 = IOSQE_IO_LINK | IOSQE_IO_HARDLINK;

/// Returns the predecessor of a request in its chain.
fn in_front<'a>(seen: &Seen<'a>, ring: u8, own: &Sqe) -> Option<&'a Sqe> {
    seen.before(ring, own).filter(|sqe| sqe.flags & LINKED != 0)
}

/// Returns whether a worker may run the request, as it may any request behind a barrier.
fn for_worker(seen: &Seen, ring: u8, own: &Sqe) -> bool {
    let always = matches!(
        own.op,
        IORING_OP_PIPE
            | IORING_OP_OPENAT
            | IORING_OP_OPENAT2
            | IORING_OP_SOCKET
            | IORING_OP_MKDIRAT
            | IORING_OP_SETXATTR
            | IORING_OP_FSETXATTR
            | IORING_OP_FTRUNCATE
    );
    let to_own = seen.pairs(ring).take_while(|(_, sqe)| sqe.ud != own.ud);
    let behind = to_own.into_iter().any(|(_, sqe)| sqe.flags & IOSQE_IO_DRAIN != 0);
    let flags = IOSQE_ASYNC | IOSQE_IO_DRAIN | LINKED;
    always || behind || own.flags & flags != 0 || in_front(seen, ring, own).is_some()
}

/// Returns whether a NOP asks for a descriptor that another request makes meanwhile; or whether a
/// timeout counts a worker's requests while another request removes the timeout.
pub fn side_by_side(seen: &Seen) -> bool {
    let Some((ring, own)) = seen.request() else { return false };
    let beside = |of: &dyn Fn(&Sqe) -> bool| {
        let other = |sqe: &Sqe| sqe.ud != own.ud && of(sqe) && for_worker(seen, ring, sqe);
        seen.pairs(ring).any(|(_, sqe)| other(sqe))
    };
    let makes = |sqe: &Sqe| {
        let files = [IORING_OP_PIPE, IORING_OP_FIXED_FD_INSTALL, IORING_OP_OPENAT];
        let more = [IORING_OP_OPENAT2, IORING_OP_SOCKET, IORING_OP_ACCEPT, IORING_OP_CLOSE];
        files.contains(&sqe.op) || more.contains(&sqe.op)
    };
    let (kernel, softring) = seen.results();
    let either = |e: i32| (kernel == [res(e)]) != (softring == [res(e)]);
    let removes = |sqe: &Sqe| matches!(sqe.op, IORING_OP_TIMEOUT_REMOVE | IORING_OP_ASYNC_CANCEL);
    let asks = own.op == IORING_OP_NOP && own.op_flags & IORING_NOP_FILE != 0;
    let asks = asks && matches!(own.fd, Fd::Num(_));
    asks && either(libc::EBADF) && for_worker(seen, ring, own) && beside(&makes)
        || own.op == IORING_OP_TIMEOUT && either(libc::ECANCELED) && beside(&removes)
        || own.op == IORING_OP_TIMEOUT && starts_late(seen, ring, own) && beside(&|_| true)
}

/// Returns whether a timeout that a worker's request starts has counted enough on one side only.
fn starts_late(seen: &Seen, ring: u8, own: &Sqe) -> bool {
    let (kernel, softring) = seen.results();
    let over = |got: &[i64], other: &[i64]| got == [0] && other.is_empty();
    in_front(seen, ring, own).is_some() && (over(&kernel, &softring) || over(&softring, &kernel))
}

/// Returns whether a worker's call made a poll ready before the cancel behind that call in its
/// chain.
pub fn ready_by_worker(seen: &Seen) -> bool {
    let Some((ring, own)) = seen.request() else { return false };
    let (kernel, softring) = seen.results();
    let moves = |sqe: &Sqe| matches!(sqe.op, IORING_OP_SPLICE | IORING_OP_TEE);
    let cancels = |sqe: &Sqe| {
        sqe.op == IORING_OP_ASYNC_CANCEL && in_front(seen, ring, sqe).is_some_and(moves)
    };
    kernel == [res(libc::ECANCELED)]
        && softring.iter().all(|res| *res > 0)
        && !softring.is_empty()
        && own.op == IORING_OP_POLL_ADD
        && seen.pairs(ring).any(|(_, sqe)| cancels(sqe))
}

/// Returns whether the request behind a worker's found the CQ full on one side only.
pub fn chain_without_room(seen: &Seen) -> bool {
    let Some((ring, own)) = seen.request() else { return false };
    let (kernel, softring) = seen.results();
    let full = format!("sq flags {IORING_SQ_CQ_OVERFLOW:#x}");
    let overflowed = seen.kernel.recs.iter().any(|rec| rec.notes.contains(&full));
    let waits = |got: &[i64], other: &[i64]| got.is_empty() && other == [res(libc::EAGAIN)];
    // When a cancel finds the request, a worker runs it or not.
    let blocks =
        |got: &[i64], other: &[i64]| got == [res(libc::EINTR)] && other == [res(libc::ECANCELED)];
    let either =
        |is: &dyn Fn(&[i64], &[i64]) -> bool| is(&kernel, &softring) || is(&softring, &kernel);
    overflowed && in_front(seen, ring, own).is_some() && (either(&waits) || either(&blocks))
}

/// Returns whether the ring's own eventfd was read beside a worker whose CQE counts, or a request
/// that polls first.
pub fn counts_of_workers(seen: &Seen) -> bool {
    let own = |(ring, sqe): (u8, &Sqe)| {
        (reads(sqe.op) || sqe.op == IORING_OP_READ_MULTISHOT)
            && seen.file(ring, sqe) == Some(Slot::RingEvent)
    };
    let late = |sqe: &Sqe| {
        let polled = sends(sqe.op) && sqe.ioprio & IORING_RECVSEND_POLL_FIRST != 0;
        polled || sqe.flags & IOSQE_ASYNC != 0
    };
    let counted = seen
        .program
        .steps
        .iter()
        .any(|step| matches!(step, Step::Register { op: IORING_REGISTER_EVENTFD, .. }));
    let by_request = seen.what.text.contains("buf") && seen.sqes().any(own);
    let by_program = matches!(
        seen.program.steps.get(seen.what.step),
        Some(Step::Host(Host::Read(Slot::RingEvent, _)))
    );
    seen.what.ud.is_none()
        && (by_request || by_program)
        && counted
        && seen.sqes().any(|(_, sqe)| late(sqe))
}

/// Returns whether a futex wake behind a cancel differs, beside a wait for several futexes.
pub fn wakes_cancelled(seen: &Seen) -> bool {
    let Some((ring, own)) = seen.request() else { return false };
    let (kernel, softring) = seen.results();
    let one = |got: &[i64]| matches!(got, [_]);
    let is = |op: u8| seen.pairs(ring).any(|(_, sqe)| sqe.op == op);
    own.op == IORING_OP_FUTEX_WAKE
        && one(&kernel)
        && one(&softring)
        && kernel > softring
        && is(IORING_OP_FUTEX_WAITV)
        && is(IORING_OP_ASYNC_CANCEL)
}

/// Returns whether a wait for several futexes differs, or a wake that follows another in a chain
/// and finds that wait, too.
pub fn woken_twice(seen: &Seen) -> bool {
    let Some((ring, own)) = seen.request() else { return false };
    let wake = |sqe: &Sqe| sqe.op == IORING_OP_FUTEX_WAKE;
    let behind = |(before, sqe): (Option<&Sqe>, &Sqe)| wake(sqe) && before.is_some_and(wake);
    let linked = (0..2).any(|of| seen.pairs(of).any(behind));
    let counts = |got: &[i64]| matches!(got, [n] if *n >= 0);
    let (kernel, softring) = seen.results();
    let several = seen.pairs(ring).any(|(_, sqe)| sqe.op == IORING_OP_FUTEX_WAITV);
    (own.op == IORING_OP_FUTEX_WAITV || wake(own) && several)
        && linked
        && counts(&kernel)
        && counts(&softring)
        && softring > kernel
}
