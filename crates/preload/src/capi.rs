//! `softring.h`: io_uring's three calls by name, and work meters, for programs linked with
//! `-lsoftring`.
#![allow(unsafe_code)]

use crate::intercept::syscall;
use crate::{built_in, gate, raw};
use alloc::boxed::Box;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use softring_engine::stats::meter::Meter;

/// Calls `io_uring_setup(2)`: sets up a ring. Returns -1 and sets `errno` on failure, as the manual
/// page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn softring_setup(entries: c_uint, params: *mut c_void) -> c_int {
    // SAFETY: the program's own call.
    unsafe { call(libc::SYS_io_uring_setup, [entries as usize, params.expose_provenance()]) }
}

/// Calls `io_uring_enter2(2)`: submits and waits. Returns -1 and sets `errno` on failure, as the
/// manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn softring_enter(
    fd: c_int,
    to_submit: c_uint,
    min_complete: c_uint,
    flags: c_uint,
    arg: *const c_void,
    size: usize,
) -> c_int {
    let counts = [to_submit as usize, min_complete as usize, flags as usize];
    let args = [fd as usize, counts[0], counts[1], counts[2], arg.expose_provenance(), size];
    // SAFETY: the program's own call.
    unsafe { call(libc::SYS_io_uring_enter, args) }
}

/// Calls `io_uring_register(2)`: registers resources. Returns -1 and sets `errno` on failure, as
/// the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn softring_register(
    fd: c_int,
    opcode: c_uint,
    arg: *mut c_void,
    nr_args: c_uint,
) -> c_int {
    let args = [fd as usize, opcode as usize, arg.expose_provenance(), nr_args as usize];
    // SAFETY: the program's own call.
    unsafe { call(libc::SYS_io_uring_register, args) }
}

/// Returns the version of this library, such as `0.1.0`.
#[unsafe(no_mangle)]
extern "C" fn softring_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Creates a work meter called `name` for the calling thread. Never returns NULL.
///
/// # Safety
/// `name` is a string or NULL.
#[unsafe(no_mangle)]
unsafe extern "C" fn softring_meter_create(name: *const c_char) -> *mut Meter {
    // SAFETY: the caller's.
    let name = if name.is_null() { c"" } else { unsafe { CStr::from_ptr(name) } };
    Box::into_raw(Box::new(Meter::new(&name.to_string_lossy())))
}

/// Marks the start of work, or its continuation.
///
/// # Safety
/// `meter` belongs to the calling thread and is not destroyed.
#[unsafe(no_mangle)]
unsafe extern "C" fn softring_meter_begin(meter: *mut Meter) {
    // SAFETY: the caller's.
    unsafe { (*meter).begin() }
}

/// Marks the end of work, or that there was none.
///
/// # Safety
/// As for [`softring_meter_begin`].
#[unsafe(no_mangle)]
unsafe extern "C" fn softring_meter_end(meter: *mut Meter) {
    // SAFETY: the caller's.
    unsafe { (*meter).end() }
}

/// Reads the thread's processor time since the meter was created, and that of its work, in
/// microseconds.
///
/// # Safety
/// As for [`softring_meter_begin`]; the caller may write to the two pointers, which may be NULL.
#[unsafe(no_mangle)]
unsafe extern "C" fn softring_meter_read(meter: *mut Meter, total: *mut u64, work: *mut u64) {
    // SAFETY: the caller's.
    unsafe {
        let (t, w) = (*meter).read();
        if let Some(total) = total.as_mut() {
            *total = t;
        }
        if let Some(work) = work.as_mut() {
            *work = w;
        }
    }
}

/// Destroys the meter, which is shown no more.
///
/// # Safety
/// As for [`softring_meter_begin`]; `meter` may be NULL and is not used again.
#[unsafe(no_mangle)]
unsafe extern "C" fn softring_meter_destroy(meter: *mut Meter) {
    if !meter.is_null() {
        // SAFETY: made by `softring_meter_create`; given back once, as the caller promises.
        drop(unsafe { Box::from_raw(meter) });
    }
}

unsafe fn call<const N: usize>(nr: libc::c_long, args: [usize; N]) -> c_int {
    let (nr, args) = (nr as usize, softring_host::raw::args(args));
    // SAFETY: the caller's.
    unsafe {
        if built_in::is_idle() {
            return syscall::pass_on(nr, &args) as c_int;
        }
        raw::libc_answer(gate::call(nr, &args)) as c_int
    }
}
