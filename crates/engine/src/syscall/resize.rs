//! Resizing of rings. Kernel counterpart: `io_register_resize_rings`; the memory is in
//! [`crate::memory::resize`].
#![allow(unsafe_code)]

use alloc::sync::Arc;

use super::setup::geometry;
use crate::memory::mappings::RingMemory;
use crate::memory::rings::Rings;
use crate::ring::ctx::Ring;
use crate::ring::turn::{Drives, Turn};
use softring_host::os::fd::AsFd;
use softring_host::user::UserPtr;
use softring_host::{sys, user};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

/// Flags that the caller may set.
const RESIZE_FLAGS: u32 = IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP;
/// Flags that a ring keeps, and that are returned.
const COPY_FLAGS: u32 = IORING_SETUP_NO_SQARRAY
    | IORING_SETUP_SQE128
    | IORING_SETUP_CQE32
    | IORING_SETUP_NO_MMAP
    | IORING_SETUP_CQE_MIXED
    | IORING_SETUP_SQE_MIXED;

/// `IORING_REGISTER_RESIZE_RINGS`: resizes the rings, with their entries; the program maps them
/// anew.
///
/// # Errors
/// `EINVAL` for a ring without DEFER_TASKRUN, for other flags and for bad sizes; `EFAULT`;
/// `EOVERFLOW` if the entries do not fit; `ENOMEM`.
pub(crate) fn resize(ring: &Arc<Ring>, fd: i32, addr: UserPtr, _: u32) -> Result<usize> {
    let mut ctx = ring.lock();
    if !ctx.defers() {
        return Err(Errno::EINVAL);
    }
    let mut p: io_uring_params = ctx.unlocked(|| user::read(addr.addr()))?;
    if p.flags & !RESIZE_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    p.flags |= ctx.setup.flags & COPY_FLAGS;
    let mut geo = geometry(p.sq_entries, &p)?;
    geo.flags = ctx.mem.geo.flags;
    let file = sys::borrow(fd).ok_or(Errno::EBADF)?;
    let named = [p.cq_off.user_addr, p.sq_off.user_addr];
    // SAFETY: the program's parameters name the memory, for as long as the ring has it.
    let [cq_user, sq_user] = named.map(|at| unsafe { RingMemory::of_program(at) });
    let rings =
        ctx.unlocked(|| Rings::new_region(file.as_fd(), &geo, IORING_OFF_SQ_RING, cq_user))?;
    geo.publish(&mut p);
    // The kernel does not return the offset of the index array.
    p.sq_off.array = 0;
    ctx.unlocked(|| user::write(addr, &p))?;
    let sqes = ctx.unlocked(|| Rings::new_region(file.as_fd(), &geo, IORING_OFF_SQES, sq_user))?;
    ctx.turn(Turn::Publish);
    ctx.mem.move_to(geo, rings, sqes).map(|()| 0)
}
