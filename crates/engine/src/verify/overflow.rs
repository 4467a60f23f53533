//! CQEs that find no room: `memory::cq::protocol` itself, on loom's words, under the uring lock.
//! The program reaps, and enters when it finds the ring empty and `IORING_SQ_CQ_OVERFLOW` set.

use super::{RingWord, explore, found};
use crate::memory::cq::protocol::{Queue, Word};
use crate::memory::cq::{Cqe, Overflow};
use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::sync::{Arc, Mutex};
use loom::thread;
use softring_uapi::IORING_SQ_CQ_OVERFLOW;

const ENTRIES: u32 = 1;
const ITEMS: u32 = 3;

#[derive(Default)]
struct Cq {
    head: RingWord,
    tail: RingWord,
    filled: RingWord,
    flags: RingWord,
    entries: [UnsafeCell<u64>; ENTRIES as usize],
    /// List that the uring lock guards.
    overflow: Mutex<Overflow>,
}

impl Queue for Cq {
    type Word = RingWord;

    fn head(&self) -> &RingWord {
        &self.head
    }

    fn tail(&self) -> &RingWord {
        &self.tail
    }

    fn filled(&self) -> &RingWord {
        &self.filled
    }

    fn flags(&self) -> &RingWord {
        &self.flags
    }

    fn entries(&self) -> u32 {
        ENTRIES
    }

    fn is_wide(&self) -> bool {
        false
    }

    fn fill_wide(&self, _: &Cqe) -> bool {
        unreachable!("none is")
    }

    fn put(&self, slot: u32, cqe: &Cqe) {
        // SAFETY: the slot is ours until the tail is published, which loom checks.
        self.entries[slot as usize].with_mut(|e| unsafe { *e = cqe.user_data });
    }

    fn lose(&self) {
        unreachable!("there is memory")
    }
}

impl Cq {
    /// Posts a CQE. `overtakes`: a CQE that finds room does not queue behind those that found none.
    fn post(&self, value: u32, overtakes: bool) {
        let cqe = Cqe { user_data: value.into(), ..Cqe::default() };
        let mut overflow = self.overflow.lock().unwrap();
        if !(overtakes && self.fill(&cqe)) {
            self.add(&mut overflow, cqe);
        }
        self.commit();
    }

    /// Flushes. `forgets`: the flag goes although something is left.
    fn enter(&self, forgets: bool) {
        let mut overflow = self.overflow.lock().unwrap();
        self.flush(&mut overflow);
        if forgets {
            self.flags.clear(IORING_SQ_CQ_OVERFLOW, Relaxed);
        }
    }
}

fn reap(tail: fn() -> RingWord, overtakes: bool, forgets: bool) {
    explore(move || {
        let cq = Arc::new(Cq { tail: tail(), ..Cq::default() });
        let poster = {
            let cq = cq.clone();
            thread::spawn(move || (0..ITEMS).for_each(|i| cq.post(i, overtakes)))
        };
        let mut seen = 0;
        while seen < ITEMS {
            if cq.tail.load(Acquire) != seen {
                // SAFETY: published, and ours until the head is; loom checks both.
                let value = cq.entries[(seen % ENTRIES) as usize].with(|e| unsafe { *e });
                assert_eq!(value, u64::from(seen), "out of order");
                seen += 1;
                cq.head.store(seen, Release);
            } else if cq.flags.load(Relaxed) != 0 {
                cq.enter(forgets);
            } else {
                thread::yield_now();
            }
        }
        poster.join().unwrap();
        assert!(cq.overflow.lock().unwrap().is_empty());
    });
}

#[test]
fn all_arrive_in_order() {
    reap(RingWord::default, false, false);
}

#[test]
fn one_that_overtakes_is_found() {
    found(one_that_overtakes_is_found, "out of order", || reap(RingWord::default, true, false));
}

/// The flag is cleared though some CQEs found no room again: the program never enters.
#[test]
fn a_flag_cleared_too_early_is_found() {
    found(a_flag_cleared_too_early_is_found, "exceeded maximum number of branches", || {
        reap(RingWord::default, false, true)
    });
}

#[test]
fn a_tail_without_release_is_found() {
    found(a_tail_without_release_is_found, "Causality violation", || {
        reap(RingWord::relaxed, false, false)
    });
}
