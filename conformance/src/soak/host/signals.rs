//! Signals to every thread, whose handlers do all that handlers may do.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;

use super::super::Check;
use super::sys;
use crate::os;

static EVENTS: AtomicI32 = AtomicI32::new(-1);
static ANSWERED: AtomicU64 = AtomicU64::new(0);

/// Calls POSIX's async-signal-safe functions for which the library has wrappers.
extern "C" fn handler(_: i32) {
    let fd = EVENTS.load(Ordering::Relaxed);
    let (one, mut all) = (1u64, 0u64);
    // SAFETY: the functions are async-signal-safe, with memory of this frame; errno is restored.
    unsafe {
        let errno = *libc::__errno_location();
        let copy = libc::dup(fd);
        libc::fcntl(copy, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::write(copy, (&raw const one).cast(), 8);
        let mut poll = libc::pollfd { fd: copy, events: libc::POLLIN, revents: 0 };
        libc::poll(&raw mut poll, 1, 0);
        libc::read(copy, (&raw mut all).cast(), 8);
        libc::close(copy);
        *libc::__errno_location() = errno;
    }
    ANSWERED.fetch_add(1, Ordering::Relaxed);
}

/// Sender of signals to the threads that take them.
pub struct Bell {
    threads: Mutex<Vec<i32>>,
    _events: OwnedFd,
}

impl Bell {
    pub fn new() -> Check<Bell> {
        let events = sys::eventfd()?;
        EVENTS.store(events.as_raw_fd(), Ordering::Relaxed);
        os::handle(libc::SIGUSR1, handler, libc::SA_RESTART);
        Ok(Bell { threads: Mutex::default(), _events: events })
    }

    pub fn answered(&self) -> u64 {
        ANSWERED.load(Ordering::Relaxed)
    }

    /// Runs `f` while the calling thread takes signals.
    pub fn hears<T>(&self, f: impl FnOnce() -> T) -> T {
        let (me, list) = (os::tid(), || self.threads.lock().unwrap_or_else(|e| e.into_inner()));
        list().push(me);
        let out = f();
        list().retain(|t| *t != me);
        out
    }

    /// Sends signals until `over` is set.
    pub fn ring(&self, mut rng: Rng, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            let list = self.threads.lock().unwrap_or_else(|e| e.into_inner());
            if let Some(tid) = rng.choice(list.iter()) {
                sys::tell(*tid, libc::SIGUSR1);
            }
            drop(list);
            std::thread::sleep(Duration::from_micros(rng.u64(100..3000)));
        }
    }
}
