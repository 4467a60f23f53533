//! NEED_WAKEUP: `drive::sqpoll::{thread::Thread::rest, SqData::wake, SqPoll::ready}` on one side, a
//! program on the other: it stores the tail, and enters with SQ_WAKEUP if it sees the flag.
//!
//! And the end of a ring ([`Group`]): `SqData::detach` and `thread::Thread::take_list`.

use super::{Bucket, explore, found};
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicU32, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

#[derive(Default)]
struct Shared {
    tail: AtomicU32,
    flags: AtomicU32,
    seq: AtomicU32,
    bucket: Bucket,
}

const NEED_WAKEUP: u32 = 1;

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The thread looks at the tail before its flag can be seen.
    ThreadFence,
    /// The program looks at the flag before its tail can be seen.
    ProgramFence,
    /// The thread reads the sequence word after it looked at the tail.
    LateSeq,
}

impl Shared {
    /// The thread until it has seen `all` SQEs; each time that it finds none it rests.
    fn serve(&self, all: u32, fault: Fault) {
        let mut head = 0;
        while head < all {
            head = match self.tail.load(Acquire) {
                tail if tail == head => self.rest(head, fault),
                tail => tail,
            };
        }
    }

    fn rest(&self, head: u32, fault: Fault) -> u32 {
        let mut seen = self.seq.load(SeqCst);
        if fault == Fault::ThreadFence {
            self.flags.store(NEED_WAKEUP, Relaxed);
        } else {
            self.flags.fetch_or(NEED_WAKEUP, SeqCst);
            fence(SeqCst);
        }
        if self.tail.load(Acquire) == head {
            if fault == Fault::LateSeq {
                seen = self.seq.load(SeqCst);
            }
            self.bucket.wait(&self.seq, seen);
        }
        self.flags.fetch_and(!NEED_WAKEUP, SeqCst);
        head
    }

    /// The program makes one SQE available.
    fn submit(&self, fault: Fault) {
        let tail = self.tail.load(Relaxed) + 1;
        self.tail.store(tail, Release);
        if fault != Fault::ProgramFence {
            fence(SeqCst);
        }
        if self.flags.load(Relaxed) & NEED_WAKEUP != 0 {
            self.seq.fetch_add(1, SeqCst);
            self.bucket.wake_one();
        }
    }
}

fn model(fault: Fault) {
    explore(move || {
        let shared = Arc::new(Shared::default());
        let thread = {
            let shared = shared.clone();
            thread::spawn(move || shared.serve(2, fault))
        };
        shared.submit(fault);
        shared.submit(fault);
        thread.join().unwrap();
    });
}

#[test]
fn no_sqe_is_slept_over() {
    model(Fault::None);
}

#[test]
fn without_the_threads_fence() {
    found(without_the_threads_fence, "deadlock", || model(Fault::ThreadFence));
}

#[test]
fn without_the_programs_fence() {
    found(without_the_programs_fence, "deadlock", || model(Fault::ProgramFence));
}

#[test]
fn with_a_late_look_at_the_sequence() {
    found(with_a_late_look_at_the_sequence, "deadlock", || model(Fault::LateSeq));
}

/// An SQ thread's list of rings, which here is one ring or none.
#[derive(Default)]
struct Group {
    has_ring: Mutex<bool>,
    list: AtomicU32,
    has: AtomicU32,
    /// The ring's memory is unmapped.
    gone: AtomicU32,
    bucket: Bucket,
}

#[derive(Clone, Copy, PartialEq)]
enum Hold {
    Right,
    /// Whoever closes the ring does not wait.
    NoWait,
    /// The thread looks at the version after it took the list.
    LateVersion,
}

impl Group {
    /// The thread, until it has let go of the ring.
    fn serve(&self, hold: Hold) {
        let mut mine = true;
        loop {
            let mut version = self.list.load(SeqCst);
            if version != self.has.load(Relaxed) {
                mine = *self.has_ring.lock().unwrap();
                if hold == Hold::LateVersion {
                    version = self.list.load(SeqCst);
                }
                self.has.store(version, SeqCst);
                self.bucket.wake_all();
            }
            if mine {
                // A look at the tail, without any lock.
                assert_eq!(self.gone.load(Relaxed), 0, "memory that is gone");
            } else if self.list.load(SeqCst) == self.has.load(Relaxed) {
                // As `may_end`: not before whoever waits has been told.
                return;
            }
            thread::yield_now();
        }
    }

    fn change(&self, ring: bool) -> u32 {
        let mut list = self.has_ring.lock().unwrap();
        *list = ring;
        self.list.fetch_add(1, SeqCst) + 1
    }

    fn detach(&self, hold: Hold) {
        let version = self.change(false);
        while hold != Hold::NoWait {
            let seen = self.has.load(SeqCst);
            if version.wrapping_sub(seen).cast_signed() <= 0 {
                break;
            }
            self.bucket.wait(&self.has, seen);
        }
        self.gone.store(1, Relaxed);
    }
}

fn end_of_a_ring(hold: Hold) {
    explore(move || {
        let group = Arc::new(Group::default());
        *group.has_ring.lock().unwrap() = true;
        let thread = {
            let group = group.clone();
            thread::spawn(move || group.serve(hold))
        };
        // Another ring comes, so that there is a version of the list before.
        group.change(true);
        group.detach(hold);
        thread.join().unwrap();
    });
}

#[test]
fn memory_goes_when_the_thread_has_let_go() {
    end_of_a_ring(Hold::Right);
}

#[test]
fn without_waiting_for_the_thread() {
    found(without_waiting_for_the_thread, "memory that is gone", || end_of_a_ring(Hold::NoWait));
}

#[test]
fn with_a_version_read_too_late() {
    found(with_a_version_read_too_late, "memory that is gone", || {
        end_of_a_ring(Hold::LateVersion);
    });
}
