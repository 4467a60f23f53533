//! POLL_ADD, POLL_REMOVE. Kernel counterpart: `io_uring/poll.c`.

use crate::ctx::Ctx;
use crate::req::slab::ReqId;

/// An armed POLL_ADD is ready.
pub fn fired(ctx: &mut Ctx, id: ReqId, events: u32) {
    let fd = ctx.slab.get(id).map_or(-1, |r| r.call.file.poll_fd());
    ctx.transports.poll_del(fd);
    ctx.complete(id, events.cast_signed());
}
