//! An owned mapping.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fd::BorrowedFd;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::errno::{Errno, Result};

/// A shared mapping, unmapped on drop; or memory of the program's (NO_MMAP), left alone on drop.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    len: usize,
    owned: bool,
}

// SAFETY: a region is only an address range; accesses through it are atomic or volatile, made under
// the ring's lock.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `len` bytes of `fd` at `offset`, shared.
    ///
    /// # Errors
    /// `ENOMEM` and whatever else mmap(2) answers.
    pub fn map(fd: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Region> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlays nothing.
        let p = unsafe { mmap(core::ptr::null_mut(), len, prot, MapFlags::SHARED, fd, offset) }?;
        let base = NonNull::new(p.cast()).ok_or(Errno::ENOMEM)?;
        Ok(Region { base, len, owned: true })
    }

    /// Fresh zeroed memory, which forked children share.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn anonymous(len: usize) -> Result<Region> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as in `map`.
        let p = unsafe { mmap_anonymous(core::ptr::null_mut(), len, prot, MapFlags::SHARED) }?;
        let base = NonNull::new(p.cast()).ok_or(Errno::ENOMEM)?;
        Ok(Region { base, len, owned: true })
    }

    /// Memory that the program brought (NO_MMAP); it must stay mapped while the ring lives, as for
    /// the kernel, which pins it.
    pub fn user(addr: u64, len: usize) -> Result<Region> {
        let p = core::ptr::with_exposed_provenance_mut(addr as usize);
        Ok(Region { base: NonNull::new(p).ok_or(Errno::EFAULT)?, len, owned: false })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn addr(&self) -> usize {
        self.base.as_ptr().expose_provenance()
    }

    /// The word at byte `off`.
    #[inline]
    pub fn word(&self, off: usize) -> &AtomicU32 {
        assert!(off.is_multiple_of(4) && off + 4 <= self.len);
        // SAFETY: in bounds and aligned (asserted; the base is page- or cache-line-aligned); mapped
        // as long as `self`.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(off).cast()) }
    }

    /// Copies the bytes at `off` out, once.
    #[inline]
    pub fn load<T: crate::user::Plain>(&self, off: usize) -> T {
        assert!(off.is_multiple_of(align_of::<T>()) && off + size_of::<T>() <= self.len);
        // SAFETY: in bounds and aligned (asserted); volatile because the program may write at the
        // same time, and any bit pattern is a valid `T: Plain`.
        unsafe { self.base.as_ptr().add(off).cast::<T>().read_volatile() }
    }

    /// Copies the words at `off` into `v`, each once.
    #[inline]
    pub fn load_into<T: crate::user::Plain>(&self, off: usize, v: &mut T) {
        const { assert!(align_of::<T>() == 8 && size_of::<T>().is_multiple_of(8)) };
        assert!(off.is_multiple_of(8) && off + size_of::<T>() <= self.len);
        let to: *mut u64 = core::ptr::from_mut(v).cast();
        for i in 0..size_of::<T>() / 8 {
            // SAFETY: both sides in bounds and aligned (asserted); atomic because the program may
            // write at the same time, and any bit pattern is a valid `T: Plain`.
            unsafe {
                let from = AtomicU64::from_ptr(self.base.as_ptr().add(off).cast::<u64>().add(i));
                to.add(i).write(from.load(Relaxed));
            }
        }
    }

    /// Stores `v` at `off`.
    #[inline]
    pub fn store<T: crate::user::Plain>(&self, off: usize, v: T) {
        assert!(off.is_multiple_of(align_of::<T>()) && off + size_of::<T>() <= self.len);
        // SAFETY: in bounds and aligned (asserted); the slot is the engine's until the tail is
        // published.
        unsafe { self.base.as_ptr().add(off).cast::<T>().write_volatile(v) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: we mapped exactly this range and nobody borrows from it past `self`.
            let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}
