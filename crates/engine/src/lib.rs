//! The kernel's side of the io_uring ABI, in user space.
//!
//! The life of an SQE, each word a module:
//!
//! ```text
//! syscall::enter -> mem::sq (copy once) -> req::submit (init, prep, link, drain) -> req::issue
//!   Done   -> req::complete -> mem::cq (post) -> wait::wake
//!   Retry  -> req::route -> transport::{poll, aio, worker} -> issue again, or complete
//!   Queued -> its owner (timeout, poll, msg_ring) completes it later
//! ```

pub mod abi;
pub mod errno;
pub mod fds;
pub mod sys;
pub mod syscall;
pub mod user;
