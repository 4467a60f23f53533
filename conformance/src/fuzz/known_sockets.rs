//! Requests that wait on sockets, which no event wakes, or too many.

use super::program::{Cell, Host, Slot, Sqe, Step, Val};
use super::seen::{Seen, other_end, own_side_only, reads, res, sends, slot, unix_peer, writes};
use super::transcript::{Cqe, Transcript};
use softring_uapi::*;

/// Returns whether a request waits on a socket that its own side shuts for sending, or a unix
/// socket's peer for receiving: no event reports that. If one CQ had more when idle: whether there
/// is such a request.
pub fn shut_quietly(seen: &Seen) -> bool {
    let told = [libc::EPIPE, libc::ENOBUFS, libc::ENOENT, libc::ENOTCONN].map(res);
    if seen.when_idle() {
        let ended = |ud| seen.kernel.results_of(ud).any(|res| told.contains(&res));
        return seen.sqes().any(|(ring, sqe)| ended(sqe.ud) && is_shut(seen, ring, sqe));
    }
    let Some((ring, own)) = seen.request() else { return false };
    let (kernel, softring) = seen.results();
    // A request that polls first was not tried before.
    let untried = own.ioprio & IORING_RECVSEND_POLL_FIRST != 0;
    let first = |answer: i64| untried && answer == res(libc::EOPNOTSUPP);
    is_shut(seen, ring, own)
        // A cancel may end the waiting request.
        && (softring.is_empty() || softring == [res(libc::ECANCELED)])
        && matches!(kernel[..], [res] if told.contains(&res) || first(res))
}

/// Returns whether the request's batch closed the other end of its file, or the listener that it is
/// to reach.
pub fn closed_at_once(seen: &Seen) -> bool {
    let Some((ring, own)) = seen.request() else { return closed_before_send(seen) };
    let mut closed = Vec::new();
    for step in &seen.program.steps {
        match step {
            Step::Enter(e) if e.ring == ring => closed.clear(),
            Step::Sqe { ring: of, sqe, .. } if *of == ring && sqe.ud == own.ud => break,
            Step::Sqe { ring: of, sqe, .. } if *of == ring && sqe.op == IORING_OP_CLOSE => {
                closed.extend(slot(sqe));
            }
            _ => {}
        }
    }
    let reached = || {
        let (kernel, softring) = seen.results();
        kernel == [0] && softring == [res(libc::ECONNREFUSED)]
    };
    let file = seen.file(ring, own);
    let peer = |slot: &Slot| file.is_some() && other_end(*slot) == file;
    let listener = |slot: &Slot| own.op == IORING_OP_CONNECT && own.addr == Val::Addr(*slot);
    closed.iter().any(peer) || closed.iter().any(listener) && reached()
}

/// Returns whether an error is left on a socket at the end, because a send follows the close of the
/// other end in one chain.
fn closed_before_send(seen: &Seen) -> bool {
    let closes = |sqe: &Sqe| sqe.op == IORING_OP_CLOSE && sqe.flags & IOSQE_IO_LINK != 0;
    let refused = format!("front {} ", res(libc::ECONNREFUSED));
    seen.what.text.contains(&refused)
        && (0..2).any(|ring| {
            seen.pairs(ring).any(|(before, sqe)| {
                let closed = before.filter(|before| closes(before)).and_then(slot);
                (sends(sqe.op) || writes(sqe.op))
                    && closed
                        .and_then(other_end)
                        .is_some_and(|end| seen.file(ring, sqe) == Some(end))
            })
        })
}

/// Returns whether a batch cancels a poll or a read after it closed the other end: the request has
/// completed by then.
pub fn closed_before_cancel(seen: &Seen) -> bool {
    let Some((ring, own)) = seen.request() else { return false };
    let Some(file) = seen.file(ring, own) else { return false };
    let (mut closed, mut cancelled) = (false, false);
    for step in &seen.program.steps {
        match step {
            Step::Enter(e) if e.ring == ring => closed = false,
            Step::Sqe { ring: of, sqe, .. } if *of == ring => {
                let cancels = matches!(sqe.op, IORING_OP_POLL_REMOVE | IORING_OP_ASYNC_CANCEL);
                cancelled |= closed && cancels;
                let other =
                    sqe.op == IORING_OP_CLOSE && slot(sqe).and_then(other_end) == Some(file);
                closed |= other;
            }
            _ => {}
        }
    }
    let (kernel, softring) = seen.results();
    // A read finds the end of file.
    let fired = match own.op {
        IORING_OP_POLL_ADD => matches!(softring[..], [mask] if mask > 0),
        op if reads(op) => softring == [0],
        _ => false,
    };
    cancelled && kernel == [res(libc::ECANCELED)] && fired
}

