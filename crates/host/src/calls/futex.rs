//! Calls of futexes: operations that read a word, and write none.
#![allow(unsafe_code)]

use super::ReadPtr;
use crate::sys::sys;
use softring_uapi::errno::{Result, check};

const WAKE: u32 = 1;
const CMP_REQUEUE: u32 = 4;
const WAIT_BITSET: u32 = 9;
const WAKE_BITSET: u32 = 10;
const PRIVATE: u32 = 128;
const SIZE_U32: u32 = 2;

/// `struct futex_waitv`, of a word of 32 bits.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    val: u64,
    uaddr: u64,
    flags: u32,
    reserved: u32,
}

impl Waiter {
    /// Makes a waiter at `at` for a word that is `val`.
    pub const fn new(at: ReadPtr, val: u32, private: bool) -> Waiter {
        let flags = SIZE_U32 | if private { PRIVATE } else { 0 };
        Waiter { val: val as u64, uaddr: at.0, flags, reserved: 0 }
    }
}

const fn op(op: u32, private: bool) -> u32 {
    op | if private { PRIVATE } else { 0 }
}

/// Waits without a timeout if the word is `val` (`FUTEX_WAIT_BITSET`).
///
/// # Errors
/// As futex(2): `EAGAIN`, `EINTR`.
pub fn wait(at: ReadPtr, private: bool, val: u32, mask: u32) -> Result<usize> {
    // SAFETY: the kernel reads there.
    check(unsafe { sys!(__NR_futex, at.0, op(WAIT_BITSET, private), val, 0, 0, mask) })
}

/// Moves up to `n` waiters if the word is `val`, and wakes none (`FUTEX_CMP_REQUEUE`).
///
/// # Errors
/// As futex(2): `EAGAIN`, `EINVAL`, `EFAULT`.
pub fn requeue(from: ReadPtr, val: u32, n: u32, to: ReadPtr, private: bool) -> Result<usize> {
    // SAFETY: the kernel reads there.
    check(unsafe { sys!(__NR_futex, from.0, op(CMP_REQUEUE, private), 0, n, to.0, val) })
}

/// Wakes up to `n` waiters (`FUTEX_WAKE`); returns how many.
///
/// # Errors
/// As futex(2).
pub fn wake(at: ReadPtr, private: bool, n: u32) -> Result<usize> {
    // SAFETY: the kernel reads nothing there, and writes nothing.
    check(unsafe { sys!(__NR_futex, at.0, op(WAKE, private), n) })
}

/// Wakes up to `n` waiters that match `mask` (`FUTEX_WAKE_BITSET`); returns how many.
///
/// # Errors
/// As futex(2).
pub fn wake_bitset(at: ReadPtr, private: bool, n: u32, mask: u32) -> Result<usize> {
    // SAFETY: as in `wake`.
    check(unsafe { sys!(__NR_futex, at.0, op(WAKE_BITSET, private), n, 0, 0, mask) })
}

/// Calls futex_wake(2), since Linux 6.7, on a word of 32 bits.
///
/// # Errors
/// As the call; `ENOSYS`.
pub fn wake2(at: ReadPtr, private: bool, n: i32, mask: u32) -> Result<usize> {
    // SAFETY: as in `wake`.
    check(unsafe { sys!(__NR_futex_wake, at.0, mask, n, op(SIZE_U32, private)) })
}

/// Returns whether futex_waitv(2) may be called.
pub fn has_waitv() -> bool {
    !crate::refused::is::<{ crate::sys::nr::__NR_futex_waitv }>()
}

/// Calls futex_waitv(2) without a timeout; returns the index of the word that was woken.
///
/// # Errors
/// As the call.
pub fn wait_any(of: &[Waiter]) -> Result<usize> {
    // SAFETY: the kernel reads the list, and the words that it names.
    check(unsafe { sys!(__NR_futex_waitv, of.as_ptr().expose_provenance(), of.len(), 0, 0, 0) })
}
