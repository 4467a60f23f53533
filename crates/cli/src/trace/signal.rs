//! Signals that end a trace: what was seen is still to be written.
#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

static ASKED: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: i32) {
    ASKED.store(signal, Relaxed);
}

/// From now on SIGINT, SIGTERM and SIGHUP are only noted. What is started gets them as ever: a
/// handler does not outlive exec.
pub fn catch() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: an all-zero sigaction is a valid one; the handler only stores to an atomic.
        let failed = unsafe {
            let mut act: libc::sigaction = std::mem::zeroed();
            act.sa_sigaction = (note as extern "C" fn(i32)) as usize;
            act.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &raw const act, std::ptr::null_mut())
        };
        if failed != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The signal that came since the last call, if one did.
pub fn asked() -> Option<i32> {
    let signal = ASKED.swap(0, Relaxed);
    (signal != 0).then_some(signal)
}

/// Passes a signal on to a child, but for that which the terminal sends to all.
pub fn pass_on(signal: i32, child: u32) {
    if signal != libc::SIGINT {
        // SAFETY: a plain system call; the child is ours and has not been waited for.
        unsafe { libc::kill(child.cast_signed(), signal) };
    }
}
