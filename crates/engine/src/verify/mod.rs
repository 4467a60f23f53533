//! Models of the protocols on shared words, small enough for loom to try every order of their
//! steps. A model runs the engine's own types and functions on loom's words and locks; the model of
//! the worker queue is `io::worker::tests::model`. A model itself only has the callers of these
//! steps, and substitutes for the kernel: futexes, the poll set, a call that blocks.
//!
//! Each model also runs with faults put in, which loom must find ([`found`]): this shows that a
//! test that passes is able to fail. Run all with `ci/loom.sh`.

mod cancel;
mod closing;
mod futex_moves;
mod lock;
mod lock_race;
mod locks;
mod overflow;
mod queues;
mod sqpoll;
mod tick;
mod trace;
mod wake;
mod word;

use crate::memory::cq::protocol::Word;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{self, Relaxed, SeqCst};
use loom::sync::{Condvar, Mutex};

/// Tries every order with at most three forced switches of threads: more switches find nothing new
/// in models of this size, and take minutes.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Checks that loom finds the fault in `model`, and reports it in `words`. Loom's objects panic
/// once more while they are dropped, which aborts: so the test runs itself again in a process of
/// its own.
fn found<T>(test: T, words: &str, model: impl Fn()) {
    if std::env::var_os("LOOM_FAULT").is_some() {
        return model();
    }
    let path = core::any::type_name_of_val(&test);
    let name = path.split_once("::").expect("a path with the crate's name").1;
    let out = std::process::Command::new(std::env::current_exe().expect("our own path"))
        .args(["--exact", name, "--nocapture"])
        .env("LOOM_FAULT", "1")
        .env("RUST_BACKTRACE", "0")
        .output()
        .expect("the test starts again");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success(), "{name}: loom found nothing");
    assert!(said.contains(words), "{name}: loom found something else:\n{said}");
    drop(test);
}

/// Word that engine and program share in ring memory.
struct RingWord {
    word: AtomicU32,
    /// Flag, true if stores have the order that is asked for; else none, which is a fault.
    ordered: bool,
}

impl Default for RingWord {
    fn default() -> Self {
        RingWord { word: AtomicU32::new(0), ordered: true }
    }
}

impl RingWord {
    fn relaxed() -> Self {
        RingWord { ordered: false, ..Self::default() }
    }
}

impl Word for RingWord {
    fn load(&self, order: Ordering) -> u32 {
        self.word.load(order)
    }

    fn store(&self, value: u32, order: Ordering) {
        self.word.store(value, if self.ordered { order } else { Relaxed });
    }

    fn set(&self, bits: u32, order: Ordering) {
        self.word.fetch_or(bits, order);
    }

    fn clear(&self, bits: u32, order: Ordering) {
        self.word.fetch_and(!bits, order);
    }
}

/// Bucket of futex(2): comparing and going to sleep are one step, under the kernel's bucket lock.
/// No sleep ends by time: a wake-up that only a time limit repairs shows as a deadlock.
#[derive(Default)]
struct Bucket {
    lock: Mutex<()>,
    sleepers: Condvar,
}

impl Bucket {
    /// Sleeps like `host::sys::futex_wait`.
    fn wait(&self, word: &AtomicU32, seen: u32) {
        let guard = self.lock.lock().unwrap();
        if word.load(SeqCst) == seen {
            drop(self.sleepers.wait(guard).unwrap());
        }
    }

    /// Wakes one, like `host::sys::futex_wake`.
    fn wake_one(&self) {
        drop(self.lock.lock().unwrap());
        self.sleepers.notify_one();
    }

    /// Wakes all, like `host::sys::futex_wake`.
    fn wake_all(&self) {
        drop(self.lock.lock().unwrap());
        self.sleepers.notify_all();
    }
}
