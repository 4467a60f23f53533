//! A thread that sets a POSIX lock against one that closes duplicates of the file:
//! `host::fd::lock_race`'s `Setter` and `set_again` on one side, `Closer` on the other.

use super::{explore, found};
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

#[derive(Default)]
struct Shared {
    closing: AtomicBool,
    begun: AtomicU32,
    ended: AtomicU32,
    setters: AtomicU32,
    /// In the kernel, under the file's lock: has the process a lock on the file?
    locked: Mutex<bool>,
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The closer asks for locks before it announces itself.
    EarlyQuestion,
    /// The closer is through before its close is.
    EarlyEnd,
    /// The closer gives way to nobody.
    NoWay,
    /// The setter notes who is through after its call.
    LateNote,
    /// The setter does not wait for closers.
    NoWait,
}

impl Shared {
    fn close(&self, fault: Fault) {
        let early = (fault == Fault::EarlyQuestion).then(|| *self.locked.lock().unwrap());
        self.closing.store(true, SeqCst);
        self.begun.fetch_add(1, SeqCst);
        fence(SeqCst);
        let way = fault == Fault::NoWay || self.setters.load(SeqCst) == 0;
        let close = way && !early.unwrap_or_else(|| *self.locked.lock().unwrap());
        if fault == Fault::EarlyEnd {
            self.through();
        }
        if close {
            *self.locked.lock().unwrap() = false;
        }
        if fault != Fault::EarlyEnd {
            self.through();
        }
    }

    fn through(&self) {
        self.ended.fetch_add(1, SeqCst);
        self.closing.store(false, SeqCst);
    }

    fn set(&self, fault: Fault) {
        let seen = self.ended.load(SeqCst);
        *self.locked.lock().unwrap() = true;
        let late = (fault == Fault::LateNote).then(|| self.ended.load(SeqCst));
        fence(SeqCst);
        if self.begun.load(SeqCst) == late.unwrap_or(seen) {
            return;
        }
        self.set_again(fault);
    }

    fn set_again(&self, fault: Fault) {
        self.setters.fetch_add(1, SeqCst);
        fence(SeqCst);
        while fault != Fault::NoWait && self.closing.load(SeqCst) {
            thread::yield_now();
        }
        *self.locked.lock().unwrap() = true;
        self.setters.fetch_sub(1, SeqCst);
    }
}

fn model(fault: Fault) {
    race(fault, Shared::set);
}

fn race(fault: Fault, set: fn(&Shared, Fault)) {
    explore(move || {
        let shared = Arc::new(Shared::default());
        let closer = {
            let shared = shared.clone();
            thread::spawn(move || (0..2).for_each(|_| shared.close(fault)))
        };
        set(&shared, fault);
        closer.join().unwrap();
        assert!(*shared.locked.lock().unwrap(), "the lock is lost");
    });
}

#[test]
fn no_lock_is_lost() {
    model(Fault::None);
}

#[test]
fn with_an_early_question() {
    found(with_an_early_question, "the lock is lost", || model(Fault::EarlyQuestion));
}

#[test]
fn with_an_early_end() {
    found(with_an_early_end, "the lock is lost", || model(Fault::EarlyEnd));
}

#[test]
fn with_a_closer_that_gives_no_way() {
    // The setter's lock was lost before.
    let model = || race(Fault::NoWay, Shared::set_again);
    found(with_a_closer_that_gives_no_way, "the lock is lost", model);
}

#[test]
fn with_a_late_note() {
    found(with_a_late_note, "the lock is lost", || model(Fault::LateNote));
}

#[test]
fn without_a_wait() {
    found(without_a_wait, "the lock is lost", || model(Fault::NoWait));
}
