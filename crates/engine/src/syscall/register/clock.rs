//! The clock of waits with a timeout. Kernel counterpart: `io_register_clock`.

use crate::ring::ctx::Ctx;
use softring_host::time::Clock;
use softring_host::user::UserPtr;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::io_uring_clock_register;

const CLOCK_MONOTONIC: u32 = 1;
const CLOCK_BOOTTIME: u32 = 7;

/// `IORING_REGISTER_CLOCK`: sets the clock of enter's timeouts.
///
/// # Errors
/// `EFAULT`; `EINVAL` for a clock other than the monotonic and the boot-time one.
pub(super) fn register(ctx: &mut Ctx, addr: UserPtr, _: u32) -> Result<usize> {
    let reg: io_uring_clock_register = ctx.unlocked(|| softring_host::user::read(addr.addr()))?;
    if reg.resv != [0; 3] {
        return Err(Errno::EINVAL);
    }
    ctx.setup.clock = match reg.clockid {
        CLOCK_MONOTONIC => Clock::Monotonic,
        CLOCK_BOOTTIME => Clock::Boottime,
        _ => return Err(Errno::EINVAL),
    };
    Ok(0)
}
