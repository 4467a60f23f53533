//! Lock of many readers or one writer. A reader waits for a writer that waits, so a thread that
//! reads must not take the lock again.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::AtomicU32;

use super::protocol::rw;

/// Mutual exclusion of writers around a `T`, and of writers and readers.
#[derive(Debug, Default)]
pub struct RwLock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the word admits either readers or one writer to the value.
unsafe impl<T: Send + Sync> Sync for RwLock<T> {}
// SAFETY: the lock owns its value.
unsafe impl<T: Send> Send for RwLock<T> {}

/// Guard of a reader.
#[derive(Debug)]
pub struct RwLockReadGuard<'a, T>(&'a RwLock<T>);

/// Guard of the writer.
#[derive(Debug)]
pub struct RwLockWriteGuard<'a, T> {
    lock: &'a RwLock<T>,
    /// Marker: other threads may have or borrow the guard if they may have or borrow the value.
    value: core::marker::PhantomData<&'a mut T>,
}

impl<T> RwLock<T> {
    pub const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Waits until no thread writes, and takes the lock.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        rw::wait(&self.word, rw::try_read);
        RwLockReadGuard(self)
    }

    /// Waits until no thread reads or writes, and takes the lock.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        rw::wait(&self.word, rw::try_write);
        RwLockWriteGuard { lock: self, value: core::marker::PhantomData }
    }

    /// Takes the lock, if no thread writes or waits now.
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        rw::try_read(&self.word).ok().map(|()| RwLockReadGuard(self))
    }

    /// Takes the lock, if no thread reads or writes now.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let guard = || RwLockWriteGuard { lock: self, value: core::marker::PhantomData };
        rw::try_write(&self.word).ok().map(|()| guard())
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so its thread reads, and no thread writes.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        rw::end_read(&self.0.word);
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so its thread alone has the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        rw::end_write(&self.lock.word);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn writers_exclude_each_other_and_readers() {
        let lock = Arc::new(RwLock::new([0u64; 2]));
        let works = |i| {
            let lock = lock.clone();
            thread::spawn(move || {
                for n in 0..5_000 {
                    if (n + i) % 4 == 0 {
                        lock.write().iter_mut().for_each(|v| *v += 1);
                    } else {
                        let [a, b] = *lock.read();
                        assert_eq!(a, b);
                    }
                }
            })
        };
        [0, 1, 2, 3].map(works).into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(*lock.read(), [5_000; 2]);
    }

    #[test]
    fn a_lock_that_is_held_can_be_tried() {
        let lock = RwLock::new(1);
        let one = lock.read();
        assert_eq!(lock.try_read().map(|v| *v), Some(1));
        assert!(lock.try_write().is_none());
        drop(one);
        *lock.try_write().unwrap() += 1;
        let held = lock.write();
        assert!(lock.try_read().is_none() && lock.try_write().is_none());
        drop(held);
        assert_eq!(*lock.read(), 2);
    }
}
