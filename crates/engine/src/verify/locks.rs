//! A value that is made once, and the lock of readers and writers: `host::lock::protocol` itself,
//! on loom's words. The value is a loom cell, so loom reports a use that the word does not order.
#![allow(unsafe_code)]

use super::{Bucket, explore, found};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{self, Relaxed};
use loom::thread;
use softring_host::lock::protocol::{Word, once, rw};

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// Stores order nothing before them.
    Relaxed,
    /// Nobody is woken.
    NoWake,
}

/// Word with the value that it guards.
struct Guarded {
    word: AtomicU32,
    bucket: Bucket,
    fault: Fault,
    value: UnsafeCell<u32>,
}

// SAFETY: loom checks each access to the cell.
unsafe impl Sync for Guarded {}
// SAFETY: as above.
unsafe impl Send for Guarded {}

impl Guarded {
    fn new(fault: Fault) -> Self {
        let (word, bucket) = (AtomicU32::new(0), Bucket::default());
        Guarded { word, bucket, fault, value: UnsafeCell::new(0) }
    }

    fn order(&self, order: Ordering) -> Ordering {
        if self.fault == Fault::Relaxed { Relaxed } else { order }
    }

    fn read(&self) -> u32 {
        // SAFETY: loom reports a write at the same time.
        self.value.with(|at| unsafe { *at })
    }

    fn add_one(&self) {
        // SAFETY: loom reports any other access at the same time.
        self.value.with_mut(|at| unsafe { *at += 1 });
    }

    /// Makes the value if nobody has; returns it.
    fn ask(&self) -> u32 {
        if !once::is_made(self) && once::begin(self) {
            self.add_one();
            once::end(self, true);
        }
        self.read()
    }

    fn write(&self) {
        rw::wait(self, rw::try_write);
        self.add_one();
        rw::end_write(self);
    }

    fn read_locked(&self) -> u32 {
        rw::wait(self, rw::try_read);
        let value = self.read();
        rw::end_read(self);
        value
    }
}

impl Word for Guarded {
    fn load(&self, order: Ordering) -> u32 {
        self.word.load(order)
    }

    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.word.swap(value, self.order(order))
    }

    fn exchange(&self, old: u32, new: u32, success: Ordering) -> Result<u32, u32> {
        self.word.compare_exchange(old, new, success, Relaxed)
    }

    fn decrement(&self, order: Ordering) -> u32 {
        self.word.fetch_sub(1, self.order(order))
    }

    fn sleep(&self, seen: u32) {
        self.bucket.wait(&self.word, seen);
    }

    fn wake(&self) {
        if self.fault != Fault::NoWake {
            self.bucket.wake_all();
        }
    }
}

/// Three threads ask for one value.
fn once_model(fault: Fault) {
    explore(move || {
        let shared = Arc::new(Guarded::new(fault));
        let asks = |shared: Arc<Guarded>| thread::spawn(move || shared.ask());
        let others = [asks(shared.clone()), asks(shared.clone())];
        assert_eq!(shared.ask(), 1);
        others.into_iter().for_each(|t| assert_eq!(t.join().unwrap(), 1));
    });
}

/// Two threads write, one of which reads before; one reads.
fn rw_model(fault: Fault) {
    explore(move || {
        let shared = Arc::new(Guarded::new(fault));
        let (one, two) = (shared.clone(), shared.clone());
        let writer = thread::spawn(move || one.write());
        let reader = thread::spawn(move || two.read_locked());
        let before = shared.read_locked();
        shared.write();
        writer.join().unwrap();
        reader.join().unwrap();
        assert!(before < 2);
        assert_eq!(shared.read_locked(), 2);
    });
}

#[test]
fn a_value_is_made_once() {
    once_model(Fault::None);
}

#[test]
fn a_value_without_order() {
    found(a_value_without_order, "Causality violation", || once_model(Fault::Relaxed));
}

#[test]
fn a_value_that_nobody_reports() {
    found(a_value_that_nobody_reports, "deadlock", || once_model(Fault::NoWake));
}

#[test]
fn readers_and_writers() {
    rw_model(Fault::None);
}

#[test]
fn readers_and_writers_without_order() {
    let test = readers_and_writers_without_order;
    found(test, "Causality violation", || rw_model(Fault::Relaxed));
}

#[test]
fn readers_and_writers_that_nobody_wakes() {
    let test = readers_and_writers_that_nobody_wakes;
    found(test, "deadlock", || rw_model(Fault::NoWake));
}
