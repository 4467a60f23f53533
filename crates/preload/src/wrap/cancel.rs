//! Cancellation of threads in the polls of the program that are made here (poll(2), epoll_wait(2)
//! and their forms, where a ring is among the files). The C library signals a thread only while it
//! is in a system call of the library's own. So a thread that sleeps here is woken, and then looks.
#![allow(unsafe_code)]

use crate::gate::watched;
use crate::raw::next;
use core::ffi::c_int;
use softring_engine::fds;

/// `pthread_cancel(3)`: send a cancellation request to a thread.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_cancel(thread: libc::pthread_t) -> c_int {
    let next = next!(c"pthread_cancel", fn(libc::pthread_t) -> c_int);
    // SAFETY: the program's own call.
    let done = next.map_or(libc::ENOSYS, |f| unsafe { f(thread) });
    if done == 0 && watched() {
        fds::thread_is_cancelled();
    }
    done
}

/// `pthread_testcancel(3)`: request delivery of any pending cancellation request.
pub(super) fn cancelled_here() {
    if let Some(test) = next!(c"pthread_testcancel", fn() -> ()) {
        // SAFETY: no arguments. A cancelled thread leaks the mapping for the entries of a poll of
        // many, if there is one, and nothing else.
        unsafe { test() };
    }
}
