//! Maps a library into a program that has no dynamic loader, as the program starts.
//!
//! This process becomes the program, by execve(2). A helper, a child of this process, traces it
//! meanwhile and ends before the program's first instruction:
//!
//! ```text
//! this process                        its helper
//! forks
//!                                     traces this process
//! execve(2)
//!   stops, as the program, before     maps the library by system calls that it has the program
//!   its first instruction             make, relocates it, lets the program run on in it
//!                                     ends
//! the library's entry point
//!   reaps the helper
//!   jumps to the program's own
//! ```
//!
//! The program keeps this process's number, parent, session and descriptors, and has no tracer. Its
//! stack, registers, signal mask and dispositions are those that execve(2) has made.
//!
//! The library ([`Library`]) needs no other, has no thread-local storage, and exports a function
//! [`ENTRY`]. That function gets a [`Start`] and its own stack. It must leave by a jump to
//! [`Start::entry`], with [`Start::stack`] as its stack pointer and all other registers zero.
#![deny(unsafe_code)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("the loader knows only Linux on x86_64");

mod calls;
mod error;
mod helper;
mod library;
mod map;
mod ptrace;

pub use error::Error;
pub use helper::{Otherwise, arrange};
pub use library::Library;

/// Name of the function that a library begins with.
pub const ENTRY: &str = "softring_start_static";

/// Facts that the library's entry point gets, by their address in `rdi`. They lie above its stack.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The program's entry point.
    pub entry: u64,
    /// The program's stack pointer: the address of its `argc`.
    pub stack: u64,
    /// Start and length of the memory that the library is mapped to.
    pub base: u64,
    pub len: u64,
    /// Start and length of the memory that holds the entry point's stack and this structure.
    pub own_stack: u64,
    pub own_stack_len: u64,
    /// Path of the library: the address of a string, in the same memory.
    pub name: u64,
    /// The process that has mapped the library: a child of the program, which ends without a
    /// signal, and which only wait4(2) with `__WALL` finds.
    pub helper: u64,
}
