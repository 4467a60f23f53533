//! The memory of the trace: made with the first ring.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64};

use softring_host::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use softring_host::os::fs::SealFlags;
use softring_host::os::fs::{fcntl_add_seals, fcntl_get_seals, fstat};
use softring_host::os::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::protocol::{self, Chunk as _};
use super::{DATA, HEADS, Head, Header, MAGIC, NAME, SIZE, VERSION};
use crate::stats::of_process::PROCESS;
use crate::stats::watcher::Watcher;
use softring_host::limits::{TRACE_CHUNKS, TRACE_EVENTS};
use softring_uapi::errno::{Errno, Result};

/// Mapped memory of a trace. A program's own is never unmapped, a reader's is when it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buffer(NonNull<u8>);

// SAFETY: only an address range; all that is accessed in it are atomic words.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

/// Forbids traces of this process.
pub fn disable() {
    PROCESS.trace.disabled.store(true, Relaxed);
}

/// Makes the memory, before the first ring.
pub(crate) fn prepare() {
    if PROCESS.trace.buffer.load(Relaxed).is_null() && !PROCESS.trace.disabled.load(Relaxed) {
        make();
    }
}

#[cold]
fn make() {
    let mut slot = PROCESS.trace.fd.lock();
    PROCESS.trace.later.store(false, Relaxed);
    if !PROCESS.trace.buffer.load(Relaxed).is_null() {
        return;
    }
    let made = Buffer::make(softring_host::fork::pid());
    let fd = match made {
        Ok((fd, buffer)) => {
            let fd = slot.insert(softring_host::fd::make_internal(fd)).as_fd().as_raw_fd();
            install(buffer);
            // SAFETY: it stays open as long as the process lives. Only a forked child lets go of
            // it, which has its own descriptors.
            Ok(unsafe { BorrowedFd::borrow_raw(fd) })
        }
        // A failure is not retried.
        Err(e) => {
            disable();
            Err(e)
        }
    };
    // The tracer may keep us waiting: no other thread, and no child forked meanwhile, may find the
    // lock held.
    drop(slot);
    Watcher::Trace.send_and_wait(fd);
}

fn install(buffer: Buffer) {
    let comm = softring_host::sys::process_name();
    for (word, bytes) in PROCESS.trace.comm.iter().zip(comm.chunks_exact(8)) {
        let bytes = bytes.try_into().expect("eight bytes");
        word.store(u64::from_ne_bytes(bytes), Relaxed);
    }
    PROCESS.trace.buffer.store(buffer.0.as_ptr(), Release);
}

/// Returns this process's memory, if it is to be written to.
#[inline]
pub(super) fn wanted() -> Option<Buffer> {
    let at = NonNull::new(PROCESS.trace.buffer.load(Acquire)).or_else(made_later)?;
    let buffer = Buffer(at);
    (buffer.header().until.load(Acquire) != 0).then_some(buffer)
}

/// Returns the memory of a forked child, which makes it when it first uses a ring.
#[cold]
fn made_later() -> Option<NonNull<u8>> {
    if PROCESS.trace.later.load(Relaxed) {
        prepare();
    }
    NonNull::new(PROCESS.trace.buffer.load(Acquire))
}

