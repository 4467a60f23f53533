//! Threads: the processor, and sleeping on a word.
#![allow(unsafe_code)]

use core::sync::atomic::AtomicU32;

use super::kernel;
use super::time::Timespec;
use crate::vdso;
use softring_uapi::errno::Result;

/// Returns the number of the processor that the thread runs on.
pub fn sched_getcpu() -> usize {
    vdso::getcpu() as usize
}

/// `FUTEX_PRIVATE_FLAG`: no other process uses the word.
const PRIVATE: u32 = 128;
const FUTEX_WAIT: u32 = 0;
const FUTEX_WAKE: u32 = 1;

/// Sleeps while the word has this value, at most for the time; the word is this process's.
///
/// # Errors
/// `EAGAIN` (the word had changed), `EINTR`, `ETIMEDOUT`.
pub(crate) fn futex_wait(word: &AtomicU32, seen: u32, time: Option<&Timespec>) -> Result<()> {
    let word = word.as_ptr().expose_provenance();
    let time = time.map_or(0, |time| core::ptr::from_ref(time).expose_provenance());
    // SAFETY: the word and the time are only read.
    unsafe { kernel!(__NR_futex, word, FUTEX_WAIT | PRIVATE, seen, time) }.map(drop)
}

/// Wakes up to `n` threads that sleep on the word.
pub(crate) fn futex_wake(word: &AtomicU32, n: u32) {
    // SAFETY: nothing is read there, nor written.
    let _ =
        unsafe { kernel!(__NR_futex, word.as_ptr().expose_provenance(), FUTEX_WAKE | PRIVATE, n) };
}
