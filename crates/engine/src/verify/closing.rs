//! A number's close against a ring in whose poll set it begins to stand: `io::standing`'s
//! `Closing` and `ring::table::number_closes` on one side, `PollSet::begin` on the other.

use super::{explore, found};
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

#[derive(Default)]
struct Shared {
    closing: AtomicU32,
    stands: AtomicU32,
    /// The uring lock; under it, what the poll set believes to stand.
    ring: Mutex<bool>,
    closed: AtomicBool,
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The closer looks who stands before it says that it closes.
    LateMark,
    /// The ring looks whether the number is being closed before it says that it stands.
    EarlyLook,
    /// The ring registers the number before it says that it stands.
    LateCount,
    /// The mark goes before the number is closed.
    EarlyEnd,
}

impl Shared {
    fn close(&self, fault: Fault) {
        let early = (fault == Fault::LateMark).then(|| self.stands.load(SeqCst));
        self.closing.fetch_add(1, SeqCst);
        fence(SeqCst);
        if early.unwrap_or_else(|| self.stands.load(SeqCst)) > 0 {
            self.fall(&mut self.ring.lock().unwrap());
        }
        if fault == Fault::EarlyEnd {
            self.closing.fetch_sub(1, SeqCst);
        }
        self.closed.store(true, SeqCst);
        if fault != Fault::EarlyEnd {
            self.closing.fetch_sub(1, SeqCst);
        }
    }

    fn fall(&self, believes: &mut bool) {
        if core::mem::take(believes) {
            self.stands.fetch_sub(1, SeqCst);
        }
    }

    /// A request begins to wait under the number.
    fn begin(&self, fault: Fault) {
        let mut believes = self.ring.lock().unwrap();
        let early = (fault == Fault::EarlyLook).then(|| self.closing.load(SeqCst));
        // Registering what is closed fails.
        if fault == Fault::LateCount && self.closed.load(SeqCst) {
            return;
        }
        self.stands.fetch_add(1, SeqCst);
        fence(SeqCst);
        let closing = early.unwrap_or_else(|| self.closing.load(SeqCst)) > 0;
        if closing || fault != Fault::LateCount && self.closed.load(SeqCst) {
            self.stands.fetch_sub(1, SeqCst);
            return;
        }
        *believes = true;
    }
}

fn model(fault: Fault) {
    explore(move || {
        let shared = Arc::new(Shared::default());
        let closer = {
            let shared = shared.clone();
            thread::spawn(move || shared.close(fault))
        };
        shared.begin(fault);
        closer.join().unwrap();
        assert!(!*shared.ring.lock().unwrap(), "a closed number stands");
    });
}

#[test]
fn no_closed_number_stands() {
    model(Fault::None);
}

#[test]
fn with_a_late_mark() {
    found(with_a_late_mark, "a closed number stands", || model(Fault::LateMark));
}

#[test]
fn with_an_early_look() {
    found(with_an_early_look, "a closed number stands", || model(Fault::EarlyLook));
}

#[test]
fn with_a_late_count() {
    found(with_a_late_count, "a closed number stands", || model(Fault::LateCount));
}

#[test]
fn with_a_mark_that_ends_early() {
    found(with_a_mark_that_ends_early, "a closed number stands", || model(Fault::EarlyEnd));
}
