//! ASYNC_CANCEL. Kernel counterpart: `io_async_cancel` in `io_uring/cancel.c`; the search is in
//! [`crate::ring::cancel`].

use crate::ring::cancel::{CANCEL_FLAGS, Wanted};
use crate::ring::ctx::Ctx;
use crate::ring::inherited::Inherits;
use crate::ring::opdef::Outcome;
use crate::ring::request::{Req, ReqFlags};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

/// Checks an ASYNC_CANCEL (`io_async_cancel_prep`).
pub(crate) fn prep(_: &mut Ctx, req: &mut Req) -> Result<()> {
    let sqe = req.call.sqe();
    if req.flags.contains(ReqFlags::BUFFER_SELECT) || sqe.off != 0 || sqe.file_index != 0 {
        return Err(Errno::EINVAL);
    }
    let flags = sqe.op_flags;
    let narrow = IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_OP;
    let any = flags & IORING_ASYNC_CANCEL_ANY != 0;
    if flags & !CANCEL_FLAGS != 0 || (any && flags & narrow != 0) {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Cancels what matches: the result is 0, or their number with ALL or ANY (`io_async_cancel`). A
/// worker asks a forked child's parent for requests that the child has not.
pub(crate) fn issue(ctx: &mut Ctx, req: &mut Req) -> Outcome {
    if req.is_workers() {
        ctx.events_first(req);
    }
    let sqe = req.call.sqe();
    let mut flags = sqe.op_flags;
    if req.flags.contains(ReqFlags::FIXED_FILE) {
        flags |= IORING_ASYNC_CANCEL_FD_FIXED;
    }
    let wanted = Wanted::new(ctx, sqe.addr, flags, sqe.fd, sqe.len as u8);
    let worker = req.is_workers();
    let res = wanted.and_then(|w| match ctx.cancel(&w) {
        Err(Errno::ENOENT) if worker && w.itself(req) => Err(Errno::EALREADY),
        res => res,
    });
    if matches!(res, Err(Errno::ENOENT)) && ctx.may_ask_parent(req.call.sqe()) {
        return Outcome::Retry;
    }
    Outcome::Done(res.map_or_else(Errno::res, u32::cast_signed))
}
