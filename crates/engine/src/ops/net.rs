//! SEND and RECV, and the common part of all sends and receives. Kernel counterpart:
//! `io_uring/net.c`.
//!
//! An attempt is one system call with MSG_DONTWAIT. With MSG_WAITALL a stream goes on from where it
//! stopped: `call.io().done` counts the bytes so far, and a request that ends early reports them.

use crate::io::iov::import_iov;
use crate::io::persistent::{IN, STICKY};
use crate::io::socket::{
    self, MSG_CMSG_COMPAT, MSG_DONTWAIT, MSG_ERRQUEUE, MSG_NOSIGNAL, MSG_OOB, MSG_WAITALL, Socket,
    has_messages, streams,
};
use crate::ops::net_bundle;
use crate::ops::net_msg;
use crate::ops::socket::address;
use crate::ring::ctx::Ctx;
use crate::ring::message::Msg;
use crate::ring::opdef::{Outcome, Try};
use crate::ring::request::{Call, Finding, Net, OpState, Req, ReqFlags, Transfer};
use alloc::boxed::Box;
use softring_host::calls::{ReadPtr, UserPtr, ioctl, sockets};
use softring_host::sys;
use softring_host::user::in_user;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::version::{Change, has};
use softring_uapi::*;

/// Checks the fields of the transfer that all of the family share, and starts its state.
pub(crate) fn common_prep(req: &mut Req, known: u16, mut io: Transfer) -> Result<()> {
    let s = req.call.sqe();
    if io.len.cast_signed() < 0 || s.ioprio & !known != 0 {
        return Err(Errno::EINVAL);
    }
    req.flags |= ReqFlags::SENDRECV;
    if io.flags & MSG_DONTWAIT != 0 {
        req.flags |= ReqFlags::NOWAIT;
    }
    if req.flags.contains(ReqFlags::BUFFER_SELECT) {
        (io.select.group, io.select.want) = (s.buf_index, io.len);
    }
    req.call.begin(OpState::Net(Net { io, msg: None, seen: 0, polled: false }));
    Ok(())
}

/// Checks a SEND (`io_sendmsg_prep`).
pub(crate) fn send_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    const KNOWN: u16 = IORING_RECVSEND_POLL_FIRST | IORING_RECVSEND_BUNDLE | IORING_SEND_VECTORIZED;
    let mut io = Transfer::of(req.call.sqe());
    io.flags |= MSG_NOSIGNAL;
    let bundle = req.call.sqe().ioprio & IORING_RECVSEND_BUNDLE != 0;
    if bundle {
        io.flags |= MSG_WAITALL;
    }
    common_prep(req, KNOWN | fixed(), io)?;
    if req.call.sqe().ioprio & IORING_RECVSEND_FIXED_BUF != 0 {
        const NOT: u16 = IORING_RECVSEND_BUNDLE | IORING_SEND_VECTORIZED;
        check_unmixed(req, NOT)?;
    }
    if bundle {
        req.flags |= ReqFlags::MULTISHOT;
    }
    send_setup(ctx, req)
}

/// Returns the flag for a registered buffer, if SEND and RECV have it.
fn fixed() -> u16 {
    if has(Change::PlainBuffers) { IORING_RECVSEND_FIXED_BUF } else { 0 }
}

/// Checks that a registered buffer comes without the flags `not` and without a provided one.
fn check_unmixed(req: &Req, not: u16) -> Result<()> {
    let bad = req.call.sqe().ioprio & not != 0 || req.flags.contains(ReqFlags::BUFFER_SELECT);
    if bad { Err(Errno::EINVAL) } else { Ok(()) }
}

