//! The steps on the sequence word and on the count of waiters. Threads that wait for completions
//! without driving sleep on the sequence word. Generic over the words: those of a ring's page, or
//! loom's (`verify::wake`).

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{self, SeqCst};

/// Weight, in the count of waiters, of a waiter that reads the sequence word without sleeping.
const SPINNER: u32 = 1 << 16;

/// A word that threads of several processes share.
pub(crate) trait Word {
    fn load(&self, order: Ordering) -> u32;
    /// Adds `n`, wrapping; returns the word's value before.
    fn add(&self, n: u32, order: Ordering) -> u32;
}

impl Word for AtomicU32 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    #[inline(always)]
    fn add(&self, n: u32, order: Ordering) -> u32 {
        self.fetch_add(n, order)
    }
}

/// End of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended<T> {
    /// The word changed while the thread spun.
    Spinning,
    /// The reason to sleep was gone.
    Soon,
    /// Result of the sleep.
    Slept(T),
}

/// The two words, and the steps on them.
pub(crate) trait Sequence {
    type Word: Word;

    /// Returns the count of threads of all processes that sleep on [`seq`](Self::seq), plus, times
    /// [`SPINNER`], those that spin on it.
    fn waiters(&self) -> &Self::Word;
    /// Returns the word that is bumped under the lock when passive waiters should check again.
    fn seq(&self) -> &Self::Word;

    /// Makes every passive waiter check again; true if waiters sleep, to be woken when the lock is
    /// released. Lock holder only.
    #[inline(always)]
    fn bump(&self) -> bool {
        if self.waiters().load(SeqCst) == 0 {
            return false;
        }
        self.seq().add(1, SeqCst);
        // A waiter that only reads the word sees the change. A waiter that went to sleep before
        // this access to the count was counted. A waiter that goes to sleep later finds the word
        // changed, because this access, too, is a write.
        let asleep = self.waiters().add(0, SeqCst);
        !asleep.is_multiple_of(SPINNER)
    }

    /// Waits until the word is bumped: with `spins` first by `spin`, which returns whether the word
    /// has changed, then by `sleep`. `goes` is called once the wait is counted, so that posters see
    /// it. `goes` releases the lock, and returns whether there is still a reason to sleep.
    #[inline]
    fn wait<T>(
        &self,
        spins: bool,
        goes: impl FnOnce() -> bool,
        spin: impl FnOnce(&Self::Word, u32) -> bool,
        sleep: impl FnOnce(&Self::Word, u32) -> T,
    ) -> Ended<T> {
        self.waiters().add(if spins { SPINNER } else { 1 }, SeqCst);
        let seen = self.seq().load(SeqCst);
        // Who was woken when the lock was released may have run, on this processor, and answered.
        let goes = goes() && self.seq().load(SeqCst) == seen;
        if spins {
            let moved = goes && spin(self.seq(), seen);
            let sleeps = u32::from(!moved);
            self.waiters().add(sleeps.wrapping_sub(SPINNER), SeqCst);
            if moved {
                return Ended::Spinning;
            }
        }
        let ended = if goes { Ended::Slept(sleep(self.seq(), seen)) } else { Ended::Soon };
        self.waiters().add(1u32.wrapping_neg(), SeqCst);
        ended
    }
}
