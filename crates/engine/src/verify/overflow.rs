//! CQEs that find no room: `memory::cq::{cq_add, cq_flush, cq_commit}` under the uring lock,
//! against a program that reaps, and enters when it finds the ring empty and
//! `IORING_SQ_CQ_OVERFLOW` set.

use super::{explore, found};
use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::sync::{Arc, Mutex};
use loom::thread;
use std::collections::VecDeque;

const ENTRIES: u32 = 1;
const ITEMS: u32 = 3;

/// What the uring lock guards.
#[derive(Default)]
struct Locked {
    tail: u32,
    overflow: VecDeque<u32>,
}

#[derive(Default)]
struct Cq {
    head: AtomicU32,
    tail: AtomicU32,
    /// Only the overflow bit of `sq.flags`.
    flags: AtomicU32,
    entries: [UnsafeCell<u32>; ENTRIES as usize],
    locked: Mutex<Locked>,
}

impl Cq {
    fn fill(&self, locked: &mut Locked, value: u32) -> bool {
        if locked.tail.wrapping_sub(self.head.load(Acquire)) >= ENTRIES {
            return false;
        }
        // SAFETY: the slot is ours until the tail is published, which loom checks.
        self.entries[(locked.tail % ENTRIES) as usize].with_mut(|e| unsafe { *e = value });
        locked.tail += 1;
        true
    }

    /// `overtakes`: a CQE that finds room does not queue behind those that found none.
    fn post(&self, value: u32, overtakes: bool) {
        let mut locked = self.locked.lock().unwrap();
        let first = locked.overflow.is_empty() || overtakes;
        if !(first && self.fill(&mut locked, value)) {
            locked.overflow.push_back(value);
            self.flags.fetch_or(1, Relaxed);
        }
        self.tail.store(locked.tail, Release);
    }

    fn flush(&self, forgets: bool) {
        let mut locked = self.locked.lock().unwrap();
        while let Some(&value) = locked.overflow.front() {
            if !self.fill(&mut locked, value) {
                break;
            }
            locked.overflow.pop_front();
        }
        if locked.overflow.is_empty() || forgets {
            self.flags.fetch_and(0, Relaxed);
        }
        self.tail.store(locked.tail, Release);
    }
}

fn reap(overtakes: bool, forgets: bool) {
    explore(move || {
        let cq = Arc::new(Cq::default());
        let poster = {
            let cq = cq.clone();
            thread::spawn(move || (0..ITEMS).for_each(|i| cq.post(i, overtakes)))
        };
        let mut seen = 0;
        while seen < ITEMS {
            if cq.tail.load(Acquire) != seen {
                // SAFETY: published, and ours until the head is; loom checks both.
                let value = cq.entries[(seen % ENTRIES) as usize].with(|e| unsafe { *e });
                assert_eq!(value, seen, "out of order");
                seen += 1;
                cq.head.store(seen, Release);
            } else if cq.flags.load(Relaxed) != 0 {
                cq.flush(forgets);
            } else {
                thread::yield_now();
            }
        }
        poster.join().unwrap();
        assert!(cq.locked.lock().unwrap().overflow.is_empty());
    });
}

#[test]
fn all_arrive_in_order() {
    reap(false, false);
}

#[test]
fn one_that_overtakes_is_found() {
    found(one_that_overtakes_is_found, "out of order", || reap(true, false));
}

/// The flag is cleared though some found no room again: the program never enters.
#[test]
fn a_flag_cleared_too_early_is_found() {
    found(a_flag_cleared_too_early_is_found, "exceeded maximum number of branches", || {
        reap(false, true)
    });
}
