//! Memory layout of a ring: `struct io_rings` with its arrays, then (in the file) the engine's own
//! words, its journal, and the SQEs.
//!
//! The words are the last of the page in which the arrays end (programs map whole pages, but use
//! what the parameters describe), or of the next, if there is no room. The journal follows in a
//! page that takes no memory until a forked child writes to it. One mapping shows all: with a page
//! of their own for the words, a ring takes a fourteenth longer to be made and closed. A ring that
//! can be resized grows where it is, so there words and journal precede the SQEs, and are mapped
//! with them.

use alloc::sync::Arc;

use softring_host::os::fd::{AsFd, OwnedFd};
use softring_host::os::fs::{SealFlags, fcntl_add_seals, seek_to};

use super::lock::{Control, WORDS};
use super::mappings::{RingMemory, pin};
use super::region::Region;
use softring_uapi::errno::Result;
use softring_uapi::*;

/// Offsets of `struct io_rings`, as in the kernel.
pub(crate) mod off {
    pub(crate) const SQ_HEAD: usize = 0;
    pub(crate) const SQ_TAIL: usize = 4;
    pub(crate) const CQ_HEAD: usize = 8;
    pub(crate) const CQ_TAIL: usize = 12;
    pub(crate) const SQ_MASK: usize = 16;
    pub(crate) const CQ_MASK: usize = 20;
    pub(crate) const SQ_ENTRIES: usize = 24;
    pub(crate) const CQ_ENTRIES: usize = 28;
    pub(crate) const SQ_DROPPED: usize = 32;
    pub(crate) const SQ_FLAGS: usize = 36;
    pub(crate) const CQ_FLAGS: usize = 40;
    pub(crate) const CQ_OVERFLOW: usize = 44;
    pub(crate) const CQES: usize = 64;
}

const PAGE: usize = 4096;
/// Size of the engine's own words and its journal, where they have a page of their own.
const CONTROL: usize = PAGE;
/// Offset of that page if it does not follow the rings.
const OFF_CONTROL: u64 = IORING_OFF_SQES - CONTROL as u64;

/// Sizes that follow from the setup flags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub(crate) flags: u32,
    pub(crate) sq_entries: u32,
    pub(crate) cq_entries: u32,
}

impl Geometry {
    pub(crate) fn sqe_size(&self) -> usize {
        if self.flags & IORING_SETUP_SQE128 != 0 { 128 } else { 64 }
    }

    pub(crate) fn cqe_size(&self) -> usize {
        if self.flags & IORING_SETUP_CQE32 != 0 { 32 } else { 16 }
    }

    /// Returns the offset of the SQ index array, if the ring has one.
    pub(crate) fn array(&self) -> Option<usize> {
        // With CQEs of twice the size, the offset is doubled, as in the kernel, which doubles the
        // header, too.
        let wide = u32::from(self.flags & IORING_SETUP_CQE32 != 0);
        let end = (off::CQES + self.cq_entries as usize * 16) << wide;
        (self.flags & IORING_SETUP_NO_SQARRAY == 0).then(|| end.next_multiple_of(64))
    }

    pub(crate) fn rings_size(&self) -> usize {
        match self.array() {
            Some(a) => a + self.sq_entries as usize * 4,
            None => off::CQES + self.cq_entries as usize * self.cqe_size(),
        }
    }

    pub(crate) fn sqes_size(&self) -> usize {
        self.sq_entries as usize * self.sqe_size()
    }

