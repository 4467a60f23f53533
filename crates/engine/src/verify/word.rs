//! The word of a futex waiter (`io::futex_waiter::protocol`) under loom.

use super::Bucket;
use crate::io::futex_waiter::protocol::Word;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{self, Acquire, Release, SeqCst};
use std::sync::{Mutex, PoisonError};

/// Order of all sequentially consistent accesses, which loom does not know: to loom they are
/// acquire and release. Here each such store is followed by a release of the words of this order,
/// and each such load preceded by an acquire. So a load has seen earlier stores in that order if
/// both are sequentially consistent, but not if one of them is weaker.
#[derive(Clone, Default)]
pub(super) struct Total(Arc<AtomicU32>);

/// Word, and its sleeping waiters.
pub(super) struct WaiterWord {
    word: AtomicU32,
    total: Option<Total>,
    bucket: Bucket,
    /// Fault: value that loads return instead of the word. Not loom's mutex: it is no step.
    stuck: Mutex<Option<u32>>,
}

impl WaiterWord {
    /// Makes a word. Without a total order, which is a fault, no access is more than acquire and
    /// release.
    pub(super) fn new(value: u32, total: Option<&Total>) -> Self {
        let (word, bucket) = (AtomicU32::new(value), Bucket::default());
        WaiterWord { word, total: total.cloned(), bucket, stuck: Mutex::new(None) }
    }

    /// Makes loads return this value from now on; `None`: the word itself.
    pub(super) fn stick(&self, value: Option<u32>) {
        *self.stuck.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }

    fn total(&self, order: Ordering) -> Option<&AtomicU32> {
        self.total.as_ref().filter(|_| order == SeqCst).map(|total| &*total.0)
    }
}

impl Word for WaiterWord {
    fn load(&self, order: Ordering) -> u32 {
        if let Some(value) = *self.stuck.lock().unwrap_or_else(PoisonError::into_inner) {
            return value;
        }
        if let Some(total) = self.total(order) {
            total.fetch_add(0, Acquire);
        }
        self.word.load(order)
    }

    fn store(&self, value: u32, order: Ordering) {
        self.word.store(value, order);
        if let Some(total) = self.total(order) {
            total.fetch_add(1, Release);
        }
    }

    fn sleep(&self, seen: u32) {
        self.bucket.wait(&self.word, seen);
    }

    fn wake(&self) {
        self.bucket.wake_one();
    }
}
