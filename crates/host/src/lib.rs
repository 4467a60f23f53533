//! The machine below: system calls, signals, threads, clocks, and what a policy refuses of them.

// Tests may use the standard library.
#![cfg_attr(not(test), no_std)]
// The docs are also for maintainers: with --document-private-items the private links resolve.
#![allow(rustdoc::private_intra_doc_links)]

extern crate alloc;

pub mod bpf;
pub mod c_library;
pub mod calls;
mod cloned;
pub mod creds;
pub mod fd;
pub mod files;
pub mod fork;
pub mod handlers;
pub mod initial;
pub mod launch;
pub mod limits;
pub mod lock;
pub mod math;
pub mod os;
pub mod per_thread;
pub mod process_lock;
pub mod random;
pub mod raw;
pub mod refused;
pub mod signal;
pub mod substitute;
pub mod sync;
pub mod sys;
pub mod threads;
pub mod time;
pub mod trial;
pub(crate) mod unlisted;
pub mod user;
mod valgrind;
mod vdso;
pub mod waited;