/// Copies what a SEND names: an address, a vector (`io_send_setup`).
pub(crate) fn send_setup(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let s = *req.call.sqe();
    let OpState::Net(Net { io, msg: kept, .. }) = &mut req.call.state else {
        return Err(Errno::EINVAL);
    };
    // The upper half of the word that holds `addr_len`.
    if s.file_index >> 16 != 0 {
        return Err(Errno::EINVAL);
    }
    let mut msg = Msg::default();
    if s.off != 0 {
        msg.name = Some(ctx.unlocked(|| address(s.off, u64::from(s.file_index)))?);
    }
    let elsewhere = req.flags.contains(ReqFlags::BUFFER_SELECT);
    let fixed = s.ioprio & IORING_RECVSEND_FIXED_BUF != 0;
    let vector = s.ioprio & IORING_SEND_VECTORIZED != 0;
    if vector && !elsewhere {
        // Before that change only a message has parts of a registered buffer.
        if fixed && !has(Change::PlainBuffers) {
            return Err(Errno::EINVAL);
        }
        msg.iov = ctx.unlocked(|| import_iov(io.addr, io.len))?;
        // The address of an empty vector says nothing.
        io.addr = UserPtr::NULL;
    } else if !fixed && !elsewhere {
        in_user(io.addr.addr(), u64::from(io.len))?;
    }
    if msg.name.is_some() || !msg.iov.is_empty() || (fixed && vector) {
        *kept = Some(Box::new(msg));
    }
    Ok(())
}

/// Sends.
pub(crate) fn send(call: &mut Call, how: Try) -> Outcome {
    let all = call.io().flags & MSG_WAITALL != 0;
    let outcome = attempt(call, how, sys::POLLOUT, all, send_once);
    match outcome {
        Outcome::Done(n @ 1..) if call.sqe().ioprio & IORING_RECVSEND_BUNDLE != 0 => {
            net_bundle::sent(call, n)
        }
        Outcome::Done(1..) if how == Try::Nonblock => {
            // Later ones on a stream go faster (`ops::fast_stream`).
            Socket::learn(call.file.fd());
            outcome
        }
        outcome => outcome,
    }
}

/// Sends what is left by one system call.
pub(crate) fn send_once(call: &mut Call, flags: u32) -> Result<usize> {
    let OpState::Net(Net { io, msg, .. }) = &call.state else { return Err(Errno::EINVAL) };
    let rest = io.rest();
    let (at, len) = (rest.base, rest.len);
    match msg {
        Some(msg) if !msg.iov.is_empty() => net_msg::send_vector(call, msg, flags),
        Some(msg) => {
            sockets::send(call.file.fd(), ReadPtr(at), len as usize, flags, msg.name.as_deref())
        }
        None => sockets::send(call.file.fd(), ReadPtr(at), len as usize, flags, None),
    }
}

/// Returns the number of bytes asked for.
pub(crate) fn total(call: &Call) -> u64 {
    match call.state.message() {
        Some(msg) if !msg.iov.is_empty() => msg.iov.iter().map(|v| v.len).sum(),
        _ => u64::from(call.io().len),
    }
}

/// Tries `once`, and acts on its answer: goes on with a stream of which `all` is wanted, waits for
/// readiness, or ends.
pub(crate) fn attempt(
    call: &mut Call,
    how: Try,
    ready: i16,
    all: bool,
    once: impl Fn(&mut Call, u32) -> Result<usize>,
) -> Outcome {
    let given = call.io().flags & !MSG_CMSG_COMPAT;
    let waits = how == Try::Block && waits_in_worker(call) && !asks_file(call);
    let total = if all { total(call) } else { 0 };
    (call.short, call.found) = (false, Finding::Unknown);
    loop {
        let flags = if how == Try::Nonblock { given | MSG_DONTWAIT } else { given };
        let n = match once(call, flags) {
            Ok(n) => n as u64,
            Err(Errno::EAGAIN) if how == Try::Nonblock => {
                call.found = Finding::Nothing;
                return Outcome::Retry;
            }
            // A worker's request blocks even if the program's socket does not.
            Err(Errno::EAGAIN) if waits && wait(call.file.fd(), ready) => continue,
            Err(Errno::EAGAIN) if waits && call.io().done == 0 => {
                return Outcome::Done(Errno::EINTR.res());
            }
            Err(e) if call.io().done == 0 => return Outcome::Done(e.res()),
            Err(_) => {
                call.found = Finding::Failed;
                0
            }
        };
        let done = call.add_done(n);
        if n > 0 && done < total && streams(call.file.fd()) {
            if how == Try::Nonblock {
                return Outcome::Retry;
            }
            // A worker's attempt takes one message.
            if !has_messages(call.file.fd()) {
                continue;
            }
        }
        call.short |= done < total;
        return Outcome::Done(done as i32);
    }
}

