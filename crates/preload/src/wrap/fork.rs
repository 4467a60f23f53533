//! `fork(3)`, with signals handled before or after it.
//!
//! In a process with several threads the C library holds a lock of its own while it forks. A
//! handler that interrupts the fork, and forks as well, waits for this lock for ever. A program
//! with one thread does not meet this, but would once its rings have a thread.
#![allow(unsafe_code)]

use crate::raw::next;
use core::ffi::c_int;
use softring_host::handlers::Call;

/// `fork(3)`: creates a child process.
#[unsafe(no_mangle)]
unsafe extern "C" fn fork() -> c_int {
    let _until_it_is_over = Call::begin();
    // SAFETY: the program's own call.
    next!(c"fork", fn() -> c_int).map_or(-1, |fork| unsafe { fork() })
}
