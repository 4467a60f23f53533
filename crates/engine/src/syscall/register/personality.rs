//! The calls for personalities ([`crate::resources::personality`]). Kernel counterpart:
//! `io_register_personality`, `io_unregister_personality`.

use crate::ring::ctx::Ctx;
use softring_host::creds::Creds;
use softring_host::user::UserPtr;
use softring_uapi::errno::{Errno, Result};

/// `IORING_REGISTER_PERSONALITY`: registers the caller's credentials; returns their id.
///
/// # Errors
/// `EBUSY` if every id is in use.
pub(super) fn register(ctx: &mut Ctx, _: UserPtr, _: u32) -> Result<usize> {
    ctx.resources.personalities.insert(Creds::now()).map(usize::from)
}

/// `IORING_UNREGISTER_PERSONALITY`: removes an id; requests in flight keep its credentials.
///
/// # Errors
/// `EINVAL` for an id that is not in use.
pub(super) fn unregister(ctx: &mut Ctx, _: UserPtr, id: u32) -> Result<usize> {
    let id = u16::try_from(id).map_err(|_| Errno::EINVAL)?;
    ctx.resources.personalities.remove(id).map(|()| 0)
}
