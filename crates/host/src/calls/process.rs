//! Calls of processes and threads.
#![allow(unsafe_code)]

use super::calls;
use crate::os::fd::OwnedFd;
use crate::sys::{owned, sys};
use softring_uapi::errno::{Result, check};

calls! {
    /// Calls exit_group(2); returns if it is refused.
    fn exit_group(code: i32) = __NR_exit_group;
    /// Calls kcmp(2) on a resource that a process has only once.
    fn kcmp(one: i32, other: i32, what: u32) = __NR_kcmp;
}

/// Calls getpid(2), each time.
pub fn getpid() -> u32 {
    // SAFETY: takes nothing.
    unsafe { sys!(__NR_getpid) as u32 }
}

/// Calls sched_yield(2).
pub(crate) fn sched_yield() {
    // SAFETY: takes nothing.
    unsafe { sys!(__NR_sched_yield) };
}

/// Calls gettid(2), each time.
pub fn gettid() -> i32 {
    // SAFETY: takes nothing.
    unsafe { sys!(__NR_gettid) as i32 }
}

/// Calls pidfd_open(2).
///
/// # Errors
/// As the call; `ENOSYS`.
pub fn pidfd_open(pid: i32) -> Result<OwnedFd> {
    // SAFETY: numbers; the answer is a descriptor.
    unsafe { owned(sys!(__NR_pidfd_open, pid, 0)) }
}

/// Words of a `siginfo_t`.
pub type Info = [u32; 32];

/// Calls waitid(2); without `to`, it does not report the child's information.
///
/// # Errors
/// As the call.
pub fn waitid(which: u32, id: i32, to: Option<&mut Info>, options: u32) -> Result<usize> {
    let to = to.map_or(0, |to| to.as_mut_ptr().expose_provenance());
    // SAFETY: the words are the caller's, and as many as the kernel writes.
    check(unsafe { sys!(__NR_waitid, which, id, to, options, 0) })
}

/// Calls sched_setaffinity(2); thread 0 is the calling one.
///
/// # Errors
/// As the call.
pub fn set_affinity(tid: i32, mask: &[u8]) -> Result<()> {
    let at = mask.as_ptr().expose_provenance();
    // SAFETY: the kernel reads there.
    check(unsafe { sys!(__NR_sched_setaffinity, tid, mask.len(), at) }).map(drop)
}

/// Calls sched_getaffinity(2) for the calling thread; returns how many bytes it has written.
///
/// # Errors
/// As the call.
pub fn affinity(to: &mut [u8]) -> Result<usize> {
    let at = to.as_mut_ptr().expose_provenance();
    // SAFETY: the slice is the caller's, and the kernel is told its length.
    check(unsafe { sys!(__NR_sched_getaffinity, 0, to.len(), at) })
}

/// Reads a clock by a system call (clock_gettime(2)), in ns.
pub fn clock(id: u32) -> u64 {
    let mut ts = [0u64; 2];
    // SAFETY: the two words of a timespec are ours.
    unsafe { sys!(__NR_clock_gettime, id, ts.as_mut_ptr().expose_provenance()) };
    ts[0] * 1_000_000_000 + ts[1]
}

/// Calls prlimit(2) on this process: sets the `new` limits, if any; returns the old ones.
///
/// # Errors
/// As the call; `ENOSYS`.
pub(crate) fn prlimit(what: u32, new: Option<[u64; 2]>) -> Result<[u64; 2]> {
    let mut old = [u64::MAX; 2];
    let from = new.as_ref().map_or(0, |new| new.as_ptr().expose_provenance());
    // SAFETY: the kernel reads the new limits, and writes the old ones, which are ours.
    check(unsafe { sys!(__NR_prlimit64, 0, what, from, old.as_mut_ptr().expose_provenance()) })?;
    Ok(old)
}

/// Calls getrlimit(2).
///
/// # Errors
/// As the call.
pub fn getrlimit(what: u32) -> Result<[u64; 2]> {
    let mut limits = [u64::MAX; 2];
    // SAFETY: the limits are ours.
    check(unsafe { sys!(__NR_getrlimit, what, limits.as_mut_ptr().expose_provenance()) })?;
    Ok(limits)
}

/// Calls setrlimit(2).
///
/// # Errors
/// As the call.
pub fn setrlimit(what: u32, limits: [u64; 2]) -> Result<()> {
    // SAFETY: the kernel reads there.
    check(unsafe { sys!(__NR_setrlimit, what, limits.as_ptr().expose_provenance()) }).map(drop)
}
