//! The page's memory: made with the first ring, one place per ring, taken and given back under a
//! lock of its own, which nothing else is taken under.
#![allow(unsafe_code)]

use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fd::AsFd;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};

use super::{Header, MAGIC, MeterStats, NAME, RingStats, VERSION};
use crate::errno::{Errno, Result};
use crate::fds::InternalFd;
use crate::limits::{STATS_METERS, STATS_RINGS};
use crate::sys::sys;

static ENABLED: AtomicBool = AtomicBool::new(true);
static PAGE: Mutex<Option<Page>> = Mutex::new(None);

/// No page is made from now on: the counters are nobody's but the ring's.
pub fn disable() {
    ENABLED.store(false, Relaxed);
}

/// Are statistics kept?
pub fn enabled() -> bool {
    ENABLED.load(Relaxed)
}

/// The page of this process.
#[derive(Debug)]
struct Page {
    /// Never unmapped: a place may be written until its ring is dropped.
    at: NonNull<u8>,
    /// By place; 0 is that of the sums.
    taken: Vec<bool>,
    meters: Vec<bool>,
    /// Keeps the page to be found.
    _fd: InternalFd,
}

// SAFETY: only an address range, which never goes away; what is in it are atomic words.
unsafe impl Send for Page {}

/// CLOCK_BOOTTIME by a system call: once per process, and also where the vdso cannot be read.
fn now() -> u64 {
    const CLOCK_BOOTTIME: u32 = 7;
    let mut ts = [0u64; 2];
    sys!(__NR_clock_gettime, CLOCK_BOOTTIME, ts.as_mut_ptr().expose_provenance());
    ts[0] * 1_000_000_000 + ts[1]
}

const HEADER: usize = size_of::<Header>().next_multiple_of(64);
const METERS: usize = HEADER + STATS_RINGS * size_of::<RingStats>();
const SIZE: usize = METERS + STATS_METERS * size_of::<MeterStats>();

fn lock() -> MutexGuard<'static, Option<Page>> {
    PAGE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Page {
    fn new() -> Result<Page> {
        let fd = memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, SIZE as u64)?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let null = core::ptr::null_mut();
        // SAFETY: a fresh mapping at an address of the kernel's choice overlays nothing.
        let at = unsafe { mmap(null, SIZE, prot, MapFlags::SHARED, fd.as_fd(), 0) }?;
        let at = NonNull::new(at.cast()).ok_or(Errno::ENOMEM)?;
        // Where a seal is not known, readers have only their manners.
        let _ = fcntl_add_seals(&fd, SealFlags::GROW | SealFlags::SHRINK);
        let _ = fcntl_add_seals(&fd, SealFlags::FUTURE_WRITE);
        let fd = crate::fds::adopt_internal(fd);
        let page = Page { at, taken: vec![true], meters: Vec::new(), _fd: fd };
        let header = page.header();
        header.version.set(VERSION);
        header.pid.set(u64::from(crate::fork::pid()));
        header.header_size.set(HEADER as u64);
        header.ring_size.set(size_of::<RingStats>() as u64);
        header.rings.set(STATS_RINGS as u64);
        header.meters_at.set(METERS as u64);
        header.meter_size.set(size_of::<MeterStats>() as u64);
        header.meters.set(STATS_METERS as u64);
        header.made.set(now());
        // Last: what has no magic is not finished.
        header.magic.set(MAGIC);
        Ok(page)
    }

    fn header(&self) -> &Header {
        // SAFETY: the page starts with a header; mapped for ever; zeroes are valid words.
        unsafe { self.at.cast().as_ref() }
    }

    fn ring(&self, place: usize) -> NonNull<RingStats> {
        assert!(place < STATS_RINGS);
        // SAFETY: in bounds (asserted); a multiple of the alignment, as both sizes are.
        unsafe { self.at.add(HEADER + place * size_of::<RingStats>()).cast() }
    }

    fn meter(&self, place: usize) -> NonNull<MeterStats> {
        assert!(place < STATS_METERS);
        // SAFETY: in bounds (asserted); a multiple of the alignment, as all sizes are.
        unsafe { self.at.add(METERS + place * size_of::<MeterStats>()).cast() }
    }

    /// A ring's place; none if the page is full.
    fn take(&mut self) -> Option<usize> {
        let place = free(&mut self.taken, STATS_RINGS);
        if place.is_none() {
            self.header().unseen.add(1);
        }
        place
    }
}

/// Takes the first of `most` places that is free.
fn free(taken: &mut Vec<bool>, most: usize) -> Option<usize> {
    let place = taken.iter().position(|taken| !taken).unwrap_or(taken.len());
    if place == most {
        return None;
    }
    if place == taken.len() {
        taken.push(false);
    }
    taken[place] = true;
    Some(place)
}

/// The page, made now if need be; nothing where there is none.
fn page<T>(f: impl FnOnce(&mut Page) -> Option<T>) -> Option<T> {
    if !ENABLED.load(Relaxed) {
        return None;
    }
    let mut slot = lock();
    if slot.is_none() {
        *slot = Page::new().ok();
    }
    f(slot.as_mut()?)
}

