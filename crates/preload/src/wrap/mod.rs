//! Wrappers of libc's functions that touch a ring's descriptor. Each does what libc's own does, and
//! tells the engine. None costs more than a load while this process has no ring of the engine's.
#![allow(unsafe_code)]

mod cancel;
pub mod close;
pub mod dup;
pub mod epoll;
pub mod epoll_wait;
pub mod exec;
pub mod fork;
pub mod handlers;
pub mod locks;
pub mod mask;
pub mod mmap;
mod older;
pub mod poll;
mod poll_ready;
pub mod rights;
pub mod select;
mod shell;
pub mod signal;
mod sleep;
mod wait;

use crate::{gate, proc};
use softring_engine::Closing;
use softring_engine::fds;
use softring_host::fd;

/// Error: the descriptor is one of the engine's own.
pub struct Internal;

/// Reports that the program is about to close `fd`; the result is kept until the close is over.
pub fn closing(fd: i32) -> Result<Option<Closing>, Internal> {
    if !gate::watched() {
        return Ok(None);
    }
    proc::check_forked();
    if !fd::numbers::is_internal(fd)
        && !fd::sets::knows(fd)
        && let Some(closing) = fds::before_plain_close(fd)
    {
        return Ok(Some(closing));
    }
    if proc::shares_memory() {
        return Ok(None);
    }
    if fd::is_hidden(fd) {
        return Err(Internal);
    }
    epoll::closes(fd, fd);
    Ok(Some(fds::before_close(fd)))
}

/// Returns whether `fd` is out of the program's reach.
fn internal(fd: i32) -> bool {
    gate::watched() && fd::is_hidden(fd) && !proc::shares_memory()
}

/// Returns `fd`, or a number that is never open if `fd` is out of the program's reach.
pub fn visible(fd: i32) -> i32 {
    if internal(fd) { -1 } else { fd }
}

/// Reports that `new` is now a duplicate of `old`.
#[inline]
fn duplicated(old: i32, new: isize) {
    let watched = gate::watched();
    if new < 0 || watched && proc::shares_memory() {
        return;
    }
    if old != new as i32 {
        fd::sets::duplicated(old, new as i32);
    }
    if watched {
        fds::after_dup(old, new as i32);
    }
}

/// Returns the descriptor that is polled instead of `fd`, if `fd` is a ring.
fn polled(fd: i32) -> Option<i32> {
    if gate::watched() { fds::poll_fd(fd) } else { None }
}
