//! Differences that `docs/LIMITATIONS.md` explains, as far as random programs meet them. Each is
//! recognised as narrowly as that page describes it, and names its words there; any other
//! difference counts.

use super::program::{Cell, Fd, Slot, Sqe, Val};
pub use super::seen::Seen;
use super::seen::{is_cached, other_end, reads, res, sends, writes};
use super::transcript::{Cqe, Rec, Transcript};
use super::{known_eventfd, known_files, known_pipes, known_races, known_sockets, known_workers};
use softring_uapi::*;

/// Words of `docs/LIMITATIONS.md`, and whether they explain a difference.
type Known = (&'static str, fn(&Seen) -> bool);

const KNOWN: &[Known] = &[
    ("requests of several rings that wait for one listener or stream", taken_by_other_ring),
    (
        "On a DEFER_TASKRUN ring a write to an eventfd may complete",
        known_eventfd::eventfd_written_at_once,
    ),
    ("A write of 0 to an eventfd", known_eventfd::nothing_written),
    ("softring signals the eventfd of a DEFER_TASKRUN ring once", known_eventfd::own_eventfd_read),
    ("If a socket's own side is shut for sending", known_sockets::shut_quietly),
    ("If a socket's own side is shut for sending", known_sockets::shut_and_cancelled),
    ("it keeps the buffer that it picked", known_sockets::kept_in_vain),
    ("it keeps the buffer that it picked", known_sockets::head_moved_in_vain),
    ("can be cancelled at once. The kernel first retries the request 127 times", cancelled_at_once),
    ("If their memory is given up", registered_given_up),
    ("If the CQ has room for only some of the CQEs", no_room_for_all),
    ("task work runs the chain, and the request waits where", known_races::chain_without_room),
    ("Two requests that workers run may run in either order", known_races::side_by_side),
    ("If a SPLICE or TEE in a worker's chain makes a file ready", known_races::ready_by_worker),
    ("A read of the eventfd that counts a ring's own completions", known_races::counts_of_workers),
    ("a write to a pipe that fails with EFAULT wakes a poll", known_pipes::woken_by_failed_write),
    ("a poll of an epoll set that does not ask for it", set_woken_unasked),
    ("Other timeouts do not shorten a timeout that counts completions", shortened_count),
    ("If a POLL_ADD waits on a socket for POLLRDBAND", data_wakes_urgent_poll),
    ("the other request may take the data before epoll polls the file", taken_before_poll),
    ("The wake-up by a SPLICE or TEE into a pipe names no events", known_pipes::woken_unsaid),
    ("softring posts all events that are ready. The kernel sometimes posts", reports_all_events),
    (
        "Their notification comes at once, as the buffer is free then",
        known_sockets::acknowledged_late,
    ),
    ("not if something else has started it", known_eventfd::worker_not_first),
    ("If a CLOSE closes the last descriptor of a file", known_sockets::closed_at_once),
    ("If a CLOSE closes the last descriptor of a file", known_sockets::closed_before_cancel),
    ("A buffered write to a regular file may end during the submission", written_at_once),
    ("If one WAITID waits for a process and another for its group or for any child", rival_waits),
    ("stops before an urgent byte", urgent_byte),
    ("with MSG_PEEK and IORING_RECVSEND_BUNDLE", peeked_bundle),
    ("takes the wake-up of a connection from an ACCEPT behind it", known_sockets::exclusive_poll),
    (
        "a request that follows a larger one. Such a request may take more",
        known_sockets::larger_before,
    ),
    (
        "a request that follows a larger one. Such a request may take more",
        known_sockets::larger_left_less,
    ),
    ("If a timeout expires while its batch is submitted", known_eventfd::signalled_once_more),
    ("moves the position, as read(2) and write(2) do", known_files::position_direct),
    ("If a batch takes longer than a linked timeout of its own", outlasted),
    ("stays in its worker. If that is the only worker", known_workers::all_wait),
    (
        "If a worker's ACCEPT and an earlier ACCEPT wait for one listener",
        known_workers::accepts_in_worker,
    ),
    ("a cancellation may find a request that no worker has begun", known_workers::not_begun),
    ("that softring's worker has not ended yet", known_workers::still_there),
    ("may miss the completions of the next call", known_workers::counts_late),
    (
        "A cancellation of the same batch that stands behind a link also finds nothing",
        known_workers::read_at_once,
    ),
    ("A worker may wait in a RECVMSG of no bytes", known_workers::message_of_nothing),
    (
        "If the second step of a RECV bundle with MSG_WAITALL meets the end of memory",
        known_sockets::bundle_at_border,
    ),
    ("If a worker runs a RECVMSG with MSG_WAITALL", known_workers::message_part_received),
    (
        "A batch submitted before the kernel's worker has finished also waits",
        known_workers::behind_barrier,
    ),
    ("If a TCP socket was reset after its peer's FIN", known_sockets::reset_after_end),
    ("in a vector that an earlier message has left", known_sockets::vector_kept),
    ("reports the end of a unix stream at once after its data", known_sockets::end_behind_data),
    (
        "softring retries a RECV or RECVMSG that waits for an urgent byte",
        known_sockets::urgent_shut,
    ),
    ("A FUTEX_WAITV that a batch cancels", known_races::wakes_cancelled),
    ("behind another in a chain may still find a FUTEX_WAITV", known_races::woken_twice),
    ("If two timers are due at once, either may be first", due_at_once),
    ("two requests of a batch read into the same memory", known_files::read_over),
];

/// Returns the words that explain a difference, if there are any.
pub fn reason(seen: &Seen) -> Option<&'static str> {
    KNOWN.iter().find(|(_, applies)| applies(seen)).map(|(words, _)| *words)
}

