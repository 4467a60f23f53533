//! Memory for the arrays that an exec call is given. It is a mapping, as exec may be called in a
//! signal handler, which may not call malloc(3).
//!
//! A vfork child whose exec succeeds leaves its mappings in the memory of the process that made it.
//! They are in a list of the thread that waits for the child, in its block (`per_thread`). The next
//! child of that thread, or the thread's end, finds that their owner is another process, and unmaps
//! them.
#![allow(unsafe_code)]

use crate::proc;
use crate::raw::{self, raw};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use softring_host::per_thread;

/// Index of the word that holds the list.
const LIST: usize = 5;

/// Start of a mapping.
#[repr(C)]
struct Header {
    /// Address of the next one in the list; 0: none.
    next: usize,
    /// Length of this one, with the header.
    len: usize,
    /// The vfork child that has made it; 0: it is in no list.
    owner: i32,
}

/// A mapping.
pub struct Room(*mut Header);

fn list() -> &'static AtomicUsize {
    &per_thread::words().0[LIST]
}

impl Room {
    /// Maps room for so many bytes of zeroes, at an address for pointers; `None` without memory.
    pub fn new(bytes: usize) -> Option<Room> {
        let len = size_of::<Header>() + bytes;
        let header = raw::map(len, libc::MAP_PRIVATE).cast::<Header>();
        if header.is_null() {
            return None;
        }
        let (next, owner) = if proc::shares_memory() {
            let me = proc::getpid();
            unmap_others(me);
            (list().swap(header.expose_provenance(), Relaxed), me)
        } else {
            (0, 0)
        };
        // SAFETY: a new mapping.
        unsafe { header.write(Header { next, len, owner }) };
        Some(Room(header))
    }

    /// Returns the address of the memory.
    pub fn start(&self) -> *mut u8 {
        self.0.wrapping_add(1).cast()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which exec has refused, in the child that has made it.
        let (next, owner) = unsafe { ((*self.0).next, (*self.0).owner) };
        if owner != 0 {
            // Those of an exec are dropped in the reverse order.
            list().store(next, Relaxed);
        }
        unmap(self.0);
    }
}

/// Unmaps what vfork children of the calling thread have left, which is no such child.
pub fn thread_ends() {
    unmap_others(0);
}

fn unmap_others(me: i32) {
    let head = || core::ptr::with_exposed_provenance_mut::<Header>(list().load(Relaxed));
    // SAFETY: mappings in the list, which their owners do not need any more: the thread has waited
    // for their exec.
    while let Some((next, owner)) = unsafe { head().as_ref() }.map(|h| (h.next, h.owner))
        && owner != me
    {
        let gone = head();
        list().store(next, Relaxed);
        unmap(gone);
    }
}

fn unmap(header: *mut Header) {
    // SAFETY: a mapping of ours, which nobody uses any more.
    unsafe { raw!(libc::SYS_munmap, header.expose_provenance(), (*header).len) };
}
