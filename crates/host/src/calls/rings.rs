//! Calls of the kernel's own rings, to learn what they lack.
#![allow(unsafe_code)]

use super::UserPtr;
use super::memory::Anonymous;
use crate::os::fd::AsRawFd;
use crate::sys::{EngineFd, owned, sys};
use softring_uapi::errno::{Errno, Result, check};
use softring_uapi::{
    IORING_REGISTER_PROBE, IORING_SETUP_CQSIZE, IORING_SETUP_NO_MMAP, io_uring_params,
};

/// Bytes of a page for the queues and a page for the SQEs.
const MEMORY: usize = 2 * 4096;

/// Makes a ring of one entry by io_uring_setup(2). With `IORING_SETUP_NO_MMAP` the ring has memory
/// of its own, which the kernel keeps as long as the kernel needs it.
///
/// # Errors
/// As the call; `ENOMEM`; `EINVAL` for a size of the CQ, which might need more memory than that.
pub fn setup(params: &mut io_uring_params) -> Result<EngineFd> {
    if params.flags & IORING_SETUP_CQSIZE != 0 {
        return Err(Errno::EINVAL);
    }
    let memory = match params.flags & IORING_SETUP_NO_MMAP {
        0 => None,
        _ => Some(Anonymous::new(MEMORY)?),
    };
    if let Some(memory) = &memory {
        params.cq_off.user_addr = memory.addr() as u64;
        params.sq_off.user_addr = (memory.addr() + MEMORY / 2) as u64;
    }
    let at = core::ptr::from_mut(params).expose_provenance();
    // SAFETY: the parameters are the caller's, the ring's memory is ours, and enough for one entry
    // of any form: the kernel has pinned its pages, so that it may be unmapped. The answer is a
    // descriptor.
    unsafe { owned(sys!(__NR_io_uring_setup, 1, at)) }.map(EngineFd::from)
}

/// Calls io_uring_register(2).
///
/// # Errors
/// As the call.
pub fn register(ring: &EngineFd, opcode: u32, arg: UserPtr, nr: u32) -> Result<usize> {
    // SAFETY: the address is one that the kernel may write to.
    check(unsafe { sys!(__NR_io_uring_register, ring.as_raw_fd(), opcode, arg.0, nr) })
}

/// Calls `IORING_REGISTER_PROBE`: returns a head of two words, then a word for each operation.
///
/// # Errors
/// As the call.
pub fn probe<const N: usize>(ring: &EngineFd) -> Result<[u64; N]> {
    let mut words = [0u64; N];
    let (to, n) = (words.as_mut_ptr().expose_provenance(), N.saturating_sub(2));
    // SAFETY: the words are ours, and the kernel is told how many.
    check(unsafe { sys!(__NR_io_uring_register, ring.as_raw_fd(), IORING_REGISTER_PROBE, to, n) })?;
    Ok(words)
}
