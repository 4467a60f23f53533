//! libc's wrappers for what touches a ring's descriptor. Each does what libc's own does, and beside
//! it tells the engine; none costs more than a load while this process has no ring of the engine's.
#![allow(unsafe_code)]

pub mod close;
pub mod dup;
pub mod epoll;
pub mod exec;
mod fork;
pub mod handlers;
pub mod locks;
pub mod mask;
pub mod mmap;
mod poll;
pub mod rights;
mod select;
pub mod signal;
mod sleep;
mod wait;

use crate::{gate, proc};
use softring_engine::Closing;
use softring_engine::fds;
use softring_host::fd;

/// The descriptor is one of the engine's own.
pub struct Internal;

/// The program is about to close `fd`; the answer is kept until that is over.
pub fn closing(fd: i32) -> Result<Option<Closing>, Internal> {
    if !gate::watched() || proc::shares_memory() {
        return Ok(None);
    }
    if fd::is_hidden(fd) {
        return Err(Internal);
    }
    Ok(Some(fds::before_close(fd)))
}

/// Is `fd` out of the program's reach?
fn internal(fd: i32) -> bool {
    gate::watched() && fd::is_hidden(fd) && !proc::shares_memory()
}

/// `fd`, or a number that is never open where `fd` is out of the program's reach.
pub fn visible(fd: i32) -> i32 {
    if internal(fd) { -1 } else { fd }
}

/// `new` is now a duplicate of `old`.
fn duplicated(old: i32, new: isize) {
    if new >= 0 && gate::watched() && !proc::shares_memory() {
        fds::after_dup(old, new as i32);
    }
}

/// The descriptor that stands for `fd` where `fd` is polled.
fn polled(fd: i32) -> Option<i32> {
    if gate::watched() { fds::poll_fd(fd) } else { None }
}
