//! The completion ring that io_setup maps: see the parent module for who writes what, and in which
//! order.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use softring_host::calls::UserPtr;
use softring_uapi::aio::{AIO_RING_MAGIC, aio_ring, io_event};
use softring_uapi::errno::Result;

#[derive(Debug)]
pub(crate) struct Ring {
    head: NonNull<aio_ring>,
    nr: u32,
    /// Our end; the shared word follows at [`Self::release`].
    at: u32,
    /// The tail as last seen.
    tail: u32,
}

// SAFETY: the ring is plain shared memory, not bound to a thread; `&mut` of the owner keeps
// consumers to one.
unsafe impl Send for Ring {}
// SAFETY: through `&self` only atomic words of the shared memory are read.
unsafe impl Sync for Ring {}

/// A context of ours, by io_setup(2): its id, and its ring, which is not to be used past
/// io_destroy(2).
///
/// # Errors
/// As the call.
pub(super) fn setup(depth: u32) -> Result<(usize, Option<Ring>)> {
    let id = softring_host::calls::aio::setup(depth)?;
    // SAFETY: mapped this moment, until the context ends.
    Ok((id, unsafe { Ring::at(id) }))
}

impl Ring {
    /// The ring of a fresh context of the program's, which lies in its memory.
    pub(crate) fn of_program(id: UserPtr) -> Option<Ring> {
        // SAFETY: the program's memory, says the type: the program gives the context up by a call
        // that we are told of, or breaks itself.
        unsafe { Ring::at(id.addr() as usize) }
    }

    /// The ring, if it has the form we know.
    ///
    /// # Safety
    /// What lies at `id` stays mapped as long as the ring is used.
    unsafe fn at(id: usize) -> Option<Ring> {
        let head = NonNull::new(core::ptr::with_exposed_provenance_mut::<aio_ring>(id))?;
        let mut magic = [0u32; 8];
        // An emulated kernel's id need not be an address: the words are read through the kernel,
        // never straight.
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
        let t = self.word(|r| unsafe { &raw mut (*r).tail }).load(Ordering::Acquire);
        t % self.nr
    }

    pub(super) fn ready(&self) -> bool {
        let (at, tail) = (self.shared_head(), self.load_tail());
        at != tail
    }

    /// How many events are there for whoever asks the kernel for them.
    pub(crate) fn available(&self) -> u32 {
        let (at, tail) = (self.shared_head(), self.load_tail());
        (tail + self.nr - at) % self.nr
    }

    /// How many events there can be.
    pub(crate) fn room(&self) -> u32 {
        self.nr - 1
    }

    /// Takes the mark away by which a program knows the memory for a ring that it may read.
    pub(crate) fn disown(&self) {
        // SAFETY: as in `load_tail`.
        self.word(|r| unsafe { &raw mut (*r).magic }).store(0, Ordering::Release);
    }

    /// The shared word, which io_getevents on our behalf moves too.
    fn shared_head(&self) -> u32 {
        // SAFETY: as in `load_tail`.
        self.word(|r| unsafe { &raw mut (*r).head }).load(Ordering::Relaxed) % self.nr
    }

    /// The next event; its room is given back by [`Self::release`].
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

    /// The kernel has taken events for us: follow its head.
    pub(super) fn resync(&mut self) {
        self.at = self.shared_head();
        self.tail = self.at;
    }

    /// In a forked child only: the kernel does not know the ring there.
    pub(super) fn unmap(self) {
        let bytes = (size_of::<aio_ring>() + self.nr as usize * size_of::<io_event>())
            .div_ceil(4096)
            * 4096;
        // SAFETY: the mapping of a context that this process does not have, accessed through us.
        unsafe { softring_host::calls::memory::unmap(self.head.as_ptr().addr(), bytes) };
    }
}
