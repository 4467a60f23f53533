//! poll(2), ppoll(2) and their checked forms: entries that name a ring.
//!
//! The thread drives the ring while it sleeps: it polls what the ring waits for, and reaps when it
//! wakes (`engine::drive::poller`). Where it cannot, it polls the ring's eventfd.
//!
//! An entry that names a number of the engine's own is told that it is not open.
//!
//! An array without either goes on as it is. Else a copy goes to libc, and the answers come back
//! into the original. Before it is read the kernel is asked whether that is possible
//! (`engine::user`), so that a bad pointer is `EFAULT`.
//!
//! Before the program learns of a file that is ready, a ring that waits for it says so as well.
#![allow(unsafe_code)]

use super::internal;
use super::sleep::awake;
use super::wait::{Limit, Ppoll, ppoll as ppoll_of_libc, timespec_of};
use crate::gate::watched;
use crate::raw::{self, next, raw};
use core::ffi::c_int;
use libc::{POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM, c_short, nfds_t, pollfd, sigset_t, timespec};
use softring_engine::fds::{self, MOST, Poller, Source};
use softring_host::user;

/// What most programs poll at once; more is kept in a mapping, since a signal handler may not call
/// malloc.
const FEW: usize = 32;
/// A number that poll(2) answers POLLNVAL about; it passes over negative ones.
const NEVER_OPEN: c_int = c_int::MAX;
/// In the copy: a ring that is readable already.
const READY: c_int = -2;
const ENTRY: usize = size_of::<pollfd>();
/// What a ring answers (`io_uring_poll`).
const READABLE: c_short = POLLIN | POLLRDNORM;
const WRITABLE: c_short = POLLOUT | POLLWRNORM;

/// `poll(2)`: wait for some event on a file descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn poll(fds: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int {
    type F = unsafe extern "C" fn(*mut pollfd, nfds_t, c_int) -> c_int;
    let next: Option<F> = next!(c"poll", fn(*mut pollfd, nfds_t, c_int) -> c_int);
    // SAFETY: the program's own call, here and in the other three; libc's, because it is a
    // cancellation point.
    translated(fds, n, Limit::of_poll(timeout), || {
        next.map_or(-1, |f| unsafe { f(fds, n, timeout) })
    })
}

/// `ppoll(2)`: wait for some event on a file descriptor, with a signal mask.
#[unsafe(no_mangle)]
unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: as in `poll`.
    translated(fds, n, Limit::of_ppoll(timeout, mask), || {
        ppoll_of_libc().map_or(-1, |f| unsafe { f(fds, n, timeout, mask) })
    })
}

/// `poll` as `_FORTIFY_SOURCE` calls it: the array's size is checked against its length.
#[unsafe(no_mangle)]
unsafe extern "C" fn __poll_chk(fds: *mut pollfd, n: nfds_t, timeout: c_int, size: usize) -> c_int {
    type F = unsafe extern "C" fn(*mut pollfd, nfds_t, c_int, usize) -> c_int;
    let next: Option<F> = next!(c"__poll_chk", fn(*mut pollfd, nfds_t, c_int, usize) -> c_int);
    // SAFETY: as in `poll`.
    let call = || next.map_or(-1, |f| unsafe { f(fds, n, timeout, size) });
    if holds(size, n) { translated(fds, n, Limit::of_poll(timeout), call) } else { call() }
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
    let call = || next.map_or(-1, |f| unsafe { f(fds, n, timeout, mask, size) });
    if holds(size, n) { translated(fds, n, Limit::of_ppoll(timeout, mask), call) } else { call() }
}

/// Do `n` entries fit into so many bytes? Where they do not, libc ends the program.
fn holds(size: usize, n: nfds_t) -> bool {
    size / ENTRY >= n as usize
}

fn translated(theirs: *mut pollfd, n: nfds_t, limit: Limit, call: impl FnOnce() -> c_int) -> c_int {
    if n == 0 {
        return awake(call());
    }
    let ret = through(theirs, n, limit, call);
    if ret > 0 && watched() {
        softring_engine::flag_ready_rings();
    }
    ret
}

fn through(theirs: *mut pollfd, n: nfds_t, limit: Limit, call: impl FnOnce() -> c_int) -> c_int {
    let bytes = (n as usize).saturating_mul(ENTRY);
    let (many, room) = (n as usize > FEW, bytes + MOST * ENTRY);
    // More than a descriptor table can hold is the kernel's to refuse.
    if !watched() || limit.bad || n > 1 << 20 {
        return call();
    }
    let at = theirs.expose_provenance() as u64;
    // What can be written can be read: one check will do.
    let writable = user::check_writable(at, bytes).is_ok();
    let readable = writable || user::check_readable(at, bytes).is_ok();
    if !readable || !names_ours(theirs, n as usize) {
        return call();
    }
    if !writable {
        // The kernel, too, answers so once something is ready.
        return if call() < 0 { -1 } else { fault() };
    }
    let Some(sleep) = ppoll_of_libc() else { return call() };
    let mut few = [pollfd { fd: 0, events: 0, revents: 0 }; FEW + MOST];
    let ours = match many {
        false => few.as_mut_ptr(),
        true => raw::map(room, libc::MAP_PRIVATE).cast(),
    };
    if ours.is_null() {
        return call();
    }
    // SAFETY: `ours` holds so many entries, which zeroes are as well.
    let entries = unsafe { core::slice::from_raw_parts_mut(ours, n as usize + MOST) };
    let ret = sleep_and_drive(theirs, entries, limit, sleep);
    if ret >= 0 {
        give_back(theirs, &entries[..n as usize]);
    }
    if many {
        // SAFETY: the mapping made above, of that length.
        unsafe { raw!(libc::SYS_munmap, ours.expose_provenance(), room) };
    }
    ret
}

