//! Reads into provided buffers: READ and READV with IOSQE_BUFFER_SELECT, and READ_MULTISHOT.
//! Kernel counterpart: `io_uring/rw.c`.

use crate::ops::rw;
use crate::ops::table::OPS;
use crate::ring::ctx::Ctx;
use crate::ring::opdef::{Outcome, Try};
use crate::ring::request::{Call, Finding, OpState, Req, ReqFlags, Rw, Transfer, kind_of};
use softring_host::fd::kind::Kind;
use softring_host::sys;
use softring_host::user;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::iovec;
use softring_uapi::*;

/// Checks a read whose buffer will be picked; a vector of one part gives its greatest length
/// (`io_iov_buffer_select_prep`).
pub(crate) fn prep(ctx: &mut Ctx, req: &mut Req, mut io: Transfer) -> Result<()> {
    let call = &mut req.call;
    let sqe = *call.sqe();
    (io.select.group, io.select.want) = (sqe.buf_index, sqe.len);
    if sqe.opcode == IORING_OP_READV {
        if sqe.len != 1 {
            return Err(Errno::EINVAL);
        }
        let part: iovec = ctx.unlocked(|| user::read(sqe.addr))?;
        io.select.want = part.len as u32;
        call.opcode = IORING_OP_READ;
        req.row = &OPS[IORING_OP_READ as usize];
    }
    call.begin(OpState::Rw(Rw { io, vector: None, by_worker: false }));
    Ok(())
}

/// Checks a READ_MULTISHOT: it needs buffers to pick from, and says nothing about them itself.
pub(crate) fn multishot_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    if !req.flags.contains(ReqFlags::BUFFER_SELECT) {
        return Err(Errno::EINVAL);
    }
    rw::prep(ctx, req)?;
    if req.call.sqe().addr != 0 || req.call.sqe().len != 0 {
        return Err(Errno::EINVAL);
    }
    req.flags |= ReqFlags::MULTISHOT;
    Ok(())
}

/// Reads what is there, as often as something comes.
pub(crate) fn multishot(call: &mut Call, how: Try) -> Outcome {
    if call.found != Finding::Stream && kind_of(&call.file) != Kind::Pollable {
        return Outcome::Done(Errno::EBADFD.res());
    }
    call.set_done(0);
    let outcome = rw::issue(call, how);
    // A short read, also at the end, is no failure (`io_read_mshot`).
    call.short = false;
    let nothing = matches!(outcome, Outcome::Retry | Outcome::Punt);
    call.found = if nothing { Finding::Nothing } else { Finding::Unknown };
    match outcome {
        // The request goes on when there is more to read, whether there are buffers for it or not.
        Outcome::Done(n) if n > 0 => match sys::poll_now(call.file.fd(), sys::POLLIN) {
            0 => Outcome::MoreThenWait(n),
            _ => Outcome::More(n),
        },
        other => other,
    }
}
