//! Trial of the kernel's rings. Some sandboxes grant a ring whose every request fails, or refuse
//! the calls on it.
//!
//! A ring that works is remembered until the machine restarts, by an empty file in /dev/shm whose
//! owner has seen it work. A container has a /dev/shm of its own. Under a seccomp filter each
//! process tries for itself, as another process may have a different filter.
#![allow(unsafe_code)]

use crate::raw::raw;
use softring_host::refused;
use softring_host::sync::real::OnceLock;
use softring_host::trial::{Calls, Record, Trial};

/// Calls to the kernel itself.
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

/// System calls of a trial.
const TRIED: [i64; 7] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_pipe2,
    libc::SYS_write,
    libc::SYS_close,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
];

/// Returns what does not work on the kernel's rings here; `None` also if the kernel gives none at
/// all. Tried once per process, unless the program's own filter is in the way of the trial. Refused
/// calls are checked each time, as each new filter may refuse more.
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
