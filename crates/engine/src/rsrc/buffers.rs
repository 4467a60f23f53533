//! The registered buffer table. A buffer is an address range of the program's, faulted in for
//! writing when it is registered, as pinning would. Kernel counterpart: `io_uring/rsrc.c`.

use std::sync::Arc;

use super::files::TagSink;
use super::memlock::Locked;
use crate::ctx::Ctx;
use crate::user;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::io_uring_rsrc_update2;
use softring_uapi::iovec;
use softring_uapi::limits::{REG_BUFFER_LEN_MAX, REG_BUFFERS_MAX};

/// A registered buffer.
#[derive(Debug)]
pub struct BufNode {
    pub addr: u64,
    pub len: u64,
    /// Posted as `user_data` when the last owner lets go; 0: never.
    pub tag: u64,
    pub notify: std::sync::Weak<TagSink>,
    /// Shared with its clones in other rings.
    locked: Arc<Locked>,
}

impl Drop for BufNode {
    fn drop(&mut self) {
        if self.tag != 0
            && let Some(sink) = self.notify.upgrade()
        {
            sink.push(self.tag);
        }
    }
}

impl BufNode {
    /// Checks that `[addr, addr + len)` lies inside.
    ///
    /// # Errors
    /// `EFAULT`, as `io_import_fixed` answers; `EOVERFLOW`-like wraps are `EFAULT` too.
    pub fn check(&self, addr: u64, len: u64) -> Result<()> {
        let end = addr.checked_add(len).ok_or(Errno::EFAULT)?;
        if addr < self.addr || end > self.addr + self.len {
            return Err(Errno::EFAULT);
        }
        Ok(())
    }

    /// The same memory for another table, without the tag.
    pub fn share(&self) -> Arc<BufNode> {
        let locked = self.locked.clone();
        let notify = std::sync::Weak::new();
        Arc::new(BufNode { addr: self.addr, len: self.len, tag: 0, notify, locked })
    }
}

/// The table; an empty slot answers EFAULT as the kernel's dummy node does.
#[derive(Debug, Default)]
pub struct BufTable {
    pub slots: Vec<Option<Arc<BufNode>>>,
}

impl BufTable {
    /// The buffer in `slot`.
    ///
    /// # Errors
    /// `EFAULT` for an empty slot or one past the table.
    pub fn get(&self, slot: u16) -> Result<Arc<BufNode>> {
        self.peek(slot).cloned().ok_or(Errno::EFAULT)
    }

    /// As [`get`](Self::get), for a look only.
    #[inline]
    pub fn peek(&self, slot: u16) -> Option<&Arc<BufNode>> {
        self.slots.get(slot as usize).and_then(Option::as_ref)
    }
}

/// A range, faulted in and counted, that is to become a node.
type Pinned = (iovec, Arc<Locked>);

/// Checks a buffer and faults it in (`io_buffer_validate`, `io_sqe_buffer_register`); none for a
/// free slot.
fn pin(v: iovec) -> Result<Option<Pinned>> {
    if v.base == 0 {
        return if v.len == 0 { Ok(None) } else { Err(Errno::EFAULT) };
    }
    if v.len == 0 || v.len > REG_BUFFER_LEN_MAX {
        return Err(Errno::EFAULT);
    }
    let end = v.base.checked_add(v.len).ok_or(Errno::EOVERFLOW)?;
    let end = end.checked_add(4095).ok_or(Errno::EOVERFLOW)? & !4095;
    let start = v.base & !4095;
    crate::mem::mappings::populate(&(start..end))?;
    Ok(Some((v, Arc::new(Locked::range(v.base, v.len)?))))
}

/// The buffers and tags of one call, as far as they could be read.
struct Source {
    iovs: Vec<iovec>,
    tags: Vec<u64>,
}

impl Source {
    fn read(data: u64, tags: u64, nr: u32) -> Source {
        let n = nr as usize;
        let iovs = if data == 0 { vec![iovec::default(); n] } else { user::read_prefix(data, n) };
        let tags = if tags == 0 { vec![0; n] } else { user::read_prefix(tags, n) };
        Source { iovs, tags }
    }

    fn iov(&self, i: usize) -> Result<iovec> {
        let v = *self.iovs.get(i).ok_or(Errno::EFAULT)?;
        if v.len > i64::MAX as u64 { Err(Errno::EINVAL) } else { Ok(v) }
    }

    fn tag(&self, i: usize) -> Result<u64> {
        self.tags.get(i).copied().ok_or(Errno::EFAULT)
    }

