//! A chunk of the trace, written by one ring, read, freed, and written by another:
//! `stats::trace::buffer`'s `claim` and `put` on one side, `stats::trace::read`'s `take` on the
//! other.

use super::{explore, found};
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;

/// Of one event of two words.
#[derive(Default)]
struct Chunk {
    state: AtomicU32,
    words: [AtomicU64; 2],
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The writer tells of an event without a release.
    PlainPublish,
    /// The reader frees a chunk before it has looked at it.
    EarlyFree,
}

impl Chunk {
    /// Whole events hold the same number twice. False if the chunk is not free.
    fn write(&self, n: u64, publish: Ordering) -> bool {
        if self.state.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            return false;
        }
        self.words.iter().for_each(|word| word.store(n, Relaxed));
        self.state.store(2, publish);
        true
    }

    /// Takes the event, if there is one, and frees the chunk, which is full.
    fn take(&self, fault: Fault) -> Option<[u64; 2]> {
        if self.state.load(Acquire) != 2 {
            return None;
        }
        if fault == Fault::EarlyFree {
            self.state.store(0, Release);
        }
        let words = self.words.each_ref().map(|word| word.load(Relaxed));
        if fault != Fault::EarlyFree {
            self.state.store(0, Release);
        }
        Some(words)
    }
}

fn model(fault: Fault) {
    explore(move || {
        let chunk = Arc::new(Chunk::default());
        let publish = if fault == Fault::PlainPublish { Relaxed } else { Release };
        let writers = [1, 2].map(|n| {
            let chunk = chunk.clone();
            thread::spawn(move || chunk.write(n, publish))
        });
        let mut seen = Vec::new();
        for _ in 0..2 {
            seen.extend(chunk.take(fault));
        }
        let written = writers.map(|w| w.join().unwrap()).iter().filter(|w| **w).count();
        seen.extend(chunk.take(fault));
        for [a, b] in &seen {
            assert!(a == b && *a != 0, "half an event");
        }
        assert_eq!(seen.len(), written, "an event is lost, or seen twice");
    });
}

#[test]
fn events_are_whole_and_none_is_lost() {
    model(Fault::None);
}

#[test]
fn with_a_plain_publish() {
    found(with_a_plain_publish, "half an event", || model(Fault::PlainPublish));
}

#[test]
fn with_an_early_free() {
    found(with_an_early_free, "half an event", || model(Fault::EarlyFree));
}
