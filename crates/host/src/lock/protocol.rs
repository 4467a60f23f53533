//! Steps of [`OnceLock`](super::once) and [`RwLock`](super::rw), on any word: a futex of the
//! process, or loom's (the engine's `verify::locks`).

use crate::os::thread::{futex_wait, futex_wake};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};

/// Word that threads sleep on.
pub trait Word {
    fn load(&self, order: Ordering) -> u32;
    fn swap(&self, value: u32, order: Ordering) -> u32;
    /// Stores `new` if the word is `old`; acquires `success`. Else returns the word, relaxed.
    fn exchange(&self, old: u32, new: u32, success: Ordering) -> Result<u32, u32>;
    /// Subtracts one; returns the word from before.
    fn decrement(&self, order: Ordering) -> u32;
    /// Sleeps if the word is `seen`, until it is woken, or for a while.
    fn sleep(&self, seen: u32);
    /// Wakes all threads that sleep on the word.
    fn wake(&self);
}

impl Word for AtomicU32 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    #[inline(always)]
    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.swap(value, order)
    }

    #[inline(always)]
    fn exchange(&self, old: u32, new: u32, success: Ordering) -> Result<u32, u32> {
        self.compare_exchange(old, new, success, Relaxed)
    }

    #[inline(always)]
    fn decrement(&self, order: Ordering) -> u32 {
        self.fetch_sub(1, order)
    }

    fn sleep(&self, seen: u32) {
        let _ = futex_wait(self, seen, None);
    }

    fn wake(&self) {
        futex_wake(self, i32::MAX.cast_unsigned());
    }
}

/// Value that is made once.
pub mod once {
    use super::*;

    const EMPTY: u32 = 0;
    /// A thread makes the value.
    const MAKING: u32 = 1;
    /// Others sleep until it has.
    const AWAITED: u32 = 2;
    const MADE: u32 = 3;

    /// Returns whether the value is there.
    #[inline(always)]
    pub fn is_made(word: &impl Word) -> bool {
        word.load(Acquire) == MADE
    }

    /// Waits until the value is there. Returns true if the caller is to make it, and to call
    /// [`end`].
    pub fn begin(word: &impl Word) -> bool {
        loop {
            match word.exchange(EMPTY, MAKING, Acquire) {
                Ok(_) => return true,
                Err(MADE) if is_made(word) => return false,
                Err(MAKING) if word.exchange(MAKING, AWAITED, Relaxed).is_err() => {}
                Err(_) => word.sleep(AWAITED),
            }
        }
    }

    /// Ends the making; `made`: the value is there.
    pub fn end(word: &impl Word, made: bool) {
        if word.swap(if made { MADE } else { EMPTY }, Release) == AWAITED {
            word.wake();
        }
    }
}

/// Lock of many readers or one writer.
pub mod rw {
    use super::*;

    const WRITER: u32 = 1 << 31;
    /// Bit, set while a thread sleeps: until its turn no other reader takes the lock, so writers
    /// have one. The bits below count readers.
    const AWAITED: u32 = 1 << 30;

    /// Takes the lock for reading. If a thread writes or waits, returns the word.
    ///
    /// # Errors
    /// The word.
    #[inline]
    pub fn try_read(word: &impl Word) -> Result<(), u32> {
        let mut seen = word.load(Relaxed);
        while seen & (WRITER | AWAITED) == 0 {
            match word.exchange(seen, seen + 1, Acquire) {
                Ok(_) => return Ok(()),
                Err(now) => seen = now,
            }
        }
        Err(seen)
    }

    /// Takes the lock for writing. If a thread reads or writes, returns the word.
    ///
    /// # Errors
    /// The word.
    #[inline]
    pub fn try_write(word: &impl Word) -> Result<(), u32> {
        let mut seen = word.load(Relaxed);
        while seen & !AWAITED == 0 {
            match word.exchange(seen, seen | WRITER, Acquire) {
                Ok(_) => return Ok(()),
                Err(now) => seen = now,
            }
        }
        Err(seen)
    }

    /// Takes the lock by `attempt`, and sleeps until that succeeds.
    pub fn wait<W: Word>(word: &W, attempt: impl Fn(&W) -> Result<(), u32>) {
        while let Err(seen) = attempt(word) {
            if seen & AWAITED != 0 || word.exchange(seen, seen | AWAITED, Relaxed).is_ok() {
                word.sleep(seen | AWAITED);
            }
        }
    }

    /// Gives back the lock that a reader has. The last one wakes those that sleep, unless a writer
    /// was faster, who then does.
    #[inline]
    pub fn end_read(word: &impl Word) {
        if word.decrement(Release) == AWAITED | 1 && word.exchange(AWAITED, 0, Relaxed).is_ok() {
            word.wake();
        }
    }

    /// Gives back the lock that a writer has.
    #[inline]
    pub fn end_write(word: &impl Word) {
        if word.swap(0, Release) & AWAITED != 0 {
            word.wake();
        }
    }
}
