//! Kernel aio, as libaio and others call it.
//!
//! libaio's functions are not interposed: they come in three versions of symbols, and what they add
//! to their system calls (a peek at the ring that is mapped for the program, callbacks) is theirs
//! to keep. All of them end in six system calls, which reach us through the entry points that
//! io_uring's do: libc's `syscall()` (libaio since 0.3.113, Seastar), patched sites (libaio before
//! that), the trap.
//!
//! Nobody needs us here: a call that goes past us is answered by the kernel, as it would be
//! without. So a site that cannot be patched is no gap.

use crate::config::{self, Engine};
use crate::report;
use softring_engine::libaio::{self as aio, Wait};

/// The first five numbers; the sixth is io_pgetevents's.
pub const FIRST: i64 = libc::SYS_io_setup;
pub const LAST: i64 = libc::SYS_io_cancel;
pub const PGETEVENTS: i64 = 333;

/// Is it one of the six?
pub fn knows(nr: i64) -> bool {
    (FIRST..=LAST).contains(&nr) || nr == PGETEVENTS
}

/// Answers system call `nr`, which is one of the six.
pub fn call(nr: i64, a: &[usize; 6]) -> isize {
    report::AIO.add();
    let events = |sigset| {
        let [min, nr] = [a[1], a[2]].map(usize::cast_signed);
        aio::getevents(&Wait { id: a[0], min, nr, events: a[3], timeout: a[4], sigset })
    };
    match nr {
        libc::SYS_io_setup => aio::setup(a[0] as u32, a[1], config::engine() != Engine::Kernel),
        libc::SYS_io_destroy => aio::destroy(a[0]),
        libc::SYS_io_submit => aio::submit(a[0], a[1].cast_signed(), a[2]),
        libc::SYS_io_cancel => aio::cancel(a[0], a[1], a[2]),
        libc::SYS_io_getevents => events(None),
        _ => events(Some(a[5])),
    }
}
