//! The kernel's side of the io_uring ABI, in user space.
//!
//! The life of an SQE, each word a module:
//!
//! ```text
//! syscall::enter -> memory::sq (copy once) -> submit::init (prep, link, drain) -> submit::issue
//!   Done   -> ring::complete -> memory::cq (post) -> drive::driver (wake)
//!   Retry  -> submit::route -> io::{poll, aio, worker} -> issue again, or complete
//!   Queued -> its owner (timeout, poll, msg_ring) completes it later
//! ```

#![warn(unreachable_pub)]

pub mod drive;
pub mod fds;
pub mod host;
pub mod io;
pub mod libaio;
pub mod memory;
pub mod ops;
pub mod policy;
pub mod process;
pub mod resources;
pub mod ring;
pub mod stats;
pub mod submit;
pub mod syscall;
#[cfg(all(test, loom))]
#[allow(unsafe_code)]
mod verify;
