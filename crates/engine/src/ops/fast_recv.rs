//! The fast path of a RECV that waits: a plain one on a number that is registered for good
//! (`io::persistent`), and known to have nothing, begins to wait without the steps of other
//! requests. `submit::fast_wake` ends it.

use crate::io::peers::Polled;
use crate::io::socket::{MSG_DONTWAIT, MSG_NOSIGNAL, Socket};
use crate::memory::sqe::Sqe;
use crate::ops::net;
use crate::ops::table::OPS;
use crate::ring::ctx::Ctx;
use crate::ring::opdef::{OpDef, Outcome, Try};
use crate::ring::req_box::ReqBox;
use crate::ring::request::{
    Call, FileRef, Finding, Net, OpState, Phase, Poll, Req, ReqFlags, Transfer,
};
use softring_host::calls::sockets;
use softring_host::fd::is_hidden;
use softring_host::sys::POLLIN;
use softring_host::user::in_user;
use softring_uapi::{IORING_CQE_F_SOCK_NONEMPTY, IORING_OP_RECV, io_uring_sqe};

const ROW: &OpDef = &OPS[IORING_OP_RECV as usize];

/// Flags of a plain RECV that waits.
const WAITS: ReqFlags = {
    const BITS: [ReqFlags; 3] = [ReqFlags::ISSUED, ReqFlags::SENDRECV, ReqFlags::STREAM];
    ReqFlags::from_bits_retain(BITS[0].bits() | BITS[1].bits() | BITS[2].bits())
};

/// Returns whether the opcode has this fast path.
#[inline(always)]
pub(crate) const fn is_for(opcode: u8) -> bool {
    opcode == IORING_OP_RECV
}

/// Returns whether the SQE asks for nothing but bytes.
#[inline]
const fn asks_plainly(sqe: &io_uring_sqe) -> bool {
    sqe.flags == 0 && sqe.ioprio == 0 && sqe.op_flags & !MSG_NOSIGNAL == 0
}

/// Returns whether the request is a plain RECV that waits, as this fast path leaves it.
#[inline]
pub(crate) fn waits_plainly(req: &Req) -> bool {
    req.flags == WAITS
        && is_for(req.opcode())
        && asks_plainly(req.call.sqe())
        && req.arms == 1
        && matches!(req.call.state, OpState::Net(Net { msg: None, .. }))
}

/// Checks a RECV, where every close is reported. Sets `submit.absent` if it is plain and surely
/// finds nothing: it is to wait.
#[inline(never)]
pub(crate) fn find_nothing(ctx: &mut Ctx, sqe: &Sqe) {
    let (fd, valid) = (sqe.fd, sqe.off == 0 && sqe.file_index == 0 && sqe.len.cast_signed() > 0);
    let plain = asks_plainly(sqe) && valid && in_user(sqe.addr, u64::from(sqe.len)).is_ok();
    let set = ctx.drive.transports.poll.as_ref().filter(|_| plain);
    if set.is_some_and(|set| set.waits_for(fd, ROW.poll_events()))
        && !ctx.trace.on
        && !ctx.issue.is_elsewhere()
        && !is_hidden(fd)
    {
        let polled = core::mem::take(&mut ctx.submit.polled);
        ctx.submit.absent = ctx.is_known_empty(fd, polled);
    }
}

/// Makes the attempt at a RECV that waited plainly, when the poll set has reported data and nothing
/// else: as `net::recv`, with fewer questions.
pub(crate) fn receive(call: &mut Call, how: Try) -> Outcome {
    let fd = call.file.fd();
    let Some(socket @ (Socket::Tcp | Socket::UnixStream)) = Socket::remembered(fd) else {
        return net::recv(call, how);
    };
    let &Transfer { addr, len, flags, .. } = call.io();
    let answer = sockets::receive(fd, addr, len as usize, flags | MSG_DONTWAIT);
    let Ok(n @ 1..) = answer else {
        let outcome = net::attempt(call, how, POLLIN, false, |_, _| answer);
        return net::received(call, outcome);
    };
    call.set_seen(0);
    // What comes later is announced by an event.
    let all = socket == Socket::Tcp && n < len as usize;
    let more = if all { Some(false) } else { socket.pending(fd).map(|bytes| bytes > 0) };
    let more = if more.is_none() { socket.has_more(fd, false) } else { more };
    call.found = if more == Some(false) { Finding::TookAll } else { Finding::Unknown };
    call.cflags = if more == Some(true) { IORING_CQE_F_SOCK_NONEMPTY } else { 0 };
    call.short = false;
    Outcome::Done(call.add_done(n as u64) as i32)
}

impl Ctx {
    /// Lets a RECV wait that surely finds nothing.
    pub(crate) fn arm_recv(&mut self, mut req: ReqBox) {
        let fd = req.call.sqe().fd;
        let transports = &mut self.drive.transports;
        let Some(set) = &mut transports.poll else { return };
        let news = set.registration(fd).filter(|_| self.submit.polled == Polled::Yes);
        let seen = news.map_or(0, |s| s.seen);
        req.row = ROW;
        req.flags |= WAITS;
        req.arms = 1;
        req.call.file = FileRef::Plain(fd);
        req.call.found = Finding::Nothing;
        let io = Transfer::of(req.call.sqe());
        req.call.begin(OpState::Net(Net { io, msg: None, seen, polled: true }));
        let (at, pass) = (fd, transports.passes);
        req.phase =
            Phase::Polling(Poll { at, pass, persistent: true, ..Poll::new(ROW.poll_events()) });
        let id = self.reqs.slab.insert(req);
        set.join(fd, id);
        transports.new_polls += 1;
        self.reqs.nr_reqs += 1;
        self.stats.routes.poll.add(1);
        self.stats.reissue.armed.add(1);
    }
}
