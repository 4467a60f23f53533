//! What closers that could not take a ring's lock have left for whoever takes it next: numbers that
//! are closed by then, each with a duplicate (`moving`).

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};

use softring_host::fd::{InternalFd, dup_internal};

/// Numbers that closers have left, each with a duplicate: more than handlers come on top of each
/// other.
const LEFT: usize = 16;

/// What closers have left for who takes the lock next.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    any: AtomicBool,
    /// The number plus one, above its duplicate; 0: free.
    left: [AtomicU64; LEFT],
}

impl Moves {
    /// Is anything left?
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
