//! The kernel's side of the io_uring ABI, in user space.
//!
//! The life of an SQE, each word a module:
//!
//! ```text
//! syscall::enter -> mem::sq (copy once) -> req::submit (init, prep, link, drain) -> req::issue
//!   Done   -> req::complete -> mem::cq (post) -> wait::driver (wake)
//!   Retry  -> req::route -> transport::{poll, aio, worker} -> issue again, or complete
//!   Queued -> its owner (timeout, poll, msg_ring) completes it later
//! ```

#![warn(unreachable_pub)]

pub mod aio;
mod alone;
mod bpf;
pub mod creds;
mod ctx;
pub mod exit;
pub mod fds;
mod fork;
pub mod handlers;
pub mod lacks;
pub mod limits;
pub mod mem;
pub mod opdef;
pub mod ops;
pub mod refused;
pub mod req;
pub mod rsrc;
mod signal;
pub mod stats;
pub mod substitute;
mod sync;
pub mod sys;
pub mod syscall;
pub mod task;
mod teardown;
pub mod threads;
pub mod time;
pub mod transport;
pub mod trial;
mod unlisted;
pub mod user;
#[cfg(all(test, loom))]
#[allow(unsafe_code)]
mod verify;
pub mod wait;
