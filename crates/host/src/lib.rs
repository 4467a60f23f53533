//! The machine below: system calls, signals, threads, clocks, and what a policy refuses of them.

// The text is for those who work on it, too: with --document-private-items they have the links.
#![allow(rustdoc::private_intra_doc_links)]

/// A name for what macros of this crate expand to.
#[doc(hidden)]
pub use std as __std;

pub mod bpf;
pub mod calls;
pub mod creds;
pub mod fd;
pub mod files;
pub mod fork;
pub mod handlers;
pub mod limits;
pub mod math;
pub mod os;
pub mod process_lock;
pub mod refused;
pub mod signal;
pub mod substitute;
pub mod sync;
pub mod sys;
pub mod threads;
pub mod time;
pub mod trial;
pub mod unlisted;
pub mod user;
mod valgrind;
