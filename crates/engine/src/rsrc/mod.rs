//! Registered resources.

use crate::ctx::Ctx;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::{IORING_RSRC_REGISTER_SPARSE, io_uring_rsrc_register, io_uring_rsrc_update2};

pub(crate) mod buffers;
pub(crate) mod bundle;
pub(crate) mod deposit;
pub(crate) mod eventfd;
pub(crate) mod files;
pub(crate) mod filetable;
pub(crate) mod filters;
pub(crate) mod kbuf;
pub(crate) mod memlock;
pub(crate) mod napi;
pub(crate) mod personality;
pub mod plain;
pub(crate) mod region;
pub(crate) mod restrictions;
pub(crate) mod ring_fds;
pub mod task_rules;

/// The argument of FILES2 and BUFFERS2, checked (`io_register_rsrc`).
fn read_register(ctx: &mut Ctx, addr: u64, size: u32) -> Result<io_uring_rsrc_register> {
    if size as usize != size_of::<io_uring_rsrc_register>() {
        return Err(Errno::EINVAL);
    }
    let r: io_uring_rsrc_register = ctx.unlocked(|| crate::user::read(addr))?;
    let sparse = r.flags & IORING_RSRC_REGISTER_SPARSE != 0;
    let unknown = r.flags & !IORING_RSRC_REGISTER_SPARSE != 0;
    if r.nr == 0 || r.resv2 != 0 || unknown || (sparse && r.data != 0) {
        return Err(Errno::EINVAL);
    }
    Ok(r)
}

/// The argument of FILES_UPDATE2 and BUFFERS_UPDATE, checked (`io_register_rsrc_update`).
fn read_update(ctx: &mut Ctx, addr: u64, size: u32) -> Result<io_uring_rsrc_update2> {
    if size as usize != size_of::<io_uring_rsrc_update2>() {
        return Err(Errno::EINVAL);
    }
    let up: io_uring_rsrc_update2 = ctx.unlocked(|| crate::user::read(addr))?;
    if up.nr == 0 || up.resv != 0 || up.resv2 != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(up)
}