    /// Fills in the offsets that setup returns.
    pub(crate) fn publish(&self, p: &mut io_uring_params) {
        let (sq_user, cq_user) = (p.sq_off.user_addr, p.cq_off.user_addr);
        p.sq_entries = self.sq_entries;
        p.cq_entries = self.cq_entries;
        p.sq_off = io_sqring_offsets {
            head: off::SQ_HEAD as u32,
            tail: off::SQ_TAIL as u32,
            ring_mask: off::SQ_MASK as u32,
            ring_entries: off::SQ_ENTRIES as u32,
            flags: off::SQ_FLAGS as u32,
            dropped: off::SQ_DROPPED as u32,
            array: self.array().unwrap_or(0) as u32,
            resv1: 0,
            user_addr: sq_user,
        };
        p.cq_off = io_cqring_offsets {
            head: off::CQ_HEAD as u32,
            tail: off::CQ_TAIL as u32,
            ring_mask: off::CQ_MASK as u32,
            ring_entries: off::CQ_ENTRIES as u32,
            overflow: off::CQ_OVERFLOW as u32,
            cqes: off::CQES as u32,
            flags: off::CQ_FLAGS as u32,
            resv1: 0,
            user_addr: cq_user,
        };
        if self.flags & IORING_SETUP_NO_MMAP == 0 {
            p.sq_off.user_addr = 0;
            p.cq_off.user_addr = 0;
        }
    }
}

/// The memory of one ring.
#[derive(Debug)]
pub(crate) struct Rings {
    pub(crate) geo: Geometry,
    /// The SQ index array's offset, as [`Geometry::array`] computes it.
    pub(crate) array: Option<usize>,
    pub(crate) rings: Region,
    pub(crate) sqes: Region,
    pub(crate) control: Arc<Control>,
}

impl Rings {
    /// Creates a ring's file and maps it; with NO_MMAP the rings lie where the program says.
    ///
    /// # Errors
    /// `ENOMEM`, `EMFILE`, `ENFILE`; `EINVAL`, `EFAULT` for bad NO_MMAP addresses.
    pub(crate) fn create(
        geo: Geometry,
        cq_user: RingMemory,
        sq_user: RingMemory,
    ) -> Result<(OwnedFd, Rings)> {
        let fd = softring_host::substitute::memory_file("[io_uring]")?;
        let size = IORING_OFF_SQES + geo.sqes_size() as u64;
        super::file::extend(&fd, size.next_multiple_of(4096))?;
        let _ = fcntl_add_seals(&fd, SealFlags::SHRINK);
        // A ring cannot be read or written: at the last possible position, read(2) and write(2)
        // fail with EINVAL.
        let _ = seek_to(&fd, i64::MAX as u64);
        let [rings_len, sqes_len] = [geo.rings_size(), geo.sqes_size()];
        let [rings_pages, sqes_pages] = [rings_len, sqes_len].map(|n| n.next_multiple_of(PAGE));
        let (control, rings, sqes) = if geo.flags & IORING_SETUP_NO_MMAP != 0 {
            let control = Region::map(fd.as_fd(), OFF_CONTROL, CONTROL)?;
            (own_page(&control), pin(cq_user, rings_len)?, pin(sq_user, sqes_len)?)
        } else if geo.flags & IORING_SETUP_DEFER_TASKRUN != 0 {
            let mut both = Region::map(fd.as_fd(), OFF_CONTROL, CONTROL + sqes_pages)?;
            let rings = both.map_below(fd.as_fd(), 0, rings_pages)?;
            (own_page(&both), rings, both.part(CONTROL, sqes_pages))
        } else {
            let end = (rings_len + WORDS).next_multiple_of(PAGE);
            let mut sqes = Region::map(fd.as_fd(), IORING_OFF_SQES, sqes_pages)?;
            let all = sqes.map_below(fd.as_fd(), 0, end + PAGE)?;
            let control = Control::new(all.part(end - WORDS, WORDS), all.part(end, PAGE));
            (control, all.part(0, end - WORDS), sqes)
        };
        let control = Arc::new(control);
        let this = Rings { geo, array: geo.array(), rings, sqes, control };
        this.init();
        Ok((fd, this))
    }