/// Returns whether two rings wait for one file, and the other's request took the data before a poll
/// saw them.
fn taken_by_other_ring(seen: &Seen) -> bool {
    let waits = |op| {
        reads(op)
            || matches!(
                op,
                IORING_OP_ACCEPT | IORING_OP_RECV | IORING_OP_RECVMSG | IORING_OP_READ_MULTISHOT
            )
    };
    let rival = |ring: u8, own: &Sqe| {
        let file = seen.file(ring, own);
        let same = |(r, sqe): (u8, &Sqe)| r != ring && waits(sqe.op) && seen.file(r, sqe) == file;
        file.is_some() && seen.sqes().any(same)
    };
    if seen.when_idle() {
        return seen.sqes().any(|(ring, sqe)| waits(sqe.op) && rival(ring, sqe));
    }
    let (kernel, softring) = seen.results();
    let unserved = |got: &[i64]| got.is_empty() || got == [res(libc::ECANCELED)];
    // The difference may also be in a request behind it in a chain.
    [seen.request(), seen.head()].into_iter().flatten().any(|(ring, own)| {
        let polls = own.op == IORING_OP_POLL_ADD;
        (polls || waits(own.op))
            && rival(ring, own)
            && (unserved(&softring) || (kernel.is_empty() && !polls))
    })
}

/// Returns whether a cancel of several requests found a write on one side only.
fn written_at_once(seen: &Seen) -> bool {
    let Some((ring, own)) = seen.request() else { return false };
    let found = |sqe: &Sqe| {
        let mut told = seen.kernel.results_of(sqe.ud).chain(seen.softring.results_of(sqe.ud));
        writes(sqe.op)
            && seen.file(ring, sqe).is_some_and(|slot| is_cached(seen, slot))
            && told.any(|answer| answer == res(libc::ECANCELED))
    };
    found(own)
        || own.op == IORING_OP_ASYNC_CANCEL && seen.sqes().any(|(of, sqe)| of == ring && found(sqe))
}

/// Returns whether several requests wait for one child: by its number, by its group, or for any.
fn rival_waits(seen: &Seen) -> bool {
    let Some((_, own)) = seen.request() else { return false };
    let child = |sqe: &Sqe| matches!(sqe.fd, Fd::Child(_)) && sqe.op == IORING_OP_WAITID;
    let alike = |sqe: &Sqe| sqe.fd == own.fd || [sqe.len, own.len].contains(&libc::P_ALL);
    let other = |sqe: &Sqe| child(sqe) && alike(sqe) && sqe.len != own.len;
    let (kernel, softring) = seen.results();
    let ended = |got: &[i64]| got == [0] || got == [res(libc::ECHILD)];
    child(own) && seen.sqes().any(|(_, s)| other(s)) && (ended(&kernel) || ended(&softring))
}

