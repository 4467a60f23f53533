//! Batched copy-in of small structures from the program. One write to an internal file reads them
//! all, wherever they lie, in one system call, and our mapping of that file shows them. That takes
//! 24 ns each in a batch of 32; process_vm_readv(2) takes 400 each in a batch and 670 alone. The
//! write stops at a bad address.

use alloc::vec::Vec;
use softring_host::os::fd::{AsFd, AsRawFd};
use softring_host::os::process::Resource;

use super::region::Region;
use softring_host::calls::files;
use softring_host::fd::InternalFd;
use softring_host::substitute;
use softring_uapi::iovec;
use softring_uapi::kernel_timespec;

/// Maximum number of structures read at once.
pub(crate) const BATCH: usize = 32;
const SIZE: usize = size_of::<kernel_timespec>();
const PAGE: usize = 4096;

/// The file and its mapping.
#[derive(Debug)]
struct Scratch {
    file: InternalFd,
    page: Region,
}

impl Scratch {
    /// Creates the file; `None` if there is no descriptor or memory for it, or if writing to it
    /// could exceed RLIMIT_FSIZE.
    fn new() -> Option<Scratch> {
        if substitute::getrlimit(Resource::Fsize).current.is_some_and(|most| most < PAGE as u64) {
            return None;
        }
        let file = substitute::memfd("softring", false).ok()?;
        substitute::set_size(file.as_raw_fd(), PAGE as u64).ok()?;
        let file = softring_host::fd::make_internal(file);
        let page = Region::map(file.as_fd(), 0, PAGE).ok()?;
        Some(Scratch { file, page })
    }
}

/// Timespecs read ahead: those of a run of TIMEOUTs in one batch.
#[derive(Debug, Default)]
pub(crate) struct Timespecs {
    scratch: Option<Scratch>,
    addrs: Vec<u64>,
    next: usize,
}

/// Handle to the file of [`Timespecs`] for the read, which may sleep in a page fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading(i32);

impl Reading {
    /// Reads the timespecs at `addrs`, [`BATCH`] at most; returns how many were readable.
    pub(crate) fn read(self, addrs: &[u64]) -> usize {
        let mut iov = [iovec::default(); BATCH];
        for (v, &base) in iov.iter_mut().zip(addrs) {
            *v = iovec { base, len: SIZE as u64 };
        }
        files::gather(self.0, &iov[..addrs.len().min(BATCH)], 0).unwrap_or(0) / SIZE
    }
}

impl Timespecs {
    /// Forgets the timespecs read.
    pub(crate) fn clear(&mut self) {
        self.addrs.clear();
        self.next = 0;
    }

    /// Returns the timespec read for the next SQE, if it lies at `addr`.
    pub(crate) fn take(&mut self, addr: u64) -> Option<kernel_timespec> {
        if self.addrs.get(self.next) != Some(&addr) {
            self.clear();
            return None;
        }
        let at = self.next * SIZE;
        self.next += 1;
        Some(self.scratch.as_ref()?.page.load(at))
    }

    /// Forgets the timespecs read, to read others; `None` if there is no file to read them to.
    pub(crate) fn begin(&mut self) -> Option<Reading> {
        self.clear();
        if self.scratch.is_none() {
            self.scratch = Scratch::new();
        }
        self.scratch.as_ref().map(|scratch| Reading(scratch.file.as_raw_fd()))
    }

    /// Records that the timespecs at `addrs` have been read.
    pub(crate) fn end(&mut self, addrs: &[u64]) {
        self.addrs.extend_from_slice(addrs);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn readable_bytes_are_copied_up_to_the_fault() {
        let all: [kernel_timespec; 3] =
            core::array::from_fn(|i| kernel_timespec { tv_sec: i as i64, tv_nsec: 7 });
        let at = |i: usize| (&raw const all[i]).expose_provenance() as u64;
        let mut t = Timespecs::default();
        let addrs = [at(2), at(0), 8, at(1)];
        let n = t.begin().unwrap().read(&addrs);
        assert_eq!(n, 2);
        t.end(&addrs[..n]);
        assert_eq!(t.take(at(2)).map(|ts| (ts.tv_sec, ts.tv_nsec)), Some((2, 7)));
        assert_eq!(t.take(at(0)).map(|ts| ts.tv_sec), Some(0));
        assert!(t.take(8).is_none() && t.take(at(1)).is_none());
    }
}
