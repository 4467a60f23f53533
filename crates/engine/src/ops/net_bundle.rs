//! SEND from provided buffers, and bundles of them for SEND and RECV. Kernel counterpart:
//! `io_send_select_buffer`, `io_recv_buf_select`, `io_recv_finish` in `io_uring/net.c`.

use crate::io::socket::{MSG_CMSG_COMPAT, MSG_DONTWAIT, MSG_WAITALL, Socket, is_socket};
use crate::ops::net::{attempt, limit_left, wait, waits_in_worker};
use crate::ops::net_msg::recv_vector;
use crate::resources::bundle::{ALL, Layout};
use crate::ring::message::Msg;
use crate::ring::opdef::{Outcome, Try};
use crate::ring::request::{Call, Finding, Net, OpState, Selection};
use softring_host::sys;
use softring_uapi::errno::{self, Errno};
use softring_uapi::version::{Change, has};
use softring_uapi::*;

/// Goes on after a bundle was sent: the next one follows, unless that was the last buffer.
pub(crate) fn sent(call: &mut Call, n: i32) -> Outcome {
    // A bundle that went to the poll set ends with its next step (`io_send_finish`).
    let last = call.is_last();
    let OpState::Net(Net { io, msg, polled, .. }) = &mut call.state else {
        return Outcome::Done(n);
    };
    if last || *polled {
        return Outcome::Done(n);
    }
    if io.select.pick.is_none() {
        // Without buffers to pick from there is nothing more to send.
        (io.len, *msg) = (0, None);
    }
    io.done = 0;
    Outcome::More(n)
}

/// Receives into one buffer; if it is full and there is more, goes on with as many as that takes.
pub(crate) fn recv(call: &mut Call, how: Try) -> Outcome {
    let given = call.io().flags & !MSG_CMSG_COMPAT;
    let flags = given | if how == Try::Nonblock { MSG_DONTWAIT } else { 0 };
    // An attempt that found nothing keeps what it has seen of the buffers (`REQ_F_BL_EMPTY`,
    // `IORING_RECV_PARTIAL_MAP`).
    if core::mem::take(&mut call.found) != Finding::Nothing {
        let msg = call.message();
        (msg.last, msg.cut) = (false, false);
    }
    let limit = call.io().off;
    // An attempt that found nothing limits the receive to its one buffer.
    let Selection { most, want, .. } = call.io().select;
    let asked = [most, want].into_iter().filter(|n| *n > 0).min();
    let asked = u64::from(asked.unwrap_or(0));
    let most = if (asked == 0 && limit == 0) || how == Try::Block { 1 } else { usize::MAX };
    let limit = if limit == 0 { ALL } else { limit };
    let many = call.sqe().ioprio & IORING_RECV_MULTISHOT != 0;
    let cap = if many { want.into() } else { 0 };
    let want = if asked == 0 { limit } else { asked.min(limit) };
    let &mut Msg { ref head, more, .. } = call.message();
    // Without a known length none is asked of the buffer, until a receive has said how much there
    // is.
    let unknown = want == ALL && most == 1 && (!more || how == Try::Block);
    let first = if head.singly {
        Ok(head.one(if want == ALL { 0 } else { want }))
    } else if unknown {
        head.first()
    } else {
        head.lay_out(0, want, most)
    };
    let first = match first {
        Ok(layout) => layout,
        Err(_) if !is_socket(call.file.fd()) => return Outcome::Done(Errno::ENOTSOCK.res()),
        Err(e) => return Outcome::Done(e.res()),
    };
    let msg = call.message();
    (msg.last, msg.cut) = (msg.last | first.empty, msg.cut | first.cut);
    let goes_on = !msg.cut && !msg.last;
    let whole = flags & MSG_WAITALL != 0;
    let done = if whole { fill(call, how, &first) } else { once(call, how, flags, &first) };
    let (n, mut used) = match done {
        Ok(done) => done,
        Err(outcome) => return outcome,
    };
    let mut total = n;
    let full = n > 0 && n == first.len && goes_on && !capped(cap, n);
    // With nothing left, the request has brought all that it was to bring.
    let left = if limit == ALL { ALL } else { limit_left(limit, n) };
    if full && left > 0 {
        let fd = call.file.fd();
        let there = Socket::of(fd).pending(fd).filter(|&n| n > 1).unwrap_or(0);
        if there > 0 {
            if limit != ALL {
                // The bytes of both steps are counted behind the first, too (`io_recv_finish`).
                if let Some(io) = call.state.io_mut() {
                    io.off = left;
                }
            }
            let (n, more) = second(call, flags, (n, used), there.min(left));
            total += n;
            used += more;
        }
    }
    if let Some(pick) = call.pick_mut() {
        (pick.count, pick.first) = (used.max(1), n as u32);
    }
    call.set_done(total);
    call.message().turn_over = capped(cap, total);
    Outcome::Done(total as i32)
}

