//! Kernel aio, as libaio and others call it.
//!
//! libaio's functions are not interposed: they come in three versions of symbols, and they do more
//! than their system calls (a peek at the ring mapped for the program, callbacks). All of them end
//! in six system calls, which reach us through io_uring's entry points: libc's `syscall()` (libaio
//! since 0.3.113, Seastar), patched sites (older libaio), the trap.
//!
//! A call that bypasses us is answered by the kernel, as it would be without us. So a site that
//! cannot be patched is no gap.
#![allow(unsafe_code)]

use crate::config::{self, Engine};
use crate::report;
use softring_engine::libaio::{self as aio, Wait};
use softring_host::calls::UserPtr;
use softring_host::calls::aio::Ending;

/// Numbers of the first five calls, from `FIRST` to `LAST`; the sixth is io_pgetevents's.
pub const FIRST: i64 = libc::SYS_io_setup;
pub const LAST: i64 = libc::SYS_io_cancel;
pub const PGETEVENTS: i64 = 333;

/// Returns whether `nr` is one of the six.
pub fn knows(nr: i64) -> bool {
    (FIRST..=LAST).contains(&nr) || nr == PGETEVENTS
}

/// Answers system call `nr`, which is one of the six.
///
/// # Safety
/// `a` are the arguments of a call that the program makes.
pub unsafe fn call(nr: i64, a: &[usize; 6]) -> isize {
    report::AIO.add();
    // SAFETY: arguments of the program's call.
    let at = |i: usize| unsafe { UserPtr::of_program(a[i] as u64) };
    let events = |sigset| {
        let [min, nr] = [a[1], a[2]].map(usize::cast_signed);
        aio::getevents(&Wait { id: a[0], min, nr, events: at(3), timeout: a[4], sigset })
    };
    match nr {
        libc::SYS_io_setup => aio::setup(a[0] as u32, at(1), config::engine() != Engine::Kernel),
        libc::SYS_io_destroy => {
            // SAFETY: the program ends its context by this call.
            aio::destroy(unsafe { Ending::of(a[0]) })
        }
        libc::SYS_io_submit => aio::submit(a[0], a[1].cast_signed(), at(2)),
        libc::SYS_io_cancel => aio::cancel(a[0], at(1), at(2)),
        libc::SYS_io_getevents => events(None),
        _ => events(Some(a[5])),
    }
}
