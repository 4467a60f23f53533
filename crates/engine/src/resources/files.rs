//! The registered file table: one node per slot, owned by the table and by each request in flight;
//! the last owner drops the duplicate. The count is a plain integer ([`Rc`]), so nodes stay behind
//! the lock of their ring; code outside the lock uses [`FileNode::share`]. Kernel counterparts:
//! `io_uring/filetable.c`, `rsrc.c`, and `struct io_rsrc_node`, whose `refs` change only under
//! `uring_lock`.
#![allow(unsafe_code)]

use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use softring_host::sync::real::Mutex;

use softring_host::os::fd::{AsFd, AsRawFd, BorrowedFd};

use super::deposit::Deposit;
use crate::io::model;
use softring_host::fd::InternalFd;
use softring_host::fd::history::History;
use softring_host::fd::kind::Kind;
use softring_uapi::errno::{Errno, Result};

/// A registered file: our own duplicate of the program's descriptor, with the properties that
/// routing needs.
#[derive(Debug)]
pub(crate) struct FileNode {
    /// The duplicate, counted atomically: a worker uses it without the ring's lock.
    fd: Arc<InternalFd>,
    pub(crate) kind: Kind,
    /// The file's model, if it is on a modelled device.
    pub(crate) model: Option<Arc<model::files::File>>,
    /// Count of consecutive reads that the page cache answered (`ops::rw_cached`).
    pub(crate) history: History,
    /// Tag posted as `user_data` when the last owner drops the node; 0: never.
    pub(crate) tag: u64,
    pub(crate) notify: alloc::sync::Weak<TagSink>,
    /// Flag, set once forked children can find the file (`resources::deposit`).
    pub(crate) deposited: AtomicBool,
}

/// List that collects tags of released nodes for posting.
#[derive(Debug, Default)]
pub(crate) struct TagSink {
    /// Flag of [`Self::any`], which every enter reads without the lock.
    any: AtomicBool,
    list: Mutex<Vec<u64>>,
}

impl TagSink {
    pub(crate) fn push(&self, tag: u64) {
        self.list.lock().push(tag);
        self.any.store(true, Release);
    }

    /// Returns whether there may be tags.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Acquire)
    }

    /// Takes the tags collected since the last call.
    pub(crate) fn take(&self) -> Vec<u64> {
        let mut list = self.list.lock();
        self.any.store(false, Release);
        core::mem::take(&mut *list)
    }
}

impl FileNode {
    /// Creates a node owning `fd`; `tag` is posted through `notify` when the last owner drops it
    /// (0: never).
    pub(crate) fn new(fd: InternalFd, tag: u64, notify: alloc::sync::Weak<TagSink>) -> Rc<Self> {
        let kind = Kind::of(fd.as_raw_fd());
        let model = model::files::registered(fd.as_raw_fd());
        let (fd, deposited) = (Arc::new(fd), AtomicBool::new(false));
        Rc::new(FileNode { fd, kind, model, history: History::new(), tag, notify, deposited })
    }

    /// Creates a node of the same file with another descriptor.
    pub(crate) fn again(&self, fd: InternalFd) -> Rc<Self> {
        let (model, notify) = (self.model.clone(), self.notify.clone());
        let (fd, kind, tag, history) = (Arc::new(fd), self.kind, self.tag, History::new());
        let deposited = AtomicBool::new(false);
        Rc::new(FileNode { fd, kind, model, history, tag, notify, deposited })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the descriptor, for use without the ring's lock.
    pub(crate) fn share(&self) -> Arc<InternalFd> {
        self.fd.clone()
    }

    pub(crate) fn fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

impl Drop for FileNode {
    fn drop(&mut self) {
        if self.tag != 0
            && let Some(sink) = self.notify.upgrade()
        {
            sink.push(self.tag);
        }
    }
}

/// The table. Slots are sparse; a free slot is allocated round-robin within the alloc range.
#[derive(Debug, Default)]
pub(crate) struct FileTable {
    pub(crate) slots: Vec<Option<Rc<FileNode>>>,
    pub(crate) alloc: core::ops::Range<u32>,
    pub(crate) hint: u32,
    /// Slots in use.
    pub(crate) used: usize,
    /// Deposits in which forked children find the files.
    pub(super) deposits: Vec<Deposit>,
    /// Flag, set if files may exist that are in no deposit.
    pub(super) fresh: bool,
    /// True in a forked child that has not used the ring yet: the deposited files are closed.
    pub(super) away: bool,
}

impl FileTable {
    /// Closes the deposited files in a forked child, until [`Self::fetch_if_away`].
    pub(super) fn close_deposited(&mut self) {
        self.away = true;
        let deposited = |node: &&Rc<FileNode>| node.deposited.load(Relaxed);
        let nodes = self.slots.iter().flatten().filter(deposited);
        if softring_host::fork::noticed_late() {
            // Closed one by one, as the child may have locks on the files.
            //
            // SAFETY: as `away` says, the child reads no slot before `fetch_if_away`, which takes
            // these nodes out and forgets them, as `end` does.
            return nodes.for_each(|node| unsafe { node.fd.close_under_owner() });
        }
        let numbers = nodes.map(|node| node.fd()).collect();
        // SAFETY: as above.
        unsafe { softring_host::fd::owned::close_under_owners(numbers) };
    }

    /// Fills an empty table with `slots`.
    pub(crate) fn fill(&mut self, slots: Vec<Option<Rc<FileNode>>>) {
        self.slots = slots;
        self.fresh = true;
        self.used = self.slots.iter().flatten().count();
        self.set_alloc_range(0..self.slots.len() as u32);
    }

    /// Drops every file and the table.
    pub(crate) fn clear(&mut self) {
        self.withdraw_all();
        // From the last slot down: the order of tags shows this.
        while self.slots.pop().is_some() {}
        *self = FileTable::default();
    }

    /// Sets the range from which free slots are taken, from its start.
    pub(crate) fn set_alloc_range(&mut self, range: core::ops::Range<u32>) {
        self.hint = range.start;
        self.alloc = range;
    }

    /// Returns the node in `slot`.
    ///
    /// # Errors
    /// `EBADF` for an empty slot or one past the table.
    pub(crate) fn get(&self, slot: u32) -> Result<Rc<FileNode>> {
        self.peek(slot).cloned().ok_or(Errno::EBADF)
    }

    /// Returns the node in `slot`, to read only; `None` if empty.
    #[inline]
    pub(crate) fn peek(&self, slot: u32) -> Option<&Rc<FileNode>> {
        self.slots.get(slot as usize).and_then(Option::as_ref)
    }

    /// Finds a free slot in the alloc range, and leaves it free.
    ///
    /// # Errors
    /// `ENFILE` if there is none.
    pub(crate) fn free_slot(&mut self) -> Result<u32> {
        let range = self.alloc.clone();
        if self.hint < range.start || self.hint >= range.end {
            self.hint = range.start;
        }
        let free = |i: &u32| self.slots.get(*i as usize).is_some_and(Option::is_none);
        if let Some(slot) = (self.hint..range.end).find(free) {
            return Ok(slot);
        }
        let slot = (range.start..self.hint).find(free);
        self.hint = range.start;
        slot.ok_or(Errno::ENFILE)
    }
}
