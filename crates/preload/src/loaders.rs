//! What lets one library serve the loaders of glibc and of musl. musl's loader takes `libc.so.6`
//! and the files beside it to be itself, and checks no versions of symbols; what it cannot do
//! without is a file that is not there, and a name that musl does not define.
//!
//! - **The unwinder** (`libgcc_s.so.1`). Nothing unwinds here: a panic aborts. What the standard
//!   library calls for a backtrace goes to the process's own unwinder, if it has one.
//! - **glibc's loader** (`ld-linux-x86-64.so.2`), which defines `__tls_get_addr`: it is looked up.
//! - **`pthread_atfork`**, which glibc links statically into each file, on top of a name of its
//!   own.
//!
//! The names that stand in for those (`names`) are hidden: the process has its own, which they
//! must not stand in front of.
#![allow(unsafe_code)]

// Tests are programs, which are linked with all of this, and unwind.
#[cfg(not(test))]
mod names;

use core::ffi::c_int;

type Hook = Option<extern "C" fn()>;

/// `pthread_atfork(3)`: register fork handlers. They stay for good.
///
/// # Safety
/// The functions stay loaded.
pub unsafe fn at_fork(prepare: Hook, parent: Hook, child: Hook) {
    let glibcs = crate::raw::next!(c"__register_atfork", fn(Hook, Hook, Hook, usize) -> c_int);
    let musls = crate::raw::next!(c"pthread_atfork", fn(Hook, Hook, Hook) -> c_int);
    // SAFETY: the caller's. glibc's takes the file that the functions go with, too: none.
    unsafe {
        match (glibcs, musls) {
            (Some(register), _) => register(prepare, parent, child, 0),
            (_, Some(register)) => register(prepare, parent, child),
            _ => 0,
        }
    };
}

/// Is the program's C library musl? It keeps three real-time signals for itself, and glibc two.
pub fn runs_on_musl() -> bool {
    libc::SIGRTMIN() == 35
}
