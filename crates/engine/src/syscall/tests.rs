//! Rings of unit tests.
#![allow(unsafe_code)]

use super::UserPtr;
use softring_uapi::io_uring_params;

/// Makes a ring by parameters that name no memory.
pub(crate) fn setup(entries: u32, params: &mut io_uring_params) -> isize {
    (params.sq_off.user_addr, params.cq_off.user_addr) = (0, 0);
    // SAFETY: the caller's structure, borrowed for the call.
    let at = unsafe { UserPtr::of_program((&raw mut *params).expose_provenance() as u64) };
    super::setup(entries, at)
}
