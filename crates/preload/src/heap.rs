//! The library's own allocator. No call of the engine's asks the program's malloc(3): a signal
//! handler may have interrupted malloc, and would wait for its lock for ever.
//!
//! Small blocks come from shards. A thread takes any shard that it can lock at once, so nobody
//! waits for the holder of a lock: no other thread, no handler for the thread that it has
//! interrupted, no forked child for a thread that it does not have. A block returns to its own
//! shard. If that shard is locked, the block joins a lock-free list, which only a holder of the
//! lock takes, and always whole:
//!
//! ```text
//! frees                           holds the lock              where two took from the list, one
//!   block.next = list             all = list.swap(0)          might put back a head that the other
//!   list: block.next -> block                                 has taken
//! ```
//!
//! A forked child empties the shards that other threads of its parent were changing: their free
//! blocks are lost. A child of a raw fork may have threads by the time the fork is noticed, so it
//! leaves these shards locked. Larger blocks are mappings, of which a few of each size are kept.
#![allow(unsafe_code)]

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicUsize};

use crate::raw::{raw, thread};
use softring_host::refused;

/// Size of a shard's region, and its alignment.
const REGION: usize = 256 << 10;
/// Bytes at the start of a region, which hold the number of its shard.
const HEADER: usize = 64;
/// The largest block of a region.
const SMALL: usize = 32 << 10;
/// The largest mapping that is cached.
const CACHED: usize = 256 << 10;
const CACHED_PER_CLASS: usize = 2;
const PAGE: usize = 4096;
const SHARDS: usize = 8;
/// Attempts to lock a shard, one shard after another.
const TRIES: usize = 10_000;
/// Number of size classes: eight steps of 16 bytes, then four to each power of two.
const CLASSES: usize = 8 + 4 * 8;
const CACHED_CLASSES: usize = 4 * 3;
/// Number of classes, up to 512 bytes, whose blocks come from pages of their own: memory that is
/// written often does not share pages with memory that a forked child could go on sharing.
const PAGED: usize = 8 + 4 * 2;

/// Pointer to a free block, which holds the next one.
type Block = *mut Free;
struct Free(Block);

struct Shard {
    /// Thread that holds the lists; 0: none.
    owner: AtomicUsize,
    lists: UnsafeCell<Lists>,
    /// Blocks that were freed while the shard was locked.
    returned: AtomicPtr<Free>,
}

struct Lists {
    free: [Block; CLASSES],
    /// Unused part of the last page of each class: start and end.
    pages: [(usize, usize); PAGED],
    /// Unused part of the last region.
    remaining: (usize, usize),
}

// SAFETY: `owner` admits one thread to the lists; a handler on top of that thread finds the shard
// locked, and stays out.
unsafe impl Sync for Shard {}

/// The allocator: see the module.
pub struct Heap {
    shards: [Shard; SHARDS],
    cached: [[AtomicPtr<u8>; CACHED_PER_CLASS]; CACHED_CLASSES],
}

#[cfg_attr(not(test), global_allocator)]
static HEAP: Heap = Heap::new();

/// Returns the size class of `size` bytes, and the size of its blocks.
fn class(size: usize) -> (usize, usize) {
    if size <= 128 {
        let n = size.div_ceil(16).max(1);
        return (n - 1, 16 * n);
    }
    // A quarter of the power of two below.
    let step = 1 << ((size - 1).ilog2() - 2);
    let n = size.div_ceil(step);
    (8 + 4 * (step.ilog2() as usize - 5) + n - 5, n * step)
}

/// Returns the same for mappings that are cached.
fn cached_class(size: usize) -> (usize, usize) {
    let (class, size) = class(size);
    (class - CLASSES, size)
}

/// Returns the bytes that a block for `layout` needs. A block whose size is a power of two is
/// aligned to its size.
fn size_for(layout: Layout) -> usize {
    let (size, align) = (layout.size(), layout.align());
    if align <= 16 { size } else { size.max(align).next_power_of_two() }
}

