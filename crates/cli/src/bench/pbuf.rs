//! A ring of provided buffers (`IORING_REGISTER_PBUF_RING`), as a server gives and recycles them.
#![allow(unsafe_code)]

use super::buf::Slots;
use super::uring::Ring;
use softring_uapi::{io_uring_buf, io_uring_buf_reg};
use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

const IORING_REGISTER_PBUF_RING: u32 = 22;
/// Offset of the tail, in bytes: over the first entry's reserved field.
const TAIL: usize = 14;

/// Buffer group 0 of a ring.
pub struct BufRing {
    base: *mut io_uring_buf,
    mask: u16,
    tail: u16,
    bufs: Slots,
    len: u32,
}

impl BufRing {
    /// Registers `count` buffers (a power of two) of `len` bytes each, and gives them all.
    pub fn new(ring: &Ring, count: u16, len: u32) -> io::Result<BufRing> {
        let entries = Slots::new(1, u32::from(count) * size_of::<io_uring_buf>() as u32)?;
        let bufs = Slots::new(u32::from(count), len)?;
        let ring_addr = entries.addr(0) as u64;
        let reg =
            io_uring_buf_reg { ring_addr, ring_entries: u32::from(count), ..Default::default() };
        let (fd, op) = (ring.fd(), IORING_REGISTER_PBUF_RING);
        // SAFETY: the registration is read during the call; the entries are never unmapped.
        let done = unsafe { libc::syscall(libc::SYS_io_uring_register, fd, op, &raw const reg, 1) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        let base = std::ptr::with_exposed_provenance_mut(entries.addr(0));
        let mut given = BufRing { base, mask: count - 1, tail: 0, bufs, len };
        (0..count).for_each(|id| given.give(id));
        given.publish();
        Ok(given)
    }

    /// Returns the address of buffer `id`.
    pub fn addr(&self, id: u16) -> u64 {
        self.bufs.addr(u32::from(id)) as u64
    }

    /// Gives a buffer back; visible after [`Self::publish`].
    pub fn give(&mut self, id: u16) {
        let at = usize::from(self.tail & self.mask);
        let (addr, len) = (self.addr(id), self.len);
        // SAFETY: masked into the entries, which are ours until the tail passes them; the reserved
        // field, where the tail lies, is left alone.
        unsafe {
            let entry = self.base.add(at);
            (&raw mut (*entry).addr).write(addr);
            (&raw mut (*entry).len).write(len);
            (&raw mut (*entry).bid).write(id);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Publishes the tail, so that the other side sees the buffers given.
    pub fn publish(&self) {
        // SAFETY: the tail's place in the entries, which are never unmapped; both sides use it as
        // an atomic.
        let tail = unsafe { &*self.base.cast::<AtomicU16>().byte_add(TAIL) };
        tail.store(self.tail, Ordering::Release);
    }
}
