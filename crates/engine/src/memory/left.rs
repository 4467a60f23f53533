//! Memory that must be left when the engine takes some for requests, or else it refuses them. A
//! request needs little more on its way, but without that memory the process would end.

use alloc::vec::Vec;
use core::hint::black_box;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use super::of_process::PROCESS;

/// Bytes that must be left. The library's heap takes an aligned region of half this size at a time.
const LEFT: usize = 512 << 10;

/// Bytes that new rings may take for their requests after a trial, before the next. What these
/// rings take of the heap is less than half of [`LEFT`].
const TRIED_FOR: usize = 64 << 10;

/// Tries whether [`LEFT`] bytes of memory remain beyond `bytes`.
pub(crate) fn leaves_enough(bytes: usize) -> bool {
    PROCESS.trials.make(bytes)
}

/// Does the same for a new ring. If the memory of this process is not limited, a trial is good for
/// some more rings: it takes a twentieth of the time in which a ring is made and closed.
pub(crate) fn leaves_enough_for_ring(bytes: usize) -> bool {
    let unlimited = !softring_host::substitute::limits_memory();
    unlimited && PROCESS.trials.spare(bytes) || PROCESS.trials.make(bytes)
}

/// Bytes that new rings may still take after the last trial.
#[derive(Debug)]
pub(super) struct Trials(AtomicUsize);

impl Trials {
    pub(super) const fn new() -> Trials {
        Trials(AtomicUsize::new(0))
    }

    /// Allocates [`LEFT`] more than `bytes`, and frees that again; returns false if it failed.
    fn make(&self, bytes: usize) -> bool {
        let mut trial: Vec<u8> = Vec::new();
        let there = trial.try_reserve_exact(bytes + LEFT).is_ok();
        // Without this the compiler may omit an unused allocation and report success.
        black_box(&mut trial);
        self.0.store(if there { TRIED_FOR } else { 0 }, Relaxed);
        there
    }

    /// Returns whether the last trial is still good, for `bytes` more.
    fn spare(&self, bytes: usize) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_good_for_some_rings() {
        let trials = Trials::new();
        assert!(!trials.spare(1));
        assert!(trials.make(0));
        assert!((0..4).all(|_| trials.spare(TRIED_FOR / 4)));
        assert!(!trials.spare(1));
        assert!(trials.make(1) && trials.spare(1));
        // More than the allocator is even asked for: a sanitizer's would end the process.
        assert!(!trials.make(usize::MAX - LEFT) && !trials.spare(1));
    }
}
