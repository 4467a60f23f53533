//! The program submits SQEs. The engine's end is `memory::sq::protocol` itself, on loom's words;
//! the program's end does the same as liburing's inline functions. Entries are cells, so that loom
//! reports an entry that is read while it is written. For CQEs, see `verify::overflow`.

use super::{RingWord, explore, found};
use crate::memory::cq::protocol::Word;
use crate::memory::sq::protocol::Queue;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::thread;

const ENTRIES: u32 = 2;
const ITEMS: u32 = 3;

#[derive(Default)]
struct Sq {
    tail: RingWord,
    head: RingWord,
    fetched: RingWord,
    array: [RingWord; ENTRIES as usize],
    entries: [UnsafeCell<u32>; ENTRIES as usize],
}

impl Queue for Sq {
    type Word = RingWord;
    type Sqe = u32;

    fn tail(&self) -> &RingWord {
        &self.tail
    }

    fn head(&self) -> &RingWord {
        &self.head
    }

    fn fetched(&self) -> &RingWord {
        &self.fetched
    }

    fn entries(&self) -> u32 {
        ENTRIES
    }

    fn rewinds(&self) -> bool {
        false
    }

    fn index(&self, at: u32) -> Option<&RingWord> {
        Some(&self.array[at as usize])
    }

    fn copy(&self, slot: u32, sqe: &mut u32) {
        // SAFETY: the slot is ours until the head is published, which loom checks.
        *sqe = self.entries[slot as usize].with(|e| unsafe { *e });
    }

    fn lose(&self) {
        unreachable!("each index names a slot")
    }
}

/// Runs a program that submits through the index array; the engine copies each entry once. The
/// faults: a store of the tail, or of the head, without release.
fn submission(tail: fn() -> RingWord, head: fn() -> RingWord) {
    explore(move || {
        let sq = Arc::new(Sq { tail: tail(), head: head(), ..Sq::default() });
        let program = {
            let sq = sq.clone();
            thread::spawn(move || {
                for i in 0..ITEMS {
                    while i.wrapping_sub(sq.head.load(Acquire)) == ENTRIES {
                        thread::yield_now();
                    }
                    let slot = i % ENTRIES;
                    // SAFETY: the slot is the program's until the tail is published, as above.
                    sq.entries[slot as usize].with_mut(|e| unsafe { *e = i + 10 });
                    sq.array[slot as usize].store(slot, Relaxed);
                    sq.tail.store(i + 1, Release);
                }
            })
        };
        let mut next = 0;
        while next < ITEMS {
            for _ in 0..sq.ready() {
                let mut sqe = 0;
                assert!(sq.fetch(&mut sqe));
                assert_eq!(sqe, next + 10);
                next += 1;
            }
            sq.commit();
            thread::yield_now();
        }
        program.join().unwrap();
    });
}

#[test]
fn submission_publishes_entries() {
    submission(RingWord::default, RingWord::default);
}

#[test]
fn submission_without_release_of_the_tail_is_found() {
    found(submission_without_release_of_the_tail_is_found, "Causality violation", || {
        submission(RingWord::relaxed, RingWord::default)
    });
}

#[test]
fn submission_without_release_of_the_head_is_found() {
    found(submission_without_release_of_the_head_is_found, "Causality violation", || {
        submission(RingWord::default, RingWord::relaxed)
    });
}
