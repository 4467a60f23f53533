//! The rings' descriptors: entered, held, closed. A ring whose descriptor was closed behind its
//! back (a raw system call) is noticed by the sweep that each setup makes and the reactor makes
//! every second, by each `register`, and by an `enter` now and then ([`checked_ring`]).

use alloc::sync::Arc;
use alloc::vec::Vec;

use softring_host::os::fd::{AsRawFd, OwnedFd};

use crate::drive::reactor;
use crate::process::duties;
use crate::ring::ctx::Ring;
use crate::ring::table::{enter, read, ring, surely_no_ring, take_out};
use softring_host::fd::numbers::{File, file, is_known_ring, is_live_ring, mark_ring};
use softring_host::fd::owned::{InternalFd, dup_internal, make_internal};
use softring_host::fd::remembered::forget_kind;
use softring_host::fd::{dup_cache, duplicates, locks, moved};
use softring_uapi::errno::Result;

/// Enters a new ring under its descriptor.
pub(crate) fn insert(fd: i32, ring: Arc<Ring>) {
    reactor::has_duties(duties::make);
    sweep();
    forget_kind(fd);
    let file = file(fd);
    enter(fd, file, ring);
}

/// Returns the same as [`ring`], after a check that the number was not closed, or reused, behind
/// our back. Costs a system call.
///
/// # Errors
/// Those of [`ring`].
pub(crate) fn checked_ring(fd: i32) -> Result<Arc<Ring>> {
    moved::check_now_and_then();
    if is_known_ring(fd) && !is_live_ring(fd) {
        sweep();
    }
    ring(fd)
}

/// A descriptor of the engine's own that keeps a ring open, as any of the program's does.
#[derive(Debug)]
pub(crate) struct RingFd {
    fd: InternalFd,
    ring: Arc<Ring>,
}

impl RingFd {
    pub(crate) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    pub(crate) fn fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

impl Drop for RingFd {
    fn drop(&mut self) {
        remove(self.fd());
    }
}

/// Takes a further descriptor of ring `fd`.
///
/// # Errors
/// Those of [`ring`]; `EMFILE`.
pub(crate) fn hold_ring(fd: i32) -> Result<RingFd> {
    let ring = ring(fd)?;
    Ok(enter_internal(dup_internal(fd)?, ring))
}

/// Takes a new ring's only descriptor.
pub(crate) fn install_ring(fd: OwnedFd, ring: Arc<Ring>) -> RingFd {
    reactor::has_duties(duties::make);
    sweep();
    enter_internal(make_internal(fd), ring)
}

fn enter_internal(fd: InternalFd, ring: Arc<Ring>) -> RingFd {
    let file = file(fd.as_raw_fd());
    enter(fd.as_raw_fd(), file, ring.clone());
    RingFd { fd, ring }
}

/// Drops entries whose descriptor was closed or reused behind our back.
pub fn sweep() {
    moved::check();
    let known: Vec<(i32, File)> = read().rings.iter().map(|r| (r.0, r.1)).collect();
    for (fd, was) in known.into_iter().filter(|k| file(k.0) != k.1) {
        remove_if(|r| (r.0, r.1) == (fd, was));
    }
}

/// Forgets a ring descriptor; with the last one the ring ends. In a signal handler whose thread
/// reads the table, or has the lock of the ring that is to end, the next sweep does so, once the
/// number is closed.
pub(crate) fn remove(fd: i32) {
    mark_ring(fd, false);
    duplicates::forget(fd);
    remove_if(|r| r.0 == fd);
}

/// Does the same as [`remove`] for the entry that is meant: its number may be another ring's by
/// now.
fn remove_if(meant: impl Fn(&(i32, File, Arc<Ring>)) -> bool) {
    if let Some((ring, stand_in)) = take_out(meant) {
        crate::drive::teardown::end(&ring, stand_in);
        if surely_no_ring() {
            dup_cache::give_up_all();
        }
    }
}

/// Gives back unused resources held of the program's files for requests to come.
pub(crate) fn give_back() {
    dup_cache::sweep();
    locks::sweep();
}
