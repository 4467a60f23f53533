//! The kernel's side of the io_uring ABI, in user space.
//!
//! The life of an SQE, each word a module:
//!
//! ```text
//! syscall::enter -> memory::sq (copy once) -> submit::init (prep, link, drain) -> submit::issue
//!   Done   -> ring::complete -> memory::cq (post) -> drive::driver (wake)
//!   Retry  -> submit::route -> io::{poll, aio, worker} -> issue again, or complete
//!   Timed, Polled, Sleeps, Elsewhere -> who it waits with completes it later
//! ```

// What is the machine's is the host crate's to give; tests may ask the standard library.
#![cfg_attr(not(test), no_std)]
#![warn(unreachable_pub)]
// The text is for those who work on the engine, too: with --document-private-items they have the
// links.
#![allow(rustdoc::private_intra_doc_links)]

extern crate alloc;

mod drive;
mod io;
pub mod libaio;
mod memory;
mod ops;
mod policy;
mod process;
mod resources;
mod ring;
pub mod stats;
mod submit;
pub mod syscall;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, loom))]
#[allow(unsafe_code)]
mod verify;

/// What entry points tell of descriptors, and ask.
pub mod fds {
    pub use crate::drive::poller::{MOST, Poller, Source, is_eventfd};
    pub use crate::drive::stand_in::{poll_fd, sq_full};
    pub use crate::process::{
        after_dup, after_setfl, before_close, before_close_range, mmap_offset, sweep,
    };
    pub use crate::ring::table::{find, move_away, ring, surely_no_ring};
}

pub use drive::{sqpoll::set_idle_sleeps, task_work, taskrun::flag_ready_rings};
pub use io::{model, persistent::Closing, poll_queues, polling};
pub use memory::file::no_ring;
pub use ops::table::OPS;
pub use policy::hybrid;
pub use process::{exit, forked as fork};
pub use resources::task_rules;
pub use ring::{
    opdef::{OpDef, Support},
    task,
};
