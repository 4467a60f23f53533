//! The ring of an emulated context: events in the program's memory, laid out as by the kernel's
//! io_setup(2), so that a program may read them there without a call.
//!
//! We write events and then move `tail` (release). The reader loads `tail` (acquire) and gives the
//! room back by moving `head` (release); it is the program, or we for it in io_getevents. The
//! owner's lock orders all that is done here. The program can write all of the memory: indices are
//! reduced before use, and the tail is our own.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use softring_host::calls::memory::Anonymous;
use softring_uapi::aio::{AIO_RING_MAGIC, aio_ring, io_event};
use softring_uapi::errno::{Errno, Result};

/// `AIO_RING_COMPAT_FEATURES`
const COMPAT_FEATURES: u32 = 1;
const PAGE: usize = 4096;

pub(super) struct Mapped {
    head: NonNull<aio_ring>,
    /// Memory of the ring.
    _memory: Anonymous,
    nr: u32,
    tail: u32,
}

// SAFETY: plain memory, not bound to a thread; the owner's lock keeps its users to one.
unsafe impl Send for Mapped {}

impl Mapped {
    /// Makes a ring for `nr` events.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn new(nr: u32) -> Result<Self> {
        // One slot stays free, which tells a full ring from an empty one.
        let bytes = size_of::<aio_ring>() + (nr as usize + 1) * size_of::<io_event>();
        let len = bytes.next_multiple_of(PAGE);
        let memory = Anonymous::new(len).map_err(|_| Errno::ENOMEM)?;
        let head = memory.at().cast::<aio_ring>();
        let nr = ((len - size_of::<aio_ring>()) / size_of::<io_event>()) as u32;
        let fresh = aio_ring {
            id: 0,
            nr,
            head: 0,
            tail: 0,
            magic: AIO_RING_MAGIC,
            compat_features: COMPAT_FEATURES,
            incompat_features: 0,
            header_length: size_of::<aio_ring>() as u32,
        };
        // SAFETY: a mapping just made, longer than the header, that nobody else knows yet.
        unsafe { head.write(fresh) };
        Ok(Self { head, _memory: memory, nr, tail: 0 })
    }

    /// Returns the memory's address, which is the context's id.
    pub(super) fn id(&self) -> usize {
        self.head.as_ptr().expose_provenance()
    }

    fn word(&self, which: impl Fn(*mut aio_ring) -> *mut u32) -> &AtomicU32 {
        // SAFETY: the mapping lives as long as we do; the words are aligned.
        unsafe { AtomicU32::from_ptr(which(self.head.as_ptr())) }
    }

    fn shared_head(&self) -> &AtomicU32 {
        // SAFETY: a field's address of the mapped header; nothing is read.
        self.word(|r| unsafe { &raw mut (*r).head })
    }

    fn slot(&self, at: u32) -> *mut io_event {
        // SAFETY: `at` < nr, for which the mapping has room after the header.
        unsafe { self.head.as_ptr().add(1).cast::<io_event>().add((at % self.nr) as usize) }
    }

    /// Returns how many events the ring has room for.
    pub(super) fn room(&self) -> u32 {
        self.nr - 1
    }

    /// Returns how many events nobody has taken.
    pub(super) fn len(&self) -> u32 {
        let head = self.shared_head().load(Ordering::Acquire) % self.nr;
        (self.tail + self.nr - head) % self.nr
    }

    /// Adds an event; the owner has made sure of the room.
    pub(super) fn push(&mut self, e: io_event) {
        // SAFETY: inside the mapping; the program reads it once the tail says so.
        unsafe { self.slot(self.tail).write_volatile(e) };
        self.tail = (self.tail + 1) % self.nr;
        // SAFETY: as in `shared_head`.
        let tail = self.word(|r| unsafe { &raw mut (*r).tail });
        tail.store(self.tail, Ordering::Release);
    }

    /// Copies events from the front, as many as there are and fit; returns how many.
    pub(super) fn front(&self, to: &mut [io_event]) -> usize {
        let head = self.shared_head().load(Ordering::Acquire) % self.nr;
        let n = to.len().min(self.len() as usize);
        for (i, e) in to[..n].iter_mut().enumerate() {
            // SAFETY: inside the mapping; any bytes are an event.
            *e = unsafe { self.slot(head + i as u32).read_volatile() };
        }
        n
    }

    /// Gives the room of the first `n` events back.
    pub(super) fn drop_front(&mut self, n: usize) {
        let head = self.shared_head().load(Ordering::Relaxed) % self.nr;
        self.shared_head().store((head + n as u32) % self.nr, Ordering::Release);
    }

    /// Removes the mark by which a program knows that it may read the ring.
    pub(super) fn disown(&self) {
        // SAFETY: as in `shared_head`.
        self.word(|r| unsafe { &raw mut (*r).magic }).store(0, Ordering::Release);
    }
}