/// A meter's place, all of it 0; none if the page is full.
pub(super) fn take_meter() -> Option<(usize, NonNull<MeterStats>)> {
    page(|page| {
        let place = free(&mut page.meters, STATS_METERS)?;
        Some((place, page.meter(place)))
    })
}

/// The place is free again; its words are 0.
pub(super) fn give_meter(place: usize) {
    if let Some(page) = lock().as_mut() {
        page.meters[place] = false;
    }
}

/// Where a ring counts.
#[derive(Debug)]
pub struct Place {
    at: NonNull<RingStats>,
    /// Its place on the page, and whose page that is; none for memory of its own.
    place: Option<(usize, u32)>,
    /// A forked child's, which is to get a place on a page when it first submits.
    pub waits: bool,
}

// SAFETY: only an address; what is there are atomic words.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Deref for Place {
    type Target = RingStats;

    #[inline]
    fn deref(&self) -> &RingStats {
        // SAFETY: on the page, which stays mapped for ever, or a box of our own, freed on drop.
        unsafe { self.at.as_ref() }
    }
}

impl Default for Place {
    /// Memory of its own.
    fn default() -> Self {
        let own = NonNull::from(Box::leak(Box::<RingStats>::default()));
        Place { at: own, place: None, waits: false }
    }
}

impl Place {
    /// A place on the page, which is made now if need be; memory of its own where there is none.
    pub fn new() -> Place {
        let taken = page(|page| page.take().map(|place| (place, page.ring(place))));
        let Some((place, at)) = taken else { return Place::default() };
        Place { at, place: Some((place, crate::fork::pid())), waits: false }
    }

    /// In a forked child: the page is the parent's.
    pub fn fork_child(&mut self) {
        let (waits, id) = (self.waits || self.place.is_some(), self.id.get());
        let words = [&self.flags, &self.sq_entries, &self.cq_entries].map(super::Count::get);
        // On the parent's page nothing is given back.
        *self = Place::default();
        self.waits = waits;
        self.name(id, words);
    }

    /// A forked child submits: it gets its place.
    #[cold]
    pub fn settle(&mut self) {
        let new = Place::new();
        let words = [&self.flags, &self.sq_entries, &self.cq_entries].map(super::Count::get);
        new.name(self.id.get(), words);
        *self = new;
    }

    /// Whose place it is: flags, entries of the SQ and of the CQ.
    pub fn name(&self, id: u64, [flags, sq, cq]: [u64; 3]) {
        self.flags.set(flags);
        self.sq_entries.set(sq);
        self.cq_entries.set(cq);
        self.id.set(id);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((place, owner)) = self.place else {
            // SAFETY: made by `Box::leak`, and dropped once.
            drop(unsafe { Box::from_raw(self.at.as_ptr()) });
            return;
        };
        // A forked child's lock may be held by a thread that it does not have.
        if owner != crate::fork::pid() {
            return;
        }
        let mut slot = lock();
        let Some(page) = slot.as_mut() else { return };
        self.id.set(0);
        self.sq_thread.set(0);
        // SAFETY: the place of the sums, written under the page's lock only.
        let sums = unsafe { page.ring(0).as_ref() };
        for (sum, word) in counters(sums).zip(counters(self)) {
            sum.add(word.get());
            word.set(0);
        }
        page.taken[place] = false;
    }
}

/// What is added up: all words behind those that describe the ring.
fn counters(stats: &RingStats) -> impl Iterator<Item = &super::Count> {
    let (r, i, n) = (&stats.routes, &stats.reissue, &stats.naps);
    let single = [&stats.enters, &stats.errors, &r.poll, &r.aio, &r.worker, &r.model, &r.queued];
    let reissue = [&i.at_once, &i.armed, &i.ready_at_arm, &i.reissued, &i.aborted, &i.capped];
    let naps = [&n.naps, &n.under, &n.over, &n.spared_ns, &n.spun_ns];
    single.into_iter().chain(reissue).chain(naps).chain(&stats.ops)
}

/// In a forked child: the page is the parent's, and not looked at again. Its memory stays mapped.
pub fn fork_child() {
    // The lock may be held by a thread that is no more.
    match PAGE.try_lock() {
        Ok(mut slot) => *slot = None,
        Err(std::sync::TryLockError::Poisoned(slot)) => *slot.into_inner() = None,
        Err(std::sync::TryLockError::WouldBlock) => disable(),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_and_their_sums_kept() {
        let sum = || {
            let slot = lock();
            let page = slot.as_ref().unwrap();
            // SAFETY: as in `Place::drop`.
            unsafe { page.ring(0).as_ref() }.errors.get()
        };
        let a = Place::new();
        let before = sum();
        a.name(u64::MAX, [0; 3]);
        a.errors.add(3);
        a.count_ops(200, 2);
        assert_eq!((a.errors.get(), a.ops[super::super::OPS - 1].get()), (3, 2));
        drop(a);
        assert!(sum() >= before + 3);
        let b = Place::new();
        assert_eq!((b.id.get(), b.errors.get()), (0, 0));
    }
}