    /// Creates rings without a file.
    ///
    /// # Errors
    /// `ENOMEM`.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn anonymous(geo: Geometry) -> Result<Rings> {
        let control = Arc::new(own_page(&Region::anonymous(CONTROL)?));
        let rings = Region::anonymous(geo.rings_size().next_multiple_of(4096))?;
        let sqes = Region::anonymous(geo.sqes_size().next_multiple_of(4096))?;
        let this = Rings { geo, array: geo.array(), rings, sqes, control };
        this.init();
        Ok(this)
    }

    /// Returns whether the ring lies in memory that the program may unmap.
    #[inline]
    pub(crate) fn may_go(&self) -> bool {
        self.rings.is_programs() || self.sqes.is_programs()
    }

    /// Moves the ring to our own memory if the program has unmapped its memory (NO_MMAP). The
    /// kernel's ring continues in the old pages, which nobody sees any more. Lock holder only.
    ///
    /// # Errors
    /// `ENOMEM`.
    #[cold]
    pub(crate) fn outlive(&mut self) -> Result<()> {
        use core::sync::atomic::Ordering::Relaxed;
        if self.sqes.is_gone() {
            self.sqes = Region::anonymous(self.sqes.len())?;
        }
        if self.rings.is_gone() {
            self.rings = Region::anonymous(self.rings.len())?;
            self.init();
            let (head, tail) = (self.control.sq_head(), self.control.cq_tail());
            for at in [off::SQ_HEAD, off::SQ_TAIL] {
                self.rings.word(at).store(head.load(Relaxed), Relaxed);
            }
            for at in [off::CQ_HEAD, off::CQ_TAIL] {
                self.rings.word(at).store(tail.load(Relaxed), Relaxed);
            }
        }
        Ok(())
    }

    pub(super) fn init(&self) {
        use core::sync::atomic::Ordering::Relaxed;
        for (at, v) in [
            (off::SQ_HEAD, 0),
            (off::SQ_TAIL, 0),
            (off::CQ_HEAD, 0),
            (off::CQ_TAIL, 0),
            (off::SQ_MASK, self.geo.sq_entries - 1),
            (off::CQ_MASK, self.geo.cq_entries - 1),
            (off::SQ_ENTRIES, self.geo.sq_entries),
            (off::CQ_ENTRIES, self.geo.cq_entries),
            (off::SQ_DROPPED, 0),
            (off::SQ_FLAGS, 0),
            (off::CQ_FLAGS, 0),
            (off::CQ_OVERFLOW, 0),
        ] {
            self.rings.word(at).store(v, Relaxed);
        }
    }
}

/// Returns the engine's words and journal in a page of their own, with which `memory` begins.
fn own_page(memory: &Region) -> Control {
    Control::new(memory.part(0, WORDS), memory.part(WORDS, CONTROL - WORDS))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::Relaxed;

    /// Last word of a journal.
    const LAST: usize = 959;

    fn fill(region: &Region) {
        (0..region.len()).step_by(4).for_each(|at| region.word(at).store(u32::MAX, Relaxed));
    }

    #[test]
    fn the_engines_words_are_apart() {
        for flags in [0, IORING_SETUP_CQE32, IORING_SETUP_DEFER_TASKRUN] {
            // The arrays of 104 entries leave too little of their page.
            for sq_entries in [1, 64, 104, 2048] {
                let geo = Geometry { flags, sq_entries, cq_entries: 2 * sq_entries };
                let (fd, mem) = Rings::create(geo, RingMemory::NONE, RingMemory::NONE).unwrap();
                mem.control.sq_head().store(7, Relaxed);
                mem.control.left(LAST).store(8, Relaxed);
                fill(&mem.rings);
                fill(&mem.sqes);
                if flags & IORING_SETUP_DEFER_TASKRUN != 0 {
                    let large = Geometry { flags, sq_entries: 8192, cq_entries: 16384 };
                    for at in [IORING_OFF_SQ_RING, IORING_OFF_SQES] {
                        let none = RingMemory::NONE;
                        fill(&Rings::new_region(fd.as_fd(), &large, at, none).unwrap());
                    }
                }
                assert_eq!(mem.control.sq_head().load(Relaxed), 7, "{geo:?}");
                assert!(mem.rings.len() >= geo.rings_size() && mem.sqes.len() >= geo.sqes_size());
                assert_eq!(mem.control.left(LAST).load(Relaxed), 8, "{geo:?}");
            }
        }
    }
}
