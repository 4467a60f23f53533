//! Changes to the registered file table: update a range, install one file, remove one.
//! Kernel counterpart: `io_uring/filetable.c` and `__io_sqe_files_update` in `rsrc.c`.

use alloc::rc::Rc;
use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;

use crate::resources::files::{FileNode, FileTable, TagSink};
use softring_host::fd::InternalFd;
use softring_uapi::IORING_FILE_INDEX_ALLOC;
use softring_uapi::errno::{Errno, Result};

/// Value in the array of an update that leaves its slot as it is (`IORING_REGISTER_FILES_SKIP`).
pub(crate) const FILES_SKIP: i32 = -2;

/// Changes to consecutive slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Update<'a> {
    /// First slot.
    pub(crate) offset: u32,
    /// Slots to change.
    pub(crate) nr: u32,
    /// Descriptors as far as they could be read: if fewer than `nr`, the next slot fails with
    /// `EFAULT`.
    pub(crate) fds: &'a [i32],
    /// Tags likewise; `None` if the program passes none.
    pub(crate) tags: Option<&'a [u64]>,
}

impl FileTable {
    /// Changes consecutive slots; returns how many were changed before the first error.
    ///
    /// # Errors
    /// `ENXIO` without a table, `EOVERFLOW` or `EINVAL` past its end; if the first slot already
    /// fails: `EFAULT`, `EBADF` for a descriptor that is not open, a ring or `O_PATH`, `EINVAL` for
    /// a tag without a file, `EMFILE`.
    pub(crate) fn update(&mut self, up: Update<'_>, sink: &Arc<TagSink>) -> Result<u32> {
        self.check_range(up.offset, up.nr)?;
        for i in 0..up.nr {
            if let Err(e) = self.update_one(up, i, sink) {
                return if i > 0 { Ok(i) } else { Err(e) };
            }
        }
        Ok(up.nr)
    }

    /// Checks that a range of slots lies in the table.
    ///
    /// # Errors
    /// `EOVERFLOW`, `ENXIO` without a table, `EINVAL` past its end: in the kernel's order.
    pub(crate) fn check_range(&self, offset: u32, nr: u32) -> Result<()> {
        let end = offset.checked_add(nr).ok_or(Errno::EOVERFLOW)?;
        if self.slots.is_empty() {
            return Err(Errno::ENXIO);
        }
        if end as usize > self.slots.len() { Err(Errno::EINVAL) } else { Ok(()) }
    }

    fn update_one(&mut self, up: Update<'_>, i: u32, sink: &Arc<TagSink>) -> Result<()> {
        let at = i as usize;
        let tag = match up.tags {
            Some(tags) => *tags.get(at).ok_or(Errno::EFAULT)?,
            None => 0,
        };
        let fd = *up.fds.get(at).ok_or(Errno::EFAULT)?;
        if (fd == FILES_SKIP || fd == -1) && tag != 0 {
            return Err(Errno::EINVAL);
        }
        if fd == FILES_SKIP {
            return Ok(());
        }
        let slot = up.offset + i;
        self.clear_slot(slot);
        if fd != -1 {
            let node = FileNode::new(dup_for_table(fd)?, tag, Arc::downgrade(sink));
            self.set_slot(slot, node);
        }
        Ok(())
    }

    /// Puts a file in the slot that `file_index` of an SQE names: slot + 1, or
    /// [`IORING_FILE_INDEX_ALLOC`] for any free one. Returns the slot.
    ///
    /// # Errors
    /// `ENFILE` if no slot is free, `ENXIO` without a table, `EINVAL` past its end.
    pub(crate) fn install(
        &mut self,
        file_index: u32,
        fd: InternalFd,
        sink: &Arc<TagSink>,
    ) -> Result<u32> {
        let alloc = file_index == IORING_FILE_INDEX_ALLOC;
        let slot = if alloc { self.free_slot()? } else { file_index.wrapping_sub(1) };
        self.check_slot(slot)?;
        let (hint, taken) = (self.hint, self.slots[slot as usize].is_some());
        self.set_slot(slot, FileNode::new(fd, 0, Arc::downgrade(sink)));
        if taken {
            // A file that replaces another leaves the hint alone (`io_install_fixed_file`).
            self.hint = hint;
        }
        Ok(slot)
    }

    /// Empties a slot.
    ///
    /// # Errors
    /// `ENXIO` without a table, `EINVAL` past its end, `EBADF` if the slot is empty.
    pub(crate) fn remove(&mut self, slot: u32) -> Result<()> {
        self.check_slot(slot)?;
        if self.clear_slot(slot) { Ok(()) } else { Err(Errno::EBADF) }
    }

