//! Mappings: the engine's own, or the program's memory of a ring.
#![allow(unsafe_code)]

use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64};

use softring_host::os::fd::BorrowedFd;
use softring_host::os::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, mmap_anonymous, msync, munmap};

use alloc::sync::Arc;
use softring_uapi::errno::{Errno, Result};

const PAGE: usize = 4096;
/// Alignment of a region's base.
const ALIGNED: usize = 64;

/// A shared mapping, unmapped with its last region; or memory of the program's, left alone.
///
/// # The invariant
/// The memory is mapped as long as the region lives. A mapping of the region's own is, by its
/// owners; memory of the program's is as long as the program leaves it there, which whoever makes
/// such a region answers for ([`Region::of_program`]).
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
    /// The mapping; `None` for the program's memory.
    mapping: Option<Arc<Mapping>>,
}

/// A mapping that is unmapped on drop.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: as for `Region`.
unsafe impl Send for Mapping {}
// SAFETY: as for `Region`.
unsafe impl Sync for Mapping {}

// SAFETY: a region is only an address range, which no thread owns; accesses through it are atomic
// or volatile, made under the ring's lock.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `len` bytes of `fd` at `offset`, shared.
    ///
    /// # Errors
    /// `ENOMEM`, and those of mmap(2).
    pub(crate) fn map(fd: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Region> {
        let base = map_shared(core::ptr::null_mut(), fd, offset, len)?;
        // SAFETY: that mapping.
        Ok(unsafe { Region::own(base, len) })
    }

    /// Does the same, just below this region if there is room: then one call unmaps both, with the
    /// last region of the two.
    ///
    /// # Errors
    /// Those of [`Self::map`].
    pub(crate) fn map_below(
        &mut self,
        fd: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> Result<Region> {
        let below = self.base.as_ptr().wrapping_sub(len);
        let base = map_shared(below.cast(), fd, offset, len)?;
        let both = self.mapping.as_mut().and_then(Arc::get_mut);
        if let Some(both) = both.filter(|_| base.as_ptr() == below) {
            (both.base, both.len) = (base, len + both.len);
            return Ok(Region { base, len, mapping: self.mapping.clone() });
        }
        // SAFETY: that mapping.
        Ok(unsafe { Region::own(base, len) })
    }

    /// # Safety
    /// A mapping of that size, which nobody else unmaps.
    unsafe fn own(base: NonNull<u8>, len: usize) -> Region {
        Region { base, len, mapping: Some(Arc::new(Mapping { base, len })) }
    }

    /// Maps fresh zeroed memory, which forked children share.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn anonymous(len: usize) -> Result<Region> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as in `map`.
        let p = unsafe { mmap_anonymous(core::ptr::null_mut(), len, prot, MapFlags::SHARED) }?;
        // SAFETY: that mapping.
        Ok(unsafe { Region::own(NonNull::new(p.cast()).ok_or(Errno::ENOMEM)?, len) })
    }

    /// Makes a region of memory that the program brought. The kernel holds the pages of such
    /// memory, so that a program may unmap it while the ring lives. Here, shared memory is mapped a
    /// second time, and so survives the program's own mapping. Private memory can have one mapping
    /// only: see [`is_gone`](Self::is_gone).
    ///
    /// # Errors
    /// `EFAULT` for no address, `EINVAL` for a misaligned one.
    ///
    /// # Safety
    /// All of the memory can be read and written, and the program has offered it for as long as the
    /// region lives, not for one call. If the program unmaps private memory before, or has no
    /// memory of its own there, it has broken itself: accesses end in SIGSEGV, or in whatever it
    /// has mapped there since.
    pub(crate) unsafe fn of_program(addr: u64, len: usize) -> Result<Region> {
        let at = addr as usize;
        if !at.is_multiple_of(PAGE) {
            return Err(Errno::EINVAL);
        }
        let p = core::ptr::with_exposed_provenance_mut(at);
        let base = NonNull::new(p).ok_or(Errno::EFAULT)?;
        let theirs = Region { base, len, mapping: None };
        Ok(theirs.alias().filter(|own| own.is_same(&theirs)).unwrap_or(theirs))
    }

    /// Returns a region of `len` bytes of this one, from `at` on, which is a multiple of 64; the
    /// memory stays mapped as long as one of the two lives.
    pub(crate) fn part(&self, at: usize, len: usize) -> Region {
        assert!(at.is_multiple_of(ALIGNED) && at <= self.len && len <= self.len - at);
        // SAFETY: in bounds, as asserted.
        let base = unsafe { self.base.add(at) };
        Region { base, len, mapping: self.mapping.clone() }
    }

    /// Returns a region of the same memory, which stays mapped as long as one of the two lives.
    pub(crate) fn view(&self) -> Region {
        Region { base: self.base, len: self.len, mapping: self.mapping.clone() }
    }

    /// Maps the same memory once more: mremap(2) with an old size of 0, for shared mappings.
    fn alias(&self) -> Option<Region> {
        let len = self.len.next_multiple_of(PAGE);
        let base = softring_host::calls::memory::alias(self.addr(), len)?;
        // SAFETY: the mapping just made.
        Some(unsafe { Region::own(base, len) })
    }

    /// Returns whether each page of this alias shows the same memory as that page of the other. It
    /// does not if the program's memory consists of several mappings: mremap(2) follows only the
    /// first. Nobody else uses this memory yet.
    fn is_same(&self, other: &Region) -> bool {
        if softring_host::user::check_writable(self.addr() as u64, self.len).is_err() {
            return false;
        }
        (0..other.len).step_by(PAGE).all(|at| {
            let was = self.word(at).fetch_xor(u32::MAX, SeqCst);
            let same = other.word(at).load(SeqCst) == !was;
            self.word(at).store(was, SeqCst);
            same
        })
    }

    /// Returns whether this is the program's memory, which it may unmap.
    pub(crate) fn is_programs(&self) -> bool {
        self.mapping.is_none()
    }

    /// Returns whether the program has unmapped the memory. A new mapping at the same address looks
    /// like the old one.
    pub(crate) fn is_gone(&self) -> bool {
        let (at, len) = (self.base.as_ptr().cast(), self.len);
        // SAFETY: MS_ASYNC does nothing but check whether there is a mapping.
        self.is_programs() && unsafe { msync(at, len, MsyncFlags::ASYNC) } == Err(Errno::ENOMEM)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn addr(&self) -> usize {
        self.base.as_ptr().expose_provenance()
    }

    /// Returns the word at byte `off`.
    #[inline]
    pub(crate) fn word(&self, off: usize) -> &AtomicU32 {
        assert!(off.is_multiple_of(4) && off + 4 <= self.len);
        // SAFETY: in bounds and aligned (asserted; the base is aligned to 64); mapped by the
        // invariant, which for the program's memory its maker and the program uphold.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(off).cast()) }
    }

    /// Returns the two words at byte `off`, as one.
    #[inline]
    pub(crate) fn word64(&self, off: usize) -> &AtomicU64 {
        assert!(off.is_multiple_of(8) && off + 8 <= self.len);
        // SAFETY: as in `word`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(off).cast()) }
    }

    /// Copies the bytes at `off` out, once.
    #[inline]
    pub(crate) fn load<T: softring_host::user::Plain>(&self, off: usize) -> T {
        assert!(off.is_multiple_of(align_of::<T>()) && off + size_of::<T>() <= self.len);
        // SAFETY: in bounds and aligned (asserted), mapped as in `word`; volatile because the
        // program may write at the same time, and any bit pattern is a valid `T: Plain`.
        unsafe { self.base.as_ptr().add(off).cast::<T>().read_volatile() }
    }

    /// Copies the words at `off` into `v`, each once.
    #[inline]
    pub(crate) fn load_into<T: softring_host::user::Plain>(&self, off: usize, v: &mut T) {
        const { assert!(align_of::<T>() == 8 && size_of::<T>().is_multiple_of(8)) };
        assert!(off.is_multiple_of(8) && off + size_of::<T>() <= self.len);
        let to: *mut u64 = core::ptr::from_mut(v).cast();
        for i in 0..size_of::<T>() / 8 {
            // SAFETY: both sides in bounds and aligned (asserted), mapped as in `word`; atomic
            // because the program may write at the same time, and any bit pattern is a valid
            // `T: Plain`.
            unsafe {
                let from = AtomicU64::from_ptr(self.base.as_ptr().add(off).cast::<u64>().add(i));
                to.add(i).write(from.load(Relaxed));
            }
        }
    }

    /// Stores `v` at `off`.
    #[inline]
    pub(crate) fn store<T: softring_host::user::Plain>(&self, off: usize, v: T) {
        assert!(off.is_multiple_of(align_of::<T>()) && off + size_of::<T>() <= self.len);
        // SAFETY: in bounds and aligned (asserted), mapped as in `word`; the slot is the engine's
        // until the tail is published.
        unsafe { self.base.as_ptr().add(off).cast::<T>().write_volatile(v) }
    }
}

/// Maps `len` bytes of `fd` at `offset`, shared; at address `at` if there is room.
fn map_shared(at: *mut c_void, fd: BorrowedFd<'_>, offset: u64, len: usize) -> Result<NonNull<u8>> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping, at an address of the kernel's choice (`at` is a hint), overlays
    // nothing.
    let p = unsafe { mmap(at, len, prot, MapFlags::SHARED, fd, offset) }?;
    NonNull::new(p.cast()).ok_or(Errno::ENOMEM)
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: a mapping of exactly this range, and nobody borrows from it past the last region.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}
