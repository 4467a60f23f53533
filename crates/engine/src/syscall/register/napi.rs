//! The calls for NAPI busy polling ([`crate::resources::napi`]), and calls for network queues,
//! which only the kernel supports. Kernel counterpart: `io_register_napi`, `io_uring/zcrx.c`.

use crate::resources::napi::Napi;
use crate::ring::ctx::Ctx;
use softring_host::user::{self, UserPtr};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

/// `IORING_REGISTER_NAPI`: sets the times, or names a queue; the old settings are written back.
///
/// # Errors
/// `EINVAL`, `EFAULT`, `EEXIST`, `ENOENT`.
pub(super) fn register(ctx: &mut Ctx, addr: UserPtr, _: u32) -> Result<usize> {
    if ctx.setup.flags & IORING_SETUP_IOPOLL != 0 {
        return Err(Errno::EINVAL);
    }
    let new: io_uring_napi = ctx.unlocked(|| user::read(addr.addr()))?;
    if new.pad != [0; 2] || new.resv != 0 {
        return Err(Errno::EINVAL);
    }
    let tracking = ctx.resources.napi.tracking();
    let old = io_uring_napi { op_param: tracking, ..ctx.resources.napi.settings() };
    ctx.unlocked(|| user::write(addr, &old))?;
    let names = tracking == IO_URING_NAPI_TRACKING_STATIC;
    match new.opcode {
        IO_URING_NAPI_REGISTER_OP => ctx.resources.napi.set(&new),
        IO_URING_NAPI_STATIC_ADD_ID if names => ctx.resources.napi.add(new.op_param),
        IO_URING_NAPI_STATIC_DEL_ID if names => ctx.resources.napi.remove(new.op_param),
        _ => Err(Errno::EINVAL),
    }
}

/// `IORING_UNREGISTER_NAPI`: disables it; writes the old settings to `addr`, unless NULL.
///
/// # Errors
/// `EINVAL`, `EFAULT`.
pub(super) fn unregister(ctx: &mut Ctx, addr: UserPtr, nr: u32) -> Result<usize> {
    if nr != 1 {
        return Err(Errno::EINVAL);
    }
    if !addr.is_null() {
        let old = ctx.resources.napi.settings();
        ctx.unlocked(|| user::write(addr, &old))?;
    }
    ctx.resources.napi = Napi::default();
    Ok(0)
}

/// `IORING_REGISTER_ZCRX_IFQ`: fails as on a kernel built without it: only the kernel can pass on a
/// network queue.
///
/// # Errors
/// `EINVAL` on a ring that could have none, else `EOPNOTSUPP`.
pub(super) fn no_zero_copy(ctx: &mut Ctx, _: UserPtr, _: u32) -> Result<usize> {
    let wide = ctx.setup.flags & (IORING_SETUP_CQE32 | IORING_SETUP_CQE_MIXED) != 0;
    Err(if ctx.defers() && wide { Errno::EOPNOTSUPP } else { Errno::EINVAL })
}

/// `IORING_REGISTER_ZCRX_CTRL`: fails likewise.
///
/// # Errors
/// `EOPNOTSUPP`.
pub(super) fn no_control(_: &mut Ctx, _: UserPtr, _: u32) -> Result<usize> {
    Err(Errno::EOPNOTSUPP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syscall;

    /// Tested only here, not as a case: a kernel built with these calls returns other errors.
    #[test]
    fn a_queue_is_refused_as_by_a_kernel_built_without() {
        let defers = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
        let refused = |flags, nr| {
            let mut params = io_uring_params { flags, ..Default::default() };
            let fd = syscall::tests::setup(4, &mut params);
            assert!(fd >= 0, "setup with {flags:#x}: {fd}");
            // The argument is not read.
            syscall::register(fd as i32, IORING_REGISTER_ZCRX_IFQ, UserPtr::BAD, nr)
        };
        for (flags, nr, errno) in [
            (defers | IORING_SETUP_CQE32, 1, Errno::EOPNOTSUPP),
            (defers | IORING_SETUP_CQE_MIXED, 1, Errno::EOPNOTSUPP),
            (defers | IORING_SETUP_CQE32, 2, Errno::EINVAL),
            (defers, 1, Errno::EINVAL),
            (IORING_SETUP_CQE32, 1, Errno::EINVAL),
            (0, 1, Errno::EINVAL),
        ] {
            assert_eq!(refused(flags, nr), errno.res() as isize, "flags {flags:#x}, {nr}");
        }
    }
}
