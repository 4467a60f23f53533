//! Calls of memory.
#![allow(unsafe_code)]

use super::{UserPtr, calls};
use crate::sys::sys;
use core::ptr::NonNull;
use softring_uapi::errno::{Errno, Result, check};

calls! {
    /// Calls madvise(2) on the program's memory.
    fn madvise(at: UserPtr, len: u64, advice: u32) = __NR_madvise;
}

/// Private memory of zeroes, in a mapping of its own; unmapped on drop.
#[derive(Debug)]
pub struct Anonymous {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: an address range that nobody else has; whoever uses it answers for how.
unsafe impl Send for Anonymous {}

impl Anonymous {
    /// Maps `len` bytes, which must be whole pages.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(len: usize) -> Result<Anonymous> {
        /// `PROT_READ | PROT_WRITE`, `MAP_PRIVATE | MAP_ANONYMOUS`.
        const HOW: [u32; 2] = [3, 0x22];
        // SAFETY: a fresh mapping at an address of the kernel's choice overlays nothing.
        let at = check(unsafe { sys!(__NR_mmap, 0, len, HOW[0], HOW[1], usize::MAX, 0) })?;
        let at = core::ptr::with_exposed_provenance_mut(at);
        Ok(Anonymous { at: NonNull::new(at).ok_or(Errno::ENOMEM)?, len })
    }

    /// Returns the start of the memory.
    pub fn at(&self) -> NonNull<u8> {
        self.at
    }

    /// Returns the start of the memory as a number.
    pub fn addr(&self) -> usize {
        self.at.as_ptr().expose_provenance()
    }
}

impl Drop for Anonymous {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made, which nobody uses past `self`.
        unsafe { unmap(self.addr(), self.len) };
    }
}

/// Calls madvise(2) on memory of ours.
///
/// # Errors
/// As the call; `ENOSYS`.
///
/// # Safety
/// The range is a mapping of the caller's, and whoever uses it expects what the advice makes of it.
pub unsafe fn advise(at: usize, len: usize, advice: u32) -> Result<()> {
    // SAFETY: the caller's.
    check(unsafe { sys!(__NR_madvise, at, len, advice) }).map(drop)
}

/// Calls munmap(2).
///
/// # Safety
/// The range is a mapping that the caller owns, or none, and nobody uses it any more.
pub unsafe fn unmap(at: usize, len: usize) {
    // SAFETY: the caller's.
    unsafe { sys!(__NR_munmap, at, len) };
}

/// Maps the memory of a shared mapping once more: mremap(2) with an old size of 0. The old mapping
/// stays, and the new one is at an address of the kernel's choice.
pub fn alias(at: usize, len: usize) -> Option<NonNull<u8>> {
    const MREMAP_MAYMOVE: usize = 1;
    // SAFETY: a fresh mapping; what lies in the old one stays as it is.
    let at = check(unsafe { sys!(__NR_mremap, at, 0, len, MREMAP_MAYMOVE) }).ok()?;
    NonNull::new(core::ptr::with_exposed_provenance_mut(at))
}

/// Checks that there is memory for a thread with such a stack. A thread allocates when it begins,
/// and the C library ends the process if it cannot. A thread that is not made does no harm.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn room_for_thread(stack: usize) -> Result<()> {
    /// Memory for the beginning of a thread: the C library asks for at least a mebibyte if the heap
    /// cannot grow.
    const BEGINNING: usize = (1 << 20) + (128 << 10);
    /// `MAP_PRIVATE | MAP_ANONYMOUS`.
    const HOW: usize = 2 | 0x20;
    let len = stack + BEGINNING;
    // SAFETY: a fresh mapping at an address of the kernel's choice overlays nothing.
    let at = check(unsafe { sys!(__NR_mmap, 0, len, 0, HOW, usize::MAX, 0) })?;
    // SAFETY: that mapping.
    unsafe { unmap(at, len) };
    Ok(())
}

/// Faults a range in for writing, as pinning would (`MADV_POPULATE_WRITE`). Changes no byte.
///
/// # Errors
/// As madvise(2); `ENOMEM` or `EFAULT` if the range is not writable memory.
pub fn populate_write(at: u64, len: u64) -> Result<()> {
    const MADV_POPULATE_WRITE: u32 = 23;
    // SAFETY: the advice changes no byte.
    check(unsafe { sys!(__NR_madvise, at, len, MADV_POPULATE_WRITE) }).map(drop)
}