    fn check_slot(&self, slot: u32) -> Result<()> {
        if self.slots.is_empty() {
            return Err(Errno::ENXIO);
        }
        if slot as usize >= self.slots.len() { Err(Errno::EINVAL) } else { Ok(()) }
    }

    /// Fills a slot. The search for a free slot starts after the last one filled, or at the last
    /// one emptied.
    fn set_slot(&mut self, slot: u32, node: Rc<FileNode>) {
        let old = self.slots[slot as usize].replace(node);
        self.used += usize::from(old.is_none());
        self.fresh = true;
        self.leaves(slot, old);
        self.hint = slot + 1;
    }

    fn clear_slot(&mut self, slot: u32) -> bool {
        let old = self.slots[slot as usize].take();
        let had = old.is_some();
        if had {
            self.used -= 1;
            self.hint = slot;
            self.leaves(slot, old);
        }
        had
    }

    /// Withdraws the deposit of a file that has left its slot.
    fn leaves(&mut self, slot: u32, node: Option<Rc<FileNode>>) {
        if node.is_some_and(|node| node.deposited.load(Relaxed)) {
            self.withdraw(slot);
        }
    }
}

/// Duplicates the program's descriptor for the table.
///
/// # Errors
/// `EBADF` if it is not open, a ring (a table must not keep rings alive), the engine's own, or
/// `O_PATH`; `EMFILE`.
pub(crate) fn dup_for_table(fd: i32) -> Result<InternalFd> {
    if softring_host::fd::numbers::is_live_ring(fd) {
        return Err(Errno::EBADF);
    }
    softring_host::fd::dup_visible(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(n: u32) -> FileTable {
        let slots = (0..n).map(|_| None).collect();
        FileTable { slots, alloc: 0..n, ..FileTable::default() }
    }

    fn up<'a>(offset: u32, nr: u32, fds: &'a [i32], tags: Option<&'a [u64]>) -> Update<'a> {
        Update { offset, nr, fds, tags }
    }

    #[test]
    fn an_update_stops_at_the_first_error() {
        let sink = Arc::default();
        let mut t = table(4);
        assert_eq!(t.update(up(0, 3, &[0, -1, -7], None), &sink), Ok(2));
        assert!(t.get(0).is_ok() && t.get(1).is_err());
        assert_eq!(t.update(up(0, 1, &[-7], None), &sink), Err(Errno::EBADF));
        assert_eq!(t.get(0).err(), Some(Errno::EBADF), "the old file is gone all the same");
        assert_eq!(t.update(up(0, 2, &[0], None), &sink), Ok(1));
        assert_eq!(t.update(up(0, 1, &[], None), &sink), Err(Errno::EFAULT));
        assert_eq!(t.update(up(0, 1, &[FILES_SKIP], Some(&[9])), &sink), Err(Errno::EINVAL));
        assert_eq!(t.update(up(0, 1, &[FILES_SKIP], Some(&[0])), &sink), Ok(1));
        assert!(t.get(0).is_ok());
    }

    #[test]
    fn ranges_are_checked_first() {
        let sink = Arc::default();
        assert_eq!(table(0).update(up(0, 1, &[0], None), &sink), Err(Errno::ENXIO));
        assert_eq!(table(2).update(up(1, 2, &[0, 0], None), &sink), Err(Errno::EINVAL));
        assert_eq!(table(2).update(up(u32::MAX, 2, &[], None), &sink), Err(Errno::EOVERFLOW));
    }

    #[test]
    fn the_search_for_a_free_slot_starts_at_the_last_change() {
        let sink = Arc::default();
        let mut t = table(3);
        let fd = || dup_for_table(0).unwrap();
        assert_eq!(t.install(2, fd(), &sink), Ok(1));
        assert_eq!(t.install(IORING_FILE_INDEX_ALLOC, fd(), &sink), Ok(2));
        assert_eq!(t.install(IORING_FILE_INDEX_ALLOC, fd(), &sink), Ok(0));
        assert_eq!(t.install(IORING_FILE_INDEX_ALLOC, fd(), &sink), Err(Errno::ENFILE));
        assert_eq!(t.remove(1), Ok(()));
        assert_eq!(t.remove(1), Err(Errno::EBADF));
        assert_eq!(t.install(IORING_FILE_INDEX_ALLOC, fd(), &sink), Ok(1));
        assert_eq!(t.install(4, fd(), &sink), Err(Errno::EINVAL));
    }
}
