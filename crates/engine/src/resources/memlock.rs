//! Accounting of registered memory against RLIMIT_MEMLOCK. Nothing is really pinned; the limit is
//! enforced so that a program meets the same ENOMEM as on the kernel, and falls back in the same
//! way. Kernel counterpart: `__io_account_mem`, which counts per user; here it is per process.

use core::sync::atomic::Ordering::Relaxed;

use softring_host::os::process::Resource;

use super::of_process::PROCESS;
use softring_uapi::errno::{Errno, Result};

const CAP_IPC_LOCK: u64 = 1 << 14;

/// Returns whether the calling thread may lock memory without limit. A ring's maker decides for the
/// ring, as in `io_uring_create`: a server that gives its rights up goes on registering buffers.
pub(crate) fn is_unlimited() -> bool {
    softring_host::creds::capabilities() & CAP_IPC_LOCK != 0
}

/// Pages counted against the limit; released on drop.
#[derive(Debug)]
pub(crate) struct Locked(u64);

impl Locked {
    /// Counts the pages that `[addr, addr + len)` touches, unless the ring's maker might lock
    /// without limit.
    ///
    /// # Errors
    /// `ENOMEM` past RLIMIT_MEMLOCK.
    pub(crate) fn range(addr: u64, len: u64, unlimited: bool) -> Result<Locked> {
        if unlimited {
            return Ok(Locked(0));
        }
        let pages = (addr + len).div_ceil(4096) - addr / 4096;
        let Some(limit) = softring_host::substitute::getrlimit(Resource::Memlock).current else {
            return Ok(Locked(0));
        };
        let within = |now: u64| Some(now + pages).filter(|&n| n <= limit / 4096);
        PROCESS.locked.fetch_update(Relaxed, Relaxed, within).map_err(|_| Errno::ENOMEM)?;
        Ok(Locked(pages))
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        PROCESS.locked.fetch_sub(self.0, Relaxed);
    }
}
