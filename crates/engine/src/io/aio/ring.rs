//! The completion ring that io_setup maps. The parent module tells which side writes which word,
//! and in which order.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use softring_uapi::aio::{AIO_RING_MAGIC, aio_ring, io_event};
use softring_uapi::errno::Result;

#[derive(Debug)]
pub(crate) struct Ring {
    head: NonNull<aio_ring>,
    nr: u32,
    /// Our head; the shared word follows at [`Self::release`].
    at: u32,
    /// The tail as last seen.
    tail: u32,
}

// SAFETY: the ring is plain shared memory, not bound to a thread; `&mut` of the owner keeps
// consumers to one.
unsafe impl Send for Ring {}
// SAFETY: through `&self` only atomic words of the shared memory are read.
unsafe impl Sync for Ring {}

/// Creates a context by io_setup(2); returns its id and its ring, which must not be used past
/// io_destroy(2).
///
/// # Errors
/// Those of io_setup(2).
pub(super) fn setup(depth: u32) -> Result<(usize, Option<Ring>)> {
    let id = softring_host::calls::aio::setup(depth)?;
    // SAFETY: mapped just now, until the context ends.
    Ok((id, unsafe { Ring::at(id) }))
}

impl Ring {
    /// Returns the ring at `id`, if it has the known form.
    ///
    /// # Safety
    /// The memory at `id` stays mapped as long as the ring is used.
    pub(crate) unsafe fn at(id: usize) -> Option<Ring> {
        let head = NonNull::new(core::ptr::with_exposed_provenance_mut::<aio_ring>(id))?;
        let mut magic = [0u32; 8];
        // The id that an emulated kernel returns need not be an address: read the words through the
        // kernel, never directly.
        softring_host::user::read_slice(id as u64, &mut magic).ok()?;
        let [_, nr, at, tail, magic, _, incompat, len] = magic;
        let known =
            magic == AIO_RING_MAGIC && incompat == 0 && len as usize == size_of::<aio_ring>();
        (known && nr > 0 && at < nr).then_some(Ring { head, nr, at, tail })
    }

    fn word(&self, which: impl Fn(*mut aio_ring) -> *mut u32) -> &AtomicU32 {
        // SAFETY: the mapping lives until io_destroy or `unmap`, both of which consume the owner;
        // the words are aligned.
        unsafe { AtomicU32::from_ptr(which(self.head.as_ptr())) }
    }

    fn load_tail(&self) -> u32 {
        // SAFETY: a field's address of the mapped header; nothing is read.
        self.reduced(self.word(|r| unsafe { &raw mut (*r).tail }).load(Ordering::Acquire))
    }

    /// Returns an index within the ring: as it is, unless the program has written over it. Spares
    /// each look at the ring a division.
    #[inline]
    fn reduced(&self, index: u32) -> u32 {
        if index < self.nr { index } else { index % self.nr }
    }

    pub(super) fn ready(&self) -> bool {
        let (at, tail) = (self.shared_head(), self.load_tail());
        at != tail
    }

    /// Returns the number of events that the program can take from the kernel.
    pub(crate) fn available(&self) -> u32 {
        let (at, tail) = (self.shared_head(), self.load_tail());
        self.reduced(tail + self.nr - at)
    }

    /// Returns the number of events that the ring can hold.
    pub(crate) fn room(&self) -> u32 {
        self.nr - 1
    }

    /// Clears the magic number, by which a program recognises a ring that it may read.
    pub(crate) fn disown(&self) {
        // SAFETY: as in `load_tail`.
        self.word(|r| unsafe { &raw mut (*r).magic }).store(0, Ordering::Release);
    }

    /// Returns the shared head, which io_getevents on our behalf moves, too.
    fn shared_head(&self) -> u32 {
        // SAFETY: as in `load_tail`.
        self.reduced(self.word(|r| unsafe { &raw mut (*r).head }).load(Ordering::Relaxed))
    }

    /// Takes the next event; [`Self::release`] gives its room back.
    pub(super) fn pop(&mut self) -> Option<io_event> {
        if self.at == self.tail {
            self.tail = self.load_tail();
            if self.at == self.tail {
                return None;
            }
        }
        // SAFETY: `at` < nr, which the kernel mapped; the acquire load of tail ordered the event's
        // bytes before us.
        let e = unsafe {
            let events: *const io_event = self.head.as_ptr().add(1).cast();
            events.add(self.at as usize).read_volatile()
        };
        self.at = if self.at + 1 == self.nr { 0 } else { self.at + 1 };
        Some(e)
    }

    /// Gives the room of popped events back to the kernel.
    pub(super) fn release(&mut self) {
        // SAFETY: as in `load_tail`.
        self.word(|r| unsafe { &raw mut (*r).head }).store(self.at, Ordering::Release);
    }

    /// Follows the kernel's head after the kernel has taken events for us.
    pub(super) fn resync(&mut self) {
        self.at = self.shared_head();
        self.tail = self.at;
    }

    /// Unmaps the ring. In a forked child only, where the kernel does not know the ring.
    pub(super) fn unmap(self) {
        let bytes = (size_of::<aio_ring>() + self.nr as usize * size_of::<io_event>())
            .div_ceil(4096)
            * 4096;
        // SAFETY: the mapping of a context that this process does not have, accessed only through
        // `self`.
        unsafe { softring_host::calls::memory::unmap(self.head.as_ptr().addr(), bytes) };
    }
}
