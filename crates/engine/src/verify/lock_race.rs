//! A thread that sets a POSIX lock against a thread that closes duplicates of the file:
//! `host::fd::lock_race::protocol` itself, on loom's words. The kernel's list of locks is a mutex.

use super::{explore, found};
use loom::sync::atomic::Ordering::{self, Relaxed};
use loom::sync::atomic::{AtomicI32, AtomicU32, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;
use softring_host::fd::lock_race::protocol::{Count, Race, Slot};

/// Number of a duplicate.
const NUMBER: i32 = 7;

#[derive(Debug, Default)]
struct Number(AtomicI32);

impl Slot for Number {
    fn load(&self, order: Ordering) -> i32 {
        self.0.load(order)
    }

    fn store(&self, number: i32, order: Ordering) {
        self.0.store(number, order);
    }

    fn take(&self, number: i32, success: Ordering) -> bool {
        self.0.compare_exchange(0, number, success, Relaxed).is_ok()
    }
}

#[derive(Debug, Default)]
struct Threads {
    count: AtomicU32,
    /// Fault: reads of the count find 0.
    hidden: bool,
}

impl Count for Threads {
    fn load(&self, order: Ordering) -> u64 {
        if self.hidden { 0 } else { self.count.load(order).into() }
    }

    fn add(&self, order: Ordering) {
        self.count.fetch_add(1, order);
    }

    fn sub(&self, order: Ordering) {
        self.count.fetch_sub(1, order);
    }
}

/// Shared words; `FENCE`: with the protocol's fence.
#[derive(Debug, Default)]
struct Shared<const FENCE: bool> {
    closing: [Number; 1],
    begun: Threads,
    ended: Threads,
    setters: Threads,
    /// The kernel's word, under the file's lock: true if the process has a lock on the file.
    locked: Mutex<bool>,
}

impl<const FENCE: bool> Race for Shared<FENCE> {
    type Slot = Number;
    type Count = Threads;
    type Setters = Threads;

    fn closing(&self) -> &[Number] {
        &self.closing
    }

    fn begun(&self) -> &Threads {
        &self.begun
    }

    fn ended(&self) -> &Threads {
        &self.ended
    }

    fn setters(&self) -> &Threads {
        &self.setters
    }

    fn fence(order: Ordering) {
        if FENCE {
            fence(order);
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The closer asks for locks before it announces itself.
    EarlyQuestion,
    /// The closer is through before its close is.
    EarlyEnd,
    /// The closer gives way to nobody.
    NoYield,
    /// The setter notes finished closers after its call.
    LateHolder,
    /// The setter does not wait for closers.
    NoWait,
}

impl<const FENCE: bool> Shared<FENCE> {
    fn locked(&self) -> bool {
        *self.locked.lock().unwrap()
    }

    /// Closes a duplicate, by `Closer::begin` and the close itself.
    fn close_one(&self, fault: Fault) {
        let early = (fault == Fault::EarlyQuestion).then(|| self.locked());
        let closing = self.close(NUMBER, || early.unwrap_or_else(|| self.locked()));
        let closes = closing.is_some();
        let closing = closing.filter(|_| fault != Fault::EarlyEnd);
        if closes {
            *self.locked.lock().unwrap() = false;
        }
        drop(closing);
    }

    /// Sets a lock as around fcntl(2): by `Setter`, and by `set_again` if it says so.
    fn set(&self, fault: Fault) {
        let before = self.before_set();
        *self.locked.lock().unwrap() = true;
        let late = (fault == Fault::LateHolder).then(|| self.before_set());
        if !self.has_lock(late.unwrap_or(before), || {}) {
            self.again(fault);
        }
    }

    fn again(&self, fault: Fault) {
        let waits = |number, _| {
            assert_eq!(number, NUMBER);
            let waits = fault != Fault::NoWait;
            if waits {
                thread::yield_now();
            }
            waits
        };
        self.set_again(waits, || *self.locked.lock().unwrap() = true);
    }
}

fn race<const FENCE: bool>(fault: Fault, set: fn(&Shared<FENCE>, Fault)) {
    explore(move || {
        let setters = Threads { hidden: fault == Fault::NoYield, ..Threads::default() };
        let shared = Arc::new(Shared::<FENCE> { setters, ..Shared::default() });
        let closer = {
            let shared = shared.clone();
            thread::spawn(move || (0..2).for_each(|_| shared.close_one(fault)))
        };
        set(&shared, fault);
        closer.join().unwrap();
        assert!(shared.locked(), "the lock is lost");
    });
}

fn model(fault: Fault) {
    race(fault, Shared::<true>::set);
}

#[test]
fn no_lock_is_lost() {
    model(Fault::None);
}

/// A model in which the setter's lock was lost before.
#[test]
fn no_lock_set_again_is_lost() {
    race(Fault::None, Shared::<true>::again);
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
fn with_a_closer_that_does_not_yield() {
    let model = || race(Fault::NoYield, Shared::<true>::again);
    found(with_a_closer_that_does_not_yield, "the lock is lost", model);
}

#[test]
fn with_a_late_holder() {
    found(with_a_late_holder, "the lock is lost", || model(Fault::LateHolder));
}

#[test]
fn without_a_wait() {
    found(without_a_wait, "the lock is lost", || model(Fault::NoWait));
}

#[test]
fn without_fences() {
    let model = || race(Fault::None, Shared::<false>::again);
    found(without_fences, "the lock is lost", model);
}
