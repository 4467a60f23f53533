//! The reactor's tick stops while a thread leaves `enter`: `drive::reactor::tick` itself, on loom's
//! words and under loom's locks. In every order, somebody looks after what the thread has left in
//! flight: the tick goes on, or the reactor watches the ring, or it is woken.

use super::{explore, found};
use crate::drive::reactor::tick::{Flag, Found, Listed, Ticks, guard};
use loom::sync::atomic::AtomicBool;
use loom::sync::atomic::Ordering::{self, Relaxed, SeqCst};
use loom::sync::{Arc, Mutex};
use loom::thread;

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The last check is of the list as it was when the reactor woke.
    OldList,
    /// The result of the last check is ignored.
    Ignored,
    /// The flag is cleared only after the last check.
    LateEnd,
}

#[derive(Default)]
struct Bit {
    word: AtomicBool,
    /// Fault: a store does not make the reactor go on again.
    ignores: bool,
}

impl Bit {
    fn new(value: bool) -> Bit {
        Bit { word: AtomicBool::new(value), ..Bit::default() }
    }
}

impl Flag for Bit {
    fn load(&self, order: Ordering) -> bool {
        self.word.load(order)
    }

    fn store(&self, value: bool, order: Ordering) {
        if !(value && self.ignores) {
            self.word.store(value, order);
        }
    }

    fn swap(&self, value: bool, order: Ordering) -> bool {
        self.word.swap(value, order)
    }
}

struct Ring {
    watched: Bit,
    driven: Bit,
    listed: Bit,
    /// The uring lock; true if requests are in flight that nobody drives.
    in_flight: Mutex<bool>,
}

impl Listed for Arc<Ring> {
    type Flag = Bit;

    fn watched(&self) -> &Bit {
        &self.watched
    }

    fn driven(&self) -> &Bit {
        &self.driven
    }

    fn listed(&self) -> &Bit {
        &self.listed
    }

    fn is_dead(&self) -> bool {
        false
    }

    fn probe(&self) -> Found {
        if *self.in_flight.lock().unwrap() { Found::Work } else { Found::Nothing }
    }
}

struct Process {
    ticking: Bit,
    /// Flag, true if the reactor's eventfd was written to.
    woken: AtomicBool,
    list: Mutex<Vec<Arc<Ring>>>,
    /// Earlier state of the list, to take in its place.
    old: Option<Vec<Arc<Ring>>>,
    ring: Arc<Ring>,
}

impl Ticks for Process {
    type Ring = Arc<Ring>;

    fn ticking(&self) -> &Bit {
        &self.ticking
    }

    fn add(&self, ring: &Arc<Ring>) {
        self.list.lock().unwrap().push(ring.clone());
    }

    fn rings(&self) -> Vec<Arc<Ring>> {
        let list = self.list.lock().unwrap();
        self.old.as_ref().unwrap_or(&list).clone()
    }

    fn watch(&self, ring: &Arc<Ring>) {
        ring.watched.store(true, SeqCst);
        drop(ring.in_flight.lock().unwrap());
    }

    /// Does nothing: the event comes later.
    fn drive(&self, _: &Arc<Ring>) {}

    fn wake(&self) {
        self.woken.store(true, SeqCst);
    }
}

impl Process {
    fn new(listed: bool, fault: Fault) -> Self {
        let ring = Arc::new(Ring {
            watched: Bit::new(false),
            driven: Bit::new(false),
            listed: Bit::new(listed),
            in_flight: Mutex::new(false),
        });
        let list: Vec<_> = listed.then(|| ring.clone()).into_iter().collect();
        let ignores = fault == Fault::Ignored;
        Process {
            ticking: Bit { ignores, ..Bit::new(true) },
            woken: AtomicBool::new(false),
            old: (fault == Fault::OldList).then(|| list.clone()),
            list: Mutex::new(list),
            ring,
        }
    }

    /// Leaves requests in flight, like `cqring_wait` and then `leave`.
    fn leave(&self) {
        let mut in_flight = self.ring.in_flight.lock().unwrap();
        self.ring.driven.store(true, Relaxed);
        *in_flight = true;
        drop(in_flight);
        guard(&self.ring, &self.ticking, false, || Some(self));
    }

    /// Ends the tick after it has found no ring to check for long.
    fn end(&self, fault: Fault) {
        match fault {
            Fault::LateEnd if self.tick(&self.rings()) => {}
            Fault::LateEnd => self.ticking.store(false, SeqCst),
            _ => self.stop(),
        }
    }
}

fn model(listed: bool, fault: Fault) {
    explore(move || {
        let process = Arc::new(Process::new(listed, fault));
        let leaver = process.clone();
        let leaver = thread::spawn(move || leaver.leave());
        process.end(fault);
        leaver.join().unwrap();
        let looked_after = [&process.ticking.word, &process.woken, &process.ring.watched.word];
        assert!(looked_after.iter().any(|w| w.load(SeqCst)), "the ring is forgotten");
    });
}

#[test]
fn no_ring_is_forgotten_when_the_tick_stops() {
    model(false, Fault::None);
    model(true, Fault::None);
}

#[test]
fn a_list_from_before_forgets_one() {
    let test = a_list_from_before_forgets_one;
    found(test, "the ring is forgotten", || model(false, Fault::OldList));
}

#[test]
fn a_last_probe_without_consequence_forgets_one() {
    let test = a_last_probe_without_consequence_forgets_one;
    found(test, "the ring is forgotten", || model(true, Fault::Ignored));
}

#[test]
fn a_tick_that_ends_after_the_last_probe_forgets_one() {
    let test = a_tick_that_ends_after_the_last_probe_forgets_one;
    found(test, "the ring is forgotten", || model(true, Fault::LateEnd));
}
