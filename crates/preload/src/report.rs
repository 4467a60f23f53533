//! Counters, printed at exit if `SOFTRING_REPORT` asks: which entry point saw how many calls.

use crate::config;
use alloc::format;
use core::sync::atomic::{AtomicU64, Ordering};

/// A counter; statistics only, so relaxed.
pub struct Count(AtomicU64);

impl Count {
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }
    /// Counts a call, if the count will be printed: threads would contend for the word.
    #[inline]
    pub fn add(&self) {
        if config::report() {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    pub fn add_many(&self, n: usize) {
        self.0.fetch_add(n as u64, Ordering::Relaxed);
    }
    pub fn set(&self, n: usize) {
        self.0.store(n as u64, Ordering::Relaxed);
    }
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// `io_uring_setup` calls through any entry point.
pub static SETUPS: Count = Count::new();
/// Calls through libc's `syscall()`.
pub static LIBC: Count = Count::new();
/// Calls through patched sites.
pub static PATCHED: Count = Count::new();
/// Calls through the SIGSYS trap.
pub static TRAPPED: Count = Count::new();
/// Calls of kernel aio through any entry point.
pub static AIO: Count = Count::new();
/// Sites patched.
pub static SITES: Count = Count::new();
/// Sites that could not be patched.
pub static GAPS: Count = Count::new();
/// Bytes of text scanned, and the processor time of the scan and the patching.
pub static BYTES: Count = Count::new();
pub static NANOS: Count = Count::new();

/// Prints the line at exit.
pub fn at_exit() {
    if config::report() {
        let ((polled, found), idle_sleeps) =
            (softring_engine::libaio::peeks(), softring_engine::libaio::idle_slept());
        crate::notice::line(&format!(
            "report: pid {} sites {} gaps {} setups {} libc {} patched {} trapped {} \
             aio {} polled {polled} found {found} sleeps {idle_sleeps} unreported {} \
             scanned {} KiB in {} us of CPU",
            crate::proc::id(),
            SITES.get(),
            GAPS.get(),
            SETUPS.get(),
            LIBC.get(),
            PATCHED.get(),
            TRAPPED.get(),
            AIO.get(),
            crate::intercept::patch::missed(),
            BYTES.get() / 1024,
            NANOS.get() / 1000
        ));
    }
}
