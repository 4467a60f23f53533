//! The registered file table: one node per slot, owned by the table and by each request in flight;
//! the last owner lets go of the duplicate. The count is a plain integer (`rsrc::plain`). Kernel
//! counterpart: `io_uring/filetable.c`, `rsrc.c`.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fd::{AsFd, AsRawFd, BorrowedFd};

use super::deposit::Deposit;
use super::filetable::{Update, dup_for_table};
use super::plain::Plain;
use crate::ctx::Ctx;
use crate::fds::InternalFd;
use crate::ops::rw_hot::Streak;
use crate::transport::kind::Kind;
use crate::transport::model;
use crate::user;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::limits::FIXED_FILES_MAX;
use softring_uapi::{io_uring_file_index_range, io_uring_rsrc_update, io_uring_rsrc_update2};

/// A registered file: our own duplicate of the program's descriptor, with what routing must know of
/// it.
#[derive(Debug)]
pub struct FileNode {
    /// Atomically counted: a worker has it without the ring's lock.
    fd: Arc<InternalFd>,
    pub kind: Kind,
    /// It is on a modelled device.
    pub model: Option<Arc<model::files::File>>,
    /// Reads in a row that the page cache answered (`ops::rw_hot`).
    pub streak: Streak,
    /// Posted as `user_data` when the last owner lets go; 0: never.
    pub tag: u64,
    pub notify: std::sync::Weak<TagSink>,
    /// Forked children find it (`rsrc::deposit`).
    pub deposited: AtomicBool,
}

/// Where tags of released nodes are collected for posting.
#[derive(Debug, Default)]
pub struct TagSink {
    /// [`Self::any`]; spares the lock, for every enter looks here.
    any: AtomicBool,
    list: Mutex<Vec<u64>>,
}

impl TagSink {
    pub fn push(&self, tag: u64) {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).push(tag);
        self.any.store(true, Release);
    }

    /// May there be some?
    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Acquire)
    }

    /// What was collected since the last look.
    pub fn take(&self) -> Vec<u64> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        self.any.store(false, Release);
        core::mem::take(&mut *list)
    }
}

impl FileNode {
    /// A node owning `fd`; `tag` is posted through `notify` when the last owner lets go (0: never).
    pub fn new(fd: InternalFd, tag: u64, notify: std::sync::Weak<TagSink>) -> Plain<Self> {
        let kind = Kind::of(fd.as_raw_fd());
        let model = model::files::registered(fd.as_raw_fd());
        let (fd, deposited) = (Arc::new(fd), AtomicBool::new(false));
        Plain::new(FileNode { fd, kind, model, streak: Streak::new(), tag, notify, deposited })
    }

