//! The registered buffer table. A buffer is an address range of the program's, checked when it is registered.
//! Kernel counterpart: `io_uring/rsrc.c`.

use std::sync::Arc;

use crate::errno::{Errno, Result};

/// A registered buffer.
#[derive(Debug)]
pub struct BufNode {
    pub addr: u64,
    pub len: u64,
    pub tag: u64,
    pub notify: std::sync::Weak<super::files::TagSink>,
}

impl Drop for BufNode {
    fn drop(&mut self) {
        if self.tag != 0
            && let Some(sink) = self.notify.upgrade()
            && let Ok(mut tags) = sink.lock()
        {
            tags.push(self.tag);
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
        self.slots.get(slot as usize).and_then(Clone::clone).ok_or(Errno::EFAULT)
    }
}
