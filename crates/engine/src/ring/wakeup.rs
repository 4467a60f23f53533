//! Steps by which a thread that posts completions finds the threads that wait for them: the driver
//! sleeps on the transports, the others sleep on the sequence word. The words and the lock are a
//! ring's, or loom's (`verify::wake`).

use core::ops::DerefMut;

use crate::memory::lock::sequence::Sequence;
use crate::ring::waiters::Driver;

/// State of waiters under the lock, and its steps. Only the lock's holder calls them.
pub(crate) trait Waits {
    type Sequence: Sequence;

    fn sequence(&self) -> &Self::Sequence;
    fn driver(&self) -> &Driver;
    fn driver_mut(&mut self) -> &mut Driver;
    /// Returns the number of CQEs that are published and not consumed.
    fn ready(&self) -> u32;
    /// Ends the driver's sleep when the lock is released, unless [`Driver::wake`] says that this
    /// was done before.
    fn signal_driver(&mut self);
    /// Wakes the threads that sleep on the sequence word when the lock is released.
    fn signal_waiters(&mut self);

    /// Wakes waiters after new CQEs are published.
    #[inline(always)]
    fn published(&mut self) {
        if self.driver().has_enough(|| self.ready()) {
            self.signal_driver();
        }
        self.recheck();
    }

    /// Makes every passive waiter check again when the lock is released.
    #[inline(always)]
    fn recheck(&mut self) {
        if self.sequence().bump() {
            self.signal_waiters();
        }
    }

    /// Ends the role of the thread `me`, unless another has taken it over.
    #[inline]
    fn give_back(&mut self, me: usize) {
        self.driver_mut().end(me);
        // A passive waiter may have to take the role over.
        self.recheck();
    }

    /// Lets a waiter take over the role when a thread leaves with requests in flight; true if
    /// nobody has the role.
    #[inline]
    fn pass_role(&mut self) -> bool {
        let nobody = !self.driver().active;
        if nobody {
            self.recheck();
        }
        nobody
    }
}

/// The lock. Its guard wakes threads after it has released the lock: woken before, they would have
/// to wait for it.
pub(crate) trait Lock {
    type Guard<'a>: DerefMut<Target: Waits>
    where
        Self: 'a;

    fn lock_now(&self) -> Self::Guard<'_>;
}

/// Makes the thread `me` the driver: it sleeps without the lock until there are `want` CQEs or the
/// time is `until`, and gives the role back. `sleep` ends with an event or by
/// [`Waits::signal_driver`], also if the signal came before.
pub(crate) fn drive_once<'r, L: Lock, T>(
    lock: &'r L,
    mut guard: L::Guard<'r>,
    me: usize,
    (want, until): (u32, u64),
    sleep: impl FnOnce() -> T,
) -> (L::Guard<'r>, T) {
    guard.driver_mut().begin(me, want, until);
    drop(guard);
    let slept = sleep();
    let mut guard = lock.lock_now();
    guard.give_back(me);
    (guard, slept)
}
