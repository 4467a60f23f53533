//! A number's close against a ring that begins a persistent registration: `io::marks` itself, on
//! loom's words. The closer is `process::reports::before_close` and the thread that then closes.

use super::{explore, found};
use crate::io::marks::{Count, Marks, any, begin};
use core::marker::PhantomData;
use loom::sync::atomic::Ordering::{self, SeqCst};
use loom::sync::atomic::{AtomicBool, AtomicU8, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;
use softring_uapi::errno::Errno;

/// Count on a word of loom's; `FENCE`: with the protocol's fence.
#[derive(Default)]
struct Word<const FENCE: bool>(AtomicU8);

impl<const FENCE: bool> Count for Word<FENCE> {
    fn load(&self, order: Ordering) -> u8 {
        self.0.load(order)
    }

    fn change(&self, order: Ordering, change: impl FnMut(u8) -> Option<u8>) {
        let _ = self.0.fetch_update(order, order, change);
    }

    fn fence(order: Ordering) {
        if FENCE {
            fence(order);
        }
    }
}

#[derive(Default)]
struct Shared<C> {
    closing: [C; 1],
    registered: C,
    /// The uring lock; it guards whether the poll set believes the number registered.
    ring: Mutex<bool>,
    closed: AtomicBool,
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The closer checks for registrations before it marks the number.
    LateMark,
    /// The mark goes before the number is closed.
    EarlyEnd,
}

impl<C: Count> Shared<C> {
    fn close(&self, fault: Fault) {
        let early = (fault == Fault::LateMark).then(|| any(&self.registered));
        let mut marks = Some(Marks::new(&self.closing));
        if early.unwrap_or_else(|| any(&self.registered)) {
            // Stands for `PollSet::unregister`.
            *self.ring.lock().unwrap() = false;
        }
        if fault == Fault::EarlyEnd {
            marks = None;
        }
        self.closed.store(true, SeqCst);
        drop(marks);
    }

    /// Begins to wait under the number, like `PollSet::begin`. A closed number cannot be
    /// registered.
    fn begin(&self) {
        let mut believes = self.ring.lock().unwrap();
        let register = || if self.closed.load(SeqCst) { Err(Errno::EBADF) } else { Ok(true) };
        *believes = begin(&self.registered, &self.closing[0], register) == Ok(true);
    }
}

fn model<C: Count + Default + Send + Sync + 'static>(fault: Fault, _: PhantomData<C>) {
    explore(move || {
        let shared = Arc::new(Shared::<C>::default());
        let closer = {
            let shared = shared.clone();
            thread::spawn(move || shared.close(fault))
        };
        shared.begin();
        closer.join().unwrap();
        assert!(!*shared.ring.lock().unwrap(), "a closed number is registered");
    });
}

const AS_IT_IS: PhantomData<Word<true>> = PhantomData;
const WITHOUT_FENCES: PhantomData<Word<false>> = PhantomData;

#[test]
fn no_closed_number_is_registered() {
    model(Fault::None, AS_IT_IS);
}

#[test]
fn with_a_late_mark() {
    found(with_a_late_mark, "a closed number is registered", || model(Fault::LateMark, AS_IT_IS));
}

#[test]
fn with_a_mark_that_ends_early() {
    let test = with_a_mark_that_ends_early;
    found(test, "a closed number is registered", || model(Fault::EarlyEnd, AS_IT_IS));
}

#[test]
fn without_fences() {
    found(without_fences, "a closed number is registered", || model(Fault::None, WITHOUT_FENCES));
}
