//! Rings registered with the calling task, used by index. Kernel counterpart: `io_uring/tctx.c`.

use core::cell::RefCell;
use std::sync::Arc;

use rustix::fd::OwnedFd;

use crate::ctx::Ring;
use crate::errno::{Errno, Result};
use crate::limits::RING_FDS_MAX;

/// A registered ring; one made with REGISTERED_FD_ONLY also holds its file.
#[derive(Debug)]
pub struct Registered {
    pub ring: Arc<Ring>,
    pub file: Option<OwnedFd>,
}

type Slots = [Option<Registered>; RING_FDS_MAX as usize];

std::thread_local! {
    static SLOTS: RefCell<Slots> = const { RefCell::new([const { None }; RING_FDS_MAX as usize]) };
}

/// The ring in a slot of the calling thread's table.
///
/// # Errors
/// `EINVAL` for an index past the table, `EBADF` for an empty slot.
pub fn get(index: i32) -> Result<Arc<Ring>> {
    let index = usize::try_from(index).map_err(|_| Errno::EINVAL)?;
    if index >= RING_FDS_MAX as usize {
        return Err(Errno::EINVAL);
    }
    SLOTS.with_borrow(|s| s[index].as_ref().map(|r| r.ring.clone())).ok_or(Errno::EBADF)
}

/// A ring that exists only as a registered index (REGISTERED_FD_ONLY).
///
/// # Errors
/// `EBUSY` if the table is full.
pub fn register_only(file: OwnedFd, ring: Arc<Ring>) -> Result<usize> {
    put(Registered { ring, file: Some(file) }, 0..RING_FDS_MAX as usize)
}

/// Puts a ring into the first free slot of `range`.
///
/// # Errors
/// `EBUSY` if there is none.
pub fn put(entry: Registered, mut range: core::ops::Range<usize>) -> Result<usize> {
    SLOTS.with_borrow_mut(|s| {
        let at = range.find(|&i| s[i].is_none()).ok_or(Errno::EBUSY)?;
        s[at] = Some(entry);
        Ok(at)
    })
}

/// Empties a slot; true if it held a ring.
pub fn take(index: usize) -> bool {
    SLOTS.with_borrow_mut(|s| s[index].take().is_some())
}