    /// One slot's content. Which error wins where several apply differs between the kernel's two
    /// callers.
    fn get(&self, i: usize, tag_first: bool) -> Result<Option<(Pinned, u64)>> {
        let iov = self.iov(i)?;
        let tag = if tag_first { self.tag(i)? } else { 0 };
        let pinned = pin(iov)?;
        let tag = if tag_first { tag } else { self.tag(i)? };
        match pinned {
            None if tag != 0 => Err(Errno::EINVAL),
            None => Ok(None),
            Some(p) => Ok(Some((p, tag))),
        }
    }
}

fn node(((v, locked), tag): (Pinned, u64), sink: &Arc<TagSink>) -> Arc<BufNode> {
    let notify = Arc::downgrade(sink);
    Arc::new(BufNode { addr: v.base, len: v.len, tag, notify, locked })
}

/// `IORING_REGISTER_BUFFERS`: a table from an array of `struct iovec`; address and length 0 for a
/// free slot.
///
/// # Errors
/// `EBUSY` if there is a table; `EINVAL` for none or too many; `EFAULT`, `EOVERFLOW` for bad
/// memory; `ENOMEM` past RLIMIT_MEMLOCK.
pub(crate) fn register(ctx: &mut Ctx, addr: u64, nr: u32) -> Result<usize> {
    fill(ctx, addr, nr, 0)
}

/// `IORING_REGISTER_BUFFERS2`: the same with tags, or sparse.
///
/// # Errors
/// As [`register`]; `EINVAL` for a tag without a buffer.
pub(crate) fn register2(ctx: &mut Ctx, addr: u64, size: u32) -> Result<usize> {
    let r = super::read_register(ctx, addr, size)?;
    fill(ctx, r.data, r.nr, r.tags)
}

fn fill(ctx: &mut Ctx, data: u64, nr: u32, tags: u64) -> Result<usize> {
    if !ctx.buffers.slots.is_empty() {
        return Err(Errno::EBUSY);
    }
    if nr == 0 || nr > REG_BUFFERS_MAX {
        return Err(Errno::EINVAL);
    }
    // Nodes are made last: those of a table that fails must not post their tags.
    let all: Result<Vec<_>> = ctx.unlocked(|| {
        let source = Source::read(data, tags, nr);
        (0..nr as usize).map(|i| source.get(i, false)).collect()
    });
    let sink = ctx.tags.clone();
    ctx.buffers.slots = all?.into_iter().map(|b| b.map(|b| node(b, &sink))).collect();
    Ok(0)
}

/// `IORING_UNREGISTER_BUFFERS`: lets go of the table; requests in flight keep their buffers.
///
/// # Errors
/// `ENXIO` if there is none.
pub(crate) fn unregister(ctx: &mut Ctx, _: u64, _: u32) -> Result<usize> {
    if ctx.buffers.slots.is_empty() {
        return Err(Errno::ENXIO);
    }
    // From the last slot down, as tags show.
    while ctx.buffers.slots.pop().is_some() {}
    Ok(0)
}

/// `IORING_REGISTER_BUFFERS_UPDATE`: changes consecutive slots; answers how many were done before
/// the first error.
///
/// # Errors
/// `EINVAL`, `EOVERFLOW`, `ENXIO` without a table; if the first slot already fails, as
/// [`register`].
pub(crate) fn update(ctx: &mut Ctx, addr: u64, size: u32) -> Result<usize> {
    let up = super::read_update(ctx, addr, size)?;
    let end = up.offset.checked_add(up.nr).ok_or(Errno::EOVERFLOW)?;
    if ctx.buffers.slots.is_empty() {
        return Err(Errno::ENXIO);
    }
    if end as usize > ctx.buffers.slots.len() {
        return Err(Errno::EINVAL);
    }
    change(ctx, up)
}

fn change(ctx: &mut Ctx, up: io_uring_rsrc_update2) -> Result<usize> {
    // No array is no sparse update: NULL cannot be read.
    let source = ctx.unlocked(|| {
        let iovs = user::read_prefix(up.data, up.nr as usize);
        Source { iovs, ..Source::read(0, up.tags, up.nr) }
    });
    for i in 0..up.nr as usize {
        match ctx.unlocked(|| source.get(i, true)) {
            Ok(b) => {
                let sink = ctx.tags.clone();
                ctx.buffers.slots[up.offset as usize + i] = b.map(|b| node(b, &sink));
            }
            Err(e) => return if i > 0 { Ok(i) } else { Err(e) },
        }
    }
    Ok(up.nr as usize)
}
