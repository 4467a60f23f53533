//! Enabling a ring that was made disabled. Kernel counterpart: `io_register_enable_rings`.

use crate::ring::ctx::Ctx;
use softring_host::user::UserPtr;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::{IORING_SETUP_R_DISABLED, IORING_SETUP_SINGLE_ISSUER};

/// `IORING_REGISTER_ENABLE_RINGS`: enables the ring: it may be entered, and its restrictions apply.
///
/// # Errors
/// `EBADFD` if the ring is not disabled.
pub(super) fn enable(ctx: &mut Ctx, _: UserPtr, _: u32) -> Result<usize> {
    if !ctx.setup.disabled {
        return Err(Errno::EBADFD);
    }
    if ctx.setup.flags & IORING_SETUP_SINGLE_ISSUER != 0 {
        ctx.setup.issuer.get_or_insert_with(softring_host::sys::gettid);
    }
    ctx.setup.restrictions.activate();
    ctx.setup.flags &= !IORING_SETUP_R_DISABLED;
    ctx.setup.disabled = false;
    Ok(0)
}
