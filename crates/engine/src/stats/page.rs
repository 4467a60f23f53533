//! The page's memory, made with the first ring. Its slots are taken and given back under a lock of
//! its own, under which no other lock is taken.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use softring_host::sync::real::{Mutex, MutexGuard};

use softring_host::os::fd::{AsFd, AsRawFd, BorrowedFd};
use softring_host::os::fs::{SealFlags, fcntl_add_seals};
use softring_host::os::mm::{MapFlags, ProtFlags, mmap};

use super::of_process::PROCESS;
use super::watcher::Watcher;
use super::{Header, Hist, MAGIC, MeterStats, NAME, OPS, PoolStats, RingStats, Section, VERSION};
use softring_host::fd::InternalFd;
use softring_host::limits::{STATS_HISTS, STATS_METERS, STATS_POOLS, STATS_RINGS};
use softring_uapi::errno::{Errno, Result};

/// Switches the page off: only the ring itself has its counters from now on.
pub fn disable() {
    PROCESS.disabled.store(true, Relaxed);
}

/// Returns whether statistics are kept.
pub(crate) fn enabled() -> bool {
    !PROCESS.disabled.load(Relaxed)
}

/// Locks this process's page, to take slots of or give them back; makes it now if need be.
pub(super) fn page() -> Option<MutexGuard<'static, Option<Page>>> {
    if !enabled() {
        return None;
    }
    let mut guard = hold();
    if guard.is_none() {
        *guard = Page::new().ok();
        if let Some(page) = &*guard {
            let fd = page.fd.as_fd().as_raw_fd();
            // A watcher may keep us waiting: no other thread, and no child forked meanwhile, may
            // find the lock held.
            drop(guard);
            // SAFETY: a page and its descriptor stay as long as the process does. Only a forked
            // child lets go of it, which has its own descriptors.
            Watcher::Stat.send(Ok(unsafe { BorrowedFd::borrow_raw(fd) }));
            guard = hold();
        }
    }
    guard.is_some().then_some(guard)
}

/// Bits of a section's slots that are taken.
#[derive(Debug)]
pub(super) struct Taken<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> Taken<WORDS> {
    /// Takes the first free slot.
    fn take(&mut self, section: &Section) -> Option<usize> {
        let word = self.0.iter().position(|&word| word != u64::MAX)?;
        let bit = self.0[word].trailing_ones() as usize;
        self.0[word] |= 1 << bit;
        let slot = word * 64 + bit;
        if slot as u64 >= section.used.get() {
            section.used.set(slot as u64 + 1);
        }
        Some(slot)
    }

    pub(super) fn give_back(&mut self, slot: usize) {
        self.0[slot / 64] &= !(1 << (slot % 64));
    }
}

/// Page of this process.
#[derive(Debug)]
pub(crate) struct Page {
    /// Start of the memory, never unmapped: a slot may be written until its ring is dropped.
    at: NonNull<u8>,
    /// Slots of rings; the first is that of the sums.
    pub(super) rings: Taken<{ STATS_RINGS / 64 }>,
    pub(super) pools: Taken<{ STATS_POOLS / 64 }>,
    pub(super) hists: Taken<{ STATS_HISTS / 64 }>,
    meters: Taken<{ STATS_METERS / 64 }>,
    /// Histograms of the sums, by opcode, from 1 on; 0: none. On the page the program could write
    /// them.
    pub(super) sums: [u16; OPS],
    /// Descriptor that keeps the page to be found.
    fd: InternalFd,
}

// SAFETY: only an address range, which never goes away; what is in it are atomic words.
unsafe impl Send for Page {}

/// Returns CLOCK_BOOTTIME by a system call: once per process, and also if the vdso cannot be read.
fn now() -> u64 {
    const CLOCK_BOOTTIME: u32 = 7;
    softring_host::calls::process::clock(CLOCK_BOOTTIME)
}

const RINGS: usize = size_of::<Header>().next_multiple_of(64);
const POOLS: usize = RINGS + STATS_RINGS * size_of::<RingStats>();
const HISTS: usize = POOLS + STATS_POOLS * size_of::<PoolStats>();
const METERS: usize = HISTS + STATS_HISTS * size_of::<Hist>();
const SIZE: usize = METERS + STATS_METERS * size_of::<MeterStats>();

impl Page {
    fn new() -> Result<Page> {
        let fd = softring_host::substitute::memfd(NAME, true)?;
        crate::memory::file::extend(&fd, SIZE as u64)?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let null = core::ptr::null_mut();
        // SAFETY: a fresh mapping at an address of the kernel's choice overlays nothing.
        let at = unsafe { mmap(null, SIZE, prot, MapFlags::SHARED, fd.as_fd(), 0) }?;
        let at = NonNull::new(at.cast()).ok_or(Errno::ENOMEM)?;
        // If the kernel does not know a seal, readers only have their manners.
        let _ = fcntl_add_seals(&fd, SealFlags::GROW | SealFlags::SHRINK);
        let _ = fcntl_add_seals(&fd, SealFlags::FUTURE_WRITE);
        let mut page = Page {
            at,
            rings: Taken([0; STATS_RINGS / 64]),
            pools: Taken([0; STATS_POOLS / 64]),
            hists: Taken([0; STATS_HISTS / 64]),
            meters: Taken([0; STATS_METERS / 64]),
            sums: [0; OPS],
            fd: softring_host::fd::make_internal(fd),
        };
        softring_host::fd::know(&page.fd);
        page.fill_header();
        Ok(page)
    }

