//! The reactor's tick ends while a thread leaves `enter`: `drive::leave::leave` and
//! `drive::reactor::{guard, Reactor::run, Reactor::tick}`. Whatever the order, somebody looks after
//! what the thread has left in flight: the tick goes on, or the reactor watches the ring, or it is
//! woken.

use super::{explore, found};
use loom::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use loom::sync::{Arc, Mutex};
use loom::thread;

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The last look is at the list as it was when the reactor woke.
    OldList,
    /// What the last look finds is not acted on.
    Ignored,
}

struct Process {
    ticking: AtomicBool,
    /// The reactor's eventfd was written to.
    woken: AtomicBool,
    /// Is the ring in the reactor's list?
    list: Mutex<bool>,
    listed: AtomicBool,
    driven: AtomicBool,
    watched: AtomicBool,
    /// The uring lock; are requests in flight, which nobody drives?
    ring: Mutex<bool>,
}

impl Process {
    fn new(listed: bool) -> Self {
        Process {
            ticking: AtomicBool::new(true),
            woken: AtomicBool::new(false),
            list: Mutex::new(listed),
            listed: AtomicBool::new(listed),
            driven: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            ring: Mutex::new(false),
        }
    }

    /// `cqring_wait`, then `leave`.
    fn leave(&self) {
        let mut in_flight = self.ring.lock().unwrap();
        self.driven.store(true, Relaxed);
        *in_flight = true;
        drop(in_flight);
        self.guard();
    }

    fn guard(&self) {
        let recent = self.driven.load(Relaxed);
        if recent && self.ticking.load(SeqCst) && self.listed.load(Relaxed) {
            return;
        }
        if !self.listed.swap(true, Relaxed) {
            *self.list.lock().unwrap() = true;
        }
        match recent {
            true if self.ticking.swap(true, SeqCst) => {}
            true => self.woken.store(true, SeqCst),
            false => self.watched.store(true, SeqCst),
        }
    }

    fn stop(&self, fault: Fault) {
        let before = *self.list.lock().unwrap();
        self.ticking.store(false, SeqCst);
        let list = if fault == Fault::OldList { before } else { *self.list.lock().unwrap() };
        if self.tick(list) && fault != Fault::Ignored {
            self.ticking.store(true, SeqCst);
        }
    }

    /// True if there was any ring to look at.
    fn tick(&self, list: bool) -> bool {
        if !list || self.watched.load(Relaxed) {
            return false;
        }
        if self.driven.swap(false, Relaxed) {
            return true;
        }
        let wanted = *self.ring.lock().unwrap();
        if wanted {
            self.watched.store(true, SeqCst);
        }
        wanted
    }
}

fn model(listed: bool, fault: Fault) {
    explore(move || {
        let process = Arc::new(Process::new(listed));
        let leaver = process.clone();
        let leaver = thread::spawn(move || leaver.leave());
        process.stop(fault);
        leaver.join().unwrap();
        let looked_after = [&process.ticking, &process.woken, &process.watched];
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
fn a_last_look_without_consequence_forgets_one() {
    let test = a_last_look_without_consequence_forgets_one;
    found(test, "the ring is forgotten", || model(true, Fault::Ignored));
}
