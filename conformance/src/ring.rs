//! The test client, with the calls of an entry point.
#![allow(unsafe_code)]

use crate::entry::{self, EntryPoint};
use softring_client::Calls;
use std::sync::LazyLock;

pub use softring_client::{Cqe, Errno, setup, value};

/// Variable of a case under faults: what is interrupted or refused for now is called again.
pub const CALLS_AGAIN: &str = "CONFORMANCE_CALLS_AGAIN";

pub type Ring = softring_client::Ring<EntryPoint>;
pub type Map = softring_client::Map<EntryPoint>;

impl Calls for EntryPoint {
    fn setup(self, entries: u32, params: usize) -> isize {
        entry::setup(self, entries, params)
    }

    fn enter(self, fd: i32, submit: u32, min: u32, flags: u32, arg: usize, size: usize) -> isize {
        entry::enter(self, fd, submit, min, flags, arg, size)
    }

    fn register(self, fd: i32, opcode: u32, arg: usize, nr_args: u32) -> isize {
        entry::register(self, fd, opcode, arg, nr_args)
    }

    fn mmap(self, fd: i32, len: usize, offset: u64) -> isize {
        entry::mmap(self, fd, len, offset)
    }

    unsafe fn munmap(self, addr: usize, len: usize) -> isize {
        // SAFETY: the caller promises it.
        unsafe { entry::munmap(self, addr, len) }
    }

    fn close(self, fd: i32) -> isize {
        entry::close(self, fd)
    }

    fn calls_again(self) -> bool {
        // Asked once: a case may enter in a handler, or in a forked child.
        static SET: LazyLock<bool> = LazyLock::new(|| std::env::var_os(CALLS_AGAIN).is_some());
        *SET
    }
}
