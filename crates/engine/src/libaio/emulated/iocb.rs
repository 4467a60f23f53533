//! Iocbs of the program's.
#![allow(unsafe_code)]

use core::mem::offset_of;
use core::ops::Deref;
use softring_host::user::{self, UserPtr};
use softring_uapi::aio::iocb;
use softring_uapi::errno::Result;

/// Copy of an iocb of the program's: its addresses are the program's, too.
#[derive(Clone, Copy)]
pub(super) struct Iocb(iocb);

impl Iocb {
    /// Returns the address of the iocb that the `i`th element of an array names.
    ///
    /// # Errors
    /// `EFAULT`.
    pub(super) fn named(list: UserPtr, i: u64) -> Result<UserPtr> {
        // SAFETY: the program's array names it.
        user::read(list.add(8 * i).addr()).map(|at| unsafe { UserPtr::of_program(at) })
    }

    /// Copies an iocb.
    ///
    /// # Errors
    /// `EFAULT`.
    pub(super) fn read(at: UserPtr) -> Result<Iocb> {
        user::read(at.addr()).map(Iocb)
    }

    /// Returns the address at which the kernel marks an iocb as submitted.
    pub(super) const fn key(at: UserPtr) -> UserPtr {
        at.add(offset_of!(iocb, aio_key) as u64)
    }

    /// Returns the address of the bytes to read or write, or of their vector.
    pub(super) const fn buf(&self) -> UserPtr {
        // SAFETY: the program's iocb names it.
        unsafe { UserPtr::of_program(self.0.aio_buf) }
    }
}

impl Deref for Iocb {
    type Target = iocb;

    fn deref(&self) -> &iocb {
        &self.0
    }
}
