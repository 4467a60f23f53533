//! NEED_WAKEUP: `wait::sqpoll::{SqData::rest, SqData::wake, SqPoll::ready}` on one side, a program
//! on the other: it stores the tail, and enters with SQ_WAKEUP if it sees the flag.

use super::{Bucket, explore, found};
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicU32, fence};
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
