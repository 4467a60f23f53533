//! A thread is moved from its own words to the program's futexes while those are woken already:
//! `io::futex_waiter::protocol` itself, on loom's words, for a FUTEX_WAITV of two. The model has
//! the kernel's part: futex_waitv(2) queues its entries one after the other. The submitter comes
//! back, and the request ends once.

use super::word::{Total, WaiterWord};
use super::{explore, found};
use crate::io::futex_waiter::protocol::{BUSY, IDLE, MOVED, Steps, Word, Words};
use loom::sync::atomic::Ordering::SeqCst;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use softring_uapi::errno::{Errno, Result};

/// Fault to put in, to see that the model notices.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The mover does not see whether the thread has been woken meanwhile.
    NeverChecks,
    /// The mover takes a wake meanwhile for a change of value, and asks nobody.
    NotAsked,
}

/// Queue of an entry of futex_waitv(2).
#[derive(Clone, Copy, PartialEq, Default)]
enum Queued {
    #[default]
    Nowhere,
    Own,
    There,
    Woken,
}

/// State that the kernel's buckets guard.
#[derive(Default)]
struct Kernel {
    entries: [Queued; 2],
    signal: bool,
}

impl Kernel {
    /// Takes all entries off their queues; returns the woken one.
    fn unqueue(&mut self) -> Option<usize> {
        let entries = core::mem::take(&mut self.entries);
        entries.iter().position(|&e| e == Queued::Woken)
    }
}

struct Model {
    kernel: Mutex<Kernel>,
    ends: Condvar,
    words: Words<WaiterWord>,
}

impl Model {
    fn new() -> Self {
        let total = Total::default();
        let word = |value| WaiterWord::new(value, Some(&total));
        Model { kernel: Mutex::default(), ends: Condvar::new(), words: Words::new(2, IDLE, word) }
    }

    /// Wakes like the program's `FUTEX_WAKE`; true if it counts a waiter.
    fn wake(&self, i: usize) -> bool {
        let mut kernel = self.kernel.lock().unwrap();
        let there = kernel.entries[i] == Queued::There;
        if there {
            kernel.entries[i] = Queued::Woken;
            self.ends.notify_all();
        }
        there
    }
}

impl Steps for Model {
    type Word = WaiterWord;
    type There = usize;

    fn words(&self) -> &Words<WaiterWord> {
        &self.words
    }

    /// Moves one waiter, like `FUTEX_CMP_REQUEUE`.
    fn requeue(&self, word: &WaiterWord, val: u32, &there: &usize) -> Result<usize> {
        let mut kernel = self.kernel.lock().unwrap();
        if word.load(SeqCst) != val {
            return Err(Errno::EAGAIN);
        }
        let own = kernel.entries[there] == Queued::Own;
        if own {
            kernel.entries[there] = Queued::There;
        }
        Ok(usize::from(own))
    }

    fn check(&self, _: &usize) -> Result<()> {
        Ok(())
    }

    fn reports_moved(&self) -> bool {
        true
    }

    fn pause(&self) {
        thread::yield_now();
    }

    fn interrupt(&self) -> bool {
        self.kernel.lock().unwrap().signal = true;
        self.ends.notify_all();
        true
    }

    /// Sleeps like futex_waitv(2).
    fn sleep_idle(&self) -> Result<usize> {
        for (i, word) in self.words.futexes.iter().enumerate() {
            let moved = word.load(SeqCst) == MOVED;
            let mut kernel = self.kernel.lock().unwrap();
            if !moved && word.load(SeqCst) != IDLE {
                return kernel.unqueue().ok_or(Errno::EAGAIN);
            }
            kernel.entries[i] = if moved { Queued::There } else { Queued::Own };
        }
        let mut kernel = self.kernel.lock().unwrap();
        while !kernel.signal && !kernel.entries.contains(&Queued::Woken) {
            kernel = self.ends.wait(kernel).unwrap();
        }
        kernel.signal = false;
        kernel.unqueue().ok_or(Errno::EINTR)
    }

    fn sleep_there(&self) -> Result<usize> {
        self.sleep_idle()
    }

    fn watch_children(&self) -> Result<usize> {
        unreachable!("it waits for futexes")
    }

    fn changed(&self) -> Option<i32> {
        None
    }

    fn has_job(&self) -> bool {
        true
    }
}

fn moves(fault: Fault) {
    explore(move || {
        let m = Arc::new(Model::new());
        let [one, two] = [m.clone(), m.clone()];
        let live = thread::spawn(move || one.sleep_once().0);
        let program = thread::spawn(move || two.wake(0));
        m.words.state.stick((fault == Fault::NeverChecks).then_some(BUSY));
        let moved = m.move_all(&[0, 1]);
        m.words.state.stick(None);
        let woken = program.join().unwrap();
        // Stands for `FutexWaiters::ask`, then `FutexWaiters::take_back`, which asks the same.
        let counted = (moved.is_ok() || fault != Fault::NotAsked) && !m.take_back();
        let result = live.join().unwrap();
        assert!(counted == woken, "not what the program counted");
        assert!(result == woken.then_some(0));
    });
}

#[test]
fn a_wake_during_a_move_is_kept() {
    moves(Fault::None);
}

#[test]
fn a_missing_check_is_found() {
    let test = a_missing_check_is_found;
    found(test, "maximum number of branches", || moves(Fault::NeverChecks));
}

#[test]
fn a_wake_taken_for_a_change_is_found() {
    let test = a_wake_taken_for_a_change_is_found;
    found(test, "not what the program counted", || moves(Fault::NotAsked));
}