fn map(len: usize) -> Option<usize> {
    let (prot, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { raw!(libc::SYS_mmap, 0, len, prot, how, usize::MAX, 0) };
    usize::try_from(at).ok()
}

/// # Safety
/// The range is a mapping of ours that nobody uses.
unsafe fn unmap(at: usize, len: usize) {
    if len > 0 {
        // SAFETY: our caller's.
        unsafe { raw!(libc::SYS_munmap, at, len) };
    }
}

/// Regions that are mapped and in no shard yet: the address of the first, whose lower bits are
/// free, plus their number. One mapping per region would use up those that a process may have
/// (vm.max_map_count).
static SPARE: AtomicUsize = AtomicUsize::new(0);
/// Number of regions in the next mapping.
static NEXT: AtomicUsize = AtomicUsize::new(2);
const MOST: usize = 128;

/// Maps `n` regions, aligned.
fn map_regions(n: usize) -> Option<usize> {
    let len = n * REGION;
    let larger = map(len + REGION)?;
    let at = larger.next_multiple_of(REGION);
    // SAFETY: what lies around the regions, as yet unused.
    unsafe {
        unmap(larger, at - larger);
        unmap(at + len, larger + REGION - at);
    }
    Some(at)
}

/// Takes a spare region if `left` others remain, else returns the present [`SPARE`].
fn take_spare(left: usize) -> Result<usize, usize> {
    let take = |spare: usize| (spare % REGION > left).then(|| spare + REGION - 1);
    SPARE.fetch_update(AcqRel, Acquire, take).map(first_of)
}

fn first_of(spare: usize) -> usize {
    spare & !(REGION - 1)
}

/// Returns a region for a shard. The last spare region is kept until no more can be mapped.
fn spare_region() -> Option<usize> {
    let spare = match take_spare(1) {
        Ok(at) => return Some(at),
        Err(spare) => spare,
    };
    let n = NEXT.load(Relaxed);
    let Some(at) = map_regions(n) else { return map_regions(1).or_else(|| take_spare(0).ok()) };
    NEXT.store((2 * n).min(MOST), Relaxed);
    let (one, others) = match spare % REGION {
        0 => (at, at + REGION + n - 1),
        _ => (first_of(spare), at + n),
    };
    if SPARE.compare_exchange(spare, others, AcqRel, Relaxed).is_ok() {
        return Some(one);
    }
    // Another thread was first.
    // SAFETY: what was just mapped, but for the first region.
    unsafe { unmap(at + REGION, (n - 1) * REGION) };
    Some(at)
}

/// Returns whether there is a spare region; maps one if needed. A new ring demands one: without
/// memory in the middle of a request the process would end.
pub fn has_spare() -> bool {
    !SPARE.load(Relaxed).is_multiple_of(REGION) || add_spare()
}

#[cold]
fn add_spare() -> bool {
    let Some(at) = map_regions(1) else { return false };
    let spare = SPARE.load(Relaxed);
    if !spare.is_multiple_of(REGION)
        || SPARE.compare_exchange(spare, at + 1, AcqRel, Relaxed).is_err()
    {
        // Another thread was first.
        // SAFETY: what was just mapped.
        unsafe { unmap(at, REGION) };
    }
    true
}

/// Starts a new region of a shard and returns its free range.
fn region(shard: usize) -> Option<(usize, usize)> {
    let at = spare_region()?;
    // SAFETY: the header of a region that is ours.
    unsafe { pointer::<usize>(at).write(shard) };
    Some((at + HEADER, at + REGION))
}

/// Returns a block in a region of its own; the rest of this region is never used.
#[cold]
fn single_region(size: usize) -> Option<usize> {
    Some(region(0)?.0.next_multiple_of(align_of_class(size)))
}

fn align_of_class(size: usize) -> usize {
    if size.is_power_of_two() { size } else { 16 }
}

fn pointer<T>(at: usize) -> *mut T {
    core::ptr::with_exposed_provenance_mut(at)
}

/// A shard that the thread has locked.
struct Locked<'a>(&'a Shard);

impl Lists {
    const NONE: Lists =
        Lists { free: [null_mut(); CLASSES], pages: [(0, 0); PAGED], remaining: (0, 0) };
}

impl Shard {
    const fn new() -> Shard {
        Shard {
            owner: AtomicUsize::new(0),
            lists: UnsafeCell::new(Lists::NONE),
            returned: AtomicPtr::new(null_mut()),
        }
    }