/// Returns whether a worker waits for what it is to transfer. It does not wait for errors of a
/// socket that has an error queue.
pub(crate) fn waits_in_worker(call: &Call) -> bool {
    let given = call.io().flags;
    given & MSG_DONTWAIT == 0
        && (given & MSG_ERRQUEUE == 0 || !socket::has_error_queue(call.file.fd()))
}

/// Returns whether a blocking attempt does not wait: sendmsg(2) and recvmsg(2) ask the file.
fn asks_file(call: &Call) -> bool {
    const MESSAGES: [u8; 3] = [IORING_OP_SENDMSG, IORING_OP_RECVMSG, IORING_OP_SENDMSG_ZC];
    MESSAGES.contains(&call.opcode) && !sys::blocks(call.file.fd())
}

/// Waits until `fd` is ready; false if a signal came instead.
pub(crate) fn wait(fd: i32, events: i16) -> bool {
    sys::poll_wait(fd, events).is_ok()
}

/// Checks the fields that receives share, and those of multishot ones (`io_recvmsg_prep`).
pub(crate) fn recv_common(req: &mut Req, more: u16, io: Transfer) -> Result<()> {
    let s = *req.call.sqe();
    if s.off != 0 {
        return Err(Errno::EINVAL);
    }
    const KNOWN: u16 = IORING_RECVSEND_POLL_FIRST | IORING_RECV_MULTISHOT | IORING_RECVSEND_BUNDLE;
    common_prep(req, KNOWN | more, io)?;
    if s.ioprio & IORING_RECV_MULTISHOT == 0 {
        return crate::ops::zero(&[u64::from(s.file_index)]);
    }
    if !req.flags.contains(ReqFlags::BUFFER_SELECT) || s.op_flags & MSG_WAITALL != 0 {
        return Err(Errno::EINVAL);
    }
    req.flags |= ReqFlags::MULTISHOT;
    Ok(())
}

/// Checks a RECV (`io_recvmsg_prep`).
pub(crate) fn recv_prep(_: &mut Ctx, req: &mut Req) -> Result<()> {
    let s = *req.call.sqe();
    // `optlen`.
    recv_common(req, fixed(), Transfer { off: u64::from(s.file_index), ..Transfer::of(&s) })?;
    let is_fixed = req.call.sqe().ioprio & IORING_RECVSEND_FIXED_BUF != 0;
    if is_fixed {
        check_unmixed(req, IORING_RECV_MULTISHOT | IORING_RECVSEND_BUNDLE)?;
    }
    if !req.flags.contains(ReqFlags::BUFFER_SELECT) && !is_fixed {
        in_user(s.addr, u64::from(s.len))?;
    }
    Ok(())
}

/// Receives.
pub(crate) fn recv(call: &mut Call, how: Try) -> Outcome {
    let all = call.io().flags & MSG_WAITALL != 0;
    let bundle = call.sqe().ioprio & IORING_RECVSEND_BUNDLE != 0 && call.io().select.pick.is_some();
    let outcome = if bundle {
        net_bundle::recv(call, how)
    } else {
        attempt(call, how, sys::POLLIN, all, recv_once)
    };
    let outcome = received(call, outcome);
    if bundle && !all && call.short {
        // A receive that failed on the way did not ask what is left.
        call.cflags = 0;
    }
    if let (true, OpState::Net(Net { msg: Some(msg), .. })) = (bundle, &mut call.state) {
        msg.more = call.cflags & IORING_CQE_F_SOCK_NONEMPTY != 0;
    }
    outcome
}

fn recv_once(call: &mut Call, flags: u32) -> Result<usize> {
    let OpState::Net(Net { io, msg, .. }) = &call.state else { return Err(Errno::EINVAL) };
    if flags & MSG_WAITALL != 0 || msg.is_some() {
        return net_msg::recv_vector(call, flags);
    }
    sockets::receive(call.file.fd(), io.addr, io.len as usize, flags)
}

