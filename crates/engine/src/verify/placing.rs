//! A thread is moved from its own words to the program's futexes while those are woken already:
//! `Sleeper::{place, take_back, sleep, live}` for a FUTEX_WAITV of two, and futex_waitv(2), which
//! queues its entries one after the other. Whoever submits comes back, and the request ends once.

use super::{explore, found};
use loom::sync::atomic::{AtomicU32, Ordering::SeqCst};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// What to do wrong, to see that the model notices.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// Who moves the thread does not look whether it has been woken meanwhile.
    NeverLooks,
    /// Who moves it takes a wake meanwhile for a change of value, and asks nobody.
    NotAsked,
}

const BUSY: u32 = 0;
const WOKEN: u32 = 1;
const BACK: u32 = 2;

/// Where an entry of futex_waitv(2) is queued.
#[derive(Clone, Copy, PartialEq, Default)]
enum Queued {
    #[default]
    Nowhere,
    Own,
    There,
    Woken,
}

/// What the kernel's buckets guard.
#[derive(Default)]
struct Kernel {
    entries: [Queued; 2],
    signal: bool,
}

#[derive(Default)]
struct Model {
    kernel: Mutex<Kernel>,
    ends: Condvar,
    state: AtomicU32,
}

impl Model {
    /// `Sleeper::live`: futex_waitv(2), and what it tells.
    fn live(&self) {
        for i in 0..2 {
            self.kernel.lock().unwrap().entries[i] = Queued::Own;
        }
        let mut kernel = self.kernel.lock().unwrap();
        while !kernel.signal && !kernel.entries.contains(&Queued::Woken) {
            kernel = self.ends.wait(kernel).unwrap();
        }
        let woken = kernel.entries.contains(&Queued::Woken);
        kernel.entries = [Queued::Nowhere; 2];
        drop(kernel);
        self.state.store(if woken { WOKEN } else { BACK }, SeqCst);
    }

    /// `Sleeper::place`; false if the thread was woken meanwhile.
    fn place(&self, fault: Fault) -> bool {
        for i in 0..2 {
            while !self.requeue(i) {
                if fault != Fault::NeverLooks && self.state.load(SeqCst) != BUSY {
                    return false;
                }
                thread::yield_now();
            }
        }
        true
    }

    /// `FUTEX_CMP_REQUEUE` of one.
    fn requeue(&self, i: usize) -> bool {
        let mut kernel = self.kernel.lock().unwrap();
        let own = kernel.entries[i] == Queued::Own;
        if own {
            kernel.entries[i] = Queued::There;
        }
        own
    }

    /// `FUTEX_WAKE` by the program; true if it counts a waiter.
    fn wake(&self, i: usize) -> bool {
        let mut kernel = self.kernel.lock().unwrap();
        let there = kernel.entries[i] == Queued::There;
        if there {
            kernel.entries[i] = Queued::Woken;
            self.ends.notify_all();
        }
        there
    }

    /// `Sleeper::take_back`; the wait for its answer is `verify::cancel`'s.
    fn take_back(&self, live: thread::JoinHandle<()>) -> bool {
        self.kernel.lock().unwrap().signal = true;
        self.ends.notify_all();
        live.join().unwrap();
        self.state.load(SeqCst) == BACK
    }
}

fn placing(fault: Fault) {
    explore(move || {
        let m = Arc::new(Model::default());
        let [one, two] = [m.clone(), m.clone()];
        let live = thread::spawn(move || one.live());
        let program = thread::spawn(move || two.wake(0));
        let placed = m.place(fault);
        let woken = program.join().unwrap();
        let told = if !placed && fault == Fault::NotAsked {
            live.join().unwrap();
            false
        } else {
            !m.take_back(live)
        };
        assert!(told == woken, "not what the program counted");
    });
}

#[test]
fn woken_before_all_is_placed() {
    placing(Fault::None);
}

#[test]
fn a_wait_for_who_is_gone_is_found() {
    let test = a_wait_for_who_is_gone_is_found;
    found(test, "maximum number of branches", || placing(Fault::NeverLooks));
}

#[test]
fn a_wake_taken_for_a_change_is_found() {
    let test = a_wake_taken_for_a_change_is_found;
    found(test, "not what the program counted", || placing(Fault::NotAsked));
}