    #[inline]
    fn try_lock(&self, me: usize) -> Option<Locked<'_>> {
        let free = self.owner.compare_exchange(0, me, Acquire, Relaxed).is_ok();
        // Not `then_some`, which would make and drop a `Locked` in any case.
        free.then(|| Locked(self))
    }

    /// Gives a block back without the lock.
    #[cold]
    fn give_back(&self, block: Block) {
        let mut head = self.returned.load(Relaxed);
        loop {
            // SAFETY: a free block, which is ours until the exchange.
            unsafe { (*block).0 = head };
            match self.returned.compare_exchange_weak(head, block, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

impl Locked<'_> {
    #[expect(clippy::mut_from_ref, reason = "the lock is held, and nothing keeps the reference")]
    fn lists(&self) -> &mut Lists {
        // SAFETY: only the owner comes here, one call at a time.
        unsafe { &mut *self.0.lists.get() }
    }

    #[inline]
    fn push(&self, class: usize, block: Block) {
        let head = &mut self.lists().free[class];
        // SAFETY: a free block, which is ours.
        unsafe { (*block).0 = *head };
        *head = block;
    }

    #[inline]
    fn pop(&self, class: usize) -> Option<Block> {
        let head = &mut self.lists().free[class];
        let block = NonNull::new(*head)?;
        // SAFETY: a free block of the list.
        *head = unsafe { (*block.as_ptr()).0 };
        Some(block.as_ptr())
    }

    /// Returns a block of a class that has none in its list.
    #[cold]
    fn refill(&self, class: usize, size: usize, shard: usize) -> Option<Block> {
        let mut block = self.0.returned.swap(null_mut(), Acquire);
        while !block.is_null() {
            // SAFETY: free blocks, which nobody else has any more. The second word of a returned
            // block is its class.
            let (next, of) = unsafe { ((*block).0, *block.cast::<usize>().add(1)) };
            self.push(of, block);
            block = next;
        }
        self.pop(class).or_else(|| self.carve(class, size, shard))
    }

    /// Returns a block that was never used.
    fn carve(&self, class: usize, size: usize, shard: usize) -> Option<Block> {
        let Lists { pages, remaining, .. } = self.lists();
        let Some(page) = pages.get_mut(class) else { return carve_from(remaining, size, shard) };
        if page.0 + size > page.1 {
            if remaining.1 - remaining.0 < PAGE {
                *remaining = region(shard)?;
            }
            remaining.1 -= PAGE;
            *page = (remaining.1, remaining.1 + PAGE);
        }
        let block = pointer(page.0);
        page.0 += size;
        Some(block)
    }
}

fn carve_from(remaining: &mut (usize, usize), size: usize, shard: usize) -> Option<Block> {
    let align = align_of_class(size);
    if remaining.0.next_multiple_of(align) + size > remaining.1 {
        *remaining = region(shard)?;
    }
    let at = remaining.0.next_multiple_of(align);
    remaining.0 = at + size;
    Some(pointer(at))
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.owner.store(0, Release);
    }
}

impl Heap {
    const fn new() -> Heap {
        Heap {
            shards: [const { Shard::new() }; SHARDS],
            cached: [const { [const { AtomicPtr::new(null_mut()) }; CACHED_PER_CLASS] };
                CACHED_CLASSES],
        }
    }

    #[inline]
    fn small(&self, size: usize) -> *mut u8 {
        let (me, (class, size)) = (thread(), class(size));
        for at in (0..TRIES).map(|n| ((me >> 12) + n) % SHARDS) {
            if let Some(shard) = self.shards[at].try_lock(me) {
                let block = shard.pop(class).or_else(|| shard.refill(class, size, at));
                let block = block.or_else(|| self.of_others(me, class, size));
                return block.map_or(null_mut(), <*mut Free>::cast);
            }
            core::hint::spin_loop();
        }
        // All shards are locked by threads that were stopped there or left by siglongjmp(3).
        single_region(size).map_or(null_mut(), pointer)
    }

    /// Returns a block of a shard that still has memory, when there is none for a region. A shard
    /// that another thread has locked is tried again.
    #[cold]
    fn of_others(&self, me: usize, class: usize, size: usize) -> Option<Block> {
        (0..16 * SHARDS).find_map(|n| {
            let shard = self.shards[n % SHARDS].try_lock(me)?;
            shard.pop(class).or_else(|| shard.refill(class, size, n % SHARDS))
        })
    }

    /// # Safety
    /// The block is one of [`Self::small`], of that size, and its owner's last use is over.
    #[inline]
    unsafe fn free_small(&self, block: *mut u8, size: usize) {
        let (class, _) = class(size);
        let region = pointer::<usize>(block.expose_provenance() & !(REGION - 1));
        // SAFETY: the header of the region that the block lies in.
        let shard = &self.shards[unsafe { *region }];
        let block: Block = block.cast();
        match shard.try_lock(thread()) {
            Some(shard) => shard.push(class, block),
            None => {
                // SAFETY: a free block has at least 16 bytes.
                unsafe { *block.cast::<usize>().add(1) = class };
                shard.give_back(block);
            }
        }
    }

    /// Returns a mapping, and true if it was never used.
    #[cold]
    fn large(&self, size: usize) -> (*mut u8, bool) {
        if size > CACHED {
            return (map(size.next_multiple_of(PAGE)).map_or(null_mut(), pointer), true);
        }
        let (class, size) = cached_class(size);
        let mut cached = self.cached[class].iter().map(|slot| slot.swap(null_mut(), AcqRel));
        match cached.find(|at| !at.is_null()) {
            Some(at) => (at, false),
            None => (map(size.next_multiple_of(PAGE)).map_or(null_mut(), pointer), true),
        }
    }

    /// # Safety
    /// The mapping is one of [`Self::large`], of that size, and its owner's last use is over.
    #[cold]
    unsafe fn free_large(&self, block: *mut u8, mut size: usize) {
        if size <= CACHED {
            let (class, whole) = cached_class(size);
            size = whole;
            let free = |slot: &&AtomicPtr<u8>| {
                slot.compare_exchange(null_mut(), block, AcqRel, Relaxed).is_ok()
            };
            if self.cached[class].iter().find(free).is_some() {
                return;
            }
        }
        // SAFETY: the whole mapping, which its owner gives back, as the caller says.
        unsafe { unmap(block.expose_provenance(), size.next_multiple_of(PAGE)) };
    }
}

// SAFETY: a block is in one list, or with one owner; it is as large as its class says, and aligned
// to 16, to its size where that is a power of two up to a page, or to a page.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match size_for(layout) {
            _ if layout.align() > PAGE => null_mut(),
            size if size <= SMALL => self.small(size),
            size => self.large(size).0,
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the owner gives back what `alloc` has given for this layout.
        unsafe {
            match size_for(layout) {
                size if size <= SMALL => self.free_small(block, size),
                size => self.free_large(block, size),
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let size = size_for(layout);
        let (block, fresh) = match size {
            _ if layout.align() > PAGE => (null_mut(), true),
            _ if size <= SMALL => (self.small(size), false),
            _ => self.large(size),
        };
        if !fresh && !block.is_null() {
            // SAFETY: a block of at least that size, which nobody uses yet.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        let wanted = unsafe { Layout::from_size_align_unchecked(new, layout.align()) };
        let (old_size, new_size) = (size_for(layout), size_for(wanted));
        if old_size <= CACHED && new_size <= CACHED && class(old_size) == class(new_size) {
            return block;
        }
        if old_size > CACHED && new_size > CACHED {
            let [from, to] = [old_size, new_size].map(|size| size.next_multiple_of(PAGE));
            let at = block.expose_provenance();
            // The bytes are copied until mremap(2) is known to work.
            if refused::works(libc::SYS_mremap) {
                // SAFETY: the whole mapping, whose owner asks for it.
                let at = unsafe { raw!(libc::SYS_mremap, at, from, to, libc::MREMAP_MAYMOVE) };
                return if at < 0 { null_mut() } else { pointer(at as usize) };
            }
        }
        // SAFETY: both blocks are at least as large as what is copied, and apart.
        unsafe {
            let fresh = self.alloc(wanted);
            if !fresh.is_null() {
                fresh.copy_from_nonoverlapping(block, layout.size().min(new));
                self.dealloc(block, layout);
            }
            fresh
        }
    }
}

/// Frees the shards of other threads in a forked child, which has one thread. This thread may be in
/// a signal handler on top of its own allocation, so its own shard stays locked.
pub fn fork_child() {
    let me = thread();
    for shard in &HEAP.shards {
        if ![0, me].contains(&shard.owner.load(Relaxed)) {
            // SAFETY: the only thread there is.
            unsafe { *shard.lists.get() = Lists::NONE };
            shard.owner.store(0, Release);
        }
    }
}

#[cfg(test)]
mod tests;
