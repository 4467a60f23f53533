//! Affinity and number of workers. Kernel counterpart: `io_register_iowq_aff`,
//! `io_register_iowq_max_workers`.

use crate::ring::ctx::Ctx;
use crate::ring::workers::task_sets_max;
use softring_host::calls::process;
use softring_host::limits::CPU_MASK_BYTES;
use softring_host::threads;
use softring_host::user::{self, UserPtr};
use softring_uapi::IORING_SETUP_SQPOLL;
use softring_uapi::errno::{Errno, Result};

/// `IORING_REGISTER_IOWQ_AFF`: confines the workers to a CPU mask of `len` bytes.
///
/// # Errors
/// `EFAULT`; `EINVAL` for a CPU that the cpuset does not allow.
pub(super) fn affinity(ctx: &mut Ctx, addr: UserPtr, len: u32) -> Result<usize> {
    let mut mask = [0u8; CPU_MASK_BYTES];
    let len = (len as usize).min(mask.len());
    ctx.unlocked(|| user::read_slice(addr.addr(), &mut mask[..len]))?;
    // CPUs that the machine can never have are ignored.
    drop_beyond(&mut mask, possible_cpus());
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
pub(super) fn no_affinity(ctx: &mut Ctx, _: UserPtr, _: u32) -> Result<usize> {
    ctx.workers().set_affinity(None).map(|()| 0)
}

/// `IORING_REGISTER_IOWQ_MAX_WORKERS`: sets the most bounded and unbounded workers, 0 leaving a
/// limit unchanged; returns the old limits in `addr`.
///
/// # Errors
/// `EFAULT`; `EINVAL` for a number above `i32::MAX`.
pub(super) fn max_workers(ctx: &mut Ctx, addr: UserPtr, _: u32) -> Result<usize> {
    let mut max = [0u32; 2];
    ctx.unlocked(|| user::read_slice(addr.addr(), &mut max))?;
    let own = ctx.workers().set_max(max)?;
    // An SQ thread has workers of its own.
    let old =
        if ctx.setup.flags & IORING_SETUP_SQPOLL == 0 { task_sets_max(max, own) } else { own };
    ctx.unlocked(|| user::write_slice(addr, &old))?;
    Ok(0)
}

/// Returns `nr_cpu_ids`, one more than the highest possible CPU number; `None` if it is unknown.
fn possible_cpus() -> Option<usize> {
    let list = softring_host::files::proc_text("/sys/devices/system/cpu/possible")?;
    let last = list.trim().rsplit([',', '-']).next()?;
    last.parse::<usize>().ok()?.checked_add(1)
}

/// Clears the bits of a mask from `n` on.
fn drop_beyond(mask: &mut [u8], n: Option<usize>) {
    let n = n.unwrap_or(usize::MAX);
    for (at, byte) in mask.iter_mut().enumerate().skip(n / 8) {
        *byte &= if at == n / 8 { (1 << (n % 8)) - 1 } else { 0 };
    }
}

/// Returns the CPUs of our cpuset. The calling thread's own affinity may be narrower, so a thread
/// of ours asks for all CPUs and reads the result; without such a thread, every CPU counts as
/// allowed.
fn allowed_cpus() -> [u8; CPU_MASK_BYTES] {
    let ask = || {
        let mut mask = [0xffu8; CPU_MASK_BYTES];
        let _ = process::set_affinity(0, &mask);
        let n = process::affinity(&mut mask).unwrap_or(CPU_MASK_BYTES);
        mask[n..].fill(0);
        mask
    };
    threads::run(64 << 10, ask).unwrap_or([0xff; CPU_MASK_BYTES])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_beyond_the_cpus_are_dropped() {
        for (n, want) in
            [(0, [0, 0]), (3, [7, 0]), (8, [0xff, 0]), (11, [0xff, 7]), (99, [0xff; 2])]
        {
            let mut mask = [0xff; 2];
            drop_beyond(&mut mask, Some(n));
            assert_eq!(mask, want);
        }
    }

    #[test]
    fn some_cpu_is_allowed_and_not_all_that_could_be() {
        let mask = allowed_cpus();
        assert!(mask.iter().any(|&b| b != 0));
        assert!(mask.contains(&0));
    }
}
