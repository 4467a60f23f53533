//! The registered buffer table. A buffer is an address range of the program's, faulted in for
//! writing at registration, as pinning would. Kernel counterpart: `io_uring/rsrc.c`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::files::TagSink;
use super::memlock::Locked;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::iovec;
use softring_uapi::limits::REG_BUFFER_LEN_MAX;

/// A registered buffer.
#[derive(Debug)]
pub(crate) struct BufNode {
    pub(crate) addr: u64,
    pub(crate) len: u64,
    /// Tag posted as `user_data` when the last owner releases the buffer; 0: never.
    pub(crate) tag: u64,
    pub(crate) notify: alloc::sync::Weak<TagSink>,
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
    /// `EFAULT`, as from `io_import_fixed`, also if the range wraps.
    pub(crate) fn check(&self, addr: u64, len: u64) -> Result<()> {
        let end = addr.checked_add(len).ok_or(Errno::EFAULT)?;
        if addr < self.addr || end > self.addr + self.len {
            return Err(Errno::EFAULT);
        }
        Ok(())
    }

    /// Returns a node of the same memory for another table, without the tag.
    pub(crate) fn share(&self) -> Arc<BufNode> {
        let locked = self.locked.clone();
        let notify = alloc::sync::Weak::new();
        Arc::new(BufNode { addr: self.addr, len: self.len, tag: 0, notify, locked })
    }
}

/// The table; an empty slot fails with EFAULT, like the kernel's dummy node.
#[derive(Debug, Default)]
pub(crate) struct BufTable {
    pub(crate) slots: Vec<Option<Arc<BufNode>>>,
}

impl BufTable {
    /// Returns the buffer in `slot`.
    ///
    /// # Errors
    /// `EFAULT` for an empty slot or one past the table.
    pub(crate) fn get(&self, slot: u16) -> Result<Arc<BufNode>> {
        self.peek(slot).cloned().ok_or(Errno::EFAULT)
    }

    /// Returns the buffer in `slot`, to read only; `None` if empty.
    #[inline]
    pub(crate) fn peek(&self, slot: u16) -> Option<&Arc<BufNode>> {
        self.slots.get(slot as usize).and_then(Option::as_ref)
    }

    /// Releases every buffer, from the last slot down: the order of tags shows this.
    pub(crate) fn clear(&mut self) {
        while self.slots.pop().is_some() {}
    }
}

/// A range, faulted in and counted, for a new node.
pub(crate) type Pinned = (iovec, Arc<Locked>);

/// Checks a buffer and faults it in (`io_buffer_validate`, `io_sqe_buffer_register`); `None` for a
/// free slot.
///
/// # Errors
/// `EFAULT`, `EOVERFLOW` for bad memory; `ENOMEM` past RLIMIT_MEMLOCK.
pub(crate) fn pin(v: iovec, unlimited: bool) -> Result<Option<Pinned>> {
    if v.base == 0 {
        return if v.len == 0 { Ok(None) } else { Err(Errno::EFAULT) };
    }
    if v.len == 0 || v.len > REG_BUFFER_LEN_MAX {
        return Err(Errno::EFAULT);
    }
    let end = v.base.checked_add(v.len).ok_or(Errno::EOVERFLOW)?;
    let end = end.checked_add(4095).ok_or(Errno::EOVERFLOW)? & !4095;
    let start = v.base & !4095;
    crate::memory::mappings::populate(&(start..end))?;
    Ok(Some((v, Arc::new(Locked::range(v.base, v.len, unlimited)?))))
}

/// Creates a node of a pinned range; its tag is posted through `sink`.
pub(crate) fn node(((v, locked), tag): (Pinned, u64), sink: &Arc<TagSink>) -> Arc<BufNode> {
    let notify = Arc::downgrade(sink);
    Arc::new(BufNode { addr: v.base, len: v.len, tag, notify, locked })
}
