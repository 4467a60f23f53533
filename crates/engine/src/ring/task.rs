//! Tasks: which thread a request belongs to. What becomes of it when that thread ends is for
//! [`exit`](crate::process::exit).
//!
//! The engine knows no C symbol, so whoever stands in front of it says when a thread ends.

use core::cell::Cell;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use softring_host::fork::{AtFork, keeps};
use softring_host::sync::real::OnceLock;

softring_host::per_thread! {
    /// This thread's name; 0 until a request of its has to wait. Needs no destructor: it is read
    /// while others run.
    static TASK: Cell<u32> = const { Cell::new(0) };
}

/// What a process has once of them.
#[derive(Debug)]
struct OfProcess {
    next: AtomicU32,
    on_first: OnceLock<fn()>,
}

static PROCESS: OfProcess = OfProcess { next: AtomicU32::new(1), on_first: OnceLock::new() };

pub(crate) const AT_FORK: AtFork = AtFork::new(|_| PROCESS.in_child());

impl OfProcess {
    fn in_child(&self) {
        let Self { next, on_first } = self;
        keeps(next, "the thread that forked keeps its name, and others get new ones");
        keeps(on_first, "of who stands in front of the engine, who is there in a child as well");
    }
}

/// Asks for `first` to be called by each thread that has its first request wait; it sees to it that
/// the thread calls [`task_ends`](crate::process::exit::task_ends) at its end.
pub fn on_first(first: fn()) {
    let _ = PROCESS.on_first.set(first);
}

/// The calling thread, as requests name it; never 0.
#[inline]
pub(crate) fn current() -> u32 {
    match TASK.get() {
        0 => begin(),
        task => task,
    }
}

/// The same, if the thread has had a request wait.
pub(crate) fn known() -> Option<u32> {
    Some(TASK.get()).filter(|&task| task != 0)
}

#[cold]
fn begin() -> u32 {
    let task = PROCESS.next.fetch_add(1, Relaxed).max(1);
    TASK.set(task);
    if let Some(first) = PROCESS.on_first.get() {
        first();
    }
    task
}

/// The calling thread ends; answers its name, as [`known`] does.
pub(crate) fn end() -> Option<u32> {
    Some(TASK.replace(0)).filter(|&task| task != 0)
}
