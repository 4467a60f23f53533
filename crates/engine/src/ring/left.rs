//! Numbers that closers left because they could not take a ring's lock. The next holder of the lock
//! handles them; by then they are closed, and each has a duplicate (`moving`).

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};

use softring_host::fd::{InternalFd, dup_internal};

/// Capacity for numbers that closers have left: more than the depth of nested handlers.
const LEFT: usize = 16;

/// Numbers that closers have left for the next holder of the lock.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    any: AtomicBool,
    /// Each entry is the number plus one, above its duplicate; 0: free.
    left: [AtomicU64; LEFT],
}

impl Moves {
    /// Returns whether any number is left.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Leaves a number that is about to be closed. Safe in a signal handler.
    pub(crate) fn leave(&self, fd: i32) {
        let Ok(Ok(dup)) = dup_internal(fd).map(InternalFd::leave) else { return };
        let both = u64::from(fd.cast_unsigned() + 1) << 32 | u64::from(dup.cast_unsigned());
        let free = |slot: &&AtomicU64| slot.compare_exchange(0, both, Release, Relaxed).is_ok();
        if self.left.iter().find(free).is_some() {
            self.any.store(true, Release);
        } else {
            drop(InternalFd::take_back(dup));
        }
    }

    pub(crate) fn take(&self) -> impl Iterator<Item = (i32, InternalFd)> {
        self.any.store(false, Relaxed);
        let taken = self.left.iter().map(|slot| slot.swap(0, Acquire)).filter(|&both| both != 0);
        let both = taken.map(|both| ((both >> 32) as i32 - 1, both as u32 as i32));
        both.filter_map(|(fd, dup)| Some((fd, InternalFd::take_back(dup)?)))
    }
}
