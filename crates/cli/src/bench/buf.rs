//! Memory of the I/O: one slot per I/O in flight, and the pattern that blocks are verified by.
//!
//! The kernel writes to a slot while an I/O is in flight, so no Rust reference to a slot is ever
//! made. Slots are filled and checked through raw pointers, and only while idle; the load loop sees
//! to that. Slots are never unmapped: after an error the kernel may still write, and the process
//! soon ends anyway.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Alignment of slots, in bytes. O_DIRECT asks for the device's logical block; a page satisfies
/// all.
const ALIGN: usize = 4096;

/// A handle to the slots; copies mean the same memory.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    base: usize,
    stride: usize,
    count: usize,
}

impl Slots {
    /// Maps `count` zeroed slots of at least `len` bytes each.
    pub fn new(count: u32, len: u32) -> io::Result<Slots> {
        let stride = (len as usize).next_multiple_of(ALIGN);
        let count = count as usize;
        let bytes = stride.checked_mul(count).ok_or(io::ErrorKind::OutOfMemory)?;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: a fresh anonymous mapping, which nothing else knows.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Slots { base: at.expose_provenance(), stride, count })
    }

    /// Returns the slot's address, for the kernel.
    pub fn addr(&self, slot: u32) -> usize {
        assert!((slot as usize) < self.count);
        self.base + slot as usize * self.stride
    }

    fn words(&self, slot: u32, len: u32) -> (*mut u64, usize) {
        assert!(len as usize <= self.stride);
        (std::ptr::with_exposed_provenance_mut(self.addr(slot)), len as usize / 8)
    }

    /// Writes the pattern of the block at `offset`.
    pub fn fill(&self, slot: u32, len: u32, offset: u64, seed: u64) {
        let (at, n) = self.words(slot, len);
        for i in 0..n {
            // SAFETY: i is below the slot's length in words; the mapping lives for good.
            unsafe { at.add(i).write_volatile(word(offset + 8 * i as u64, seed)) };
        }
    }

    /// Returns the first byte offset at which the slot differs from the pattern.
    pub fn check(&self, slot: u32, len: u32, offset: u64, seed: u64) -> Option<u64> {
        let (at, n) = self.words(slot, len);
        let differs = |i: &usize| {
            // SAFETY: as in `fill`.
            let found = unsafe { at.add(*i).read_volatile() };
            found != word(offset + 8 * *i as u64, seed)
        };
        (0..n).find(differs).map(|i| offset + 8 * i as u64)
    }

    /// Calls pread(2) or pwrite(2) on a slot. Returns a count or a negative error number, as a CQE
    /// has it.
    pub fn transfer(
        &self,
        fd: BorrowedFd<'_>,
        slot: u32,
        len: u32,
        offset: u64,
        write: bool,
    ) -> i32 {
        let (at, _) = self.words(slot, len);
        let (fd, n, off) = (fd.as_raw_fd(), len as usize, offset.cast_signed());
        // SAFETY: the slot has `len` bytes and lives for good.
        let ret = unsafe {
            if write {
                libc::pwrite(fd, at.cast(), n, off)
            } else {
                libc::pread(fd, at.cast(), n, off)
            }
        };
        if ret < 0 {
            return -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        }
        ret as i32
    }
}

/// Returns the pattern's word at a file offset: splitmix64 of offset and seed, so that a lost
/// write, a write at the wrong offset and a write of another pass all show.
pub fn word(offset: u64, seed: u64) -> u64 {
    let mut z = (offset ^ seed.rotate_left(32)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_sees_place_and_seed() {
        let s = Slots::new(2, 4096).unwrap();
        s.fill(1, 4096, 8192, 7);
        assert_eq!(s.check(1, 4096, 8192, 7), None);
        assert_eq!(s.check(1, 4096, 8192, 8), Some(8192));
        assert_eq!(s.check(1, 4096, 4096, 7), Some(4096));
        assert_eq!(s.check(0, 4096, 0, 7), Some(0));
    }

    #[test]
    #[should_panic = "count"]
    fn slots_are_bounded() {
        Slots::new(2, 10).unwrap().addr(2);
    }
}
