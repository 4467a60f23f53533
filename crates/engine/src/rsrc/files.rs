//! The registered file table: one node per slot, owned by the table and by each request in flight; the last owner
//! closes the duplicate. Kernel counterpart: `io_uring/filetable.c`, `rsrc.c`.

use std::sync::Arc;

use rustix::fd::AsRawFd;

use crate::errno::{Errno, Result};
use crate::fds::InternalFd;
use crate::transport::kind::Kind;

/// A registered file: our own duplicate of the program's descriptor, with what routing must know of it.
#[derive(Debug)]
pub struct FileNode {
    fd: InternalFd,
    pub kind: Kind,
    /// The program's number it was registered from: what cancel by fd compares.
    pub tag: u64,
    pub notify: std::sync::Weak<TagSink>,
}

/// Where tags of released nodes are collected for posting.
pub type TagSink = std::sync::Mutex<Vec<u64>>;

impl FileNode {
    /// A node owning `fd`; `tag` is posted through `notify` when the last owner lets go (0: never).
    pub fn new(fd: InternalFd, tag: u64, notify: std::sync::Weak<TagSink>) -> Arc<Self> {
        let kind = Kind::of(fd.as_raw_fd());
        Arc::new(FileNode { fd, kind, tag, notify })
    }

    pub fn fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

impl Drop for FileNode {
    fn drop(&mut self) {
        if self.tag != 0
            && let Some(sink) = self.notify.upgrade()
            && let Ok(mut tags) = sink.lock()
        {
            tags.push(self.tag);
        }
    }
}

/// The table. Slots are sparse; allocation of a free slot goes round-robin within the alloc range.
#[derive(Debug, Default)]
pub struct FileTable {
    pub slots: Vec<Option<Arc<FileNode>>>,
    pub alloc: core::ops::Range<u32>,
    pub hint: u32,
}

impl FileTable {
    /// The node in `slot`.
    ///
    /// # Errors
    /// `EBADF` for an empty slot or one past the table.
    pub fn get(&self, slot: u32) -> Result<Arc<FileNode>> {
        self.slots.get(slot as usize).and_then(Clone::clone).ok_or(Errno::EBADF)
    }

    /// A free slot in the alloc range.
    ///
    /// # Errors
    /// `ENFILE` if there is none.
    pub fn free_slot(&mut self) -> Result<u32> {
        let range = self.alloc.clone();
        if self.hint < range.start || self.hint >= range.end {
            self.hint = range.start;
        }
        let found = (self.hint..range.end)
            .chain(range.start..self.hint)
            .find(|&i| self.slots.get(i as usize).is_some_and(Option::is_none));
        let slot = found.ok_or(Errno::ENFILE)?;
        self.hint = slot + 1;
        Ok(slot)
    }
}