impl Buffer {
    /// Makes and maps a memory.
    ///
    /// # Errors
    /// Those of memfd_create(2), ftruncate(2), fcntl(2), mmap(2).
    pub(super) fn make(pid: u32) -> Result<(OwnedFd, Buffer)> {
        let fd = softring_host::substitute::memfd(NAME, true)?;
        crate::memory::file::extend(&fd, SIZE as u64)?;
        // A process that may write to it must not be able to take it from under us.
        fcntl_add_seals(&fd, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        let buffer = Buffer::at(&fd)?;
        let header = buffer.header();
        header.version.store(VERSION, Relaxed);
        header.pid.store(u64::from(pid), Relaxed);
        header.chunks.store(TRACE_CHUNKS as u64, Relaxed);
        header.events.store(TRACE_EVENTS as u64, Relaxed);
        // The magic comes last: without it the memory is not finished.
        header.magic.store(MAGIC, Release);
        Ok((fd, buffer))
    }

    /// Maps a memory that somebody else has made.
    ///
    /// # Errors
    /// `EINVAL` if it has another layout, or could be taken away; those of mmap(2).
    pub(super) fn map(fd: impl AsFd) -> Result<Buffer> {
        let sealed = fcntl_get_seals(&fd).is_ok_and(|s| s.contains(SealFlags::SHRINK));
        if !sealed || fstat(&fd)?.st_size != SIZE as i64 {
            return Err(Errno::EINVAL);
        }
        let buffer = Buffer::at(&fd)?;
        if buffer.is_known() {
            return Ok(buffer);
        }
        // SAFETY: mapped above, and nobody else has it.
        unsafe { buffer.unmap() };
        Err(Errno::EINVAL)
    }

    fn is_known(self) -> bool {
        let h = self.header();
        let words = [&h.magic, &h.version, &h.chunks, &h.events].map(|w| w.load(Acquire));
        words == [MAGIC, VERSION, TRACE_CHUNKS as u64, TRACE_EVENTS as u64]
    }

    fn at(fd: impl AsFd) -> Result<Buffer> {
        let (null, prot) = (core::ptr::null_mut(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a fresh mapping at an address of the kernel's choice overlays nothing.
        let at = unsafe { mmap(null, SIZE, prot, MapFlags::SHARED, fd.as_fd(), 0) }?;
        NonNull::new(at.cast()).map(Buffer).ok_or(Errno::ENOMEM)
    }

    /// # Safety
    /// Nobody accesses the memory any more.
    pub(super) unsafe fn unmap(self) {
        // SAFETY: mapped in `at` with that size; the caller has the last copy.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), SIZE) };
    }

    #[inline]
    pub(super) fn header<'a>(self) -> &'a Header {
        // SAFETY: it begins with a header; mapped while a copy is in use; all words are valid.
        unsafe { self.0.cast().as_ref() }
    }

    #[inline]
    pub(super) fn head<'a>(self, chunk: u32) -> &'a Head {
        let chunk = chunk as usize % TRACE_CHUNKS;
        // SAFETY: in bounds, aligned, as `HEADS` and the size are multiples of 64; else as above.
        unsafe { self.0.add(HEADS + chunk * size_of::<Head>()).cast().as_ref() }
    }

    #[inline]
    pub(super) fn chunk(self, at: u32) -> Chunk {
        Chunk { buffer: self, at }
    }

    /// Gives the memory of all events back: they are lost, and later events take new memory. The
    /// chunks' heads stay: writers that have not checked yet go by them.
    pub(super) fn give_back(self) {
        const MADV_REMOVE: u32 = 9;
        let at = self.0.as_ptr().expose_provenance() + DATA;
        // The range begins at a page's boundary. All accesses are atomic loads and stores, which
        // find zeros.
        // SAFETY: our own mapping, in which zeros are as good as what was there.
        let _ = unsafe { softring_host::calls::memory::advise(at, SIZE - DATA, MADV_REMOVE) };
    }

    /// Takes a free chunk.
    pub(super) fn claim(self, ring: u64, flags: u32) -> Option<u32> {
        /// Number of chunks to check: with so many taken in a row, hardly one is free.
        const CHECKS: u32 = 64;
        for _ in 0..CHECKS {
            let chunk = self.header().cursor.fetch_add(1, Relaxed) as u32;
            if self.chunk(chunk).claim() {
                let head = self.head(chunk);
                head.pid.store(softring_host::fork::pid(), Relaxed);
                head.ring.store(ring, Relaxed);
                head.flags.store(u64::from(flags), Relaxed);
                let names = PROCESS.trace.comm.each_ref().map(|w| w.load(Relaxed));
                head.comm.iter().zip(names).for_each(|(w, name)| w.store(name, Relaxed));
                return Some(chunk);
            }
        }
        None
    }

    /// Becomes the one reader; returns the reader before, as an error if it is not `old`.
    pub(super) fn take_reader(self, me: u64, old: u64) -> core::result::Result<u64, u64> {
        self.header().reader.compare_exchange(old, me, SeqCst, SeqCst)
    }
}

/// A chunk of the memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    buffer: Buffer,
    at: u32,
}

impl protocol::Chunk for Chunk {
    type State = AtomicU32;
    type Word = AtomicU64;

    #[inline(always)]
    fn state(&self) -> &AtomicU32 {
        &self.buffer.head(self.at).state
    }

    #[inline(always)]
    fn slot(&self, at: u32) -> &[AtomicU64; 4] {
        let (chunk, at) = (self.at as usize % TRACE_CHUNKS, at as usize % TRACE_EVENTS);
        let at = DATA + (chunk * TRACE_EVENTS + at) * 32;
        // SAFETY: in bounds and aligned; mapped while a copy is in use; all words are valid.
        unsafe { self.buffer.0.add(at).cast().as_ref() }
    }

    #[inline(always)]
    fn slots(&self) -> u32 {
        TRACE_EVENTS as u32
    }
}
