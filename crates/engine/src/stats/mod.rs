//! Statistics: what a ring's requests came to, as counters that somebody else may read meanwhile.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// A counter. It is written under its ring's lock, so adding is a load and a store; whoever reads
/// it without that lock sees a value that was right a moment ago.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Count(AtomicU64);

impl Count {
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What became of attempts at files that can be polled (`req::arm`).
#[derive(Debug, Default)]
#[repr(C)]
pub struct Reissue {
    /// Requests whose first attempt had something to tell: no wait.
    pub at_once: Count,
    /// Arm steps that answered OK: the request waits for readiness.
    pub armed: Count,
    /// Of those, the ones that the look behind the arming found ready.
    pub ready_at_arm: Count,
    /// Attempts made again because of readiness.
    pub reissued: Count,
    /// Arm steps that failed: a worker waits instead, or the request ends with an error.
    pub aborted: Count,
    /// Requests that were issued again so often that a worker waits instead.
    pub capped: Count,
}

/// All that is counted of one ring.
#[derive(Debug, Default)]
#[repr(C)]
pub struct RingStats {
    pub reissue: Reissue,
}
