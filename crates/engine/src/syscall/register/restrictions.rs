//! The calls for restrictions ([`crate::resources::restrictions`]), a ring's and a task's. Kernel
//! counterpart: `io_register_restrictions`, `io_register_restrictions_task`.

use crate::resources::restrictions::Restrictions;
use crate::resources::task_rules::{self, Rules};
use crate::ring::ctx::Ctx;
use softring_host::user;
use softring_host::user::UserPtr;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::io_uring_task_restriction;

/// `IORING_REGISTER_RESTRICTIONS`: sets the permissions of a disabled ring for when it is enabled.
///
/// # Errors
/// `EBADFD` if the ring is not disabled, `EBUSY` for a second call; `EINVAL`, `EFAULT`.
pub(super) fn register(ctx: &mut Ctx, addr: UserPtr, nr: u32) -> Result<usize> {
    if !ctx.setup.disabled {
        return Err(Errno::EBADFD);
    }
    if ctx.setup.restrictions.registered {
        return Err(Errno::EBUSY);
    }
    if addr.is_null() {
        return Err(Errno::EINVAL);
    }
    ctx.setup.restrictions = ctx.unlocked(|| Restrictions::read(addr.addr(), nr))?;
    Ok(0)
}

/// `IORING_REGISTER_RESTRICTIONS`: sets the permissions of the calling task.
///
/// # Errors
/// `EPERM` if it has restrictions or filters already, `EACCES`, `EINVAL`, `EFAULT`.
pub(super) fn register_for_task(addr: UserPtr, nr: u32) -> Result<usize> {
    const ROWS: u64 = size_of::<io_uring_task_restriction>() as u64;
    if task_rules::mine().is_some() {
        return Err(Errno::EPERM);
    }
    task_rules::may_lay()?;
    if nr != 1 {
        return Err(Errno::EINVAL);
    }
    let head: io_uring_task_restriction = user::read(addr.addr())?;
    if head.flags != 0 || head.resv != [0; 3] {
        return Err(Errno::EINVAL);
    }
    let mut restrictions = Restrictions::read(addr.add(ROWS).addr(), head.nr_res.into())?;
    // The restrictions apply to all rings of the task, disabled or not.
    restrictions.activate();
    task_rules::lay(Rules::only(restrictions));
    Ok(0)
}
