//! A counted pointer whose count is a plain integer: taking and giving back a reference costs two
//! ordinary stores. Kernel counterpart: `struct io_rsrc_node`, whose `refs` change only under
//! `uring_lock`.
//!
//! **Rule.** All references to one value belong to one ring: its tables, its requests, its fast
//! path. Whoever clones or drops one holds that ring's uring lock, or is the only one left who can
//! reach the ring (its end, a forked child). What leaves the lock (a call on its way to a worker, a
//! message to another ring) takes an [`Arc`](std::sync::Arc) of what it needs instead: the type
//! shows which count it is.
#![allow(unsafe_code)]

use core::cell::Cell;
use core::ops::Deref;
use core::ptr::NonNull;
#[cfg(debug_assertions)]
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

struct Inner<T> {
    count: Cell<usize>,
    /// A count is being changed: two at a time would break the rule.
    #[cfg(debug_assertions)]
    busy: AtomicBool,
    value: T,
}

impl<T> Inner<T> {
    #[inline(always)]
    fn change(&self, change: impl FnOnce(usize) -> usize) -> usize {
        #[cfg(debug_assertions)]
        assert!(!self.busy.swap(true, Relaxed), "a plain count changes without the uring lock");
        let count = change(self.count.get());
        self.count.set(count);
        #[cfg(debug_assertions)]
        self.busy.store(false, Relaxed);
        count
    }
}

/// A reference to a value of one ring's; the last one drops it.
pub struct Plain<T>(NonNull<Inner<T>>);

// SAFETY: the rule above, which whoever made the first reference answers for: the uring lock orders
// every access to the count, whichever thread holds it, and the value may be sent and shared.
unsafe impl<T: Send + Sync> Send for Plain<T> {}

impl<T> Plain<T> {
    /// # Safety
    /// The rule above holds for this reference and all that are cloned from it: whoever clones or
    /// drops one holds the lock of the one ring that they are of, or is the only one to reach it.
    pub unsafe fn new(value: T) -> Self {
        let inner = Inner {
            count: Cell::new(1),
            #[cfg(debug_assertions)]
            busy: AtomicBool::new(false),
            value,
        };
        Plain(NonNull::from(Box::leak(Box::new(inner))))
    }

    fn inner(&self) -> &Inner<T> {
        // SAFETY: made by `new`, and freed with the last reference, which is not before `self`.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Clone for Plain<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        // Each reference takes memory, so that their number fits.
        self.inner().change(|n| n + 1);
        Plain(self.0)
    }
}

impl<T> Drop for Plain<T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.inner().change(|n| n - 1) == 0 {
            // SAFETY: from `Box::leak`; that was the last reference.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

impl<T> Deref for Plain<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.inner().value
    }
}

impl<T: core::fmt::Debug> core::fmt::Debug for Plain<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Plain;
    use proptest::prelude::*;
    use std::sync::Arc;

    proptest! {
        #[test]
        fn the_last_reference_drops_the_value(
            steps in prop::collection::vec((0u8..3, 0usize..8), 0..64),
        ) {
            let value = Arc::new(());
            // SAFETY: they are this thread's.
            let mut held = vec![unsafe { Plain::new(value.clone()) }];
            for (what, at) in steps {
                match what {
                    0 if !held.is_empty() => drop(held.swap_remove(at % held.len())),
                    1 if !held.is_empty() => held.push(held[at % held.len()].clone()),
                    _ => {}
                }
                prop_assert_eq!(Arc::strong_count(&value), 1 + usize::from(!held.is_empty()));
            }
            drop(held);
            prop_assert_eq!(Arc::strong_count(&value), 1);
        }
    }
}
