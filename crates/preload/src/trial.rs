//! Is a ring of the kernel worth having? Some sandboxes grant one whose every request fails, or
//! refuse what is done with it.
//!
//! That one works is known until the machine starts again: an empty file in /dev/shm says so, whose
//! owner has seen it. A container has a /dev/shm of its own. Under a seccomp filter each process
//! tries for itself, as another's filter may do with rings what it likes.
#![allow(unsafe_code)]

use crate::raw::raw;
use softring_host::refused;
use softring_host::trial::{Calls, Record, Trial};
use std::sync::OnceLock;

/// The kernel's own calls.
const KERNELS: Calls = Calls {
    // SAFETY: the parameters are the trial's, which lives on.
    setup: |entries, params| unsafe { raw!(libc::SYS_io_uring_setup, entries, params) },
    // SAFETY: numbers only; what the requests name lives on.
    enter: |ring, n, min, flags| unsafe {
        raw!(libc::SYS_io_uring_enter, ring, n, min, flags, 0, 0)
    },
    // SAFETY: the trial's own descriptor.
    close: |ring| unsafe { raw!(libc::SYS_close, ring) },
};

/// What a trial calls.
const TRIED: [i64; 7] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_pipe2,
    libc::SYS_write,
    libc::SYS_close,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
];

/// What of the kernel's rings does not work here; `None` also where it gives none at all. Tried
/// once per process, unless the program's own filter is in the way of the trial; what is refused
/// may be more with each filter that it puts on.
pub fn fault() -> Option<&'static str> {
    static FAULT: OnceLock<Option<&'static str>> = OnceLock::new();
    if refused::how(libc::SYS_io_uring_setup).is_some() {
        return None;
    }
    let calls = [
        (libc::SYS_io_uring_enter, "io_uring_enter"),
        (libc::SYS_io_uring_register, "io_uring_register"),
    ];
    if let Some((_, name)) = calls.iter().find(|(nr, _)| refused::how(*nr).is_some()) {
        return Some(name);
    }
    *FAULT.get_or_init(|| {
        let record = (!refused::is_filtered()).then(Record::new);
        if record.as_ref().is_some_and(Record::is_there) || !TRIED.into_iter().all(refused::spares)
        {
            return None;
        }
        let fault = Trial::new(KERNELS).ok()?.fault();
        if let Some(record) = record.filter(|_| fault.is_none()) {
            record.make();
        }
        fault
    })
}
