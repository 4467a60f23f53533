//! FILES_UPDATE: changes the registered file table in the order of submission. Kernel counterpart:
//! `io_files_update`.

use crate::ops::zero;
use crate::resources::filetable::{Update, dup_for_table};
use crate::ring::ctx::Ctx;
use crate::ring::opdef::Outcome;
use crate::ring::request::{Req, ReqFlags};
use alloc::vec::Vec;
use softring_host::user::UserPtr;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

/// Checks the SQE (`io_files_update_prep`).
pub(crate) fn prep(_: &mut Ctx, req: &mut Req) -> Result<()> {
    let sqe = *req.call.sqe();
    if req.flags.intersects(ReqFlags::FIXED_FILE | ReqFlags::BUFFER_SELECT) {
        return Err(Errno::EINVAL);
    }
    zero(&[u64::from(sqe.op_flags), u64::from(sqe.file_index)])?;
    if sqe.len == 0 { Err(Errno::EINVAL) } else { Ok(()) }
}

/// Updates slots from `off` on, or picks free slots and reports them.
pub(crate) fn issue(ctx: &mut Ctx, req: &mut Req) -> Outcome {
    let sqe = *req.call.sqe();
    let offset = sqe.off as u32;
    let done = if offset == IORING_FILE_INDEX_ALLOC {
        allocate(ctx, sqe.addr(), sqe.len)
    } else {
        update(ctx, offset, sqe.addr, sqe.len)
    };
    Outcome::Done(done.map_or_else(Errno::res, u32::cast_signed))
}

fn update(ctx: &mut Ctx, offset: u32, addr: u64, nr: u32) -> Result<u32> {
    ctx.resources.files.check_range(offset, nr)?;
    let fds: Vec<i32> = ctx.unlocked(|| softring_host::user::read_prefix(addr, nr as usize));
    ctx.resources.files.update(Update { offset, nr, fds: &fds, tags: None }, &ctx.resources.tags)
}

/// Registers each descriptor in a free slot and writes the slot over the descriptor in the
/// program's array.
fn allocate(ctx: &mut Ctx, addr: UserPtr, nr: u32) -> Result<u32> {
    if ctx.resources.files.slots.is_empty() {
        return Err(Errno::ENXIO);
    }
    for i in 0..nr {
        let at = addr.add(u64::from(i) * 4);
        if let Err(e) = allocate_one(ctx, at) {
            return if i > 0 { Ok(i) } else { Err(e) };
        }
    }
    Ok(nr)
}

fn allocate_one(ctx: &mut Ctx, at: UserPtr) -> Result<()> {
    let fd = ctx.unlocked(|| softring_host::user::read::<i32>(at.addr()))?;
    if softring_host::fd::numbers::is_live_ring(fd) {
        // A ring is refused only once a slot is free for it.
        return Err(ctx.resources.files.free_slot().err().unwrap_or(Errno::EBADF));
    }
    let fd = dup_for_table(fd)?;
    let slot = ctx.resources.files.install(IORING_FILE_INDEX_ALLOC, fd, &ctx.resources.tags)?;
    ctx.unlocked(|| softring_host::user::write(at, &slot)).inspect_err(|_| {
        let _ = ctx.resources.files.remove(slot);
    })
}
