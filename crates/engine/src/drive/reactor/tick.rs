//! The steps by which the reactor's tick and the threads that leave a ring behind find each other,
//! on whatever words there are: those of the process, or loom's (`verify::tick`).

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

/// What a tick finds under a ring's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing that the reactor would have to drive.
    Nothing,
    /// A thread in the middle of an issue.
    Issue,
    /// Requests in flight, and nobody who drives them.
    Work,
}

/// A ring as the reactor knows it.
pub(crate) trait Listed {
    type Flag: Flag;

    /// An event of the ring comes to the reactor.
    fn watched(&self) -> &Self::Flag;
    /// A waiter has driven it since the last tick.
    fn driven(&self) -> &Self::Flag;
    /// The reactor has it in its list.
    fn listed(&self) -> &Self::Flag;
    fn is_dead(&self) -> bool;
    /// Takes the ring's lock.
    fn probe(&self) -> Found;
}

/// The reactor, and the steps.
pub(crate) trait Ticks {
    type Ring: Listed;

    /// The flag that the reactor probes the rings of its list every now and then.
    fn ticking(&self) -> &<Self::Ring as Listed>::Flag;
    fn add(&self, ring: &Self::Ring);
    /// The list as it is now.
    fn rings(&self) -> Vec<Self::Ring>;
    /// Has the next event of the ring come to the reactor.
    fn watch(&self, ring: &Self::Ring);
    /// Does the ring's pending work.
    fn drive(&self, ring: &Self::Ring);
    /// Ends its sleep.
    fn wake(&self);

    /// Has it tick from now on.
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

    /// Has it tick no more, unless there is a reason to go on.
    fn stop(&self) {
        self.ticking().store(false, SeqCst);
        // A guard that saw it ticking just before must not be forgotten, nor a ring that came into
        // the list since.
        if self.tick(&self.rings()) {
            self.ticking().store(true, SeqCst);
        }
    }
}

/// A thread leaves a ring behind, without its lock: somebody has to look after it. `reactor`
/// starts it if need be; `ticking` is the same as [`Ticks::ticking`].
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
