//! Memory that a child which tries calls shares with us.
#![allow(unsafe_code)]

use super::calls::OPTIONAL;
use crate::os::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU8;

/// Number of calls that are tried.
pub(super) const N: usize = OPTIONAL.len();

/// Findings of a child, in memory that it shares with us.
#[repr(C)]
pub(super) struct Found {
    pub(super) answers: [AtomicU8; N],
    /// Call that is being tried; [`N`]: all were.
    pub(super) trying: AtomicU8,
}

/// A mapping that children share, unmapped on drop.
pub(super) struct Shared(NonNull<Found>);

impl Shared {
    /// Maps a page of zeroes.
    pub(super) fn new() -> Option<Shared> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let (null, len) = (core::ptr::null_mut(), size_of::<Found>());
        // SAFETY: a fresh mapping at an address of the kernel's choice overlays nothing.
        let at = unsafe { mmap_anonymous(null, len, prot, MapFlags::SHARED) }.ok()?;
        NonNull::new(at.cast()).map(Shared)
    }
}

impl Deref for Shared {
    type Target = Found;

    fn deref(&self) -> &Found {
        // SAFETY: the mapping that `new` made, of at least that size, of zeroes, which are valid;
        // it lasts as long as `self`.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: that mapping, which nobody borrows any more.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), size_of::<Found>()) };
    }
}
