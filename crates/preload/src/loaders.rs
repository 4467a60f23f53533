//! Support for the loaders of glibc and of musl by one library. musl's loader takes `libc.so.6` and
//! the files beside it to be itself, and checks no versions of symbols. It fails for a file that is
//! not there, and for a name that musl does not define. So these are replaced:
//!
//! - **The unwinder** (`libgcc_s.so.1`). Nothing unwinds here: a panic aborts.
//! - **`pthread_atfork`**, which glibc links statically into each file, on top of a name of its
//!   own.
//!
//! - **`memcpy`** and its like, which a static program's C library gives to nobody.
//!
//! The replacements (`names`, `memory`) are hidden: the process has names of its own, which ours
//! must not precede.
#![allow(unsafe_code)]

// Tests are programs, which are linked with all of this and unwind.
mod memory;
#[cfg(not(test))]
mod names;

use crate::raw::weak_fn;
use core::ffi::c_int;

type Hook = Option<extern "C" fn()>;

/// Registers fork handlers for good, as `pthread_atfork(3)` does. Returns whether the process has
/// somebody to register them with.
///
/// # Safety
/// The functions stay loaded.
pub unsafe fn at_fork(prepare: Hook, parent: Hook, child: Hook) -> bool {
    let glibcs = crate::raw::next!(c"__register_atfork", fn(Hook, Hook, Hook, usize) -> c_int);
    let musls = crate::raw::next!(c"pthread_atfork", fn(Hook, Hook, Hook) -> c_int);
    // SAFETY: the caller's. glibc's function also takes the file that the handlers belong to: none.
    unsafe {
        match (glibcs, musls) {
            (Some(register), _) => register(prepare, parent, child, 0) == 0,
            (_, Some(register)) => register(prepare, parent, child) == 0,
            _ => false,
        }
    }
}

/// Returns whether the program's C library is musl, which keeps three real-time signals for itself;
/// glibc keeps two.
pub fn runs_on_musl() -> bool {
    // SAFETY: the function of this name, in both.
    let least = unsafe { weak_fn!("__libc_current_sigrtmin", extern "C" fn() -> c_int) };
    least.is_some_and(|least| least() == 35)
}
