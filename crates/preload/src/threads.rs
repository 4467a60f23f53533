//! Threads of the engine, which the C library starts: which refused calls prevent that.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_void};

use softring_host::refused::{self, Refusal};
use softring_host::threads::{self, Life};
use softring_uapi::errno::Errno;

use crate::raw::{Next, next};

/// Returns a call that a policy refuses and without which this C library has no threads. glibc
/// starts threads by clone3(2) since 2.34, and by clone(2) only if clone3 answers ENOSYS. At a
/// thread's end it gives the stack back by madvise(2), and ignores errors.
pub fn refused() -> Option<(&'static str, Refusal)> {
    start_refused().or_else(|| {
        let end = refused::how(libc::SYS_madvise).filter(|how| *how == Refusal::Kills);
        end.filter(|_| by_clone3()).map(|how| ("madvise", how))
    })
}

/// Returns the refused call if threads cannot be started.
fn start_refused() -> Option<(&'static str, Refusal)> {
    let start = match refused::how(libc::SYS_clone3).filter(|_| by_clone3()) {
        Some(how) if how != Refusal::Answers(Errno::ENOSYS) => Some(("clone3", how)),
        None if by_clone3() => None,
        _ => refused::known_refusal(libc::SYS_clone).map(|how| ("clone", how)),
    };
    start.or_else(beginning_refused)
}

/// Returns the refused call if it ends the process at a thread's start: glibc wants each thread
/// registered for rseq(2) as the first one is, and ignores a failed set_robust_list(2).
fn beginning_refused() -> Option<(&'static str, Refusal)> {
    let rseq = || refused::known_refusal(libc::SYS_rseq).map(|how| ("rseq", how));
    let list = refused::known_refusal(libc::SYS_set_robust_list);
    let list = list.filter(|how| *how == Refusal::Kills).map(|how| ("set_robust_list", how));
    list.or_else(|| if registers_rseq() { rseq() } else { None })
}

/// Returns whether glibc, since 2.35, has registered its first thread.
fn registers_rseq() -> bool {
    static SIZE: Next = Next::new(c"__rseq_size");
    let size = SIZE.get().cast::<u32>();
    // SAFETY: glibc's variable of this name, which stays as it is once a program runs.
    !size.is_null() && unsafe { size.read() } != 0
}

fn by_clone3() -> bool {
    let version = next!(c"gnu_get_libc_version", fn() -> *const c_char);
    // SAFETY: glibc's answer is a string of its own, for good.
    let version = version.map(|ask| unsafe { CStr::from_ptr(ask()) }.to_bytes());
    version.is_some_and(is_since_2_34)
}

/// Returns whether a version is 2.34 or newer. Asked for each ring, so it takes few instructions.
fn is_since_2_34(version: &[u8]) -> bool {
    let digit = |n: u32, b: &u8| n.saturating_mul(10).saturating_add(u32::from(b - b'0'));
    let number = |s: &[u8]| s.iter().take_while(|b| b.is_ascii_digit()).fold(0, digit);
    let mut numbers = version.split(|b| *b == b'.').map(number);
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next()) >= (2, 34)
}

/// Returns the least size of a thread's stack, with room for the thread-local memory of all
/// libraries.
fn minimum() -> usize {
    let ask = next!(c"__pthread_get_minstack", fn(*const c_void) -> usize);
    // SAFETY: glibc's function of this name reads at most an attribute, all of whose words are 0.
    ask.map_or(0, |ask| unsafe { ask([0u64; 16].as_ptr().cast()) })
}

/// Starts a detached thread with a stack of at least `stack` bytes.
///
/// # Errors
/// As `pthread_create(3)`.
pub fn start(stack: usize, life: Life) -> Result<(), Errno> {
    if let Some((call, how)) = start_refused() {
        crate::notice::wanting(call, how);
        return Err(Errno::EPERM);
    }
    threads::begin(stack.max(minimum()), life)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for version in ["2.34", "2.36-9+deb12u1", "2.41.9000", "10.1", "3.0"] {
            assert!(is_since_2_34(version.as_bytes()), "{version}");
        }
        for version in ["2.33", "2.4", "2", "", "1.99", "x.40"] {
            assert!(!is_since_2_34(version.as_bytes()), "{version}");
        }
    }
}
