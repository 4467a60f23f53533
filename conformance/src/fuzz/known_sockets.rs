//! Requests that wait on sockets, of which nothing tells, or too much.

use super::program::{Host, Slot, Sqe, Step};
use super::seen::{Seen, other_end, own_side_only, res, slot, unix_peer};
use super::transcript::Cqe;
use softring_uapi::*;

/// A request that waits on a socket that its own side shuts for sending, or a unix socket's peer
/// for receiving: nothing tells of it. Or, where one CQ had more at rest, there is such a request.
pub fn shut_quietly(seen: &Seen) -> bool {
    let told = [libc::EPIPE, libc::ENOBUFS, libc::ENOENT, libc::ENOTCONN].map(res);
    if seen.at_rest() {
        let ended = |ud| seen.kernel.told(ud).any(|res| told.contains(&res));
        return seen.sqes().any(|(ring, sqe)| ended(sqe.ud) && is_shut(seen, ring, sqe));
    }
    let Some((ring, own)) = seen.request() else { return false };
    let (kernel, softring) = seen.results();
    // What was to be polled first has not been tried before.
    let untried = own.ioprio & IORING_RECVSEND_POLL_FIRST != 0;
    let first = |answer: i64| untried && answer == res(libc::EOPNOTSUPP);
    is_shut(seen, ring, own)
        // Something may cancel what waits on.
        && (softring.is_empty() || softring == [res(libc::ECANCELED)])
        && matches!(kernel[..], [res] if told.contains(&res) || first(res))
}

/// A bundle that has taken the last buffer, in a vector that an earlier message left.
pub fn vector_at_hand(seen: &Seen) -> bool {
    let Some((ring, own)) = seen.request() else { return false };
    let message = |(of, sqe): (u8, &Sqe)| {
        of == ring && matches!(sqe.op, IORING_OP_SENDMSG | IORING_OP_RECVMSG | IORING_OP_SENDMSG_ZC)
    };
    let first = |cqes: &[Cqe], more: bool| {
        let is = |cqe: &Cqe| cqe.res > 0 && (cqe.flags & IORING_CQE_F_MORE != 0) == more;
        cqes.iter().any(is)
    };
    own.op == IORING_OP_RECV
        && own.ioprio & IORING_RECVSEND_BUNDLE != 0
        && own.len == 0
        && first(&seen.what.kernel, false)
        && first(&seen.what.softring, true)
        && seen.sqes().any(message)
}

/// A multishot receive that was armed before its first attempt, and a unix stream that ends behind
/// what it brought.
pub fn end_untold(seen: &Seen) -> bool {
    let Some((ring, own)) = seen.request() else { return false };
    let stream = matches!(
        seen.file(ring, own),
        Some(Slot::SockA | Slot::SockB | Slot::EagerA | Slot::EagerB | Slot::TightA | Slot::TightB)
    );
    let (kernel, softring) = seen.results();
    own.op == IORING_OP_RECV
        && own.ioprio & IORING_RECV_MULTISHOT != 0
        && stream
        && kernel.is_empty()
        && matches!(softring[..], [answer] if [0, res(libc::ENOBUFS)].contains(&answer))
}

/// The last bytes of a TCP socket that was reset behind its peer's end.
pub fn reset_after_end(seen: &Seen) -> bool {
    let Some((ring, own)) = seen.request() else { return false };
    let file = seen.file(ring, own);
    let closes = |slot| Some(slot) == file.and_then(other_end);
    let mut steps = seen.program.steps.iter();
    let closed = steps.any(|step| match step {
        Step::Host(Host::Close(slot)) => closes(*slot),
        Step::Sqe { sqe, .. } => sqe.op == IORING_OP_CLOSE && slot(sqe).is_some_and(closes),
        _ => false,
    });
    let told = |k: &Cqe, s: &Cqe| {
        k.res > 0 && k.res == s.res && k.flags == s.flags | IORING_CQE_F_SOCK_NONEMPTY
    };
    matches!(own.op, IORING_OP_RECV | IORING_OP_RECVMSG)
        && matches!(file, Some(Slot::TcpA | Slot::TcpB))
        && closed
        && matches!((&seen.what.kernel[..], &seen.what.softring[..]), ([k], [s]) if told(k, s))
}

/// Is the file of a request shut so that nothing tells of it?
fn is_shut(seen: &Seen, ring: u8, sqe: &Sqe) -> bool {
    let Some(file) = seen.file(ring, sqe) else { return false };
    let peer = unix_peer(file);
    if peer.is_none() && !own_side_only(file) {
        return false;
    }
    let quiet = |slot, how| {
        (slot, how) == (file, libc::SHUT_WR) || (Some(slot), how) == (peer, libc::SHUT_RD)
    };
    seen.program.steps.iter().any(|step| match step {
        Step::Host(Host::Shutdown(slot, how)) => quiet(*slot, *how),
        Step::Sqe { ring, sqe, .. } if sqe.op == IORING_OP_SHUTDOWN => {
            let slot = seen.file(*ring, sqe);
            slot.is_some_and(|slot| quiet(slot, sqe.len.cast_signed()))
        }
        _ => false,
    })
}

/// A bundle that knows no length, behind a request for which the kernel has kept more room.
pub fn larger_before(seen: &Seen) -> bool {
    let bundle = |sqe: &Sqe| sqe.ioprio & IORING_RECVSEND_BUNDLE != 0;
    let larger = |sqe: &Sqe| match sqe.op {
        IORING_OP_SENDMSG | IORING_OP_SENDMSG_ZC | IORING_OP_RECVMSG => true,
        IORING_OP_SEND | IORING_OP_RECV => bundle(sqe),
        _ => false,
    };
    let Some((_, own)) = seen.request() else { return false };
    let (kernel, softring) = seen.results();
    let takes = |got: &[i64]| got.first().is_some_and(|n| *n > 0);
    own.op == IORING_OP_RECV
        && bundle(own)
        && own.len == 0
        && takes(&kernel)
        && takes(&softring)
        && seen.sqes().take_while(|(_, sqe)| sqe.ud != own.ud).any(|(_, sqe)| larger(sqe))
}

/// A bundle into an incremental ring whose tail is further ahead than it has entries.
pub fn named_again(seen: &Seen) -> bool {
    let ahead = |step: &Step| match step {
        Step::Host(Host::Supply(s)) => s.tail > s.entries,
        _ => false,
    };
    let Some((_, own)) = seen.request() else { return false };
    own.op == IORING_OP_RECV
        && own.ioprio & IORING_RECVSEND_BUNDLE != 0
        && seen.what.kernel.iter().any(|c| c.flags & IORING_CQE_F_BUF_MORE != 0)
        && seen.program.steps.iter().any(ahead)
}

/// An ACCEPT that was not woken, as an exclusive poll of its listener was.
pub fn exclusive_poll(seen: &Seen) -> bool {
    const EPOLLEXCLUSIVE: u32 = 1 << 28;
    let Some((ring, own)) = seen.request().filter(|(_, s)| s.op == IORING_OP_ACCEPT) else {
        return false;
    };
    let polls = |(r, sqe): (u8, &Sqe)| {
        sqe.op == IORING_OP_POLL_ADD
            && sqe.op_flags & EPOLLEXCLUSIVE != 0
            && seen.file(r, sqe) == seen.file(ring, own)
    };
    let (kernel, softring) = seen.results();
    kernel.is_empty() && !softring.is_empty() && seen.sqes().any(polls)
}
