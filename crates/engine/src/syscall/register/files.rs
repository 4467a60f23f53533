//! The calls for registered files ([`crate::resources::files`]). Kernel counterpart:
//! `io_sqe_files_register`, `__io_sqe_files_update` in `io_uring/rsrc.c`.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::tagged::{read_register, read_update};
use crate::resources::files::FileNode;
use crate::resources::filetable::{Update, dup_for_table};
use crate::ring::ctx::Ctx;
use softring_host::fd::InternalFd;
use softring_host::user;
use softring_host::user::UserPtr;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::limits::FIXED_FILES_MAX;
use softring_uapi::{io_uring_file_index_range, io_uring_rsrc_update, io_uring_rsrc_update2};

/// `IORING_REGISTER_FILES`: registers a table from an array of descriptors, -1 for a free slot.
///
/// # Errors
/// `EBUSY` if there is a table; `EINVAL` for none, `EMFILE` for too many descriptors; `EFAULT`;
/// `EBADF` for one that is not open, a ring or `O_PATH`.
pub(super) fn register(ctx: &mut Ctx, addr: UserPtr, nr: u32) -> Result<usize> {
    fill(ctx, addr.addr(), nr, 0)
}

/// `IORING_REGISTER_FILES2`: registers a table with tags, or a sparse one.
///
/// # Errors
/// Same as [`register`]; `EINVAL` for a tag without a file.
pub(super) fn register2(ctx: &mut Ctx, addr: UserPtr, size: u32) -> Result<usize> {
    let r = read_register(ctx, addr, size)?;
    fill(ctx, r.data, r.nr, r.tags)
}

fn fill(ctx: &mut Ctx, addr: u64, nr: u32, tags: u64) -> Result<usize> {
    if !ctx.resources.files.slots.is_empty() {
        return Err(Errno::EBUSY);
    }
    if nr == 0 {
        return Err(Errno::EINVAL);
    }
    let limit =
        softring_host::substitute::getrlimit(softring_host::os::process::Resource::Nofile).current;
    if nr > FIXED_FILES_MAX || limit.is_some_and(|n| u64::from(nr) > n) {
        return Err(Errno::EMFILE);
    }
    // Nodes are made last: the nodes of a table that fails must not post their tags.
    let files = open_all(ctx, addr, nr, tags)?;
    let sink = Arc::downgrade(&ctx.resources.tags);
    let node = |(fd, tag)| FileNode::new(fd, tag, sink.clone());
    ctx.resources.files.fill(files.into_iter().map(|f| f.map(node)).collect());
    Ok(0)
}

/// A duplicate of a descriptor, with its tag.
type Opened = (InternalFd, u64);

/// Returns duplicates of the descriptors, with their tags.
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

/// `IORING_UNREGISTER_FILES`: drops the table; requests in flight keep their files.
///
/// # Errors
/// `ENXIO` if there is none.
pub(super) fn unregister(ctx: &mut Ctx, _: UserPtr, _: u32) -> Result<usize> {
    if ctx.resources.files.slots.is_empty() {
        return Err(Errno::ENXIO);
    }
    ctx.resources.files.clear();
    Ok(0)
}

/// `IORING_REGISTER_FILES_UPDATE`: changes consecutive slots; returns how many.
///
/// # Errors
/// Same as [`FileTable::update`](crate::resources::files::FileTable::update).
pub(super) fn update(ctx: &mut Ctx, addr: UserPtr, nr: u32) -> Result<usize> {
    if nr == 0 {
        return Err(Errno::EINVAL);
    }
    let up: io_uring_rsrc_update = ctx.unlocked(|| user::read(addr.addr()))?;
    if up.resv != 0 {
        return Err(Errno::EINVAL);
    }
    change(
        ctx,
        io_uring_rsrc_update2 { offset: up.offset, data: up.data, nr, ..Default::default() },
    )
}

/// `IORING_REGISTER_FILES_UPDATE2`: changes consecutive slots, with tags; returns how many.
///
/// # Errors
/// Same as [`FileTable::update`](crate::resources::files::FileTable::update).
pub(super) fn update2(ctx: &mut Ctx, addr: UserPtr, size: u32) -> Result<usize> {
    let up = read_update(ctx, addr, size)?;
    change(ctx, up)
}

fn change(ctx: &mut Ctx, up: io_uring_rsrc_update2) -> Result<usize> {
    ctx.resources.files.check_range(up.offset, up.nr)?;
    let (fds, tags) = ctx.unlocked(|| {
        let tags = (up.tags != 0).then(|| user::read_prefix(up.tags, up.nr as usize));
        (user::read_prefix(up.data, up.nr as usize), tags)
    });
    let up = Update { offset: up.offset, nr: up.nr, fds: &fds, tags: tags.as_deref() };
    ctx.resources.files.update(up, &ctx.resources.tags).map(|n| n as usize)
}

/// `IORING_REGISTER_FILE_ALLOC_RANGE`: sets the range from which free slots are picked.
///
/// # Errors
/// `EFAULT`, `EOVERFLOW`, `EINVAL` past the table's end.
pub(super) fn alloc_range(ctx: &mut Ctx, addr: UserPtr, _: u32) -> Result<usize> {
    let range: io_uring_file_index_range = ctx.unlocked(|| user::read(addr.addr()))?;
    let end = range.off.checked_add(range.len).ok_or(Errno::EOVERFLOW)?;
    if range.resv != 0 || end as usize > ctx.resources.files.slots.len() {
        return Err(Errno::EINVAL);
    }
    ctx.resources.files.set_alloc_range(range.off..end);
    Ok(0)
}
