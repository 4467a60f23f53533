//! The steps of the lock and of the issue word, generic over the words: those of a ring's page, or
//! loom's (`verify::lock`).

use core::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use core::time::Duration;

/// Time after which a waiting thread first checks that the holder lives: a process may end while
/// one of its threads holds the lock. The time doubles from check to check, up to [`LOCK_CHECK`].
const FIRST_CHECK: Duration = Duration::from_millis(1);
/// Longest time between two such checks.
const LOCK_CHECK: Duration = Duration::from_millis(100);
/// Spins before sleeping: holders rarely hold the lock longer than one inline operation. Under loom
/// the other thread would not run meanwhile.
const SPINS: u32 = if cfg!(loom) { 0 } else { 100 };
/// Bit that says that a thread may sleep on the word. No process id has this bit.
pub(crate) const WAITED: u64 = 1 << 31;

/// A word that threads share and sleep on. A holder's name is a number other than 0 without
/// [`WAITED`].
pub(crate) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn swap(&self, value: u64, order: Ordering) -> u64;
    /// Stores `new` if the word is `old`; returns whether it was.
    fn exchange(&self, old: u64, new: u64, success: Ordering) -> bool;
    /// Sleeps if the word is `seen`, until it is woken, or for `limit`; true if that has passed.
    fn sleep(&self, seen: u64, limit: Duration) -> bool;
    /// Wakes at most `n` threads that sleep on the word.
    fn wake(&self, n: u32);
}

/// The two words of a lock, and the steps on them.
pub(crate) trait Locked {
    type Word<'a>: Word
    where
        Self: 'a;

    fn lock_word(&self) -> Self::Word<'_>;
    fn issue_word(&self) -> Self::Word<'_>;
    /// Returns the name of the calling thread's process.
    fn me(&self) -> u64;
    /// Returns whether the holder that a word names will surely never release it.
    fn is_dead(&self, word: u64) -> bool;
    /// Records that the calling thread has taken the lock, or is about to release it.
    fn set_holder(&self, holds: bool);

    /// Takes the lock when no other thread has an issue in progress.
    #[inline(always)]
    fn lock(&self) {
        self.lock_now();
        let mut check = FIRST_CHECK;
        while self.issuing() {
            self.await_issue(check);
            check = (check * 2).min(LOCK_CHECK);
        }
    }

    /// Takes the lock, also while another thread has an issue in progress.
    #[inline(always)]
    fn lock_now(&self) {
        self.take_word();
        self.set_holder(true);
    }

    /// Takes the lock's word.
    #[inline(always)]
    fn take_word(&self) {
        if !self.try_take_word() {
            self.take_word_slowly();
        }
    }

    /// Takes the lock's word if nobody holds it.
    #[inline(always)]
    fn try_take_word(&self) -> bool {
        self.lock_word().exchange(0, self.me(), Acquire)
    }

    #[cold]
    fn take_word_slowly(&self) {
        if self.spin_for_word() {
            return;
        }
        let mut check = FIRST_CHECK;
        while let Err(marked) = self.sleep_for_word(check) {
            check = (check * 2).min(LOCK_CHECK);
            let me = self.me() | WAITED;
            if self.is_dead(marked) && self.lock_word().exchange(marked, me, Acquire) {
                return;
            }
        }
    }

    /// Takes the lock also while another thread has an issue in progress, unless a sleep for it
    /// lasts for `limit`. Returns whether it has the lock.
    #[cold]
    fn lock_now_within(&self, limit: Duration) -> bool {
        let taken = self.spin_for_word() || self.sleep_for_word(limit).is_ok();
        if taken {
            self.set_holder(true);
        }
        taken
    }

    /// Takes the lock's word if it becomes free within a moment.
    fn spin_for_word(&self) -> bool {
        let (w, me) = (self.lock_word(), self.me());
        for _ in 0..SPINS {
            if w.load(Relaxed) == 0 && w.exchange(0, me, Acquire) {
                return true;
            }
            core::hint::spin_loop();
        }
        false
    }

    /// Sleeps until it has the lock's word.
    ///
    /// # Errors
    /// The word, once a sleep has lasted for `limit`.
    fn sleep_for_word(&self, limit: Duration) -> Result<(), u64> {
        // From here on this thread cannot know whether others sleep: it takes the word as if they
        // did.
        let (w, me) = (self.lock_word(), self.me() | WAITED);
        loop {
            let seen = w.load(Relaxed);
            let marked = seen | WAITED;
            if seen == 0 {
                if w.exchange(0, me, Acquire) {
                    return Ok(());
                }
                continue;
            }
            if seen != marked && !w.exchange(seen, marked, Relaxed) {
                continue;
            }
            if w.sleep(marked, limit) {
                return Err(marked);
            }
        }
    }

    /// Releases the lock.
    #[inline(always)]
    fn unlock(&self) {
        self.set_holder(false);
        let word = self.lock_word();
        if word.swap(0, Release) & WAITED != 0 {
            word.wake(1);
        }
    }

    /// Returns whether a thread, of any process, has an issue in progress. Lock holder only.
    #[inline(always)]
    fn issuing(&self) -> bool {
        self.issue_word().load(Relaxed) != 0
    }

    /// Sleeps until another thread's issue may be over, but at most for `check`. The lock is held
    /// before and afterwards.
    #[cold]
    fn await_issue(&self, check: Duration) {
        self.unlock();
        let w = self.issue_word();
        for _ in 0..SPINS {
            if w.load(Relaxed) == 0 {
                return self.lock_now();
            }
            core::hint::spin_loop();
        }
        self.lock_now();
        let marked = w.load(Relaxed) | WAITED;
        if marked == WAITED {
            return;
        }
        w.store(marked, Relaxed);
        self.unlock();
        let timed_out = w.sleep(marked, check);
        self.lock_now();
        if timed_out {
            self.end_issue_of_dead();
        }
    }

    /// Ends an issue whose process is gone. Lock holder only.
    fn end_issue_of_dead(&self) {
        let seen = self.issue_word().load(Relaxed);
        if seen != 0 && self.is_dead(seen) {
            self.end_issue();
        }
    }

    /// Marks the calling thread's issue as in progress. Lock holder only.
    #[inline(always)]
    fn mark_issue(&self) {
        self.issue_word().store(self.me(), Relaxed);
    }

    /// Ends the issue; wakes threads that wait for its end. Lock holder only.
    #[inline(always)]
    fn end_issue(&self) {
        let w = self.issue_word();
        let before = w.load(Relaxed);
        w.store(0, Relaxed);
        if before & WAITED != 0 {
            w.wake(i32::MAX.cast_unsigned());
        }
    }
}
