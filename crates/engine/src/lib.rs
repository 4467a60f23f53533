//! The kernel's side of the io_uring ABI, in user space.
//!
//! Life of an SQE; each word is a module:
//!
//! ```text
//! syscall::enter -> memory::sq (copy once) -> submit::init (prep, link, drain) -> submit::issue
//!   Done   -> ring::complete -> memory::cq (post) -> ring::wake
//!   Retry  -> submit::route -> io::{poll, aio, worker} -> issue again, or complete
//!   Timed, Polled, Sleeps, Elsewhere -> its transport completes it later
//! ```

// The host crate provides all that the machine provides; tests may use the standard library.
#![cfg_attr(not(test), no_std)]
#![warn(unreachable_pub)]
// The docs are also for those who work on the engine: with --document-private-items the links work.
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

/// Notices and queries of entry points about descriptors.
pub mod fds {
    pub use crate::drive::poller::{
        MOST, Poller, Source, cancels, is_eventfd, thread_is_cancelled,
    };
    pub use crate::drive::sets::{Report, can_drive, report, silence, stand_in};
    pub use crate::drive::stand_in::{poll_fd, set_fd, sq_full};
    pub use crate::process::{
        after_dup, after_setfl, before_close, before_close_range, before_plain_close, mmap_offset,
        sweep,
    };
    pub use crate::ring::table::{find, is_last, left_ready, move_away, ring, surely_no_ring};
}

pub use drive::{sqpoll::set_idle_sleeps, task_work, taskrun::flag_ready_rings};
pub use io::{faults, model, persistent::Closing, poll_queues, polling};
pub use memory::file::no_ring;
pub use ops::table::OPS;
pub use policy::hybrid;
pub use process::{exit, forked as fork};
pub use resources::task_rules;
pub use ring::{
    opdef::{OpDef, Support},
    task,
};
