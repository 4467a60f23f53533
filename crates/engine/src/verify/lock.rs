//! The uring lock: `mem::lock::Control::{lock, lock_slow, unlock}`, without the take-over from a
//! dead owner, which needs a clock.

use super::{Bucket, explore, found};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};

#[derive(Default)]
struct Uring {
    word: AtomicU32,
    bucket: Bucket,
    guarded: UnsafeCell<u32>,
}

impl Uring {
    fn lock(&self) {
        if self.word.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            while self.word.swap(2, Acquire) != 0 {
                self.bucket.wait(&self.word, 2);
            }
        }
    }

    /// `sleepers`: what the word says when some may sleep.
    fn unlock(&self, sleepers: u32) {
        if self.word.swap(0, Release) == sleepers {
            self.bucket.wake_one();
        }
    }

    fn add(&self, sleepers: u32) {
        self.lock();
        // SAFETY: the lock is held, which is what loom checks here.
        self.guarded.with_mut(|n| unsafe { *n += 1 });
        self.unlock(sleepers);
    }
}

fn three_threads(sleepers: u32) {
    explore(move || {
        let uring = Arc::new(Uring::default());
        let others: Vec<_> = (0..2)
            .map(|_| {
                let uring = uring.clone();
                loom::thread::spawn(move || uring.add(sleepers))
            })
            .collect();
        uring.add(sleepers);
        others.into_iter().for_each(|t| t.join().unwrap());
        // SAFETY: the other threads have ended.
        assert_eq!(uring.guarded.with(|n| unsafe { *n }), 3);
    });
}

#[test]
fn excludes_and_wakes() {
    three_threads(2);
}

/// The word never holds 3: whoever sleeps is forgotten.
#[test]
fn a_sleeper_forgotten_is_found() {
    found(a_sleeper_forgotten_is_found, "deadlock", || three_threads(3));
}
