//! Tasks: threads as the owners of requests. [`exit`](crate::process::exit) handles the requests of
//! a thread that ends.
//!
//! The engine uses no C symbol, so its front end reports when a thread ends.

use core::cell::Cell;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use softring_host::fork::{AtFork, keeps};
use softring_host::sync::real::OnceLock;

softring_host::per_thread! {
    /// Id of this thread; 0 until a request of the thread has to wait. Needs no destructor: it is
    /// read while others run.
    static TASK: Cell<u32> = const { Cell::new(0) };
}

/// State of this module, once per process.
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

/// Registers `first`, which each thread calls when its first request waits; it makes the thread
/// call [`task_ends`](crate::process::exit::task_ends) at its end.
pub fn on_first(first: fn()) {
    let _ = PROCESS.on_first.set(first);
}

/// Returns the calling thread's id in requests; never 0.
#[inline]
pub(crate) fn current() -> u32 {
    match TASK.get() {
        0 => begin(),
        task => task,
    }
}

/// Returns the calling thread's id, if a request of the thread has waited.
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

/// Ends the calling thread's task; returns its id, as [`known`] does.
pub(crate) fn end() -> Option<u32> {
    Some(TASK.replace(0)).filter(|&task| task != 0)
}
