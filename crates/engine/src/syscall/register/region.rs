//! The call for a region of parameters ([`crate::resources::region`]). Kernel counterpart:
//! `io_register_mem_region`.
#![allow(unsafe_code)]

use alloc::sync::Arc;

use crate::resources::region::ParamRegion;
use crate::ring::ctx::{Ctx, Ring};
use softring_host::user::{self, UserPtr};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

/// `IORING_REGISTER_MEM_REGION`: registers the program's memory, or the ring's, to be mapped at the
/// offset returned.
///
/// # Errors
/// `EBUSY` for a second one; `EFAULT`, `EINVAL`, `E2BIG`, `EOVERFLOW`; `ENOMEM` past
/// RLIMIT_MEMLOCK.
pub(super) fn register(ring: &Arc<Ring>, fd: i32, addr: UserPtr, _: u32) -> Result<usize> {
    let mut ctx = ring.lock();
    if ctx.resources.param_region.is_some() {
        return Err(Errno::EBUSY);
    }
    let reg: io_uring_mem_region_reg = ctx.unlocked(|| user::read(addr.addr()))?;
    // SAFETY: the program's structure names it.
    let at = unsafe { UserPtr::of_program(reg.region_uptr) };
    let mut desc: io_uring_region_desc = ctx.unlocked(|| user::read(at.addr()))?;
    check(&ctx, &reg)?;
    let wait_args = reg.flags & IORING_MEM_REGION_REG_WAIT_ARG != 0;
    let unlimited = ctx.setup.unlimited;
    let region = ctx.unlocked(|| ParamRegion::create(&mut desc, fd, wait_args, unlimited))?;
    ctx.unlocked(|| user::write(at, &desc))?;
    ctx.resources.param_region = Some(region);
    Ok(0)
}

fn check(ctx: &Ctx, reg: &io_uring_mem_region_reg) -> Result<()> {
    let wait = reg.flags & IORING_MEM_REGION_REG_WAIT_ARG != 0;
    let unknown = reg.flags & !IORING_MEM_REGION_REG_WAIT_ARG != 0;
    // No thread waits on a disabled ring, so no thread sees a half-made region.
    if reg.resv != [0; 2] || unknown || (wait && !ctx.setup.disabled) {
        return Err(Errno::EINVAL);
    }
    Ok(())
}