/// Returns whether a receive's CQE lacks SOCK_NONEMPTY, on a socket to which an urgent byte was
/// sent.
fn urgent_byte(seen: &Seen) -> bool {
    let Some((ring, own)) = seen.request() else { return false };
    let peer = seen.file(ring, own).and_then(other_end);
    let urgent = |sqe: &Sqe| {
        sends(sqe.op) && sqe.op_flags & libc::MSG_OOB as u32 != 0 && seen.file(ring, sqe) == peer
    };
    let (kernel, softring) = (&seen.what.kernel, &seen.what.softring);
    matches!(own.op, IORING_OP_RECV | IORING_OP_RECVMSG)
        && peer.is_some()
        && seen.sqes().any(|(_, sqe)| urgent(sqe))
        && kernel.len() == softring.len()
        && kernel
            .iter()
            .zip(softring)
            .all(|(k, s)| k.res == s.res && k.flags & !IORING_CQE_F_SOCK_NONEMPTY == s.flags)
}

/// Returns whether the request is a multishot bundle that takes nothing out of the socket
/// (MSG_PEEK).
fn peeked_bundle(seen: &Seen) -> bool {
    let both = IORING_RECVSEND_BUNDLE | IORING_RECV_MULTISHOT;
    seen.request().is_some_and(|(_, own)| {
        own.op == IORING_OP_RECV
            && own.ioprio & both == both
            && own.op_flags & libc::MSG_PEEK as u32 != 0
    })
}

/// Returns whether the kernel retries a request in vain again and again, so that a cancel does not
/// find the request, and then has a worker wait.
fn cancelled_at_once(seen: &Seen) -> bool {
    let told = |t: &Transcript, ud: u64, want: i64| t.results_of(ud).any(|answer| answer == want);
    if seen.what.about == "REGISTER_SYNC_CANCEL" {
        let interrupted = |(_, sqe): (u8, &Sqe)| {
            told(seen.kernel, sqe.ud, res(libc::EINTR))
                && told(seen.softring, sqe.ud, res(libc::ECANCELED))
        };
        return seen.sqes().any(interrupted);
    }
    let Some((_, own)) = seen.request() else { return false };
    let transfers = writes(own.op)
        || matches!(
            own.op,
            IORING_OP_SEND | IORING_OP_SENDMSG | IORING_OP_RECV | IORING_OP_RECVMSG
        );
    let missed = |sqe: &Sqe| {
        let of = (seen.kernel.results_of(sqe.ud).next(), seen.softring.results_of(sqe.ud).next());
        let (Some(kernel), Some(softring)) = of else { return false };
        let any = sqe.op_flags & IORING_ASYNC_CANCEL_ANY != 0 && softring == kernel + 1;
        let one = sqe.addr == Val::Num(own.ud) && (kernel, softring) == (res(libc::ENOENT), 0);
        sqe.op == IORING_OP_ASYNC_CANCEL && (any || one)
    };
    let (kernel, softring) = seen.results();
    // The request's own result is the same, if it had received a part.
    if own.op == IORING_OP_ASYNC_CANCEL
        && (&kernel[..], &softring[..]) == (&[res(libc::ENOENT)], &[0])
    {
        let part = |(_, sqe): (u8, &Sqe)| {
            let whole = sqe.op_flags & libc::MSG_WAITALL as u32 != 0;
            whole && own.addr == Val::Num(sqe.ud) && seen.kernel.results_of(sqe.ud).any(|n| n > 0)
        };
        return seen.sqes().any(part);
    }
    // Its linked timeout expired while the kernel still retried.
    let mut behind = seen.sqes().skip_while(|(_, sqe)| sqe.ud != own.ud).skip(1);
    let timed = |(_, sqe): (u8, &Sqe)| {
        sqe.op == IORING_OP_LINK_TIMEOUT && told(seen.kernel, sqe.ud, res(libc::ENOENT))
    };
    let interrupted = kernel.is_empty() && softring == [res(libc::EINTR)];
    if transfers && interrupted && behind.next().is_some_and(timed) {
        return true;
    }
    transfers
        && softring == [res(libc::ECANCELED)]
        && (kernel.is_empty() || kernel == [res(libc::EAGAIN)])
        && seen.sqes().any(|(_, sqe)| missed(sqe))
}

