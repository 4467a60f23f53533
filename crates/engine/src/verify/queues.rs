//! Hand-over in ring memory. The engine's end: `memory::sq::{sq_ready, sq_fetch, sq_commit}` and
//! `memory::cq::protocol::Queue::{room, fill, commit}`. The program's end: what liburing's inline
//! functions do. Entries are cells, so that loom reports any that is read while it is written.

use super::{explore, found};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use loom::thread;

const ENTRIES: u32 = 2;
const ITEMS: u32 = 3;

/// One queue: whoever fills it owns the tail, whoever empties it the head.
#[derive(Default)]
struct Queue {
    head: AtomicU32,
    tail: AtomicU32,
    array: [AtomicU32; ENTRIES as usize],
    entries: [UnsafeCell<u32>; ENTRIES as usize],
}

impl Queue {
    fn put(&self, at: u32, value: u32) {
        // SAFETY: the slot is the filler's until the tail is published, which loom checks.
        self.entries[(at % ENTRIES) as usize].with_mut(|e| unsafe { *e = value });
    }

    fn take(&self, at: u32) -> u32 {
        // SAFETY: the slot is the emptier's until the head is published, which loom checks.
        self.entries[(at % ENTRIES) as usize].with(|e| unsafe { *e })
    }
}

/// The program submits through the index array; the engine copies each entry once.
fn submission(publish: Ordering, give_back: Ordering) {
    explore(move || {
        let sq = Arc::new(Queue::default());
        let program = {
            let sq = sq.clone();
            thread::spawn(move || {
                for i in 0..ITEMS {
                    while i.wrapping_sub(sq.head.load(Acquire)) == ENTRIES {
                        thread::yield_now();
                    }
                    sq.put(i, i + 10);
                    sq.array[(i % ENTRIES) as usize].store(i % ENTRIES, Relaxed);
                    sq.tail.store(i + 1, publish);
                }
            })
        };
        let mut head = 0;
        while head < ITEMS {
            // sq_ready, then sq_fetch for each, then one sq_commit
            let ready = sq.tail.load(Acquire).wrapping_sub(head).min(ENTRIES);
            for _ in 0..ready {
                let slot = sq.array[(head % ENTRIES) as usize].load(Relaxed);
                assert_eq!(sq.take(slot), head + 10);
                head += 1;
            }
            sq.head.store(head, give_back);
            thread::yield_now();
        }
        program.join().unwrap();
    });
}

#[test]
fn submission_hands_over() {
    submission(Release, Release);
}

#[test]
fn submission_without_release_of_the_tail_is_found() {
    found(submission_without_release_of_the_tail_is_found, "Causality violation", || {
        submission(Relaxed, Release)
    });
}

#[test]
fn submission_without_release_of_the_head_is_found() {
    found(submission_without_release_of_the_head_is_found, "Causality violation", || {
        submission(Release, Relaxed)
    });
}

/// The engine fills behind the tail and publishes; the program empties.
fn completion(publish: Ordering) {
    explore(move || {
        let cq = Arc::new(Queue::default());
        let engine = {
            let cq = cq.clone();
            thread::spawn(move || {
                let mut filled = 0;
                while filled < ITEMS {
                    // fill while there is room, then one commit
                    while filled < ITEMS && filled.wrapping_sub(cq.head.load(Acquire)) < ENTRIES {
                        cq.put(filled, filled + 10);
                        filled += 1;
                    }
                    cq.tail.store(filled, publish);
                    thread::yield_now();
                }
            })
        };
        for i in 0..ITEMS {
            while cq.tail.load(Acquire) == i {
                thread::yield_now();
            }
            assert_eq!(cq.take(i), i + 10);
            cq.head.store(i + 1, Release);
        }
        engine.join().unwrap();
    });
}

#[test]
fn completion_hands_over() {
    completion(Release);
}

#[test]
fn completion_without_release_is_found() {
    found(completion_without_release_is_found, "Causality violation", || completion(Relaxed));
}
