//! NEED_WAKEUP: `drive::sqpoll::protocol` itself, on loom's words, with one ring, whose thread
//! sleeps as in `thread::Thread::sleep_until_woken`. The program on the other side stores the tail,
//! and enters with SQ_WAKEUP if it sees the flag.
//!
//! The end of a ring ([`Group`]), whose memory goes when `SqData::detach` is through: loom reports
//! a later access to it.

use super::{Bucket, explore, found};
use crate::drive::sqpoll::protocol::{Page, PageWord, need_wakeup, ready};
use crate::memory::cq::protocol::Word;
use core::marker::PhantomData;
use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::{self, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicU32, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// Word, and its sleeping waiters; `FENCE`, `ORDERED`: with the protocol's fence and orders.
#[derive(Default)]
struct Shared<const FENCE: bool, const ORDERED: bool> {
    word: AtomicU32,
    bucket: Bucket,
}

type AsItIs = Shared<true, true>;
type NoFence = Shared<false, true>;
type NoOrder = Shared<true, false>;

impl<const FENCE: bool, const ORDERED: bool> Word for Shared<FENCE, ORDERED> {
    fn load(&self, order: Ordering) -> u32 {
        self.word.load(order)
    }

    fn store(&self, value: u32, order: Ordering) {
        self.word.store(value, if ORDERED { order } else { Relaxed });
    }

    fn set(&self, bits: u32, order: Ordering) {
        self.word.fetch_or(bits, order);
    }

    fn clear(&self, bits: u32, order: Ordering) {
        self.word.fetch_and(!bits, order);
    }
}

impl<const FENCE: bool, const ORDERED: bool> PageWord for Shared<FENCE, ORDERED> {
    fn next(&self, order: Ordering) -> u32 {
        self.word.fetch_add(1, order) + 1
    }

    fn wake(&self, n: u32) {
        if n == 1 { self.bucket.wake_one() } else { self.bucket.wake_all() }
    }

    fn fence(order: Ordering) {
        if FENCE {
            fence(order);
        }
    }
}

/// Words of the thread's page, and of a ring.
#[derive(Default)]
struct Words<W> {
    seq: W,
    tid: W,
    list: W,
    has: W,
    tail: W,
    head: W,
    flags: W,
}

impl<W: PageWord> Page for Words<W> {
    type Word = W;

    fn seq(&self) -> &W {
        &self.seq
    }

    fn tid(&self) -> &W {
        &self.tid
    }

    fn list(&self) -> &W {
        &self.list
    }

    fn has(&self) -> &W {
        &self.has
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The program reads the flag before its tail can be seen.
    ProgramFence,
    /// The thread reads the sequence word after it read the tail.
    LateSeq,
}

impl<const FENCE: bool, const ORDERED: bool> Words<Shared<FENCE, ORDERED>> {
    /// Runs the thread until it has seen `all` SQEs; it sleeps each time that it finds none.
    fn serve(&self, all: u32, fault: Fault) {
        let mut head = 0;
        while head < all {
            let new = ready(&self.tail, &self.head);
            head += new;
            self.head.store(head, Relaxed);
            if new == 0 {
                self.sleep_until_woken(fault);
            }
        }
    }

    fn sleep_until_woken(&self, fault: Fault) {
        let says = || need_wakeup(&self.flags, true);
        let idle = || ready(&self.tail, &self.head) == 0;
        self.sleep_if(says, idle, |seq, seen| {
            let late = fault == Fault::LateSeq;
            seq.bucket.wait(&seq.word, if late { seq.load(SeqCst) } else { seen });
        });
        need_wakeup(&self.flags, false);
    }

    /// Makes one SQE available, as the program does.
    fn submit(&self, fault: Fault) {
        let tail = self.tail.load(Relaxed) + 1;
        self.tail.store(tail, Release);
        if fault != Fault::ProgramFence {
            fence(SeqCst);
        }
        if self.flags.load(Relaxed) != 0 {
            self.bump();
        }
    }
}

fn model<const FENCE: bool>(fault: Fault, _: PhantomData<Shared<FENCE, true>>) {
    explore(move || {
        let words = Arc::new(Words::<Shared<FENCE, true>>::default());
        let thread = {
            let words = words.clone();
            thread::spawn(move || words.serve(2, fault))
        };
        words.submit(fault);
        words.submit(fault);
        thread.join().unwrap();
    });
}

const AS_IT_IS: PhantomData<AsItIs> = PhantomData;
const NO_FENCE: PhantomData<NoFence> = PhantomData;
const NO_ORDER: PhantomData<NoOrder> = PhantomData;

#[test]
fn no_sqe_is_missed_by_a_sleep() {
    model(Fault::None, AS_IT_IS);
}

#[test]
fn without_the_threads_fence() {
    found(without_the_threads_fence, "deadlock", || model(Fault::None, NO_FENCE));
}

#[test]
fn without_the_programs_fence() {
    found(without_the_programs_fence, "deadlock", || model(Fault::ProgramFence, AS_IT_IS));
}

#[test]
fn with_a_late_read_of_the_sequence() {
    found(with_a_late_read_of_the_sequence, "deadlock", || model(Fault::LateSeq, AS_IT_IS));
}

/// List of an SQ thread's rings, which here is one ring or none.
#[derive(Default)]
struct Group<W> {
    words: Words<W>,
    has_ring: Mutex<bool>,
    /// Memory of the ring, which is unmapped when it is written.
    memory: UnsafeCell<()>,
}

#[derive(Clone, Copy, PartialEq)]
enum Hold {
    Right,
    /// The closer of the ring does not wait.
    NoWait,
    /// The thread reads the list before it reads the list's version.
    EarlyList,
}

/// Id of the thread.
const TID: u32 = 1;

impl<const ORDERED: bool> Group<Shared<true, ORDERED>> {
    /// Runs the thread (`Thread::run`) until it has no ring any more.
    fn serve(&self, hold: Hold) {
        let mut mine = true;
        loop {
            let early = (hold == Hold::EarlyList).then(|| *self.has_ring.lock().unwrap());
            self.words.take_list(|| mine = early.unwrap_or_else(|| *self.has_ring.lock().unwrap()));
            if mine {
                // Stands for a read of the tail, without any lock.
                self.memory.with(|_| ());
            } else {
                let has_ring = self.has_ring.lock().unwrap();
                if !*has_ring {
                    return self.words.end();
                }
            }
            thread::yield_now();
        }
    }

    fn change(&self, ring: bool) -> u32 {
        let mut has_ring = self.has_ring.lock().unwrap();
        *has_ring = ring;
        self.words.changed()
    }

    fn detach(&self, hold: Hold) {
        let version = self.change(false);
        if hold != Hold::NoWait {
            self.words.await_taken(version, 0, |has, seen| {
                has.bucket.wait(&has.word, seen);
                true
            });
        }
        self.memory.with_mut(|_| ());
    }
}

fn end_of_a_ring<const ORDERED: bool>(hold: Hold, _: PhantomData<Shared<true, ORDERED>>) {
    explore(move || {
        let group = Arc::new(Group::<Shared<true, ORDERED>>::default());
        *group.has_ring.lock().unwrap() = true;
        group.words.tid.store(TID, SeqCst);
        let thread = {
            let group = group.clone();
            thread::spawn(move || group.serve(hold))
        };
        // Another ring comes, so that there is an earlier version of the list.
        group.change(true);
        group.detach(hold);
        thread.join().unwrap();
    });
}

#[test]
fn memory_is_freed_after_the_thread_has_released_it() {
    end_of_a_ring(Hold::Right, AS_IT_IS);
}

#[test]
fn without_waiting_for_the_thread() {
    found(without_waiting_for_the_thread, "Causality violation", || {
        end_of_a_ring(Hold::NoWait, AS_IT_IS);
    });
}

#[test]
fn with_a_list_read_too_early() {
    found(with_a_list_read_too_early, "Causality violation", || {
        end_of_a_ring(Hold::EarlyList, AS_IT_IS);
    });
}

#[test]
fn without_release_by_the_thread() {
    found(without_release_by_the_thread, "Causality violation", || {
        end_of_a_ring(Hold::Right, NO_ORDER);
    });
}