/// Returns whether a bundle took the last buffer, in a vector that an earlier message left.
pub fn vector_kept(seen: &Seen) -> bool {
    let Some((ring, own)) = seen.request() else { return false };
    let message = |(of, sqe): (u8, &Sqe)| {
        let vector = || sqe.op == IORING_OP_SEND && sqe.ioprio & IORING_SEND_VECTORIZED != 0;
        let messages = [IORING_OP_SENDMSG, IORING_OP_RECVMSG, IORING_OP_SENDMSG_ZC];
        of == ring && (messages.contains(&sqe.op) || vector())
    };
    let (kernel, softring) = seen.results();
    let takes_more = || matches!((&kernel[..], &softring[..]), ([k], [s]) if k > s && *s > 0);
    let first = |cqes: &[Cqe], more: bool| {
        let is = |cqe: &Cqe| cqe.res > 0 && (cqe.flags & IORING_CQE_F_MORE != 0) == more;
        cqes.iter().any(is)
    };
    is_open_bundle(own)
        && (first(&seen.what.kernel, false) && first(&seen.what.softring, true) || takes_more())
        && seen.sqes().any(message)
}

/// Returns whether the request is a multishot receive, armed before its first attempt, of a unix
/// stream that ends after the received data.
pub fn end_behind_data(seen: &Seen) -> bool {
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

/// Returns whether the request took the last bytes of a TCP socket that was reset behind its peer's
/// end.
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

/// Returns whether a shutdown of the request's file is one that no event reports.
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

/// Returns whether a bundle without a length follows a request for which the kernel has kept more
/// room.
pub fn larger_before(seen: &Seen) -> bool {
    let Some((_, own)) = seen.request() else { return false };
    let (kernel, softring) = seen.results();
    let takes = |got: &[i64]| got.first().is_some_and(|n| *n > 0);
    // The further buffers may include a bad address.
    let finds_bad =
        kernel == [res(libc::EFAULT)] && seen.supplies(|addr| matches!(addr, Val::Bad(_)));
    is_open_bundle(own)
        && (takes(&kernel) || finds_bad)
        && takes(&softring)
        && seen.sqes().take_while(|(_, sqe)| sqe.ud != own.ud).any(|(_, sqe)| is_larger(sqe))
}

/// Returns whether the program reads the rest of a bundle that took more on the kernel.
pub fn larger_left_less(seen: &Seen) -> bool {
    let Some(Step::Host(Host::Read(slot, _))) = seen.program.steps.get(seen.what.step) else {
        return false;
    };
    let rec = |t: &Transcript| t.recs.iter().find(|rec| rec.step == seen.what.step).map(|r| r.ret);
    let left = rec(seen.softring).zip(rec(seen.kernel)).map(|(softring, kernel)| softring - kernel);
    let taken = |t: &Transcript, ud| t.results_of(ud).filter(|n| *n > 0).sum::<i64>();
    let bundle = |(at, (ring, sqe)): (usize, (u8, &Sqe))| {
        let more = taken(seen.kernel, sqe.ud) - taken(seen.softring, sqe.ud);
        is_open_bundle(sqe)
            && seen.file(ring, sqe) == Some(*slot)
            && taken(seen.softring, sqe.ud) > 0
            && more > 0
            && left == Some(more)
            && seen.sqes().take(at).any(|(_, sqe)| is_larger(sqe))
    };
    seen.sqes().enumerate().any(bundle)
}

/// Returns whether the request is a bundle without a length.
fn is_open_bundle(sqe: &Sqe) -> bool {
    sqe.op == IORING_OP_RECV && sqe.ioprio & IORING_RECVSEND_BUNDLE != 0 && sqe.len == 0
}

/// Returns whether the kernel may keep more room after this request.
fn is_larger(sqe: &Sqe) -> bool {
    match sqe.op {
        IORING_OP_SENDMSG | IORING_OP_SENDMSG_ZC | IORING_OP_RECVMSG => true,
        IORING_OP_SEND | IORING_OP_RECV => sqe.ioprio & IORING_RECVSEND_BUNDLE != 0,
        _ => false,
    }
}

/// Returns whether a request found no buffer because a worker's vain attempt at another has kept
/// one.
pub fn kept_in_vain(seen: &Seen) -> bool {
    let Some((ring, own)) = seen.request() else { return false };
    let (kernel, softring) = seen.results();
    let keeps = |(of, sqe): (u8, &Sqe)| {
        of == ring
            && sqe.ud != own.ud
            && sqe.buf_index == own.buf_index
            && tries_in_vain(seen, of, sqe)
    };
    // The request may also have found the next buffer.
    let (k, s) = (&seen.what.kernel, &seen.what.softring);
    let other = kernel == softring && k.iter().zip(s).any(|(k, s)| k.flags != s.flags);
    let none = res(libc::ENOBUFS);
    let one_less = kernel.is_empty() && seen.kernel.results_of(own.ud).any(|answer| answer == none);
    own.flags & IOSQE_BUFFER_SELECT != 0
        && (kernel == [none] && softring != kernel || other || one_less)
        && seen.sqes().any(keeps)
}

/// Returns whether the head of a buffer ring has moved over a buffer kept in that way.
pub fn head_moved_in_vain(seen: &Seen) -> bool {
    let asks = seen.program.steps.get(seen.what.step);
    let Some(Step::Register {
        ring, op: IORING_REGISTER_PBUF_STATUS, arg: Val::Mem(cells), ..
    }) = asks
    else {
        return false;
    };
    let keeps = |(of, sqe): (u8, &Sqe)| {
        let group = Cell::U32(sqe.buf_index.into());
        of == *ring && cells.first() == Some(&group) && tries_in_vain(seen, of, sqe)
    };
    seen.what.text.starts_with("memory [1]=") && seen.sqes().any(keeps)
}

/// Returns whether a worker tries to receive into a picked buffer on a socket that no event wakes.
fn tries_in_vain(seen: &Seen, ring: u8, sqe: &Sqe) -> bool {
    let forced = IOSQE_ASYNC | IOSQE_BUFFER_SELECT;
    sqe.flags & forced == forced && is_shut(seen, ring, sqe)
}

/// Returns whether a synchronous cancel found a request that the kernel has retried.
pub fn shut_and_cancelled(seen: &Seen) -> bool {
    let asks = seen.program.steps.get(seen.what.step);
    let tried = |(ring, sqe): (u8, &Sqe)| {
        let failed = [libc::EPIPE, libc::ENOBUFS, libc::ENOENT, libc::ENOTCONN].map(res);
        seen.kernel.results_of(sqe.ud).any(|res| failed.contains(&res)) && is_shut(seen, ring, sqe)
    };
    matches!(asks, Some(Step::Register { op: IORING_REGISTER_SYNC_CANCEL, .. }))
        && seen.sqes().any(tried)
}

/// Returns whether only notifications of sends over TCP differ: they came later on the kernel, or
/// not at all because of MSG_MORE.
pub fn acknowledged_late(seen: &Seen) -> bool {
    fn all(t: &Transcript) -> Vec<&Cqe> {
        let mut cqes: Vec<&Cqe> = t.cqes().collect();
        cqes.sort();
        cqes
    }
    let zero_copy = |(ring, sqe): (u8, &Sqe)| {
        matches!(sqe.op, IORING_OP_SEND_ZC | IORING_OP_SENDMSG_ZC)
            && matches!(seen.file(ring, sqe), Some(Slot::TcpA | Slot::TcpB))
    };
    let held = |of: (u8, &Sqe)| zero_copy(of) && of.1.op_flags & libc::MSG_MORE as u32 != 0;
    let notified = || {
        let told = |cqe: &Cqe| cqe.flags & IORING_CQE_F_NOTIF != 0;
        !seen.what.kernel.iter().any(told) && seen.what.softring.iter().any(told)
    };
    let later = seen.what.text.starts_with("CQ tails")
        && seen.sqes().any(zero_copy)
        && all(seen.kernel) == all(seen.softring);
    later || seen.request().is_some_and(held) && notified()
}

/// Returns whether an ACCEPT was not woken because an exclusive poll of its listener was.
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

/// Returns whether a receive of an urgent byte differs, on a socket that is shut for sending.
pub fn urgent_shut(seen: &Seen) -> bool {
    let Some((ring, own)) = seen.request() else { return false };
    let file = seen.file(ring, own);
    let shut = |(of, sqe): (u8, &Sqe)| {
        sqe.op == IORING_OP_SHUTDOWN && sqe.len > 0 && seen.file(of, sqe) == file
    };
    let (kernel, softring) = seen.results();
    matches!(own.op, IORING_OP_RECV | IORING_OP_RECVMSG)
        && own.op_flags & libc::MSG_OOB as u32 != 0
        && kernel == [res(libc::EINVAL)]
        && (softring.is_empty() || softring == [res(libc::ECANCELED)])
        && file.is_some()
        && seen.sqes().any(shut)
}

/// Returns whether the kernel alone omits SOCK_NONEMPTY or BUF_MORE for a bundle with MSG_WAITALL.
pub fn bundle_at_border(seen: &Seen) -> bool {
    let Some((_, own)) = seen.request() else { return false };
    let bundle = own.ioprio & IORING_RECVSEND_BUNDLE != 0;
    let told = IORING_CQE_F_SOCK_NONEMPTY | IORING_CQE_F_BUF_MORE;
    let alike = |k: &Cqe, s: &Cqe| k.res == s.res && k.res > 0 && k.flags == s.flags & !told;
    let (kernel, softring) = (&seen.what.kernel, &seen.what.softring);
    own.op == IORING_OP_RECV
        && bundle
        && own.op_flags & libc::MSG_WAITALL as u32 != 0
        && kernel.len() == softring.len()
        && kernel.iter().zip(softring).all(|(k, s)| alike(k, s))
}
