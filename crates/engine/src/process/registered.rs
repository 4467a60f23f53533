//! Rings registered with the calling task, used by index. A registered ring stays open though the
//! program closes its descriptor; the table ends with its thread, and a forked child starts without
//! one. Kernel counterpart: `io_uring/tctx.c`.

use alloc::sync::Arc;
use core::cell::{Cell, RefCell};
use core::ops::Range;

use softring_host::os::fd::OwnedFd;

use crate::process::closing::{self, RingFd};
use crate::ring::ctx::Ring;
use softring_host::fork::AtFork;
use softring_host::per_thread;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::limits::RING_FDS_MAX;

/// Number of slots of a table.
pub(crate) const SLOTS_LEN: usize = RING_FDS_MAX as usize;

type Slots = [Option<RingFd>; SLOTS_LEN];

softring_host::per_thread! {
    static SLOTS: RefCell<Slots> = const { RefCell::new([const { None }; SLOTS_LEN]) };
    static TOUCHED: Cell<bool> = const { Cell::new(false) };
}

/// Returns the index of a slot that the program names.
///
/// # Errors
/// `EINVAL` past the table.
pub(crate) fn in_table(index: u32) -> Result<usize> {
    if index < RING_FDS_MAX { Ok(index as usize) } else { Err(Errno::EINVAL) }
}

/// Records that the calling task has made a ring, submitted to one or registered one: from then on
/// it has a table.
pub(crate) fn touch() {
    TOUCHED.set(true);
}

fn with_ring<T>(index: i32, f: impl FnOnce(&RingFd) -> T) -> Result<T> {
    let index = in_table(index.cast_unsigned())?;
    let found = SLOTS.with_borrow(|s| s[index].as_ref().map(f));
    found.ok_or(if TOUCHED.get() { Errno::EBADF } else { Errno::EINVAL })
}

/// Returns the ring in a slot of the calling thread's table.
///
/// # Errors
/// `EINVAL` for an index past the table or a task without one, `EBADF` for an empty slot.
pub(crate) fn get(index: i32) -> Result<Arc<Ring>> {
    with_ring(index, |r| r.ring().clone())
}

/// Finds the ring that a call names by descriptor or by index, with a descriptor of it.
///
/// # Errors
/// Those of [`get`] and [`ring`](crate::ring::table::ring).
pub(crate) fn find(fd: i32, by_index: bool) -> Result<(Arc<Ring>, i32)> {
    if by_index {
        with_ring(fd, |r| (r.ring().clone(), r.fd()))
    } else {
        Ok((closing::checked_ring(fd)?, fd))
    }
}

/// Registers a ring that exists only as a registered index (REGISTERED_FD_ONLY).
///
/// # Errors
/// `EBUSY` if the table is full.
pub(crate) fn register_only(file: OwnedFd, ring: Arc<Ring>) -> Result<usize> {
    put(closing::install_ring(file, ring), 0..SLOTS_LEN)
}

/// Puts a ring into the first free slot of `range`.
///
/// # Errors
/// `EBUSY` if there is none.
pub(crate) fn put(entry: RingFd, mut range: Range<usize>) -> Result<usize> {
    per_thread::at_end(|| (0..SLOTS_LEN).for_each(clear));
    SLOTS.with_borrow_mut(|s| {
        let at = range.find(|&i| s[i].is_none()).ok_or(Errno::EBUSY)?;
        s[at] = Some(entry);
        Ok(at)
    })
}

/// Empties a slot. The ring may end with it, so not under the table's borrow.
pub(crate) fn clear(index: usize) {
    let old = SLOTS.with_borrow_mut(|s| s[index].take());
    drop(old);
}

/// Fork hook: a child inherits no registered ring.
pub(crate) const AT_FORK: AtFork = AtFork::new(|child| {
    if child.parent != 0 {
        (0..SLOTS_LEN).for_each(clear);
        TOUCHED.set(false);
    }
});
