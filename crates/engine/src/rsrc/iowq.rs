//! Where workers may run, and how many. Kernel counterpart: `io_register_iowq_aff`,
//! `io_register_iowq_max_workers`.

use crate::ctx::Ctx;
use crate::errno::{Errno, Result};
use crate::limits::CPU_MASK_BYTES;
use crate::sys::sys;
use crate::user;

/// `IORING_REGISTER_IOWQ_AFF`: confines the workers to a CPU mask of `len` bytes.
///
/// # Errors
/// `EFAULT`; `EINVAL` for a CPU that the cpuset does not allow.
pub fn affinity(ctx: &mut Ctx, addr: u64, len: u32) -> Result<usize> {
    let mut mask = [0u8; CPU_MASK_BYTES];
    let len = (len as usize).min(mask.len());
    ctx.unlocked(|| user::read_slice(addr, &mut mask[..len]))?;
    let allowed = allowed_cpus();
    if mask.iter().zip(allowed).any(|(want, may)| want & !may != 0) {
        return Err(Errno::EINVAL);
    }
    ctx.workers().set_affinity(Some(&mask)).map(|()| 0)
}

/// `IORING_UNREGISTER_IOWQ_AFF`: lets the workers run anywhere again.
///
/// # Errors
/// None.
pub fn no_affinity(ctx: &mut Ctx, _: u64, _: u32) -> Result<usize> {
    ctx.workers().set_affinity(None).map(|()| 0)
}

/// `IORING_REGISTER_IOWQ_MAX_WORKERS`: sets the most bounded and unbounded workers, 0 leaving one
/// as it is; tells what they were.
///
/// # Errors
/// `EFAULT`; `EINVAL` for a number above `i32::MAX`.
pub fn max_workers(ctx: &mut Ctx, addr: u64, _: u32) -> Result<usize> {
    let mut max = [0u32; 2];
    ctx.unlocked(|| user::read_slice(addr, &mut max))?;
    let old = ctx.workers().set_max(max)?;
    ctx.unlocked(|| user::write_slice(addr, &old))?;
    Ok(0)
}

/// The CPUs of our cpuset. The calling thread may be confined to fewer by its own affinity, so a
/// thread of ours asks for all and looks what it got; without such a thread, every CPU counts as
/// allowed.
fn allowed_cpus() -> [u8; CPU_MASK_BYTES] {
    let ask = || {
        let mut mask = [0xffu8; CPU_MASK_BYTES];
        let at = mask.as_mut_ptr().expose_provenance();
        sys!(__NR_sched_setaffinity, 0, CPU_MASK_BYTES, at);
        let n = sys!(__NR_sched_getaffinity, 0, CPU_MASK_BYTES, at);
        let n = usize::try_from(n).unwrap_or(CPU_MASK_BYTES);
        mask[n..].fill(0);
        mask
    };
    let thread = std::thread::Builder::new().stack_size(64 << 10).spawn(ask);
    thread.ok().and_then(|t| t.join().ok()).unwrap_or([0xff; CPU_MASK_BYTES])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_cpu_is_allowed_and_not_all_that_could_be() {
        let mask = allowed_cpus();
        assert!(mask.iter().any(|&b| b != 0));
        assert!(mask.contains(&0));
    }
}
