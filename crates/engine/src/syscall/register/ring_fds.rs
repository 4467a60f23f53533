//! The calls for registered rings ([`crate::process::registered`]). Kernel counterpart:
//! `io_ringfd_register`, `io_ringfd_unregister` in `io_uring/tctx.c`.

use alloc::sync::Arc;

use crate::process::hold_ring;
use crate::process::registered::{self, SLOTS_LEN, clear, in_table, put};
use crate::ring::ctx::Ring;
use softring_host::user::{self, UserPtr};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::io_uring_rsrc_update;
use softring_uapi::limits::RING_FDS_MAX;

/// Calls `f` for each row; returns how many succeeded, or the first row's error.
fn each(
    addr: UserPtr,
    nr: u32,
    f: impl Fn(UserPtr, io_uring_rsrc_update) -> Result<()>,
) -> Result<usize> {
    if nr == 0 || nr > RING_FDS_MAX {
        return Err(Errno::EINVAL);
    }
    for i in 0..nr as usize {
        let at = addr.add((i * size_of::<io_uring_rsrc_update>()) as u64);
        if let Err(e) = user::read(at.addr()).and_then(|row| f(at, row)) {
            return if i > 0 { Ok(i) } else { Err(e) };
        }
    }
    Ok(nr as usize)
}

/// `IORING_REGISTER_RING_FDS`: puts rings into the calling thread's table; `offset` chooses the
/// slot, or is all ones and receives it.
///
/// # Errors
/// `EINVAL` for none, too many, a slot past the table; `EBUSY` for one in use; `EFAULT`, `EBADF`,
/// `EOPNOTSUPP`, `EMFILE`.
pub(super) fn register(_: &Arc<Ring>, _: i32, addr: UserPtr, nr: u32) -> Result<usize> {
    if (1..=RING_FDS_MAX).contains(&nr) {
        registered::touch();
    }
    each(addr, nr, |at, row| {
        if row.resv != 0 {
            return Err(Errno::EINVAL);
        }
        let range = if row.offset == u32::MAX {
            0..SLOTS_LEN
        } else {
            let slot = in_table(row.offset)?;
            slot..slot + 1
        };
        let slot = put(hold_ring(row.data as i32)?, range)?;
        let answer = io_uring_rsrc_update { offset: slot as u32, ..row };
        user::write(at, &answer).inspect_err(|_| clear(slot))
    })
}

/// `IORING_UNREGISTER_RING_FDS`: empties slots of the calling thread's table.
///
/// # Errors
/// `EINVAL` for none, too many, a slot past the table; `EFAULT`.
pub(super) fn unregister(_: &Arc<Ring>, _: i32, addr: UserPtr, nr: u32) -> Result<usize> {
    each(addr, nr, |_, row| {
        if row.resv != 0 || row.data != 0 {
            return Err(Errno::EINVAL);
        }
        clear(in_table(row.offset)?);
        Ok(())
    })
}
