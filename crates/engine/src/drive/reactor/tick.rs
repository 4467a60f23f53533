//! The steps by which the reactor's tick and the threads that leave a ring behind find each other.
//! The words are those of the process, or loom's (`verify::tick`).

use alloc::vec::Vec;
use core::ops::Deref;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{self, Relaxed, SeqCst};

pub(crate) trait Flag {
    fn load(&self, order: Ordering) -> bool;
    fn store(&self, value: bool, order: Ordering);
    fn swap(&self, value: bool, order: Ordering) -> bool;
}

impl Flag for AtomicBool {
    #[inline(always)]
    fn load(&self, order: Ordering) -> bool {
        self.load(order)
    }

    #[inline(always)]
    fn store(&self, value: bool, order: Ordering) {
        self.store(value, order);
    }

    #[inline(always)]
    fn swap(&self, value: bool, order: Ordering) -> bool {
        self.swap(value, order)
    }
}

/// State of a ring that a tick finds under its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing that the reactor would have to drive.
    Nothing,
    /// A thread in the middle of an issue, or one that is back as soon as it has a processor.
    Busy,
    /// Requests in flight that nobody drives.
    Work,
}

/// A ring as the reactor knows it.
pub(crate) trait Listed {
    type Flag: Flag;

    /// Returns the flag that an event of the ring comes to the reactor.
    fn watched(&self) -> &Self::Flag;
    /// Returns the flag that a waiter has driven the ring since the last tick.
    fn driven(&self) -> &Self::Flag;
    /// Returns the flag that the reactor has the ring in its list.
    fn listed(&self) -> &Self::Flag;
    fn is_dead(&self) -> bool;
    /// Takes the ring's lock and returns what it finds.
    fn probe(&self) -> Found;
}

/// The reactor and its steps.
pub(crate) trait Ticks {
    type Ring: Listed;

    /// Returns the flag that the reactor checks the rings of its list every tick.
    fn ticking(&self) -> &<Self::Ring as Listed>::Flag;
    fn add(&self, ring: &Self::Ring);
    /// Returns the list as it is now.
    fn rings(&self) -> Vec<Self::Ring>;
    /// Makes the next event of the ring come to the reactor.
    fn watch(&self, ring: &Self::Ring);
    /// Does the ring's pending work.
    fn drive(&self, ring: &Self::Ring);
    /// Notes that a waiter has driven the ring since the last tick.
    fn is_driven(&self, _ring: &Self::Ring) {}
    /// Ends the reactor's sleep.
    fn wake(&self);

    /// Makes the reactor tick from now on.
    fn start(&self) {
        if !self.ticking().swap(true, SeqCst) {
            self.wake();
        }
    }

    /// Takes over rings that nobody drove since the last check; true if there was any ring to
    /// check.
    fn tick(&self, rings: &[Self::Ring]) -> bool {
        let mut any = false;
        for ring in rings {
            if ring.watched().load(Relaxed) || ring.is_dead() {
                continue;
            }
            if ring.driven().swap(false, Relaxed) {
                any = true;
                self.is_driven(ring);
                continue;
            }
            let found = ring.probe();
            any |= found != Found::Nothing;
            if found == Found::Work {
                self.watch(ring);
                self.drive(ring);
            }
        }
        any
    }

    /// Stops the tick, unless there is a reason to go on.
    fn stop(&self) {
        self.ticking().store(false, SeqCst);
        // A guard that saw the flag set just before must not be forgotten, nor a ring that came
        // into the list since.
        if self.tick(&self.rings()) {
            self.ticking().store(true, SeqCst);
        }
    }
}

/// Has the reactor look after a ring that a thread leaves behind, without the ring's lock.
/// `reactor` starts the reactor if need be; `ticking` is the same as [`Ticks::ticking`].
pub(crate) fn guard<T: Ticks, R: Deref<Target = T>>(
    ring: &T::Ring,
    ticking: &<T::Ring as Listed>::Flag,
    immediate: bool,
    reactor: impl FnOnce() -> Option<R>,
) {
    if ring.watched().load(Relaxed) {
        return;
    }
    let recent = ring.driven().load(Relaxed) && !immediate;
    if recent && ticking.load(SeqCst) && ring.listed().load(Relaxed) {
        return;
    }
    let Some(reactor) = reactor() else { return };
    if !ring.listed().swap(true, Relaxed) {
        reactor.add(ring);
    }
    if recent {
        return reactor.start();
    }
    reactor.watch(ring);
}