/// Records whether there is more after a receive, and returns whether the request goes on
/// (`io_recv_finish`).
pub(crate) fn received(call: &mut Call, outcome: Outcome) -> Outcome {
    let Outcome::Done(n) = outcome else { return outcome };
    if n < 0 {
        return outcome;
    }
    let fd = call.file.fd();
    let left = is_left(call, n);
    if left == Some(false) {
        call.found = Finding::TookAll;
    }
    let urgent = call.io().flags & MSG_OOB != 0;
    let more = match Socket::of(fd) {
        _ if left.is_some() => left,
        // A call that failed does not say what there is.
        _ if call.found == Finding::Failed => None,
        // Nor does a receive of urgent data (`unix_stream_recv_urg`).
        Socket::UnixStream if urgent => None,
        // The byte stays in the stream, where it is no longer announced.
        Socket::Tcp if urgent && ioctl::is_at_mark(fd) == Ok(true) => Some(true),
        socket => socket.has_more(fd, n == 0),
    };
    if more == Some(false) && n > 0 && is_plain_recv(call) {
        // What comes later is announced by an event.
        call.found = Finding::TookAll;
    }
    call.cflags = if more == Some(true) { IORING_CQE_F_SOCK_NONEMPTY } else { 0 };
    let multishot = call.sqe().ioprio & IORING_RECV_MULTISHOT != 0;
    if !multishot || n == 0 || call.is_last() || at_limit(call, n) {
        return outcome;
    }
    if let Some(io) = call.state.io_mut() {
        io.done = 0;
        if call.opcode == IORING_OP_RECVMSG {
            // The vector's length was for the first message (`io_mshot_prep_retry`).
            io.select.want = 0;
        }
    }
    if more == Some(false) { Outcome::MoreThenWait(n) } else { Outcome::More(n) }
}

/// Returns whether a receive left something of a TCP stream that neither ends nor has urgent data,
/// which the poll set would have said. It did not if it was given less than it had asked for.
fn is_left(call: &mut Call, n: i32) -> Option<bool> {
    let OpState::Net(net) = &mut call.state else { return None };
    let seen = core::mem::take(&mut net.seen);
    let len = net.io.len;
    let quiet = seen & IN != 0 && seen & STICKY == 0;
    let fd = call.file.fd();
    if n == 0 || !quiet || !is_plain_recv(call) || Socket::of(fd) != Socket::Tcp {
        return None;
    }
    if n.unsigned_abs() < len {
        return Some(false);
    }
    Socket::Tcp.pending(fd).map(|bytes| bytes > 0)
}

/// Returns whether the request is a RECV into one buffer, without flags that change what it finds.
fn is_plain_recv(call: &Call) -> bool {
    let s = call.sqe();
    let one = matches!(&call.state, OpState::Net(net) if net.msg.is_none());
    s.opcode == IORING_OP_RECV
        && s.ioprio & IORING_RECVSEND_BUNDLE == 0
        && s.op_flags & !(MSG_DONTWAIT | MSG_NOSIGNAL) == 0
        && one
}

/// Counts `n` bytes; returns whether a multishot RECV has brought all that it was to bring.
fn at_limit(call: &mut Call, n: i32) -> bool {
    let Some(Transfer { off: limit, .. }) = call.state.io_mut() else { return false };
    if call.opcode != IORING_OP_RECV || *limit == 0 {
        return false;
    }
    *limit = limit_left(*limit, u64::from(n.unsigned_abs()));
    *limit == 0
}

/// Returns what `n` bytes leave of a limit. The kernel takes the two for `int` (`io_recv_finish`),
/// so any byte uses up a limit of 2 GiB or more.
pub(crate) fn limit_left(limit: u64, n: u64) -> u64 {
    if limit > i32::MAX as u64 { 0 } else { limit.saturating_sub(n) }
}

/// Ends a request that failed on the way: the bytes before count (`io_sendrecv_fail`).
#[cold]
pub(crate) fn failed(ctx: &mut Ctx, req: &mut Req) {
    if req.call.io().done > 0 {
        req.res = req.call.io().done as i32;
        ctx.put_buffer(req, req.res);
    }
}

/// Returns whether the issue function of a SEND returns that there is no buffer to pick.
pub(crate) fn send_issue_fails(req: &Req, res: i32) -> bool {
    let none = [Errno::ENOBUFS, Errno::ENOENT].iter().any(|e| res == e.res());
    none && req.selects_in_vain()
}
