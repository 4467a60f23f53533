//! How threads of the engine's own start. The standard library asks the program's malloc(3) for
//! memory whenever it starts one, in the caller and in the new thread; a preloaded library can
//! start them without. And what each thread has for itself.

use std::io::{Error, Result};
use std::sync::OnceLock;

use crate::signal::BlockAll;

/// What a new thread does.
pub type Life = Box<dyn FnOnce() + Send>;

/// Starts a detached thread with a stack of that many bytes, or answers an errno.
pub type Start = fn(usize, Life) -> core::result::Result<(), i32>;

static START: OnceLock<Start> = OnceLock::new();

/// Asks for threads to be started by `start`, and not by the standard library.
pub fn start_by(start: Start) {
    let _ = START.set(start);
}

/// Starts a detached thread.
///
/// # Errors
/// As `pthread_create(3)`: EAGAIN, ENOMEM.
pub fn start(name: &str, stack: usize, f: impl FnOnce() + Send + 'static) -> Result<()> {
    crate::calls::memory::room_for_thread(stack).map_err(|e| Error::from_raw_os_error(e.0))?;
    let life = move || {
        f();
        crate::creds::thread_ends();
    };
    let name = name.to_owned();
    let Some(start) = START.get() else {
        return std::thread::Builder::new().name(name).stack_size(stack).spawn(life).map(drop);
    };
    let named = move || {
        crate::sys::name_thread(&name);
        drop(name);
        life();
    };
    start(stack, Box::new(named)).map_err(Error::from_raw_os_error)
}

/// Runs `f` on a thread of its own with a stack of that many bytes, and waits for its end; none
/// where no thread can be started.
pub fn run<T: Send + 'static>(stack: usize, f: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    std::thread::Builder::new().stack_size(stack).spawn(f).ok()?.join().ok()
}

/// Lets another thread run: sched_yield(2).
pub fn yield_now() {
    std::thread::yield_now();
}

/// Statics of which each thread has its own, as `std::thread_local!` declares them.
#[macro_export]
macro_rules! per_thread {
    ($($statics:tt)*) => { $crate::__std::thread_local! { $($statics)* } };
}
pub use crate::per_thread;

/// What a thread of the engine's own is called: `iou-WHAT-PID`.
pub fn name(what: &str) -> String {
    format!("iou-{what}-{}", crate::fork::pid())
}

/// Starts a thread of the engine's own, with every signal blocked that may be.
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