    fn fill_header(&mut self) {
        let header = Self::header(self.base());
        header.version.set(VERSION);
        header.pid.set(u64::from(softring_host::fork::pid()));
        header.header_size.set(size_of::<Header>() as u64);
        header.made.set(now());
        let section = |s: &Section, at: usize, size: usize, room: usize| {
            s.at.set(at as u64);
            s.size.set(size as u64);
            s.room.set(room as u64);
        };
        section(&header.rings, RINGS, size_of::<RingStats>(), STATS_RINGS);
        section(&header.pools, POOLS, size_of::<PoolStats>(), STATS_POOLS);
        section(&header.hists, HISTS, size_of::<Hist>(), STATS_HISTS);
        section(&header.meters, METERS, size_of::<MeterStats>(), STATS_METERS);
        let sums = self.rings.take(&header.rings);
        debug_assert_eq!(sums, Some(0));
        // The magic comes last: without it a page is not finished.
        header.magic.set(MAGIC);
    }

    fn header(Base(at): Base) -> &'static Header {
        // SAFETY: the page starts with a header; mapped for ever; zeroes are valid words.
        unsafe { at.cast().as_ref() }
    }

    pub(super) fn base(&self) -> Base {
        Base(self.at)
    }

    /// Takes a free slot for a ring; none if the page is full.
    pub(super) fn take_ring(&mut self) -> Option<usize> {
        let header = Self::header(self.base());
        let slot = self.rings.take(&header.rings);
        header.unseen_rings.add(u64::from(slot.is_none()));
        slot
    }

    /// Takes a free slot for the workers of a pool.
    pub(super) fn take_pool(&mut self) -> Option<usize> {
        self.pools.take(&Self::header(self.base()).pools)
    }

    /// Takes a free histogram, all zero.
    pub(super) fn take_hist(&mut self) -> Option<usize> {
        let header = Self::header(self.base());
        let slot = self.hists.take(&header.hists);
        header.unseen_hists.add(u64::from(slot.is_none()));
        slot
    }
}

/// Address of a page, which is mapped for ever.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base(NonNull<u8>);

/// Returns the address of a ring's slot.
pub(super) fn ring_at(Base(base): Base, slot: usize) -> NonNull<RingStats> {
    assert!(slot < STATS_RINGS);
    // SAFETY: in bounds (asserted); a multiple of the alignment, as both sizes are.
    unsafe { base.add(RINGS + slot * size_of::<RingStats>()).cast() }
}

/// Returns the words of a pool's slot.
pub(super) fn pool_at(Base(base): Base, slot: usize) -> &'static PoolStats {
    assert!(slot < STATS_POOLS);
    // SAFETY: as in `ring_at`; a page is mapped for ever, and zeroes are valid words.
    unsafe { base.add(POOLS + slot * size_of::<PoolStats>()).cast().as_ref() }
}

/// Returns a histogram.
#[inline]
pub(super) fn hist_at(Base(base): Base, slot: usize) -> &'static Hist {
    assert!(slot < STATS_HISTS);
    // SAFETY: as in `pool_at`.
    unsafe { base.add(HISTS + slot * size_of::<Hist>()).cast().as_ref() }
}

/// Takes a meter's slot, all of it 0; none if the page is full.
pub(super) fn take_meter() -> Option<(usize, NonNull<MeterStats>)> {
    let mut guard = page()?;
    let page = guard.as_mut()?;
    let slot = page.meters.take(&Page::header(page.base()).meters)?;
    // SAFETY: in bounds, as every slot given out is; a multiple of the alignment, as all sizes
    // are.
    let at = unsafe { page.at.add(METERS + slot * size_of::<MeterStats>()) };
    Some((slot, at.cast()))
}

/// Frees a meter's slot, whose words are 0.
pub(super) fn give_meter(slot: usize) {
    if let Some(page) = page().as_mut().and_then(|guard| guard.as_mut()) {
        page.meters.give_back(slot);
    }
}

/// Locks the page, which stands still over a fork.
pub(super) fn hold() -> MutexGuard<'static, Option<Page>> {
    PROCESS.page.lock()
}

/// Forgets the page in a forked child: it is the parent's, and not accessed again. Its memory stays
/// mapped.
pub(super) fn forget(page: &Mutex<Option<Page>>) {
    // After a fork by system call a thread that does not exist here may hold the lock.
    match page.try_lock() {
        Some(mut guard) => *guard = None,
        None => disable(),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn slots_are_given_out_from_the_first_on() {
        let (section, mut taken) = (Section::default(), Taken::<2>([0; 2]));
        let all: Vec<Option<usize>> = (0..129).map(|_| taken.take(&section)).collect();
        assert_eq!((all[0], all[127], all[128]), (Some(0), Some(127), None));
        taken.give_back(70);
        taken.give_back(3);
        assert_eq!([taken.take(&section), taken.take(&section)], [Some(3), Some(70)]);
        assert_eq!(section.used.get(), 128);
    }
}
