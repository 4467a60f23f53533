//! The uring lock and the issue word: `memory::lock::protocol` itself, on loom's words. loom has no
//! clock, so no sleep ends by time, and no holder dies.

use super::{explore, found};
use crate::memory::lock::protocol::{Locked, Word};
use core::time::Duration;
use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::{self, Relaxed};
use loom::sync::atomic::{AtomicU64, AtomicUsize};
use loom::sync::{Arc, Condvar, Mutex};

/// Fault to put in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// `unlock` wakes nobody.
    ForgetsWaiters,
    /// `end_issue` wakes nobody.
    ForgetsIssuers,
    /// A submitter takes the lock as others do.
    IssuesBeside,
}

/// Word, and its sleeping waiters.
struct Futex {
    word: AtomicU64,
    /// Bucket of the kernel: comparing and going to sleep are one step.
    lock: Mutex<()>,
    sleepers: Condvar,
    wakes: bool,
}

impl Futex {
    fn new(wakes: bool) -> Self {
        let (word, lock) = (AtomicU64::new(0), Mutex::new(()));
        Self { word, lock, sleepers: Condvar::new(), wakes }
    }
}

impl Word for &Futex {
    fn load(&self, order: Ordering) -> u64 {
        self.word.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.word.store(value, order);
    }

    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.word.swap(value, order)
    }

    fn exchange(&self, old: u64, new: u64, success: Ordering) -> bool {
        self.word.compare_exchange(old, new, success, Relaxed).is_ok()
    }

    fn sleep(&self, seen: u64, _: Duration) -> bool {
        let guard = self.lock.lock().unwrap();
        if self.word.load(Ordering::SeqCst) as u32 == seen as u32 {
            drop(self.sleepers.wait(guard).unwrap());
        }
        false
    }

    fn wake(&self, n: u32) {
        drop(self.lock.lock().unwrap());
        match (self.wakes, n) {
            (false, _) => {}
            (true, 1) => self.sleepers.notify_one(),
            (true, _) => self.sleepers.notify_all(),
        }
    }
}

struct Uring {
    fault: Fault,
    word: Futex,
    issue: Futex,
    /// Number of threads that have noted that they hold the lock.
    holders: AtomicUsize,
    /// Value that the lock guards.
    guarded: UnsafeCell<u32>,
    /// Value that only one issuer at a time may touch: the order of issues.
    order: UnsafeCell<u32>,
}

impl Locked for Uring {
    type Word<'a> = &'a Futex;

    fn lock_word(&self) -> &Futex {
        &self.word
    }

    fn issue_word(&self) -> &Futex {
        &self.issue
    }

    /// Returns the one name that all threads of a process have.
    fn me(&self) -> u64 {
        1
    }

    fn is_dead(&self, _: u64) -> bool {
        false
    }

    fn set_holder(&self, holds: bool) {
        let before = self.holders.load(Relaxed);
        assert_eq!(before, usize::from(!holds), "two hold it");
        self.holders.store(usize::from(holds), Relaxed);
    }
}

impl Uring {
    fn new(fault: Fault) -> Arc<Uring> {
        Arc::new(Uring {
            fault,
            word: Futex::new(fault != Fault::ForgetsWaiters),
            issue: Futex::new(fault != Fault::ForgetsIssuers),
            holders: AtomicUsize::new(0),
            guarded: UnsafeCell::new(0),
            order: UnsafeCell::new(0),
        })
    }

    fn add(&self) {
        // SAFETY: the lock is held, which is what loom checks here.
        self.guarded.with_mut(|n| unsafe { *n += 1 });
    }

    /// Issues, like `Ctx::unlocked` and the end of its guard.
    fn issues(&self) {
        if self.fault == Fault::IssuesBeside {
            self.lock_now()
        } else {
            self.lock()
        }
        self.mark_issue();
        self.unlock();
        // SAFETY: no other thread issues, which is what loom checks here.
        self.order.with_mut(|n| unsafe { *n += 1 });
        self.lock_now();
        self.add();
        self.end_issue();
        self.unlock();
    }

    /// Takes the lock like a thread that must not wait for an issue, nor for long.
    fn passes(&self) {
        assert!(self.lock_now_within(Duration::MAX), "no time passes here");
        self.add();
        self.unlock();
    }
}

/// Runs two threads that issue, and a third that comes in between.
fn three_threads(fault: Fault) {
    explore(move || {
        let uring = Uring::new(fault);
        let (second, third) = (uring.clone(), uring.clone());
        let second = loom::thread::spawn(move || second.issues());
        let third = loom::thread::spawn(move || third.passes());
        uring.issues();
        second.join().unwrap();
        third.join().unwrap();
        // SAFETY: the other threads have ended.
        assert_eq!(uring.guarded.with(|n| unsafe { *n }), 3);
        // SAFETY: as above.
        assert_eq!(uring.order.with(|n| unsafe { *n }), 2);
    });
}

#[test]
fn excludes_and_wakes() {
    three_threads(Fault::None);
}

/// A thread that sleeps for the lock is forgotten.
#[test]
fn a_waiter_forgotten_is_found() {
    found(a_waiter_forgotten_is_found, "deadlock", || three_threads(Fault::ForgetsWaiters));
}

/// A thread that sleeps for the end of an issue is forgotten.
#[test]
fn an_issuer_forgotten_is_found() {
    found(an_issuer_forgotten_is_found, "deadlock", || three_threads(Fault::ForgetsIssuers));
}

/// Two threads are in the middle of an issue: SQEs and data go in an order that nobody submitted.
#[test]
fn a_second_issuer_is_found() {
    found(a_second_issuer_is_found, "Causality violation", || three_threads(Fault::IssuesBeside));
}
