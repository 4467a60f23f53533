//! Value that is made once, by the first thread that asks for it.
//!
//! A signal handler must not ask for a value that the thread it has interrupted is making, and a
//! forked child not for one that another thread of its parent was making: both would wait for ever.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::fmt::{self, Debug, Formatter};
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU32;

use super::protocol::once;

/// Value that is made once.
pub struct OnceLock<T> {
    word: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the thread that makes the value is the only one until the word says so, and all others
// only share it; any thread may drop it.
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}
// SAFETY: the lock owns its value.
unsafe impl<T: Send> Send for OnceLock<T> {}

/// Making of a value. It ends when dropped: without a value if `make` has panicked.
struct Making<'a> {
    word: &'a AtomicU32,
    made: bool,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        once::end(self.word, self.made);
    }
}

impl<T> OnceLock<T> {
    pub const fn new() -> Self {
        Self { word: AtomicU32::new(0), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Returns the value, if it was made.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: it was made, and is only shared from then on.
        once::is_made(&self.word).then(|| unsafe { (*self.value.get()).assume_init_ref() })
    }

    /// Returns the value, made by `make` if it was not yet.
    #[inline]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        match self.get() {
            Some(value) => value,
            None => self.make(make),
        }
    }

    /// Makes `value` the value.
    ///
    /// # Errors
    /// `value`, if there is another.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("called once"));
        value.map_or(Ok(()), Err)
    }

    #[cold]
    fn make(&self, make: impl FnOnce() -> T) -> &T {
        if once::begin(&self.word) {
            let mut making = Making { word: &self.word, made: false };
            let value = make();
            // SAFETY: `begin` has chosen this thread, and all others wait.
            unsafe { (*self.value.get()).write(value) };
            making.made = true;
        }
        self.get().expect("made")
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> Self {
        let lock = Self::new();
        let _ = lock.set(value);
        lock
    }
}

impl<T> Drop for OnceLock<T> {
    fn drop(&mut self) {
        if once::is_made(&self.word) {
            // SAFETY: the value is there, and nobody else has the lock any more.
            unsafe { self.value.get_mut().assume_init_drop() };
        }
    }
}

impl<T: Debug> Debug for OnceLock<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceLock").field(&self.get()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::Relaxed;
    use std::sync::{Arc, Barrier};
    use std::thread;

    #[test]
    fn one_of_many_makes_the_value() {
        for _ in 0..200 {
            let shared = Arc::new((OnceLock::new(), Barrier::new(4), AtomicU32::new(0)));
            let asks = |_| {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.1.wait();
                    let made = || Box::new(shared.2.fetch_add(1, Relaxed) + 7);
                    **shared.0.get_or_init(made)
                })
            };
            let threads = [0; 4].map(asks);
            assert_eq!(threads.map(|t| t.join().unwrap()), [7; 4]);
            assert_eq!(shared.2.load(Relaxed), 1);
        }
    }

    #[test]
    fn a_value_stays_and_is_dropped_once() {
        let value = Arc::new(1);
        let lock = OnceLock::new();
        assert!(lock.get().is_none());
        assert_eq!(lock.set(value.clone()), Ok(()));
        assert_eq!(lock.set(Arc::new(2)), Err(Arc::new(2)));
        assert_eq!((lock.get(), Arc::strong_count(&value)), (Some(&value), 2));
        drop(lock);
        assert_eq!(Arc::strong_count(&value), 1);
        assert_eq!(OnceLock::from(3).get(), Some(&3));
    }

    #[test]
    fn the_next_one_makes_what_a_panic_has_left() {
        let lock = Arc::new(OnceLock::new());
        let panics = lock.clone();
        thread::spawn(move || *panics.get_or_init(|| panic!("on purpose"))).join().unwrap_err();
        assert_eq!(*lock.get_or_init(|| 5), 5);
    }
}
