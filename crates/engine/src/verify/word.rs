//! A futex waiter's word (`io::futex_waiter::protocol`) under loom.

use super::Bucket;
use crate::io::futex_waiter::protocol::Word;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{self, Acquire, Release, SeqCst};
use std::sync::{Mutex, PoisonError};

/// The one order of all sequentially consistent accesses, which loom does not know: to loom they
/// are acquire and release. Here each such store is followed by a release of the words of this
/// order, and each such load preceded by an acquire. So a load has seen what was stored before it
/// in that order, if both are sequentially consistent, and not if one of them is weaker.
#[derive(Clone, Default)]
pub(super) struct Total(Arc<AtomicU32>);

/// A word, and where its waiters sleep.
pub(super) struct WaiterWord {
    word: AtomicU32,
    total: Option<Total>,
    bucket: Bucket,
    /// What loads answer instead of what is there; a fault. Not loom's: it is no step.
    stuck: Mutex<Option<u32>>,
}

impl WaiterWord {
    /// A word; without a total order, no access is more than acquire and release; a fault.
    pub(super) fn new(value: u32, total: Option<&Total>) -> Self {
        let (word, bucket) = (AtomicU32::new(value), Bucket::default());
        WaiterWord { word, total: total.cloned(), bucket, stuck: Mutex::new(None) }
    }

    /// Loads answer this from now on; `None`: what is there.
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