/// Returns whether memory of a registered buffer was given up (MADV_DONTNEED and others).
fn registered_given_up(seen: &Seen) -> bool {
    let gives_up = |(_, sqe): (u8, &Sqe)| {
        let advice = i32::try_from(sqe.op_flags);
        let given = [libc::MADV_DONTNEED, libc::MADV_FREE, libc::MADV_REMOVE];
        sqe.op == IORING_OP_MADVISE && advice.is_ok_and(|advice| given.contains(&advice))
    };
    let fixed = |(_, sqe): (u8, &Sqe)| {
        matches!(
            sqe.op,
            IORING_OP_READ_FIXED
                | IORING_OP_WRITE_FIXED
                | IORING_OP_READV_FIXED
                | IORING_OP_WRITEV_FIXED
        )
    };
    seen.what.about == "files and memory" && seen.sqes().any(gives_up) && seen.sqes().any(fixed)
}

/// Returns whether a multishot request goes on on one side and has ended on the other, in the next
/// reap of a ring that has overflowed.
fn no_room_for_all(seen: &Seen) -> bool {
    let mut steps = seen.kernel.recs.iter().zip(&seen.softring.recs);
    let reap = |(a, _): &(&Rec, &Rec)| a.step >= seen.what.step && a.notes.len() == 2;
    let Some((a, b)) = steps.find(|recs| reap(recs) && !recs.0.cqes.is_empty()) else {
        return false;
    };
    let full = |rec: &Rec| rec.notes[0] == format!("sq flags {IORING_SQ_CQ_OVERFLOW:#x}");
    // Number of CQEs with MORE, and whether the request ended.
    let state = |recs: &[Rec], ud: u64| {
        let own = || recs.iter().flat_map(|rec| &rec.cqes).filter(|c| c.ud == ud);
        let more = |c: &&Cqe| c.flags & IORING_CQE_F_MORE != 0;
        (own().filter(more).count(), own().any(|c| !more(&c)))
    };
    let differs = |ud: u64| {
        let (a, b) = (state(&seen.kernel.recs, ud), state(&seen.softring.recs, ud));
        a != b && a.0 + b.0 > 0
    };
    (full(a) || full(b)) && a.cqes.iter().chain(&b.cqes).any(|c| differs(c.ud))
}

/// Returns whether a TCP peer's end woke a poll of an epoll set that does not ask for that end.
fn set_woken_unasked(seen: &Seen) -> bool {
    let tcp = |val: &Val| matches!(val, Val::Fd(Fd::Slot(Slot::TcpA | Slot::TcpB)));
    let unasked = |(_, sqe): (u8, &Sqe)| {
        let asked = match &sqe.addr {
            Val::Mem(cells) => matches!(cells[..], [Cell::U32(events), ..]
                if events & (libc::EPOLLIN | libc::EPOLLRDHUP) as u32 != 0),
            _ => true,
        };
        sqe.op == IORING_OP_EPOLL_CTL && tcp(&sqe.off) && !asked
    };
    let own = seen.request().filter(|(_, sqe)| sqe.op == IORING_OP_POLL_ADD);
    let (kernel, softring) = seen.results();
    own.and_then(|(ring, sqe)| seen.file(ring, sqe)) == Some(Slot::Epoll)
        && kernel == [i64::from(libc::POLLIN)]
        && (softring.is_empty() || softring == [res(libc::ECANCELED)])
        && seen.sqes().any(unasked)
}

/// Returns whether the kernel ends a count of completions early, when another timeout ends. If one
/// CQ had more when idle: whether there is such a count.
fn shortened_count(seen: &Seen) -> bool {
    let counts = |sqe: &Sqe| sqe.op == IORING_OP_TIMEOUT && sqe.off != Val::Num(0);
    let beside = |ring, own: &Sqe| {
        let mut sqes = seen.sqes().filter(|(r, sqe)| *r == ring && sqe.op == IORING_OP_TIMEOUT);
        sqes.any(|(_, sqe)| sqe.ud != own.ud)
    };
    if seen.when_idle() {
        let over = |sqe: &Sqe| counts(sqe) && seen.kernel.results_of(sqe.ud).any(|res| res == 0);
        return seen.sqes().any(|(ring, sqe)| over(sqe) && beside(ring, sqe));
    }
    let Some((ring, own)) = seen.request().filter(|(_, sqe)| counts(sqe)) else { return false };
    let (kernel, softring) = seen.results();
    let later = softring.is_empty() || softring == [res(libc::ETIME)];
    kernel == [0] && later && beside(ring, own)
}

