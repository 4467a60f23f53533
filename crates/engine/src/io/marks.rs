//! The two counts that a close and a ring beginning a persistent registration check against each
//! other (`io::persistent`). The steps are generic over the counts: the process's, or loom's
//! (`verify::closing`).

use core::sync::atomic::Ordering::{self, SeqCst};
use core::sync::atomic::{AtomicU8, fence};

use softring_uapi::errno::Result;

/// A count that two sides share.
pub(crate) trait Count {
    fn load(&self, order: Ordering) -> u8;
    /// Stores the result of `change`, unless that is `None`.
    fn change(&self, order: Ordering, change: impl FnMut(u8) -> Option<u8>);
    fn fence(order: Ordering);
}

impl Count for AtomicU8 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u8 {
        self.load(order)
    }

    #[inline(always)]
    fn change(&self, order: Ordering, change: impl FnMut(u8) -> Option<u8>) {
        let _ = self.fetch_update(order, order, change);
    }

    #[inline(always)]
    fn fence(order: Ordering) {
        fence(order);
    }
}

/// Adds one. The caller reads the other count only after that.
fn more<C: Count>(count: &C) {
    count.change(SeqCst, |n| n.checked_add(1));
    C::fence(SeqCst);
}

/// Takes one away, unless the count was ever full.
pub(super) fn less<C: Count>(count: &C) {
    count.change(SeqCst, |n| (n < u8::MAX).then(|| n.saturating_sub(1)));
}

pub(crate) fn any<C: Count>(count: &C) -> bool {
    count.load(SeqCst) > 0
}

/// Marks on numbers that are being closed, from before the closer checks for registrations until
/// after the close.
#[derive(Debug)]
pub(crate) struct Marks<'a, C: Count>(&'a [C]);

impl<'a, C: Count> Marks<'a, C> {
    pub(crate) fn new(closing: &'a [C]) -> Marks<'a, C> {
        closing.iter().for_each(more);
        Marks(closing)
    }
}

impl<C: Count> Drop for Marks<'_, C> {
    fn drop(&mut self) {
        self.0.iter().for_each(less);
    }
}

/// Begins a persistent registration by `register`; false if the number is being closed.
///
/// # Errors
/// Those of `register`.
pub(crate) fn begin<C: Count>(
    registered: &C,
    closing: &C,
    register: impl FnOnce() -> Result<bool>,
) -> Result<bool> {
    // Before the file is registered: a number whose close ends before this is no longer open.
    more(registered);
    let done = if any(closing) { Ok(false) } else { register() };
    if done != Ok(true) {
        less(registered);
    }
    done
}
