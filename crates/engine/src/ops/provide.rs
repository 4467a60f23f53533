//! PROVIDE_BUFFERS and REMOVE_BUFFERS. Kernel counterpart: `io_uring/kbuf.c`.

use crate::resources::kbuf::{Buf, MAX_BIDS};
use crate::ring::ctx::Ctx;
use crate::ring::opdef::Outcome;
use crate::ring::request::Req;
use softring_host::user::in_user;
use softring_uapi::errno::{Errno, Result};

/// Checks counts, ids and the range (`io_provide_buffers_prep`).
pub(crate) fn provide_prep(_: &mut Ctx, req: &mut Req) -> Result<()> {
    let sqe = req.call.sqe();
    if sqe.op_flags != 0 || sqe.file_index != 0 {
        return Err(Errno::EINVAL);
    }
    let nbufs = sqe.fd.cast_unsigned();
    if nbufs == 0 || nbufs > MAX_BIDS {
        return Err(Errno::E2BIG);
    }
    if sqe.len == 0 {
        return Err(Errno::EINVAL);
    }
    let size = u64::from(sqe.len) * u64::from(nbufs);
    sqe.addr.checked_add(size).ok_or(Errno::EOVERFLOW)?;
    in_user(sqe.addr, size)?;
    if sqe.off >= u64::from(MAX_BIDS) {
        return Err(Errno::E2BIG);
    }
    if sqe.off + u64::from(nbufs) > u64::from(MAX_BIDS) {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Adds the buffers to their group.
pub(crate) fn provide(ctx: &mut Ctx, req: &mut Req) -> Outcome {
    let sqe = req.call.sqe();
    let first = Buf { addr: sqe.addr(), len: sqe.len, bid: sqe.off as u16 };
    let done =
        ctx.resources.groups.provide(sqe.buf_index, first, sqe.fd.cast_unsigned()).map(|()| 0);
    Outcome::Done(done.unwrap_or_else(Errno::res))
}

/// Checks the count (`io_remove_buffers_prep`).
pub(crate) fn remove_prep(_: &mut Ctx, req: &mut Req) -> Result<()> {
    let sqe = req.call.sqe();
    let unused = [sqe.addr, sqe.off, u64::from(sqe.len | sqe.op_flags | sqe.file_index)];
    let nbufs = sqe.fd.cast_unsigned();
    if unused != [0; 3] || nbufs == 0 || nbufs > MAX_BIDS {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Takes buffers out of their group; the result is their number.
pub(crate) fn remove(ctx: &mut Ctx, req: &mut Req) -> Outcome {
    let sqe = req.call.sqe();
    let done = ctx.resources.groups.remove(sqe.buf_index, sqe.fd.cast_unsigned());
    Outcome::Done(done.map_or_else(Errno::res, |n| n as i32))
}
