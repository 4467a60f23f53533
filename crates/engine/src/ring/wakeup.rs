//! The steps by which whoever posts completions finds the threads that wait for them: the driver,
//! who sleeps on the transports, and the others, who sleep on the sequence word. On whatever words
//! and under whatever lock there are: a ring's, or loom's (`verify::wake`).

use core::ops::DerefMut;

use crate::memory::lock::sequence::Sequence;
use crate::ring::waiters::Driver;

/// What the lock guards of that, and the steps on it. Lock holder only.
pub(crate) trait Waits {
    type Sequence: Sequence;

    fn sequence(&self) -> &Self::Sequence;
    fn driver(&self) -> &Driver;
    fn driver_mut(&mut self) -> &mut Driver;
    /// CQEs that are published and not consumed.
    fn ready(&self) -> u32;
    /// Has the driver's sleep end when the lock is given back, unless [`Driver::wake`] says that
    /// somebody has seen to that.
    fn signal_driver(&mut self);
    /// Has those woken who sleep on the sequence word, when the lock is given back.
    fn signal_waiters(&mut self);

    /// New CQEs are published.
    #[inline(always)]
    fn published(&mut self) {
        if self.driver().has_enough(|| self.ready()) {
            self.signal_driver();
        }
        self.recheck();
    }

    /// Makes every passive waiter check again, when the lock is given back.
    #[inline(always)]
    fn recheck(&mut self) {
        if self.sequence().bump() {
            self.signal_waiters();
        }
    }

    /// The thread `me` gives the role back, unless another has taken it over.
    #[inline]
    fn give_back(&mut self, me: usize) {
        self.driver_mut().end(me);
        // Whoever waits passively may have to take the role over.
        self.recheck();
    }

    /// A thread leaves, with requests in flight: true if nobody has the role, which somebody who
    /// waits has to take over then.
    #[inline]
    fn hand_over(&mut self) -> bool {
        let nobody = !self.driver().active;
        if nobody {
            self.recheck();
        }
        nobody
    }
}

/// The lock. Its guard wakes who is to be woken once it has given the lock back: woken before, they
/// would have to wait for it.
pub(crate) trait Lock {
    type Guard<'a>: DerefMut<Target: Waits>
    where
        Self: 'a;

    fn lock_now(&self) -> Self::Guard<'_>;
}

/// The thread `me` takes the driver's role, sleeps without the lock until `want` CQEs are there or
/// it is `until`, and gives the role back. `sleep` ends with an event or by
/// [`Waits::signal_driver`], also if that came before.
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
