//! Locks of the process's own, by futex(2): they use no memory but their word, no thread-local
//! storage and no C library.
//!
//! The mutex never spins: the work under it takes nanoseconds, and a thread that waits for a
//! preempted holder had better sleep. Kernel counterpart: none; see futex(2) and Drepper's "Futexes
//! are tricky", mutex 2.
#![allow(unsafe_code)]

mod once;
pub mod protocol;
mod rw;

pub use once::OnceLock;
pub use rw::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::os::thread::{futex_wait, futex_wake};
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering::*};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// Mutual exclusion around a `T`.
#[derive(Debug, Default)]
pub struct Mutex<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the word admits one thread at a time to the value, so sharing the mutex only moves
// `T` between threads.
unsafe impl<T: Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock; the guard's drop releases it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.hold();
        MutexGuard { mutex: self, value: PhantomData }
    }

    /// Takes the lock, if no thread holds it now.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let free = self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok();
        free.then(|| MutexGuard { mutex: self, value: PhantomData })
    }

    #[inline]
    fn hold(&self) {
        if self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            self.hold_contended();
        }
    }

    #[cold]
    fn hold_contended(&self) {
        while self.word.swap(CONTENDED, Acquire) != FREE {
            let _ = futex_wait(&self.word, CONTENDED, None);
        }
    }

    /// Releases the lock that [`Self::hold`] took.
    ///
    /// # Safety
    /// The caller holds the lock, by `hold` or `try_lock`, and has no reference into the value
    /// any more.
    #[inline]
    unsafe fn release(&self) {
        if self.word.swap(FREE, Release) == CONTENDED {
            futex_wake(&self.word, 1);
        }
    }
}

/// Guard of the lock.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// Marker: other threads may have or borrow the guard if they may have or borrow the value.
    value: PhantomData<&'a mut T>,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so its thread holds the lock; shared access is bounded by
        // the guard's borrow.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists and is borrowed mutably, so this is the only reference.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard was made by `lock` or `try_lock`, which took the lock; its borrows
        // have ended, since it is being dropped.
        unsafe { self.mutex.release() }
    }
}
