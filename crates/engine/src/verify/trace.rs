//! A chunk of the trace, written by one ring, read, freed, and written by another:
//! `stats::trace::protocol` itself, on loom's words.

use super::{explore, found};
use crate::stats::trace::protocol::{Chunk, State, Word};
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::thread;

/// Number of slots of the chunk: one event and its words.
const SLOTS: u32 = 2;
/// State of a chunk that is full.
const FULL: u32 = SLOTS + 1;

#[derive(Clone, Copy, Default, PartialEq)]
enum Fault {
    #[default]
    None,
    /// The writer publishes an event without a release.
    PlainPublish,
    /// The reader frees a chunk before it has read it.
    EarlyFree,
    /// The reader reads the state without an acquire.
    PlainRead,
}

#[derive(Default)]
struct StateWord {
    word: AtomicU32,
    fault: Fault,
}

impl State for StateWord {
    fn load(&self, order: Ordering) -> u32 {
        let plain = self.fault == Fault::PlainRead;
        let state = self.word.load(if plain { Relaxed } else { order });
        if self.fault == Fault::EarlyFree && order == Acquire && state == FULL {
            self.word.store(0, Release);
        }
        state
    }

    fn store(&self, value: u32, order: Ordering) {
        match (self.fault, value) {
            // The chunk has been freed before.
            (Fault::EarlyFree, 0) => {}
            (Fault::PlainPublish, FULL) => self.word.store(value, Relaxed),
            _ => self.word.store(value, order),
        }
    }

    /// Returns true: loom goes by the last access to a word alone, and would miss orders behind a
    /// load.
    fn may_be(&self, _: u32) -> bool {
        true
    }

    fn exchange(&self, old: u32, new: u32, success: Ordering) -> bool {
        self.word.compare_exchange(old, new, success, Relaxed).is_ok()
    }
}

#[derive(Default)]
struct RacyWord(AtomicU64);

impl Word for RacyWord {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
}

#[derive(Default)]
struct One {
    state: StateWord,
    slots: [[RacyWord; 4]; SLOTS as usize],
}

impl Chunk for One {
    type State = StateWord;
    type Word = RacyWord;

    fn state(&self) -> &StateWord {
        &self.state
    }

    fn slot(&self, at: u32) -> &[RacyWord; 4] {
        &self.slots[at as usize]
    }

    fn slots(&self) -> u32 {
        SLOTS
    }
}

impl One {
    /// Writes whole events, with the same number in all words. False if the chunk is not free.
    fn write(&self, n: u64) -> bool {
        let free = self.claim();
        if free {
            assert_eq!(self.put(0, [n; 4], &[[n; 4]]), SLOTS);
        }
        free
    }
}

fn model(fault: Fault) {
    explore(move || {
        let state = StateWord { fault, ..StateWord::default() };
        let chunk = Arc::new(One { state, ..One::default() });
        let writers = [1, 2].map(|n| {
            let chunk = chunk.clone();
            thread::spawn(move || chunk.write(n))
        });
        let (mut events, mut seen) = (Vec::new(), 0);
        let mut take = || {
            chunk.take(&mut seen, |slots| events.extend(slots.map(|at| chunk.get(at))));
        };
        take();
        take();
        let written = writers.map(|w| w.join().unwrap()).iter().filter(|w| **w).count();
        take();
        for event in events.chunks(SLOTS as usize) {
            let n = event[0][0];
            assert!(n != 0 && event.as_flattened().iter().all(|w| *w == n), "half an event");
        }
        assert_eq!(events.len(), SLOTS as usize * written, "an event is lost, or seen twice");
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

#[test]
fn with_a_plain_read() {
    found(with_a_plain_read, "half an event", || model(Fault::PlainRead));
}
