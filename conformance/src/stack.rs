//! A stack for signal handlers (sigaltstack(2)), with an inaccessible page below.
#![allow(unsafe_code)]

use crate::ring::{Errno, Map};

const GUARD: usize = 4096;

/// Alternate stack of the calling thread, until it is dropped.
#[derive(Debug)]
pub struct Stack {
    _memory: Map,
}

impl Stack {
    /// Makes a stack of `len` bytes and uses it.
    pub fn new(len: usize) -> Result<Self, Errno> {
        let memory = Map::anonymous(GUARD + len)?;
        let guard = std::ptr::with_exposed_provenance_mut(memory.addr);
        // SAFETY: this is the first page of a mapping of ours, to which nothing refers.
        unsafe { libc::mprotect(guard, GUARD, libc::PROT_NONE) };
        set(memory.addr + GUARD, len, 0);
        Ok(Self { _memory: memory })
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        set(0, 0, libc::SS_DISABLE);
    }
}

fn set(at: usize, len: usize, flags: i32) {
    let at = std::ptr::with_exposed_provenance_mut(at);
    let stack = libc::stack_t { ss_sp: at, ss_flags: flags, ss_size: len };
    // SAFETY: the memory is mapped as long as handlers may run on it.
    unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) };
}