    /// The same file, by another descriptor.
    pub fn again(&self, fd: InternalFd) -> Plain<Self> {
        let (model, notify) = (self.model.clone(), self.notify.clone());
        let (fd, kind, tag, streak) = (Arc::new(fd), self.kind, self.tag, Streak::new());
        let deposited = AtomicBool::new(false);
        Plain::new(FileNode { fd, kind, model, streak, tag, notify, deposited })
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The descriptor, for who works on it without the ring's lock.
    pub fn share(&self) -> Arc<InternalFd> {
        self.fd.clone()
    }

    pub fn fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// The number that the descriptor had at first.
    pub fn first(&self) -> i32 {
        self.fd.first()
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

/// The table. Slots are sparse; allocation of a free slot goes round-robin within the alloc range.
#[derive(Debug, Default)]
pub struct FileTable {
    pub slots: Vec<Option<Plain<FileNode>>>,
    pub alloc: core::ops::Range<u32>,
    pub hint: u32,
    /// Slots in use.
    pub used: usize,
    /// Where forked children find the files.
    pub(super) deposits: Vec<Deposit>,
    /// There may be some that they do not find.
    pub(super) fresh: bool,
    /// In a forked child that has not used the ring yet: what was deposited is closed.
    pub(super) away: bool,
}

impl FileTable {
    /// Free slots are picked from `range`, from its start.
    pub fn set_alloc_range(&mut self, range: core::ops::Range<u32>) {
        self.hint = range.start;
        self.alloc = range;
    }

    /// The node in `slot`.
    ///
    /// # Errors
    /// `EBADF` for an empty slot or one past the table.
    pub fn get(&self, slot: u32) -> Result<Plain<FileNode>> {
        self.peek(slot).cloned().ok_or(Errno::EBADF)
    }

    /// As [`get`](Self::get), for a look only.
    #[inline]
    pub fn peek(&self, slot: u32) -> Option<&Plain<FileNode>> {
        self.slots.get(slot as usize).and_then(Option::as_ref)
    }

    /// A free slot in the alloc range, which stays free.
    ///
    /// # Errors
    /// `ENFILE` if there is none.
    pub fn free_slot(&mut self) -> Result<u32> {
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

/// `IORING_REGISTER_FILES`: a table from an array of descriptors, -1 for a free slot.
///
/// # Errors
/// `EBUSY` if there is a table; `EINVAL` for none, `EMFILE` for too many descriptors; `EFAULT`;
/// `EBADF` for one that is not open, a ring or `O_PATH`.
pub(crate) fn register(ctx: &mut Ctx, addr: u64, nr: u32) -> Result<usize> {
    fill(ctx, addr, nr, 0)
}

/// `IORING_REGISTER_FILES2`: the same with tags, or sparse.
///
/// # Errors
/// As [`register`]; `EINVAL` for a tag without a file.
pub(crate) fn register2(ctx: &mut Ctx, addr: u64, size: u32) -> Result<usize> {
    let r = super::read_register(ctx, addr, size)?;
    fill(ctx, r.data, r.nr, r.tags)
}

fn fill(ctx: &mut Ctx, addr: u64, nr: u32, tags: u64) -> Result<usize> {
    if !ctx.files.slots.is_empty() {
        return Err(Errno::EBUSY);
    }
    if nr == 0 {
        return Err(Errno::EINVAL);
    }
    let limit = crate::substitute::getrlimit(rustix::process::Resource::Nofile).current;
    if nr > FIXED_FILES_MAX || limit.is_some_and(|n| u64::from(nr) > n) {
        return Err(Errno::EMFILE);
    }
    // Nodes are made last: those of a table that fails must not post their tags.
    let files = open_all(ctx, addr, nr, tags)?;
    let sink = Arc::downgrade(&ctx.tags);
    let node = |(fd, tag)| FileNode::new(fd, tag, sink.clone());
    ctx.files.slots = files.into_iter().map(|f| f.map(node)).collect();
    ctx.files.fresh = true;
    ctx.files.used = ctx.files.slots.iter().flatten().count();
    ctx.files.set_alloc_range(0..nr);
    Ok(0)
}

/// A duplicate of a descriptor, with its tag.
type Opened = (InternalFd, u64);

/// Duplicates of the descriptors, with their tags.
fn open_all(ctx: &mut Ctx, addr: u64, nr: u32, tags: u64) -> Result<Vec<Option<Opened>>> {
    let n = nr as usize;
    let (fds, tags) = ctx.unlocked(|| {
        let fds: Vec<i32> = if addr == 0 { vec![-1; n] } else { user::read_prefix(addr, n) };
        let tags: Vec<u64> = if tags == 0 { vec![0; n] } else { user::read_prefix(tags, n) };
        (fds, tags)
    });
    let mut files = Vec::with_capacity(n);
    for i in 0..n {
        let tag = *tags.get(i).ok_or(Errno::EFAULT)?;
        let fd = *fds.get(i).ok_or(Errno::EFAULT)?;
        if fd == -1 && tag != 0 {
            return Err(Errno::EINVAL);
        }
        files.push(if fd == -1 { None } else { Some((dup_for_table(fd)?, tag)) });
    }
    Ok(files)
}

/// `IORING_UNREGISTER_FILES`: lets go of the table; requests in flight keep their files.
///
/// # Errors
/// `ENXIO` if there is none.
pub(crate) fn unregister(ctx: &mut Ctx, _: u64, _: u32) -> Result<usize> {
    if ctx.files.slots.is_empty() {
        return Err(Errno::ENXIO);
    }
    ctx.files.withdraw_all();
    // From the last slot down, as tags show.
    while ctx.files.slots.pop().is_some() {}
    ctx.files = FileTable::default();
    Ok(0)
}

/// `IORING_REGISTER_FILES_UPDATE`: changes consecutive slots; answers how many.
///
/// # Errors
/// As [`FileTable::update`].
pub(crate) fn update(ctx: &mut Ctx, addr: u64, nr: u32) -> Result<usize> {
    if nr == 0 {
        return Err(Errno::EINVAL);
    }
    let up: io_uring_rsrc_update = ctx.unlocked(|| user::read(addr))?;
    if up.resv != 0 {
        return Err(Errno::EINVAL);
    }
    change(
        ctx,
        io_uring_rsrc_update2 { offset: up.offset, data: up.data, nr, ..Default::default() },
    )
}

/// `IORING_REGISTER_FILES_UPDATE2`: the same with tags.
///
/// # Errors
/// As [`FileTable::update`].
pub(crate) fn update2(ctx: &mut Ctx, addr: u64, size: u32) -> Result<usize> {
    let up = super::read_update(ctx, addr, size)?;
    change(ctx, up)
}

fn change(ctx: &mut Ctx, up: io_uring_rsrc_update2) -> Result<usize> {
    ctx.files.check_range(up.offset, up.nr)?;
    let (fds, tags) = ctx.unlocked(|| {
        let tags = (up.tags != 0).then(|| user::read_prefix(up.tags, up.nr as usize));
        (user::read_prefix(up.data, up.nr as usize), tags)
    });
    let up = Update { offset: up.offset, nr: up.nr, fds: &fds, tags: tags.as_deref() };
    ctx.files.update(up, &ctx.tags).map(|n| n as usize)
}

/// `IORING_REGISTER_FILE_ALLOC_RANGE`: where free slots are picked.
///
/// # Errors
/// `EFAULT`, `EOVERFLOW`, `EINVAL` past the table's end.
pub(crate) fn alloc_range(ctx: &mut Ctx, addr: u64, _: u32) -> Result<usize> {
    let range: io_uring_file_index_range = ctx.unlocked(|| user::read(addr))?;
    let end = range.off.checked_add(range.len).ok_or(Errno::EOVERFLOW)?;
    if range.resv != 0 || end as usize > ctx.files.slots.len() {
        return Err(Errno::EINVAL);
    }
    ctx.files.set_alloc_range(range.off..end);
    Ok(0)
}
