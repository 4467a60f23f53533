//! Threads of the engine's own, and statics per thread. The standard library calls the program's
//! malloc(3) whenever it starts a thread, in the caller and in the new thread; a preloaded library
//! can start threads without that.

use crate::lock::OnceLock;
use crate::signal::BlockAll;
use softring_uapi::errno::{Errno, Result};

/// Function that a new thread runs.
pub type Life = Box<dyn FnOnce() + Send>;

/// Function that starts a detached thread with a stack of that many bytes, or returns an errno.
pub type Start = fn(usize, Life) -> core::result::Result<(), i32>;

static START: OnceLock<Start> = OnceLock::new();

/// Has threads started by `start` instead of the standard library.
pub fn start_by(start: Start) {
    let _ = START.set(start);
}

/// Starts a detached thread.
///
/// # Errors
/// As `pthread_create(3)`: EAGAIN, ENOMEM.
pub fn start(name: &str, stack: usize, f: impl FnOnce() + Send + 'static) -> Result<()> {
    crate::calls::memory::room_for_thread(stack)?;
    let life = move || {
        f();
        crate::creds::thread_ends();
    };
    let name = name.to_owned();
    let Some(start) = START.get() else {
        let started = std::thread::Builder::new().name(name).stack_size(stack).spawn(life);
        let errno = |e: std::io::Error| e.raw_os_error().map_or(Errno::EAGAIN, Errno);
        return started.map(drop).map_err(errno);
    };
    let named = move || {
        crate::sys::name_thread(&name);
        drop(name);
        life();
    };
    start(stack, Box::new(named)).map_err(Errno)
}

/// Runs `f` on a thread of its own with a stack of that many bytes, and waits for its end; `None`
/// if no thread can be started.
pub fn run<T: Send + 'static>(stack: usize, f: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    std::thread::Builder::new().stack_size(stack).spawn(f).ok()?.join().ok()
}

/// Lets another thread run: sched_yield(2).
pub fn yield_now() {
    std::thread::yield_now();
}

/// Returns the name of a thread of the engine's own: `iou-WHAT-PID`.
pub fn name(what: &str) -> String {
    format!("iou-{what}-{}", crate::fork::pid())
}

/// Starts a thread of the engine's own, with all signals blocked that may be.
///
/// # Errors
/// As [`start`].
pub fn spawn(what: &str, stack: usize, f: impl FnOnce() + Send + 'static) -> Result<()> {
    let _blocked = BlockAll::begin();
    let limits = crate::creds::token();
    let ours = move || {
        crate::creds::is_ours(limits);
        f();
    };
    start(&name(what), stack, ours)
}
