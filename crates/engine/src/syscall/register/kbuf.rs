//! The calls for groups of provided buffers ([`crate::resources::kbuf`]). Kernel counterpart:
//! `io_register_pbuf_ring` and the others in `io_uring/kbuf.c`.
#![allow(unsafe_code)]

use alloc::sync::Arc;

use crate::memory::mappings::{self, RingMemory};
use crate::resources::kbuf::{BufRing, MAX_BIDS};
use crate::resources::region::in_file;
use crate::ring::ctx::{Ctx, Ring};
use softring_host::user::{self, UserPtr};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::version::{Change, has};
use softring_uapi::*;

const PAGE: usize = 4096;

/// `IORING_REGISTER_PBUF_RING`: registers a group in memory that both sides map: the program's
/// memory, or the ring's, mapped at `IORING_OFF_PBUF_RING` plus the shifted group id.
///
/// # Errors
/// `EEXIST` for a group that has buffers; `EFAULT`, `EINVAL`, `EOVERFLOW`; `ENOMEM`.
pub(super) fn register_ring(ring: &Arc<Ring>, fd: i32, addr: UserPtr, _: u32) -> Result<usize> {
    let reg: io_uring_buf_reg = user::read(addr.addr())?;
    if !reserved_is_zero(&reg) || reg.flags & !(IOU_PBUF_RING_MMAP | IOU_PBUF_RING_INC) != 0 {
        return Err(Errno::EINVAL);
    }
    if !reg.ring_entries.is_power_of_two() || reg.ring_entries >= MAX_BIDS {
        return Err(Errno::EINVAL);
    }
    let mut ctx = ring.lock();
    ctx.resources.groups.make_room(reg.bgid)?;
    let size = reg.ring_entries as usize * size_of::<io_uring_buf>();
    let size = size.next_multiple_of(PAGE);
    let mem = if reg.flags & IOU_PBUF_RING_MMAP != 0 {
        let offset = IORING_OFF_PBUF_RING | u64::from(reg.bgid) << IORING_OFF_PBUF_SHIFT;
        in_file(fd, offset, size as u64)?
    } else {
        // Private memory must stay mapped while the group is registered.
        // SAFETY: the program's structure names it, until the group is unregistered.
        let at = unsafe { RingMemory::of_program(reg.ring_addr) };
        ctx.unlocked(|| mappings::pin(at, size))?
    };
    ctx.resources.groups.add_ring(reg.bgid, BufRing::new(mem, &reg));
    Ok(0)
}

/// Returns whether the reserved words are zero. Only an incremental ring may set `min_left`.
fn reserved_is_zero(reg: &io_uring_buf_reg) -> bool {
    let may_leave = has(Change::MinLeft) && reg.flags & IOU_PBUF_RING_INC != 0;
    reg.resv == [0; 5] && (reg.min_left == 0 || may_leave)
}

/// `IORING_UNREGISTER_PBUF_RING`: removes a group with a ring.
///
/// # Errors
/// `ENOENT` if there is no such group, `EINVAL` if it is a list; `EFAULT`.
pub(super) fn unregister_ring(ctx: &mut Ctx, addr: UserPtr, _: u32) -> Result<usize> {
    let reg: io_uring_buf_reg = ctx.unlocked(|| user::read(addr.addr()))?;
    let old = !has(Change::MinLeft) && reg.min_left != 0;
    if reg.resv != [0; 5] || reg.flags != 0 || old {
        return Err(Errno::EINVAL);
    }
    ctx.resources.groups.remove_ring(reg.bgid).map(|()| 0)
}

/// `IORING_REGISTER_PBUF_STATUS`: returns the head of a group's ring.
///
/// # Errors
/// Same as [`unregister_ring`].
pub(super) fn status(ctx: &mut Ctx, addr: UserPtr, _: u32) -> Result<usize> {
    let mut status: io_uring_buf_status = ctx.unlocked(|| user::read(addr.addr()))?;
    if status.resv != [0; 8] {
        return Err(Errno::EINVAL);
    }
    let group = u16::try_from(status.buf_group).map_err(|_| Errno::ENOENT)?;
    status.head = u32::from(ctx.resources.groups.ring(group)?.head);
    ctx.unlocked(|| user::write(addr, &status))?;
    Ok(0)
}
