//! `fork(3)`, with signals handled before it or after it.
//!
//! In a process with several threads the C library takes a lock of its own while it forks, and a
//! handler on top of that which forks as well waits for the lock for ever. A program with one
//! thread is spared that, and would not be once its rings have a thread.
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
