//! The uring lock, in a page of the ring's own file so that every process that inherited the ring
//! takes the same one (kernel: `ctx->uring_lock`). It guards submission, issue, every table of the
//! ring, and posting.
//!
//! States: 0 free, 1 held, 2 held with sleepers. A process that dies while holding it would leave
//! it held; a sleeper therefore looks every [`LOCK_CHECK`] whether the owner still lives, and takes
//! over from a dead one. Nothing is torn by that: ring words are published last, and everything
//! else the lock guards is private to the dead process.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::time::Duration;

use super::region::Region;
use crate::sys;

/// How often a sleeper checks that the lock's owner lives.
const LOCK_CHECK: Duration = Duration::from_millis(100);
/// Spins before sleeping: holders rarely keep it longer than one inline operation.
const SPINS: u32 = 100;

/// One who looks at the sequence word without sleeping, in the count of waiters.
pub const SPINNER: u32 = 1 << 16;

/// The engine's page of a ring.
#[derive(Debug)]
pub struct Control {
    page: Region,
}

impl Control {
    pub fn new(page: Region) -> Self {
        Control { page }
    }

    fn lock_word(&self) -> &AtomicU32 {
        self.page.word(0)
    }

    fn owner(&self) -> &AtomicU32 {
        self.page.word(4)
    }

    /// SQEs consumed: the engine's copy of `sq.head`. Lock holder only.
    pub fn sq_head(&self) -> &AtomicU32 {
        self.page.word(64)
    }

    /// CQEs filled: the engine's copy of `cq.tail`, ahead of it until commit. Lock holder only.
    pub fn cq_tail(&self) -> &AtomicU32 {
        self.page.word(68)
    }

    /// Sleepers on [`seq`](Self::seq), of all processes, and, times [`SPINNER`], those that look at
    /// it without sleeping.
    pub fn waiters(&self) -> &AtomicU32 {
        self.page.word(128)
    }

    /// Bumped under the lock whenever a sleeper should look again.
    pub fn seq(&self) -> &AtomicU32 {
        self.page.word(132)
    }

    /// A word of the note by which a forked child asks its parent (`req::relay`). Lock holder only.
    pub fn note(&self, word: usize) -> &AtomicU32 {
        self.page.word(192 + 4 * word)
    }

    /// How often children have begun to write down what they have in flight (`req::estate`).
    pub fn heirs(&self) -> &AtomicU32 {
        self.page.word(252)
    }

    /// A word of what they have written. Lock holder only.
    pub fn left(&self, word: usize) -> &AtomicU32 {
        self.page.word(256 + 4 * word)
    }

    /// Takes the lock.
    pub fn lock(&self) {
        let w = self.lock_word();
        if w.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            self.lock_slow();
        }
        self.owner().store(crate::fork::pid(), Relaxed);
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> bool {
        let free = self.lock_word().compare_exchange(0, 1, Acquire, Relaxed).is_ok();
        if free {
            self.owner().store(crate::fork::pid(), Relaxed);
        }
        free
    }

    #[cold]
    fn lock_slow(&self) {
        let w = self.lock_word();
        for _ in 0..SPINS {
            if w.load(Relaxed) == 0 && w.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
                return;
            }
            core::hint::spin_loop();
        }
        while w.swap(2, Acquire) != 0 {
            let timed_out = sys::futex_wait(w, 2, Some(LOCK_CHECK));
            if timed_out && !sys::process_lives(self.owner().load(Relaxed)) {
                // The owner is gone: the lock stays marked as held, now by us.
                w.store(2, Relaxed);
                return;
            }
        }
    }

    /// Gives the lock back.
    pub fn unlock(&self) {
        let w = self.lock_word();
        if w.swap(0, Release) == 2 {
            sys::futex_wake(w, 1);
        }
    }
}
