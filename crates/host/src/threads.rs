//! Threads of the engine's own. They are started by pthread_create(3) itself, if there is one: the
//! standard library calls the program's malloc(3) whenever it starts a thread, in the caller and in
//! the new thread. Only the memory that pthread_create(3) asks for, in the caller, remains.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;

use crate::c_library::start_thread;
use crate::cloned;
use crate::lock::OnceLock;
use crate::signal::BlockAll;
use crate::sync::real::Handover;
use softring_uapi::errno::Result;

pub use crate::c_library::Life;

/// Function that starts a detached thread with a stack of at least that many bytes.
pub type Start = fn(usize, Life) -> Result<()>;

static START: OnceLock<Start> = OnceLock::new();

/// Has threads started by `start`, which checks first whether they can be.
pub fn start_by(start: Start) {
    let _ = START.set(start);
}

/// Starts a detached thread.
///
/// # Errors
/// As `pthread_create(3)`: EAGAIN, ENOMEM.
pub fn start(name: &str, stack: usize, f: impl FnOnce() + Send + 'static) -> Result<()> {
    crate::calls::memory::room_for_thread(stack)?;
    let name = name.to_owned();
    let life = move || {
        crate::sys::name_thread(&name);
        drop(name);
        f();
        crate::creds::thread_ends();
    };
    start_one(stack, Box::new(life))
}

fn start_one(stack: usize, life: Life) -> Result<()> {
    START.get().unwrap_or(&(begin as Start))(stack, life)
}

/// Starts a detached thread with a stack of at least `stack` bytes, by pthread_create(3), or where
/// the process has none by clone(2).
///
/// # Errors
/// As `pthread_create(3)`.
pub fn begin(stack: usize, life: Life) -> Result<()> {
    start_thread(stack, life).unwrap_or_else(|life| cloned::start_thread(stack, life))
}

/// Runs `f` on a thread of its own with a stack of that many bytes, and waits for its end; `None`
/// if no thread can be started.
pub fn run<T: Send + 'static>(stack: usize, f: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let answer = Arc::new(Handover::default());
    let theirs = answer.clone();
    start_one(stack, Box::new(move || theirs.give(f()))).ok()?;
    Some(answer.take())
}

/// Lets another thread run: sched_yield(2).
pub fn yield_now() {
    crate::calls::process::sched_yield();
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
