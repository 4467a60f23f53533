//! Mapped memory.
#![allow(unsafe_code)]

use core::ffi::c_void;

use super::fd::{AsFd, AsRawFd};
use super::kernel;
use crate::raw::nr;
use softring_uapi::errno::Result;
use softring_uapi::flag_set;

flag_set! {
    /// Protection of memory.
    pub struct ProtFlags: u32 {
        const READ = nr::PROT_READ;
        const WRITE = nr::PROT_WRITE;
        const EXEC = nr::PROT_EXEC;
    }
}

flag_set! {
    /// Flags of mmap(2).
    pub struct MapFlags: u32 {
        const SHARED = nr::MAP_SHARED;
        const PRIVATE = nr::MAP_PRIVATE;
        const FIXED = nr::MAP_FIXED;
        const NORESERVE = nr::MAP_NORESERVE;
        const POPULATE = nr::MAP_POPULATE;
        const STACK = nr::MAP_STACK;
    }
}

flag_set! {
    /// Flags of msync(2).
    pub struct MsyncFlags: u32 {
        const ASYNC = nr::MS_ASYNC;
        const SYNC = nr::MS_SYNC;
    }
}

/// Maps a file.
///
/// # Errors
/// As mmap(2).
///
/// # Safety
/// With `FIXED` nobody uses what was mapped there. What others write to the file is expected.
pub unsafe fn mmap(
    at: *mut c_void,
    len: usize,
    prot: ProtFlags,
    flags: MapFlags,
    fd: impl AsFd,
    offset: u64,
) -> Result<*mut c_void> {
    let (at, fd) = (at.expose_provenance(), fd.as_fd().as_raw_fd());
    // SAFETY: the caller's.
    unsafe { kernel!(__NR_mmap, at, len, prot.bits(), flags.bits(), fd, offset) }
        .map(core::ptr::with_exposed_provenance_mut)
}

/// Maps memory of zeroes.
///
/// # Errors
/// As mmap(2).
///
/// # Safety
/// With `FIXED` nobody uses what was mapped there.
pub unsafe fn mmap_anonymous(
    at: *mut c_void,
    len: usize,
    prot: ProtFlags,
    flags: MapFlags,
) -> Result<*mut c_void> {
    let (at, flags) = (at.expose_provenance(), flags.bits() | nr::MAP_ANONYMOUS);
    // SAFETY: the caller's.
    unsafe { kernel!(__NR_mmap, at, len, prot.bits(), flags, usize::MAX, 0) }
        .map(core::ptr::with_exposed_provenance_mut)
}

/// Unmaps memory.
///
/// # Errors
/// As munmap(2).
///
/// # Safety
/// The caller owns the mapping, and nobody uses it any more.
pub unsafe fn munmap(at: *mut c_void, len: usize) -> Result<()> {
    // SAFETY: the caller's.
    unsafe { kernel!(__NR_munmap, at.expose_provenance(), len) }.map(drop)
}

/// Sets the protection of memory.
///
/// # Errors
/// As mprotect(2).
///
/// # Safety
/// The caller owns the mapping, and nobody uses it against the new protection.
pub(crate) unsafe fn mprotect(at: *mut c_void, len: usize, prot: ProtFlags) -> Result<()> {
    // SAFETY: the caller's.
    unsafe { kernel!(__NR_mprotect, at.expose_provenance(), len, prot.bits()) }.map(drop)
}

/// Writes a mapping's pages to its file.
///
/// # Errors
/// As msync(2).
///
/// # Safety
/// The caller owns the mapping.
pub unsafe fn msync(at: *mut c_void, len: usize, flags: MsyncFlags) -> Result<()> {
    // SAFETY: the caller's.
    unsafe { kernel!(__NR_msync, at.expose_provenance(), len, flags.bits()) }.map(drop)
}
