//! `fork(3)`, with signals handled before or after it; and forks that run no fork handlers.
//!
//! In a process with several threads the C library holds a lock of its own while it forks. A
//! handler that interrupts the fork, and forks as well, waits for this lock for ever. A program
//! with one thread does not meet this, but would once its rings have a thread.
#![allow(unsafe_code)]

use crate::proc;
use crate::raw::{self, next};
use core::ffi::c_int;
use softring_host::handlers::Call;

/// `fork(3)`: creates a child process.
#[unsafe(no_mangle)]
unsafe extern "C" fn fork() -> c_int {
    let _until_it_is_over = Call::begin();
    // SAFETY: the program's own call.
    next!(c"fork", fn() -> c_int).map_or(-1, |fork| unsafe { fork() })
}

/// `_Fork(3)`: creates a child process without fork handlers, but for ours.
#[unsafe(no_mangle)]
unsafe extern "C" fn _Fork() -> c_int {
    let _until_it_is_over = Call::begin();
    let Some(fork) = next!(c"_Fork", fn() -> c_int) else {
        return raw::libc_answer(-(libc::ENOSYS as isize)) as c_int;
    };
    // SAFETY: the program's own call.
    proc::forks(|| unsafe { fork() } as isize) as c_int
}

/// Flags of clone(2) of whose children a thread of ours knows nothing: they share what a fork
/// copies, or the parent does not go on.
pub const SHARES: c_int = libc::CLONE_VM
    | libc::CLONE_VFORK
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SETTLS;

/// `syscall(SYS_fork)`, and a clone(2) that does the same: without [`SHARES`], on a copy of the
/// caller's stack. Returns the kernel's answer.
///
/// # Safety
/// The program's own call.
pub unsafe fn call(nr: usize, args: &[usize; 6]) -> isize {
    let _until_it_is_over = Call::begin();
    // SAFETY: the caller's; the child returns on its own copy of our frames.
    proc::forks(|| unsafe { raw::syscall6(nr, args) })
}
