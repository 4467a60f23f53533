//! Copies of one ring's buffers for another. Kernel counterpart: `io_register_clone_buffers`,
//! `io_clone_buffers`.
//!
//! No two rings are locked at once: the source's table is copied under its lock, then installed
//! under the other's.

use alloc::sync::Arc;

use crate::process::registered;
use crate::resources::buffers::BufNode;
use crate::ring::ctx::{Ctx, Ring};
use softring_host::user;
use softring_host::user::UserPtr;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::limits::REG_BUFFERS_MAX;
use softring_uapi::*;

type Slot = Option<Arc<BufNode>>;

/// `IORING_REGISTER_CLONE_BUFFERS`: shares buffers of the ring that the argument names.
///
/// # Errors
/// `EFAULT`; `EINVAL` for flags, reserved words and ranges; `EBUSY` if there is a table and
/// DST_REPLACE was not asked for; `EBADF`, `EOPNOTSUPP` for the source; `EEXIST` if it is another
/// task's; `ENXIO` if it has no table; `EOVERFLOW`.
pub(super) fn clone_buffers(ring: &Arc<Ring>, _: i32, addr: UserPtr, _: u32) -> Result<usize> {
    let arg: io_uring_clone_buffers = user::read(addr.addr())?;
    if arg.flags & !(IORING_REGISTER_SRC_REGISTERED | IORING_REGISTER_DST_REPLACE) != 0 {
        return Err(Errno::EINVAL);
    }
    free_or_replaced(&ring.lock(), &arg)?;
    if arg.pad != [0; 3] {
        return Err(Errno::EINVAL);
    }
    let by_index = arg.flags & IORING_REGISTER_SRC_REGISTERED != 0;
    let (source, _) = registered::find(arg.src_fd.cast_signed(), by_index)?;
    let from = {
        let ctx = source.lock();
        if source.id != ring.id && ctx.setup.is_anothers() {
            return Err(Errno::EEXIST);
        }
        ctx.resources.buffers.slots.clone()
    };
    install(&mut ring.lock(), &arg, &from)
}

fn free_or_replaced(ctx: &Ctx, arg: &io_uring_clone_buffers) -> Result<()> {
    let replace = arg.flags & IORING_REGISTER_DST_REPLACE != 0;
    if replace || ctx.resources.buffers.slots.is_empty() { Ok(()) } else { Err(Errno::EBUSY) }
}

fn install(ctx: &mut Ctx, arg: &io_uring_clone_buffers, from: &[Slot]) -> Result<usize> {
    if arg.nr == 0 && (arg.dst_off != 0 || arg.src_off != 0) {
        return Err(Errno::EINVAL);
    }
    free_or_replaced(ctx, arg)?;
    if from.is_empty() {
        return Err(Errno::ENXIO);
    }
    let have = from.len() as u32;
    let nr = if arg.nr == 0 { have } else { arg.nr };
    if nr > have {
        return Err(Errno::EINVAL);
    }
    let src_end = nr.checked_add(arg.src_off).filter(|&end| end <= have);
    let src_end = src_end.ok_or(Errno::EOVERFLOW)?;
    let dst_end = nr.checked_add(arg.dst_off).ok_or(Errno::EOVERFLOW)?;
    if dst_end > REG_BUFFERS_MAX {
        return Err(Errno::EINVAL);
    }
    let shared = from[arg.src_off as usize..src_end as usize].iter().map(share);
    let table = &mut ctx.resources.buffers.slots;
    table.resize(table.len().max(dst_end as usize), None);
    // Replaced slots are dropped from the last one down, as their tags show.
    let slots = table[arg.dst_off as usize..dst_end as usize].iter_mut();
    for (slot, node) in slots.zip(shared).rev() {
        *slot = node;
    }
    Ok(0)
}

fn share(slot: &Slot) -> Slot {
    slot.as_ref().map(|node| node.share())
}