/// Returns whether plain data wake a poll for urgent data alone.
fn data_wakes_urgent_poll(seen: &Seen) -> bool {
    let band = i64::from(libc::POLLRDBAND);
    let polls = |sqe: &Sqe| {
        let asked = sqe.op_flags & (libc::POLLRDBAND | libc::POLLIN) as u32;
        sqe.op == IORING_OP_POLL_ADD && asked == libc::POLLRDBAND as u32
    };
    let (kernel, softring) = seen.results();
    seen.request().is_some_and(|(_, sqe)| polls(sqe)) && softring.is_empty() && kernel == [band]
}

/// Returns whether another request took a file's data before the poll set was polled. The poll is
/// at the head of the chain of the request that did not end.
fn taken_before_poll(seen: &Seen) -> bool {
    let Some((ring, head)) = seen.head() else { return false };
    let file = seen.file(ring, head);
    let softring = seen.results().1;
    let took = |t: &Transcript, ud: u64| t.results_of(ud).any(|answer| answer > 0);
    let receives = |sqe: &Sqe| {
        let receive = [IORING_OP_RECV, IORING_OP_RECVMSG, IORING_OP_READ_MULTISHOT];
        reads(sqe.op) || receive.contains(&sqe.op)
    };
    let takes = |(r, sqe): (u8, &Sqe)| {
        receives(sqe)
            && seen.file(r, sqe) == file
            && took(seen.kernel, sqe.ud)
            && took(seen.softring, sqe.ud)
    };
    head.op == IORING_OP_POLL_ADD
        && head.op_flags & libc::POLLIN as u32 != 0
        && file.is_some()
        && (softring.is_empty() || softring == [res(libc::ECANCELED)])
        && seen.sqes().any(takes)
}

/// Returns whether a multishot poll reported more than the events that woke it.
fn reports_all_events(seen: &Seen) -> bool {
    let Some((_, own)) = seen.request() else { return false };
    let (kernel, softring) = seen.results();
    let more = |(some, all): (&i64, &i64)| *some > 0 && some & all == *some;
    own.op == IORING_OP_POLL_ADD
        && own.len & IORING_POLL_ADD_MULTI != 0
        && kernel.len() == softring.len()
        && kernel.iter().zip(&softring).all(more)
}

/// Returns whether a linked timeout expired while its batch provided thousands of buffers.
fn outlasted(seen: &Seen) -> bool {
    let (kernel, softring) = seen.results();
    let many = |(_, sqe): (u8, &Sqe)| {
        sqe.op == IORING_OP_PROVIDE_BUFFERS && matches!(sqe.fd, Fd::Num(4096..))
    };
    let over = [res(libc::ENOENT), res(libc::ECANCELED)];
    let one_each = kernel != softring
        && [&kernel[..], &softring[..]].iter().all(|of| matches!(of, [res] if over.contains(res)));
    // Refusing a file's request may take that long, too.
    let short =
        |sqe: &Sqe| matches!(&sqe.addr, Val::Mem(cells) if cells.first() == Some(&NO_SECONDS));
    let Some((_, own)) = seen.request() else { return false };
    own.op == IORING_OP_LINK_TIMEOUT && one_each && (short(own) || seen.sqes().any(many))
}

/// Returns whether a linked timeout ends a multishot timeout of no time.
fn due_at_once(seen: &Seen) -> bool {
    let none = |sqe: &Sqe| match &sqe.addr {
        Val::Mem(cells) => cells.iter().all(|cell| *cell == NO_SECONDS),
        _ => false,
    };
    let many = |sqe: &Sqe| {
        sqe.op == IORING_OP_TIMEOUT && sqe.op_flags & IORING_TIMEOUT_MULTISHOT != 0 && none(sqe)
    };
    let mut behind = seen.sqes().skip_while(|(_, sqe)| Some(sqe.ud) != seen.what.ud).skip(1);
    seen.request().is_some_and(|(_, sqe)| many(sqe))
        && behind.next().is_some_and(|(_, sqe)| sqe.op == IORING_OP_LINK_TIMEOUT)
}

/// First part of a time below a second.
const NO_SECONDS: Cell = Cell::U64(Val::Num(0));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limitations_lists_each_known_difference() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/LIMITATIONS.md");
        let page = std::fs::read_to_string(path).expect("docs/LIMITATIONS.md can be read");
        let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
        for (words, _) in KNOWN {
            assert!(page.contains(words), "docs/LIMITATIONS.md does not say {words:?}");
        }
    }
}
