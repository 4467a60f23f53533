//! The calls for registered buffers ([`crate::resources::buffers`]). Kernel counterpart:
//! `io_sqe_buffers_register`, `__io_sqe_buffers_update` in `io_uring/rsrc.c`.

use super::tagged::{read_register, read_update};
use crate::resources::buffers::{Pinned, node, pin};
use crate::ring::ctx::Ctx;
use alloc::vec;
use alloc::vec::Vec;
use softring_host::user;
use softring_host::user::UserPtr;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::io_uring_rsrc_update2;
use softring_uapi::iovec;
use softring_uapi::limits::REG_BUFFERS_MAX;

/// The buffers and tags of one call, as far as they could be read.
struct Source {
    iovs: Vec<iovec>,
    tags: Vec<u64>,
    /// Flag, true if the ring's buffers do not count against RLIMIT_MEMLOCK.
    unlimited: bool,
}

impl Source {
    fn read(data: u64, tags: u64, nr: u32, unlimited: bool) -> Source {
        let n = nr as usize;
        let iovs = if data == 0 { vec![iovec::default(); n] } else { user::read_prefix(data, n) };
        let tags = if tags == 0 { vec![0; n] } else { user::read_prefix(tags, n) };
        Source { iovs, tags, unlimited }
    }

    fn iov(&self, i: usize) -> Result<iovec> {
        let v = *self.iovs.get(i).ok_or(Errno::EFAULT)?;
        if v.len > i64::MAX as u64 { Err(Errno::EINVAL) } else { Ok(v) }
    }

    fn tag(&self, i: usize) -> Result<u64> {
        self.tags.get(i).copied().ok_or(Errno::EFAULT)
    }

    /// Returns one slot's content. If several errors apply, their order differs between the
    /// kernel's two callers.
    fn get(&self, i: usize, tag_first: bool) -> Result<Option<(Pinned, u64)>> {
        let iov = self.iov(i)?;
        let tag = if tag_first { self.tag(i)? } else { 0 };
        let pinned = pin(iov, self.unlimited)?;
        let tag = if tag_first { tag } else { self.tag(i)? };
        match pinned {
            None if tag != 0 => Err(Errno::EINVAL),
            None => Ok(None),
            Some(p) => Ok(Some((p, tag))),
        }
    }
}

/// `IORING_REGISTER_BUFFERS`: registers a table from an array of `struct iovec`; address and length
/// 0 for a free slot.
///
/// # Errors
/// `EBUSY` if there is a table; `EINVAL` for none or too many; `EFAULT`, `EOVERFLOW` for bad
/// memory; `ENOMEM` past RLIMIT_MEMLOCK.
pub(super) fn register(ctx: &mut Ctx, addr: UserPtr, nr: u32) -> Result<usize> {
    fill(ctx, addr.addr(), nr, 0)
}

/// `IORING_REGISTER_BUFFERS2`: registers a table with tags, or a sparse one.
///
/// # Errors
/// Same as [`register`]; `EINVAL` for a tag without a buffer.
pub(super) fn register2(ctx: &mut Ctx, addr: UserPtr, size: u32) -> Result<usize> {
    let r = read_register(ctx, addr, size)?;
    fill(ctx, r.data, r.nr, r.tags)
}

fn fill(ctx: &mut Ctx, data: u64, nr: u32, tags: u64) -> Result<usize> {
    if !ctx.resources.buffers.slots.is_empty() {
        return Err(Errno::EBUSY);
    }
    if nr == 0 || nr > REG_BUFFERS_MAX {
        return Err(Errno::EINVAL);
    }
    // Nodes are made last: the nodes of a table that fails must not post their tags.
    let unlimited = ctx.setup.unlimited;
    let all: Result<Vec<_>> = ctx.unlocked(|| {
        let source = Source::read(data, tags, nr, unlimited);
        (0..nr as usize).map(|i| source.get(i, false)).collect()
    });
    let sink = ctx.resources.tags.clone();
    ctx.resources.buffers.slots = all?.into_iter().map(|b| b.map(|b| node(b, &sink))).collect();
    Ok(0)
}

/// `IORING_UNREGISTER_BUFFERS`: drops the table; requests in flight keep their buffers.
///
/// # Errors
/// `ENXIO` if there is none.
pub(super) fn unregister(ctx: &mut Ctx, _: UserPtr, _: u32) -> Result<usize> {
    if ctx.resources.buffers.slots.is_empty() {
        return Err(Errno::ENXIO);
    }
    ctx.resources.buffers.clear();
    Ok(0)
}

/// `IORING_REGISTER_BUFFERS_UPDATE`: changes consecutive slots; returns how many were changed
/// before the first error.
///
/// # Errors
/// `EINVAL`, `EOVERFLOW`, `ENXIO` without a table; if the first slot fails, the errors of
/// [`register`].
pub(super) fn update(ctx: &mut Ctx, addr: UserPtr, size: u32) -> Result<usize> {
    let up = read_update(ctx, addr, size)?;
    let end = up.offset.checked_add(up.nr).ok_or(Errno::EOVERFLOW)?;
    if ctx.resources.buffers.slots.is_empty() {
        return Err(Errno::ENXIO);
    }
    if end as usize > ctx.resources.buffers.slots.len() {
        return Err(Errno::EINVAL);
    }
    change(ctx, up)
}

fn change(ctx: &mut Ctx, up: io_uring_rsrc_update2) -> Result<usize> {
    // A missing array is no sparse update: NULL cannot be read.
    let unlimited = ctx.setup.unlimited;
    let source = ctx.unlocked(|| {
        let iovs = user::read_prefix(up.data, up.nr as usize);
        Source { iovs, ..Source::read(0, up.tags, up.nr, unlimited) }
    });
    for i in 0..up.nr as usize {
        match ctx.unlocked(|| source.get(i, true)) {
            Ok(b) => {
                let sink = ctx.resources.tags.clone();
                ctx.resources.buffers.slots[up.offset as usize + i] = b.map(|b| node(b, &sink));
            }
            Err(e) => return if i > 0 { Ok(i) } else { Err(e) },
        }
    }
    Ok(up.nr as usize)
}
