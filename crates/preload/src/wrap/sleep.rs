//! nanosleep(2) and the functions like it: a thread that returns from a sleep finds in its CQs what
//! came meanwhile (`engine::wait::task_work`). libc's own functions sleep, as they are cancellation
//! points.
#![allow(unsafe_code)]

use crate::gate::watched;
use crate::proc;
use crate::raw::{self, next};
use core::ffi::{c_int, c_uint};
use libc::{clockid_t, timespec, useconds_t};
use softring_engine::task_work;

/// Runs the task work that is due after a sleep; returns the sleep's answer.
pub fn awake<T>(answer: T) -> T {
    if watched() && !proc::shares_memory() {
        let errno = raw::errno();
        task_work::run();
        raw::set_errno(errno);
    }
    answer
}

/// `nanosleep(2)`: high-resolution sleep.
#[unsafe(no_mangle)]
unsafe extern "C" fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int {
    let next = next!(c"nanosleep", fn(*const timespec, *mut timespec) -> c_int);
    // SAFETY: the program's own call, here and in the others.
    awake(next.map_or(-1, |f| unsafe { f(time, left) }))
}

/// `clock_nanosleep(2)`: high-resolution sleep with specifiable clock.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    let next =
        next!(c"clock_nanosleep", fn(clockid_t, c_int, *const timespec, *mut timespec) -> c_int);
    // SAFETY: as above.
    awake(next.map_or(libc::ENOSYS, |f| unsafe { f(clock, flags, time, left) }))
}

/// `usleep(3)`: suspend execution for microsecond intervals.
#[unsafe(no_mangle)]
unsafe extern "C" fn usleep(time: useconds_t) -> c_int {
    let next = next!(c"usleep", fn(useconds_t) -> c_int);
    // SAFETY: as above.
    awake(next.map_or(-1, |f| unsafe { f(time) }))
}

/// `sleep(3)`: sleep for a specified number of seconds.
#[unsafe(no_mangle)]
unsafe extern "C" fn sleep(seconds: c_uint) -> c_uint {
    let next = next!(c"sleep", fn(c_uint) -> c_uint);
    // SAFETY: as above.
    awake(next.map_or(seconds, |f| unsafe { f(seconds) }))
}
