//! The calls for filters ([`crate::resources::filters`]), a ring's and a task's. Kernel
//! counterpart: `io_register_bpf_filter`, `io_register_bpf_filter_task`.

use crate::ops::table::OPS;
use crate::resources::task_rules;
use crate::ring::ctx::Ctx;
use softring_host::user::UserPtr;
use softring_uapi::errno::{Errno, Result};

/// `IORING_REGISTER_BPF_FILTER`: adds a filter to a ring.
///
/// # Errors
/// Same as [`Filters::add`](crate::resources::filters::Filters::add).
pub(super) fn register(ctx: &mut Ctx, addr: UserPtr, nr: u32) -> Result<usize> {
    if nr != 1 {
        return Err(Errno::EINVAL);
    }
    let mut filters = ctx.setup.filters.clone();
    ctx.unlocked(|| filters.add(addr, own))?;
    ctx.setup.filters = filters;
    Ok(0)
}

/// `IORING_REGISTER_BPF_FILTER`: adds a filter to the calling task.
///
/// # Errors
/// `EACCES`; same as [`Filters::add`](crate::resources::filters::Filters::add).
pub(super) fn register_for_task(addr: UserPtr, nr: u32) -> Result<usize> {
    task_rules::may_lay()?;
    if nr != 1 {
        return Err(Errno::EINVAL);
    }
    let mut rules = task_rules::mine().cloned().unwrap_or_default();
    rules.filters.add(addr, own)?;
    task_rules::lay(rules);
    Ok(0)
}

/// Returns the number of bytes that a filter may load of an opcode's requests, beyond the common
/// ones.
fn own(opcode: u8) -> u8 {
    OPS[usize::from(opcode)].filtered.map_or(0, |own| own.len)
}
