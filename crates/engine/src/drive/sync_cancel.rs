//! A cancellation that waits. Kernel counterpart: `io_sync_cancel` in `io_uring/cancel.c`.

use alloc::sync::Arc;

use super::sleep::{On, sleep, sleep_for_change};
use crate::ring::cancel::{CANCEL_FLAGS, Wanted};
use crate::ring::ctx::Ring;
use crate::ring::turn::{Drives, Turn};
use softring_host::time::Clock;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::version::{Change, has};
use softring_uapi::*;

/// `IORING_REGISTER_SYNC_CANCEL`: cancels, and waits until nothing that matches runs any more
/// (`io_sync_cancel`).
///
/// # Errors
/// `EINVAL`, `EBADF`, `ENOENT` if nothing matched at all, `ETIME`, `EINTR`.
pub(crate) fn sync_cancel(ring: &Arc<Ring>, reg: &io_uring_sync_cancel_reg) -> Result<usize> {
    if reg.flags & !CANCEL_FLAGS != 0 || reg.pad != [0; 7] || reg.pad2 != [0; 3] {
        return Err(Errno::EINVAL);
    }
    let by_fd = IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_FD_FIXED;
    let plain = reg.flags & by_fd == IORING_ASYNC_CANCEL_FD;
    // A plain descriptor is taken once; a registered one is looked up anew each time.
    let held = if plain { Some(Arc::new(softring_host::fd::dup_visible(reg.fd)?)) } else { None };
    let forever = reg.timeout.tv_sec == -1 && reg.timeout.tv_nsec == -1;
    let limit = if forever { u64::MAX } else { softring_host::time::ns_of(reg.timeout) };
    let deadline = Clock::Monotonic.now().saturating_add(limit);
    // With DEFER_TASKRUN the end of a worker's request is task work for the program's next enter.
    // Before 7.2 the kernel wakes no waiter for it (`io_req_local_work_add`): only the timeout
    // does.
    let mut attempts = 0;
    loop {
        let mut ctx = ring.lock();
        let wanted = match &held {
            Some(fd) => Wanted::with_file(reg.addr, reg.flags, fd.clone(), reg.opcode),
            None => Wanted::new(&ctx, reg.addr, reg.flags, reg.fd, reg.opcode)?,
        };
        let result = ctx.cancel(&wanted);
        if ctx.defers() && attempts == 0 && result != Err(Errno::EALREADY) {
            // The kernel runs task work only where it waits.
            ctx.after_submit(false, false);
        } else {
            ctx.turn(Turn::Memory);
        }
        match result {
            Err(Errno::EALREADY) => {}
            result if attempts == 0 => return result.map(|n| n as usize),
            Ok(_) | Err(Errno::ENOENT) => return Ok(0),
            Err(e) => return Err(e),
        }
        attempts += 1;
        if !ctx.defers() || forever || has(Change::CancelWakes) {
            sleep_for_change(ctx, deadline)?;
        } else if attempts == 2 {
            drop(ctx);
            return Err(sleep_until(deadline));
        }
    }
}

/// Sleeps until the deadline or a signal; returns the errno that says which.
fn sleep_until(deadline: u64) -> Errno {
    let left = deadline.saturating_sub(Clock::Monotonic.now());
    sleep(On::Readable(-1), left, None).err().unwrap_or(Errno::ETIME)
}
