//! The uring lock and the issue word: `memory::lock::Control::{lock, lock_now, lock_slow, unlock,
//! await_issue, begin_issue, end_issue}`, without spinning, and without the take-over from a dead
//! holder, which needs a clock.

use super::{Bucket, explore, found};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const WAITED: u32 = 1 << 31;

/// What is put in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// `unlock` wakes nobody.
    ForgetsSleepers,
    /// `end_issue` wakes nobody.
    ForgetsIssuers,
    /// A submitter takes the lock as others do.
    IssuesBeside,
}

struct Uring {
    fault: Fault,
    word: AtomicU32,
    issue: AtomicU32,
    bucket: Bucket,
    issue_bucket: Bucket,
    /// What the lock guards.
    guarded: UnsafeCell<u32>,
    /// What only one issuer at a time may touch: the order of issues.
    order: UnsafeCell<u32>,
}

impl Uring {
    fn new(fault: Fault) -> Arc<Uring> {
        Arc::new(Uring {
            fault,
            word: AtomicU32::new(0),
            issue: AtomicU32::new(0),
            bucket: Bucket::default(),
            issue_bucket: Bucket::default(),
            guarded: UnsafeCell::new(0),
            order: UnsafeCell::new(0),
        })
    }

    fn lock_now(&self, me: u32) {
        if self.word.compare_exchange(0, me, Acquire, Relaxed).is_ok() {
            return;
        }
        let me = me | WAITED;
        loop {
            let seen = self.word.load(Relaxed);
            let marked = seen | WAITED;
            if seen == 0 {
                if self.word.compare_exchange(0, me, Acquire, Relaxed).is_ok() {
                    return;
                }
                continue;
            }
            if seen != marked && self.word.compare_exchange(seen, marked, Relaxed, Relaxed).is_err()
            {
                continue;
            }
            self.bucket.wait(&self.word, marked);
        }
    }

    fn unlock(&self) {
        let waited = self.word.swap(0, Release) & WAITED != 0;
        if waited && self.fault != Fault::ForgetsSleepers {
            self.bucket.wake_one();
        }
    }

    fn lock(&self, me: u32) {
        self.lock_now(me);
        while self.issue.load(Relaxed) != 0 && self.fault != Fault::IssuesBeside {
            let marked = self.issue.load(Relaxed) | WAITED;
            self.issue.store(marked, Relaxed);
            self.unlock();
            self.issue_bucket.wait(&self.issue, marked);
            self.lock_now(me);
        }
    }

    fn add(&self) {
        // SAFETY: the lock is held, which is what loom checks here.
        self.guarded.with_mut(|n| unsafe { *n += 1 });
    }

    /// `Ctx::unlocked` and the end of its guard.
    fn issues(&self, me: u32) {
        self.lock(me);
        self.issue.store(me, Relaxed);
        self.unlock();
        // SAFETY: no other thread issues, which is what loom checks here.
        self.order.with_mut(|n| unsafe { *n += 1 });
        self.lock_now(me);
        self.add();
        let before = self.issue.load(Relaxed);
        self.issue.store(0, Relaxed);
        if before & WAITED != 0 && self.fault != Fault::ForgetsIssuers {
            self.issue_bucket.wake_all();
        }
        self.unlock();
    }

    /// Whoever must not wait for an issue.
    fn passes(&self, me: u32) {
        self.lock_now(me);
        self.add();
        self.unlock();
    }
}

/// Two threads issue, a third comes in between.
fn three_threads(fault: Fault) {
    explore(move || {
        let uring = Uring::new(fault);
        let (second, third) = (uring.clone(), uring.clone());
        let second = loom::thread::spawn(move || second.issues(2));
        let third = loom::thread::spawn(move || third.passes(3));
        uring.issues(1);
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

/// Whoever sleeps for the lock is forgotten.
#[test]
fn a_sleeper_forgotten_is_found() {
    found(a_sleeper_forgotten_is_found, "deadlock", || three_threads(Fault::ForgetsSleepers));
}

/// Whoever sleeps for the end of an issue is forgotten.
#[test]
fn an_issuer_forgotten_is_found() {
    found(an_issuer_forgotten_is_found, "deadlock", || three_threads(Fault::ForgetsIssuers));
}

/// Two are in the middle of an issue: SQEs and data go in an order that nobody submitted.
#[test]
fn a_second_issuer_is_found() {
    found(a_second_issuer_is_found, "Causality violation", || three_threads(Fault::IssuesBeside));
}
