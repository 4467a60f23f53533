//! Kernel aio as programs call it: io_setup(2), io_submit(2), io_getevents(2) and the others.
//!
//! The kernel answers these calls. This module adds polling (`IOCB_FLAG_HIPRI`, which the kernel's
//! aio does not know), and contexts if the kernel gives none ([`emulated`]).
//!
//! ```text
//! io_setup      table        the kernel's context, noted; or one of ours
//! io_submit     context      is it polled? its first iocb says so
//! io_getevents  peek         peeks until enough completions are there, then asks the kernel
//!               idle_sleeps  the same by another policy than spinning
//! ```
//!
//! **Polling** reads the completion memory of kernel aio, which is mapped into this process: the
//! thread that waits does not sleep, and needs no wake-up. The device interrupts as ever. Events
//! are always taken by the kernel's own io_getevents, which by then need not wait: so several
//! threads may reap, bad addresses are EFAULT, and each event carries what the kernel puts into it.
//!
//! **Two ways to poll.** A context whose iocbs have the flag is polled as the flag's authors meant
//! it: the ring that is mapped for the program loses the mark that allows reading it. With
//! [`poll_all`] the contexts of programs that do not know the flag are polled, too: their rings
//! keep the mark, and the program may read them.
//!
//! Calls on contexts that need no inspection cost one load.

mod context;
mod emulated;
mod idle_sleeps;
mod mapped;
mod peek;
mod table;

pub use idle_sleeps::idle_slept;
pub use peek::{Wait, peeks};
pub(crate) use table::AT_FORK;

use core::sync::atomic::Ordering::Relaxed;
use softring_host::calls::UserPtr;
use softring_host::calls::aio::{self, Ending};
use softring_host::fork;
use softring_host::handlers::{self, Call};
use softring_host::user;
use softring_uapi::errno::{Errno, answer};
use table::{Entry, PROCESS};

/// Polls every new context from now on, as if its iocbs had the flag, but without the flag's rules.
pub fn poll_all() {
    PROCESS.poll_all.store(true, Relaxed);
}

/// Says whether all calls on contexts reach us. If not, the flag is ignored, as the kernel ignores
/// it: a context may end past us, and with it the memory that is polled.
pub fn all_calls_reported(all: bool) {
    PROCESS.misses_calls.store(!all, Relaxed);
}

/// Creates an asynchronous I/O context (`io_setup(2)`). `emulate`: makes one of ours if the kernel
/// has none.
///
/// Returns 0 or `-errno`, as the system call does.
pub fn setup(nr: u32, at: UserPtr, emulate: bool) -> isize {
    let _call = Call::begin();
    fork::check();
    let done = aio::io_setup(nr, at);
    match done {
        Ok(_) => {
            if let Ok(id) = user::read::<u64>(at.addr()) {
                table::record(id as usize, nr);
            }
            answer(done)
        }
        Err(Errno::ENOSYS | Errno::EPERM | Errno::EACCES) if emulate => {
            answer(emulated::setup(nr, at))
        }
        Err(e) => e.ret(),
    }
}

/// Destroys an asynchronous I/O context (`io_destroy(2)`).
pub fn destroy(ctx: Ending) -> isize {
    let _call = Call::begin();
    fork::check();
    match table::take(ctx.id()) {
        Some(Entry::Kernels(known)) => known.destroy(),
        Some(Entry::Ours(known)) => known.destroy(),
        None => emulated::unknown(answer(aio::io_destroy(ctx))),
    }
}

/// Submits asynchronous I/O blocks for processing (`io_submit(2)`).
pub fn submit(id: usize, nr: isize, list: UserPtr) -> isize {
    let _call = Call::begin();
    match table::find(id) {
        Some(Entry::Kernels(ctx)) => ctx.submit(nr, list),
        Some(Entry::Ours(ctx)) => ctx.submit(nr, list),
        None => emulated::unknown(answer(aio::io_submit(id, nr, list))),
    }
}

/// Cancels an outstanding asynchronous I/O operation (`io_cancel(2)`).
pub fn cancel(id: usize, cb: UserPtr, result: UserPtr) -> isize {
    let _call = Call::begin();
    let kernels = || aio::io_cancel(id, cb, result);
    match table::find(id) {
        Some(Entry::Kernels(_)) => answer(kernels()),
        Some(Entry::Ours(ctx)) => answer(ctx.cancel(cb)),
        None => emulated::unknown(answer(kernels())),
    }
}

/// Reads asynchronous I/O events from the completion queue (`io_getevents(2)`, `io_pgetevents(2)`).
pub fn getevents(wait: &Wait) -> isize {
    let _call = Call::begin();
    let _under = wait.sigmask().ok().flatten().map(handlers::waits_under);
    match table::find(wait.id) {
        Some(Entry::Kernels(ctx)) => ctx.getevents(wait),
        Some(Entry::Ours(ctx)) => ctx.getevents(wait),
        None => emulated::unknown_waits(wait),
    }
}
