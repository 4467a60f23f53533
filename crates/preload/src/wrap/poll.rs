//! poll(2), ppoll(2) and their checked forms: entries that name a ring are polled through its
//! eventfd.
//!
//! An entry that names a number of the engine's own is told that it is not open.
//!
//! An array without either goes on as it is. Else a copy goes to libc, and the answers come back
//! into the original. Before the array is read the kernel is asked whether that is possible
//! (`engine::user`), so that a bad pointer is `EFAULT`.
//!
//! Before the program learns of a file that is ready, a ring that waits for it says so as well.
#![allow(unsafe_code)]

use super::sleep::awake;
use super::{internal, polled};
use crate::gate::watched;
use crate::raw::{self, next, raw};
use core::ffi::c_int;
use libc::{nfds_t, pollfd, sigset_t, timespec};
use softring_engine::fds;
use softring_host::user;

/// What most programs poll at once; more is kept in a mapping, since a signal handler may not call
/// malloc.
const FEW: usize = 32;
/// A number that poll(2) answers POLLNVAL about; it passes over negative ones.
const NEVER_OPEN: c_int = c_int::MAX;
const ENTRY: usize = size_of::<pollfd>();

/// `poll(2)`: wait for some event on a file descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn poll(fds: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int {
    type F = unsafe extern "C" fn(*mut pollfd, nfds_t, c_int) -> c_int;
    let next: Option<F> = next!(c"poll", fn(*mut pollfd, nfds_t, c_int) -> c_int);
    // SAFETY: the program's own call, here and in the other three; libc's, because it is a
    // cancellation point.
    translated(fds, n, |fds| next.map_or(-1, |f| unsafe { f(fds, n, timeout) }))
}

/// `ppoll(2)`: wait for some event on a file descriptor, with a signal mask.
#[unsafe(no_mangle)]
unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    type F = unsafe extern "C" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;
    let next: Option<F> =
        next!(c"ppoll", fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int);
    // SAFETY: as in `poll`.
    translated(fds, n, |fds| next.map_or(-1, |f| unsafe { f(fds, n, timeout, mask) }))
}

/// `poll` as `_FORTIFY_SOURCE` calls it: the array's size is checked against its length.
#[unsafe(no_mangle)]
unsafe extern "C" fn __poll_chk(fds: *mut pollfd, n: nfds_t, timeout: c_int, size: usize) -> c_int {
    type F = unsafe extern "C" fn(*mut pollfd, nfds_t, c_int, usize) -> c_int;
    let next: Option<F> = next!(c"__poll_chk", fn(*mut pollfd, nfds_t, c_int, usize) -> c_int);
    // SAFETY: as in `poll`.
    translated(fds, n, |fds| next.map_or(-1, |f| unsafe { f(fds, n, timeout, size) }))
}

/// `ppoll` as `_FORTIFY_SOURCE` calls it.
#[unsafe(no_mangle)]
unsafe extern "C" fn __ppoll_chk(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    size: usize,
) -> c_int {
    type F =
        unsafe extern "C" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t, usize) -> c_int;
    let next: Option<F> = next!(
        c"__ppoll_chk",
        fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t, usize) -> c_int
    );
    // SAFETY: as in `poll`.
    translated(fds, n, |fds| next.map_or(-1, |f| unsafe { f(fds, n, timeout, mask, size) }))
}

fn translated(theirs: *mut pollfd, n: nfds_t, call: impl FnOnce(*mut pollfd) -> c_int) -> c_int {
    if n == 0 {
        return awake(call(theirs));
    }
    let ret = through(theirs, n, call);
    if ret > 0 && watched() {
        softring_engine::flag_ready_rings();
    }
    ret
}

fn through(theirs: *mut pollfd, n: nfds_t, call: impl FnOnce(*mut pollfd) -> c_int) -> c_int {
    let bytes = (n as usize).saturating_mul(ENTRY);
    // More than a descriptor table can hold is the kernel's to refuse.
    if !watched() || n == 0 || n > 1 << 20 || !names_ours(theirs, n as usize) {
        return call(theirs);
    }
    let mut few = [pollfd { fd: 0, events: 0, revents: 0 }; FEW];
    let ours = if n as usize <= FEW {
        few.as_mut_ptr()
    } else {
        raw::map(bytes, libc::MAP_PRIVATE).cast()
    };
    if ours.is_null() {
        return call(theirs);
    }
    // SAFETY: `ours` holds n entries, which zeroes are as well.
    let entries = unsafe { core::slice::from_raw_parts_mut(ours, n as usize) };
    for (i, e) in entries.iter_mut().enumerate() {
        // SAFETY: the array was readable a moment ago; it need not be aligned.
        *e = unsafe { theirs.wrapping_add(i).read_unaligned() };
        if internal(e.fd) {
            e.fd = NEVER_OPEN;
        } else if let Some(fd) = polled(e.fd) {
            if fds::sq_full(e.fd) {
                // A ring is writable while its SQ has room; what stands for it always is.
                e.events &= !(libc::POLLOUT | libc::POLLWRNORM);
            }
            e.fd = fd;
        }
    }
    let ret = call(ours);
    let ret = if ret < 0 || give_back(theirs, entries) { ret } else { fault() };
    if n as usize > FEW {
        // SAFETY: the mapping made above, of that length.
        unsafe { raw!(libc::SYS_munmap, ours.expose_provenance(), bytes) };
    }
    ret
}

/// Does the program's array name a ring, or what is the engine's own? One that cannot be read is
/// the kernel's to refuse.
fn names_ours(theirs: *mut pollfd, n: usize) -> bool {
    let at = theirs.expose_provenance() as u64;
    let fd_of = |i: usize| {
        let entry = theirs.wrapping_add(i);
        // SAFETY: as in `through`.
        unsafe { (&raw const (*entry).fd).read_unaligned() }
    };
    let ours = |fd| fds::is_ring(fd) || fds::is_internal(fd);
    user::check_readable(at, n * ENTRY).is_ok() && (0..n).any(|i| ours(fd_of(i)))
}

/// The answers go into the program's array, each beside the fd that is there; false if it cannot be
/// written.
fn give_back(theirs: *mut pollfd, ours: &[pollfd]) -> bool {
    let good = user::check_writable(theirs.expose_provenance() as u64, size_of_val(ours)).is_ok();
    for (i, e) in ours.iter().enumerate().filter(|_| good) {
        let entry = theirs.wrapping_add(i);
        // SAFETY: writable a moment ago.
        unsafe { (&raw mut (*entry).revents).write_unaligned(e.revents) };
    }
    good
}

fn fault() -> c_int {
    raw::set_errno(libc::EFAULT);
    -1
}
