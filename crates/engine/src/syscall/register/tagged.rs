//! Arguments that the calls with tags for files and buffers share.

use crate::ring::ctx::Ctx;
use softring_host::user::UserPtr;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::{IORING_RSRC_REGISTER_SPARSE, io_uring_rsrc_register, io_uring_rsrc_update2};

/// Reads and checks the argument of FILES2 and BUFFERS2 (`io_register_rsrc`).
///
/// # Errors
/// `EINVAL`, `EFAULT`.
pub(super) fn read_register(
    ctx: &mut Ctx,
    addr: UserPtr,
    size: u32,
) -> Result<io_uring_rsrc_register> {
    if size as usize != size_of::<io_uring_rsrc_register>() {
        return Err(Errno::EINVAL);
    }
    let r: io_uring_rsrc_register = ctx.unlocked(|| softring_host::user::read(addr.addr()))?;
    let sparse = r.flags & IORING_RSRC_REGISTER_SPARSE != 0;
    let unknown = r.flags & !IORING_RSRC_REGISTER_SPARSE != 0;
    if r.nr == 0 || r.resv2 != 0 || unknown || (sparse && r.data != 0) {
        return Err(Errno::EINVAL);
    }
    Ok(r)
}

/// Reads and checks the argument of FILES_UPDATE2 and BUFFERS_UPDATE (`io_register_rsrc_update`).
///
/// # Errors
/// `EINVAL`, `EFAULT`.
pub(super) fn read_update(
    ctx: &mut Ctx,
    addr: UserPtr,
    size: u32,
) -> Result<io_uring_rsrc_update2> {
    if size as usize != size_of::<io_uring_rsrc_update2>() {
        return Err(Errno::EINVAL);
    }
    let up: io_uring_rsrc_update2 = ctx.unlocked(|| softring_host::user::read(addr.addr()))?;
    if up.nr == 0 || up.resv != 0 || up.resv2 != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(up)
}
