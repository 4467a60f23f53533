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
use core::arch::naked_asm;
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

/// Size of the stack on which an exec call runs.
const STACK: usize = 128 << 10;

/// Calls `f` on a stack of its own, as exec may be called where there is little: RLIMIT_STACK may
/// be low, and a thread's stack as small as 16 KiB. Without memory for that, calls `f` here.
pub fn with_stack(f: &dyn Fn() -> isize) -> isize {
    let Some(room) = Room::new(STACK) else { return f() };
    let end = (room.start().expose_provenance() + STACK) & !63;
    // SAFETY: a new mapping, which ends there, and stays until `f` has returned.
    unsafe { call_on(end, call, (&raw const f).cast()) }
}

unsafe extern "C" fn call(f: *const ()) -> isize {
    // SAFETY: the address of a function, which `with_stack` keeps.
    unsafe { (*f.cast::<&dyn Fn() -> isize>())() }
}

/// Calls a function with `word` on the stack that ends at `end`.
#[unsafe(naked)]
unsafe extern "C" fn call_on(
    end: usize,
    f: unsafe extern "C" fn(*const ()) -> isize,
    word: *const (),
) -> isize {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "leave",
        ".cfi_def_cfa rsp, 8",
        ".cfi_restore rbp",
        "ret",
        ".cfi_endproc",
    )
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
