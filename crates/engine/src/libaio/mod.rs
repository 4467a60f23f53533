//! Kernel aio as programs call it: io_setup(2), io_submit(2), io_getevents(2) and the others.
//!
//! The kernel answers them. What is added here is polling (`IOCB_FLAG_HIPRI`, which the kernel's
//! aio does not know), and contexts where the kernel gives none ([`emulated`]).
//!
//! ```text
//! io_setup      table        the kernel's context, noted; or one of ours
//! io_submit     context      is it polled? its first iocb says so
//! io_getevents  peek         peeks until enough completions are there, then asks the kernel
//!               idle_sleeps  the same by another policy than spinning
//! ```
//!
//! **What is polled** is the completion memory of kernel aio, which is mapped into this process:
//! the thread that waits does not sleep, and needs no wake-up. The device interrupts as ever.
//! Events are always taken by the kernel's own io_getevents, which by then need not wait: so
//! several threads may reap, bad addresses are EFAULT, and each event carries what the kernel puts
//! into it.
//!
//! **Two ways to poll.** A context whose iocbs have the flag is polled as the flag's authors meant
//! it: its iocbs go to a second context, and the ring that is mapped for the program stays empty.
//! With [`poll_all`] the contexts of programs that know nothing of all this are polled too: these
//! keep their own ring, for the program may read it.
//!
//! Calls on contexts that need none of it cost one load.

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
use softring_host::calls::{UserPtr, aio};
use softring_host::fork;
use softring_host::handlers::{self, Call};
use softring_host::user;
use softring_uapi::errno::{Errno, answer};
use table::{Entry, PROCESS};

/// From now on every new context is polled, as if its iocbs had the flag, but for the flag's rules.
pub fn poll_all() {
    PROCESS.poll_all.store(true, Relaxed);
}

/// Do all calls on contexts reach us? If not, the flag is ignored, as the kernel ignores it: a
/// context may end past us, and with it the memory that is polled.
pub fn all_calls_reported(all: bool) {
    PROCESS.misses_calls.store(!all, Relaxed);
}

/// `io_setup(2)`: create an asynchronous I/O context. `emulate`: make one of ours where the kernel
/// has none.
///
/// As the system call: 0, or `-errno`.
pub fn setup(nr: u32, at: usize, emulate: bool) -> isize {
    let _call = Call::begin();
    fork::check();
    let done = aio::io_setup(nr, UserPtr::of_program(at as u64));
    match done {
        Ok(_) => {
            if let Ok(id) = user::read::<u64>(at as u64) {
                table::note(id as usize, nr);
            }
            answer(done)
        }
        Err(Errno::ENOSYS | Errno::EPERM | Errno::EACCES) if emulate => {
            answer(emulated::setup(nr, at as u64))
        }
        Err(e) => e.ret(),
    }
}

/// `io_destroy(2)`: destroy an asynchronous I/O context.
pub fn destroy(id: usize) -> isize {
    let _call = Call::begin();
    fork::check();
    match table::take(id) {
        Some(Entry::Kernels(ctx)) => ctx.destroy(),
        Some(Entry::Ours(ctx)) => ctx.destroy(),
        None => emulated::unknown(answer(aio::io_destroy(id))),
    }
}

/// `io_submit(2)`: submit asynchronous I/O blocks for processing.
pub fn submit(id: usize, nr: isize, list: usize) -> isize {
    let _call = Call::begin();
    match table::find(id) {
        Some(Entry::Kernels(ctx)) => ctx.submit(nr, list),
        Some(Entry::Ours(ctx)) => ctx.submit(nr, list as u64),
        None => emulated::unknown(answer(aio::io_submit(id, nr, UserPtr::of_program(list as u64)))),
    }
}

/// `io_cancel(2)`: cancel an outstanding asynchronous I/O operation.
pub fn cancel(id: usize, cb: usize, result: usize) -> isize {
    let _call = Call::begin();
    let kernels =
        || aio::io_cancel(id, UserPtr::of_program(cb as u64), UserPtr::of_program(result as u64));
    match table::find(id) {
        Some(Entry::Kernels(_)) => answer(kernels()),
        Some(Entry::Ours(ctx)) => answer(ctx.cancel(cb as u64)),
        None => emulated::unknown(answer(kernels())),
    }
}

/// `io_getevents(2)`, `io_pgetevents(2)`: read asynchronous I/O events from the completion queue.
pub fn getevents(wait: &Wait) -> isize {
    let _call = Call::begin();
    let _under = wait.sigmask().ok().flatten().map(handlers::waits_under);
    match table::find(wait.id) {
        Some(Entry::Kernels(ctx)) => ctx.getevents(wait),
        Some(Entry::Ours(ctx)) => ctx.getevents(wait),
        None => emulated::unknown_waits(wait),
    }
}
