//! A ring as the file of a request that polls, reads or writes it. The number there is that of the
//! ring's memory, which no request may read, write or cut short. A read or write is refused, but
//! only once the ring is ready for it: the ring's file knows no attempt that does not wait. Kernel
//! counterpart: `io_uring_poll`, `io_file_supports_nowait`.

use alloc::sync::Arc;

use crate::io::persistent::{IN, OUT};
use crate::ring::ctx::Ctx;
use crate::ring::opdef::{self, OpDef, Outcome};
use crate::ring::request::{Req, ReqFlags};
use crate::ring::work::{Pending, What};
use softring_host::sys;
use softring_host::sys::nr::EPOLLONESHOT;
use softring_uapi::errno::Errno;

/// Returns the events that are ready on ring `fd`, for a request of `ctx`.
fn ready(ctx: &Ctx, req: &Req, fd: i32) -> u32 {
    let Some(ring) = crate::ring::table::find(fd) else { return OUT };
    let of = |ctx: &Ctx, full: bool| {
        let input = ctx.mem.cq_ready() > 0 || !ctx.completion.overflow.is_empty();
        (if input { IN } else { 0 }) | if full { 0 } else { OUT }
    };
    if core::ptr::eq(Arc::as_ptr(&ring), ctx.ring.as_ptr()) {
        // A worker gets the request when the batch is through.
        return of(ctx, !req.is_workers() && ctx.mem.sq_full());
    }
    ring.try_lock_now().map_or(OUT, |other| of(&other, other.mem.sq_full()))
}

/// Returns whether the ring that a request polls has no room in its SQ. Room later wakes nobody.
pub(crate) fn is_full(ctx: &Ctx, req: &Req, fd: i32) -> bool {
    ready(ctx, req, fd) & OUT == 0
}

/// Hands a request to the poll of ring `fd`, whose stand-in cannot be looked up under this lock.
pub(crate) fn poll(ctx: &mut Ctx, req: &mut Req, fd: i32, events: u32) -> Outcome {
    req.flags |= ReqFlags::POLLS_RING | ReqFlags::ISSUED;
    ctx.work.pend(Pending { from: None, what: What::Poll(fd, events) });
    Outcome::Elsewhere
}

/// Returns the outcome of a request for ring `fd`; none if its operation is for rings, too.
#[cold]
pub(crate) fn issue(ctx: &mut Ctx, req: &mut Req, fd: i32) -> Option<Outcome> {
    let refused = (req.row.ring_error?)(&req.call);
    if let Err(e) = ctx.select_buffer(req) {
        return Some(Outcome::Done(e.res()));
    }
    let input = reads(req.row);
    // A request that a chain has brought to a worker waits there, and so is refused.
    let waits = (input || req.row.writes()) && !req.follows_in_worker();
    let wanted = if input { IN } else { OUT };
    if refused != Errno::EINVAL || !waits || ready(ctx, req, fd) & wanted != 0 {
        return Some(Outcome::Done(refused.res()));
    }
    if !sys::blocks(fd) {
        return Some(Outcome::Done(Errno::EAGAIN.res()));
    }
    ctx.resources.recycle_buffer(req);
    Some(poll(ctx, req, fd, wanted & IN | EPOLLONESHOT))
}

/// Ends a read or write of a ring that has become ready for it.
pub(crate) fn fired(ctx: &mut Ctx, req: &mut Req) -> Outcome {
    let refused = ctx.select_buffer(req).err().unwrap_or(Errno::EINVAL);
    Outcome::Done(refused.res())
}

fn reads(row: &OpDef) -> bool {
    row.has(opdef::READS_MANY) || row.has(opdef::AIO) && row.has(opdef::POLLIN)
}