/// Makes the first step: returns the bytes and the buffers that they fill, or the request's
/// outcome.
fn once(call: &mut Call, how: Try, flags: u32, first: &Layout) -> Result<(u64, u16), Outcome> {
    loop {
        match receive_part(call, first, flags) {
            Ok(n) => return Ok(n),
            Err(Errno::EAGAIN) if how == Try::Nonblock => {
                call.found = Finding::Nothing;
                if let [part] = &first.iov[..] {
                    call.set_most(part.len as u32);
                }
                return Err(Outcome::Retry);
            }
            // A worker's request blocks even if the program's socket does not.
            Err(Errno::EAGAIN) if waits_in_worker(call) => {
                if !wait(call.file.fd(), sys::POLLIN) {
                    return Err(Outcome::Done(Errno::EINTR.res()));
                }
            }
            Err(e) => return Err(Outcome::Done(e.res())),
        }
    }
}

/// Fills the first buffers for MSG_WAITALL, over several waits if need be.
fn fill(call: &mut Call, how: Try, first: &Layout) -> Result<(u64, u16), Outcome> {
    let count = first.iov.len() as u16;
    if let Some(pick) = call.pick_mut() {
        pick.count = count;
    }
    call.message().iov.clone_from(&first.iov);
    match attempt(call, how, sys::POLLIN, true, recv_vector) {
        Outcome::Done(n @ 1..) => Ok((n.unsigned_abs().into(), count)),
        other => Err(other),
    }
}

/// Returns whether a bundle has brought as much as it may in one go (`IORING_RECV_MSHOT_CAP`).
fn capped(cap: u64, n: u64) -> bool {
    cap > 0 && n >= cap
}

/// Makes the second step: receives as much as is there, into as many buffers as that takes, behind
/// the bytes and buffers `used` by the first. If it fails, the bytes of the first step count, but
/// the request has failed and ends.
fn second(call: &mut Call, flags: u32, used: (u64, u16), want: u64) -> (u64, u16) {
    // An incremental buffer that was paid for while it waited for the rest (`MSG_WAITALL`) goes on
    // behind the bytes that it had then, over the rest.
    let bytes =
        call.io().select.pick.filter(|pick| pick.committed).map_or(used.0, |pick| pick.paid.into());
    let head = &mut call.message().head;
    let singly = head.singly;
    head.advance(bytes, if singly { 1 } else { used.1 });
    let layout = if singly { Ok(head.one(want)) } else { head.lay_out(0, want, usize::MAX) };
    if let (true, Ok(layout), Some(pick)) = (singly, &layout, call.pick_mut()) {
        pick.second = (1, layout.len as u32);
    }
    let picked = layout.is_ok();
    let layout = layout.and_then(|layout| match layout.iov[..] {
        [part] if singly && part.base == 0 => Err(Errno::ENOBUFS),
        _ => Ok(layout),
    });
    match layout.and_then(|layout| Ok((receive_part(call, &layout, flags)?, layout.empty))) {
        Ok((done, empty)) => {
            call.message().last |= empty;
            // The first step was paid for while it waited for the rest (`MSG_WAITALL`).
            if let (false, Some(pick)) = (singly, call.pick_mut()) {
                pick.second = (done.1, done.0 as u32);
            }
            done
        }
        Err(_) => {
            call.message().last = true;
            call.short = true;
            // The buffers picked for this step were not used up.
            let reported = singly || !has(Change::BufferPlaces);
            let more = picked && reported && call.message().head.inc;
            if let Some(pick) = call.pick_mut() {
                (pick.more, pick.found_none) = (more, !picked);
            }
            (0, 0)
        }
    }
}

/// Makes one recvmsg(2); returns the bytes, and the buffers that they fill.
fn receive_part(call: &mut Call, layout: &Layout, flags: u32) -> errno::Result<(u64, u16)> {
    call.message().iov.clone_from(&layout.iov);
    call.set_done(0);
    let n = recv_vector(call, flags)? as u64;
    Ok((n, layout.used(n)))
}
