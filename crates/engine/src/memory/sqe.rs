//! The engine's copy of an SQE.
#![allow(unsafe_code)]

use core::ops::Deref;
use softring_host::calls::UserPtr;
use softring_uapi::io_uring_sqe;

/// An SQE that was copied from a ring's queue, and is never written after: its addresses are the
/// program's. Only the queue fills one in (`Rings::sq_fetch`).
#[derive(Clone, Copy, Debug, Default)]
#[repr(transparent)]
pub(crate) struct Sqe(io_uring_sqe);

impl Sqe {
    /// Makes an SQE of the engine's own: its fields for addresses are cleared.
    pub(crate) const fn without_addresses(sqe: io_uring_sqe) -> Sqe {
        Sqe(io_uring_sqe { addr: 0, off: 0, addr3: 0, ..sqe })
    }

    /// Returns the bytes that the queue copies an SQE of the program's to.
    #[inline(always)]
    pub(super) const fn copied(&mut self) -> &mut io_uring_sqe {
        &mut self.0
    }

    /// Returns the address in `addr`.
    #[inline(always)]
    pub(crate) const fn addr(&self) -> UserPtr {
        // SAFETY: the program's SQE names it.
        unsafe { UserPtr::of_program(self.0.addr) }
    }

    /// Returns the address in `off` (`addr2` in the manual).
    #[inline(always)]
    pub(crate) const fn addr2(&self) -> UserPtr {
        // SAFETY: as in `addr`.
        unsafe { UserPtr::of_program(self.0.off) }
    }

    /// Returns the address in `addr3` (`optval` in the manual).
    #[inline(always)]
    pub(crate) const fn addr3(&self) -> UserPtr {
        // SAFETY: as in `addr`.
        unsafe { UserPtr::of_program(self.0.addr3) }
    }
}

impl Deref for Sqe {
    type Target = io_uring_sqe;

    #[inline(always)]
    fn deref(&self) -> &io_uring_sqe {
        &self.0
    }
}

/// An SQE that a test stands in for the program with.
#[cfg(test)]
impl From<io_uring_sqe> for Sqe {
    fn from(sqe: io_uring_sqe) -> Sqe {
        Sqe(sqe)
    }
}