/// Polls until something is ready or the time is over; `ours`: room for the copy, and behind it for
/// what is polled beside eventfds.
fn sleep_and_drive(theirs: *mut pollfd, ours: &mut [pollfd], limit: Limit, sleep: Ppoll) -> c_int {
    let (deadline, n) = (limit.deadline(), ours.len() - MOST);
    loop {
        let mut poller = Poller::default();
        let (copy, beside) = ours.split_at_mut(n);
        let ready = copy_in(theirs, copy, beside, &mut poller);
        let time = timespec_of(limit.left(ready, deadline, poller.until()));
        let time = time.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: libc's ppoll, with an array and a time of ours and the program's own mask.
        let ret = unsafe { sleep(ours.as_mut_ptr(), ours.len() as nfds_t, time, limit.mask) };
        let errno = raw::errno();
        poller.end(|set| ours.iter().any(|e| e.fd == set && e.revents != 0));
        let mut found = answers(theirs, &mut ours[..n], &poller);
        if found == 0 && ours[n..].iter().any(|e| e.revents != 0) {
            // An eventfd may have been signalled.
            let now = timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: as above.
            unsafe { sleep(ours.as_mut_ptr(), n as nfds_t, &raw const now, core::ptr::null()) };
            found = answers(theirs, &mut ours[..n], &poller);
        }
        raw::set_errno(errno);
        if ret < 0 {
            return ret;
        }
        if found > 0 || limit.is_over(deadline) {
            return found;
        }
    }
}

/// The program's entry. Its array was readable a moment ago; it need not be aligned.
fn entry(theirs: *mut pollfd, i: usize) -> pollfd {
    // SAFETY: as above.
    unsafe { theirs.wrapping_add(i).read_unaligned() }
}

/// Copies the program's array, with what is to be polled in place of rings; true if a ring is ready
/// for what it is polled for.
fn copy_in(
    theirs: *mut pollfd,
    ours: &mut [pollfd],
    beside: &mut [pollfd],
    poller: &mut Poller,
) -> bool {
    let mut ready = false;
    beside.fill(pollfd { fd: -1, events: POLLIN, revents: 0 });
    for (i, e) in ours.iter_mut().enumerate() {
        *e = entry(theirs, i);
        let asked = e.events;
        if internal(e.fd) {
            e.fd = NEVER_OPEN;
            continue;
        }
        let ring = e.fd;
        match fds::is_ring(ring).then(|| poller.add(ring)).flatten() {
            Some(Source::Ready(_)) => (e.fd, e.revents) = (READY, 0),
            Some(Source::Driven(set)) => (e.fd, e.events, e.revents) = (set, POLLIN, 0),
            Some(Source::StandIn(fd)) => {
                e.fd = fd;
                if fds::sq_full(ring) {
                    // A ring is writable while its SQ has room; what stands for it always is.
                    e.events &= !WRITABLE;
                }
                continue;
            }
            None => {
                let free = beside.iter_mut().find(|e| e.fd < 0);
                if let Some((free, set)) = free.zip(poller.add_eventfd(ring)) {
                    free.fd = set;
                }
                continue;
            }
        }
        ready |= asked & READABLE != 0 && e.fd == READY;
        ready |= asked & WRITABLE != 0 && !fds::sq_full(ring);
    }
    ready
}

/// Puts into the copy what rings answer; how many entries have an answer.
fn answers(theirs: *mut pollfd, ours: &mut [pollfd], poller: &Poller) -> c_int {
    let mut found = 0;
    for (i, e) in ours.iter_mut().enumerate() {
        let readable = match e.fd {
            READY => Some(true),
            set => poller.readiness(set).map(|now| now.readable),
        };
        if let Some(readable) = readable {
            let asked = entry(theirs, i);
            let writable = asked.events & WRITABLE != 0 && !fds::sq_full(asked.fd);
            let now = if readable { READABLE } else { 0 } | if writable { WRITABLE } else { 0 };
            e.revents = now & asked.events;
        }
        found += c_int::from(e.revents != 0);
    }
    found
}

/// Does the program's array name a ring, or what is the engine's own?
fn names_ours(theirs: *mut pollfd, n: usize) -> bool {
    let ours = |fd| fds::is_ring(fd) || fds::is_internal(fd) || fds::is_eventfd(fd);
    (0..n).any(|i| ours(entry(theirs, i).fd))
}

/// The answers go into the program's array, each beside the fd that is there.
fn give_back(theirs: *mut pollfd, ours: &[pollfd]) {
    for (i, e) in ours.iter().enumerate() {
        let entry = theirs.wrapping_add(i);
        // SAFETY: it was writable when the call began.
        unsafe { (&raw mut (*entry).revents).write_unaligned(e.revents) };
    }
}

fn fault() -> c_int {
    raw::set_errno(libc::EFAULT);
    -1
}
