//! poll(2), ppoll(2) and their checked forms: entries that name a ring.
//!
//! The thread drives the ring while it sleeps: it polls what the ring waits for, and reaps when it
//! wakes (`engine::drive::poller`). If it cannot, it polls the ring's eventfd.
//!
//! An entry that names a number of the engine's own is answered as not open.
//!
//! An array without either goes to libc unchanged. Else the engine polls a copy, and writes the
//! answers into the original. The kernel is asked first whether the array can be read
//! (`engine::user`), so that a bad pointer is `EFAULT`.
//!
//! Before the program learns of a file that is ready, a ring that waits for this file is flagged as
//! well.
#![allow(unsafe_code)]

use super::cancel::cancelled_here;
use super::internal;
use super::poll_ready::{self, First};
use super::sleep::awake;
use super::wait::{self, Limit};
use crate::gate::watched;
use crate::raw::{self, next, raw};
use core::ffi::c_int;
use libc::{POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM, c_short, nfds_t, pollfd, sigset_t, timespec};
use softring_engine::fds::{self, MOST, Poller, Source};
use softring_host::fd;
use softring_host::sys::PollEntry;
use softring_host::user::{self, UserPtr};
use softring_uapi::errno::{Errno, Result};

/// Entries that most programs poll at most. More are kept in a mapping, since a signal handler may
/// not call malloc.
pub(super) const FEW: usize = 32;
/// A number for which poll(2) answers POLLNVAL; it ignores negative ones.
const NEVER_OPEN: c_int = c_int::MAX;
/// Mark in the copy for a ring that is readable already.
const READY: c_int = c_int::MIN;
const ENTRY: usize = size_of::<pollfd>();
/// Events of a ring (`io_uring_poll`).
pub(super) const READABLE: c_short = POLLIN | POLLRDNORM;
pub(super) const WRITABLE: c_short = POLLOUT | POLLWRNORM;

/// `poll(2)`: wait for some event on a file descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn poll(fds: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int {
    type F = unsafe extern "C" fn(*mut pollfd, nfds_t, c_int) -> c_int;
    let next: Option<F> = next!(c"poll", fn(*mut pollfd, nfds_t, c_int) -> c_int);
    // SAFETY: the program's own call, here and in the other three; libc's, because it is a
    // cancellation point.
    let call = move || next.map_or(-1, |f| unsafe { f(fds, n, timeout) });
    libc_poll(fds, n, Limit::of_poll(timeout), call)
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
    let call = move || next.map_or(-1, |f| unsafe { f(fds, n, timeout, mask) });
    // SAFETY: the program's time; libc's ppoll reads it as well.
    libc_poll(fds, n, unsafe { Limit::of_ppoll(timeout, mask) }, call)
}

/// `poll` as `_FORTIFY_SOURCE` calls it: the array's size is checked against its length.
#[unsafe(no_mangle)]
unsafe extern "C" fn __poll_chk(fds: *mut pollfd, n: nfds_t, timeout: c_int, size: usize) -> c_int {
    type F = unsafe extern "C" fn(*mut pollfd, nfds_t, c_int, usize) -> c_int;
    let next: Option<F> = next!(c"__poll_chk", fn(*mut pollfd, nfds_t, c_int, usize) -> c_int);
    // SAFETY: as in `poll`.
    let call = move || next.map_or(-1, |f| unsafe { f(fds, n, timeout, size) });
    if !holds(size, n) {
        return call();
    }
    libc_poll(fds, n, Limit::of_poll(timeout), call)
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
    let call = move || next.map_or(-1, |f| unsafe { f(fds, n, timeout, mask, size) });
    if !holds(size, n) {
        return call();
    }
    // SAFETY: as in `ppoll`.
    libc_poll(fds, n, unsafe { Limit::of_ppoll(timeout, mask) }, call)
}

#[inline]
fn libc_poll(fds: *mut pollfd, n: nfds_t, limit: Limit, call: impl Fn() -> c_int) -> c_int {
    if watched() || n == 0 {
        return watched_poll(fds, n, limit, call);
    }
    found(call() as isize) as c_int
}

/// Flags the rings that are ready if a wait has found something; returns its answer. The first ring
/// may have come in the wait.
fn found(ret: isize) -> isize {
    if ret > 0 && watched() {
        softring_engine::flag_ready_rings();
    }
    ret
}

/// Kept apart from calls of a process without rings of ours, as it takes a large frame.
#[inline(never)]
fn watched_poll(fds: *mut pollfd, n: nfds_t, limit: Limit, call: impl Fn() -> c_int) -> c_int {
    let call = || raw::kernel_answer(call());
    raw::libc_answer(translated(Theirs(fds), n, limit, cancelled_here, &call)) as c_int
}

/// Handles poll(2) and ppoll(2) by number.
///
/// # Safety
/// The program's own call.
pub unsafe fn by_number(nr: usize, a: &[usize; 6]) -> isize {
    let theirs = Theirs(core::ptr::with_exposed_provenance_mut(a[0]));
    // SAFETY: our caller's.
    let call = || unsafe { raw::syscall6(nr, a) };
    if nr as i64 == libc::SYS_poll {
        return translated(theirs, a[1] as nfds_t, Limit::of_poll(a[2] as c_int), || (), &call);
    }
    let limit = Limit::of_call(a[2], a[3], a[4]);
    let deadline = limit.deadline();
    let ret = translated(theirs, a[1] as nfds_t, limit, || (), &call);
    if let Some(deadline) = deadline {
        // SAFETY: the time of the program's call, which need not be writable.
        let _ = unsafe { wait::leave(deadline, UserPtr::of_program(a[2] as u64)) };
    }
    ret
}

/// Returns whether `n` entries fit into `size` bytes. If they do not, libc ends the program.
fn holds(size: usize, n: nfds_t) -> bool {
    size / ENTRY >= n as usize
}

/// The entries of a call of the program's. Its array was readable when the call began, and need not
/// be aligned.
#[derive(Clone, Copy)]
pub(super) struct Theirs(pub(super) *mut pollfd);

impl Theirs {
    pub(super) fn entry(self, i: usize) -> pollfd {
        // SAFETY: readable a moment ago, as `through` has found; it is the program's own doing if
        // it takes the memory away, or reads another entry than it has.
        unsafe { self.0.wrapping_add(i).read_unaligned() }
    }

    /// Writes the answers, beside the descriptors there, if the array was writable, too.
    ///
    /// # Safety
    /// It was, and has as many entries.
    unsafe fn give_back(self, ours: &[PollEntry]) {
        for (i, e) in ours.iter().enumerate() {
            let entry = self.0.wrapping_add(i);
            // SAFETY: the caller's.
            unsafe { (&raw mut (*entry).revents).write_unaligned(e.revents) };
        }
    }
}

/// Answers as the kernel does. `cancelled` does what libc's function does as a cancellation point.
fn translated(
    theirs: Theirs,
    n: nfds_t,
    limit: Limit,
    cancelled: fn(),
    call: &dyn Fn() -> isize,
) -> isize {
    if n == 0 {
        return awake(call());
    }
    found(through(theirs, n, limit, cancelled, call))
}

fn through(
    theirs: Theirs,
    n: nfds_t,
    limit: Limit,
    cancelled: fn(),
    call: &dyn Fn() -> isize,
) -> isize {
    let bytes = (n as usize).saturating_mul(ENTRY);
    let (many, room) = (n as usize > FEW, bytes + MOST * ENTRY);
    // The kernel refuses more entries than a descriptor table can hold.
    if !watched() || limit.bad || n > 1 << 20 {
        return call();
    }
    let at = theirs.0.expose_provenance() as u64;
    let polled = match poll_ready::poll(theirs, n as usize, &limit, cancelled) {
        First::Answer(ret) => return ret,
        First::Checked => true,
        First::Unmade => false,
    };
    // Writable memory is readable: one check will do.
    let writable = polled || user::check_writable(at, bytes).is_ok();
    let readable = writable || user::check_readable(at, bytes).is_ok();
    if readable {
        for set in (0..n as usize).map(|i| theirs.entry(i).fd) {
            fd::sets::share(set);
            if fd::sets::holds_ring(set) {
                // Its rings may have been reaped since.
                super::epoll::refresh(set, false);
            }
        }
    }
    if !readable || !names_ours(theirs, n as usize) {
        return call();
    }
    if !writable {
        // The kernel also fails so once something is ready.
        let ret = call();
        return if ret < 0 { ret } else { Errno::EFAULT.ret() };
    }
    let mut few = [PollEntry { fd: 0, events: 0, revents: 0 }; FEW + MOST];
    let ours = match many {
        false => few.as_mut_ptr(),
        true => raw::map(room, libc::MAP_PRIVATE).cast(),
    };
    if ours.is_null() {
        return call();
    }
    // SAFETY: `ours` holds so many entries, and all-zero ones are valid.
    let entries = unsafe { core::slice::from_raw_parts_mut(ours, n as usize + MOST) };
    let ret = sleep_and_drive(theirs, entries, limit, cancelled);
    // A call that fails has found nothing: no answer of the first poll is to stay.
    if ret >= 0 || polled {
        // SAFETY: the array was writable when the call began.
        unsafe { theirs.give_back(&entries[..n as usize]) };
    }
    if many {
        // SAFETY: the mapping made above, of that length.
        unsafe { raw!(libc::SYS_munmap, ours.expose_provenance(), room) };
    }
    ret
}

/// Polls until something is ready or the time is over. `ours` has room for the copy, and behind it
/// for descriptors that are polled beside eventfds. A cancellation point, as libc's own is.
fn sleep_and_drive(theirs: Theirs, ours: &mut [PollEntry], limit: Limit, cancelled: fn()) -> isize {
    let n = ours.len() - MOST;
    let mut room = MOST;
    let ret = limit.repeat(cancelled, |deadline, cancels| {
        let until = (deadline, cancels);
        let mut once = |room| pass(theirs, &mut ours[..n + room], n, &limit, until);
        let mut slept = once(room);
        if slept == Err(Errno::EINVAL) && room > 0 {
            // RLIMIT_NOFILE may allow the program's entries, but no more beside eventfds.
            room = 0;
            slept = once(room);
        }
        Some(slept)
    });
    ret.unwrap_or(-1)
}

/// Sleeps once; returns how many of the `n` entries have an answer. Handlers that have ended the
/// sleep run at its end.
fn pass(
    theirs: Theirs,
    ours: &mut [PollEntry],
    n: usize,
    limit: &Limit,
    (deadline, cancels): (Option<u64>, u32),
) -> Result<usize> {
    let mut poller = Poller::begin(cancels);
    let (copy, beside) = ours.split_at_mut(n);
    let (ready, more) = copy_in(theirs, copy, beside, &mut poller);
    let until = if ready { Some(0) } else { deadline.or(limit.ns) };
    let mut slept = poller.sleep(&mut ours[..n + more], until, limit.mask);
    if slept.is_err() {
        ours.iter_mut().for_each(|e| e.revents = 0);
    }
    poller.end(|set| ours.iter().any(|e| e.fd == set && e.revents != 0));
    let nothing = slept.is_ok() && answers(theirs, &mut ours[..n], &poller) == 0;
    if nothing && ours[n..n + more].iter().any(|e| e.revents != 0) {
        // An eventfd may have been signalled.
        slept = poller.sleep(&mut ours[..n], Some(0), None);
    }
    slept.map(|_| answers(theirs, &mut ours[..n], &poller))
}

/// Copies the program's array, with the descriptors to poll instead of rings. Returns true if a
/// ring is ready for what it is polled for, and the number of descriptors to poll beside eventfds.
fn copy_in(
    theirs: Theirs,
    ours: &mut [PollEntry],
    beside: &mut [PollEntry],
    poller: &mut Poller,
) -> (bool, usize) {
    let (mut ready, mut more) = (false, 0);
    for (i, e) in ours.iter_mut().enumerate() {
        let libc::pollfd { fd: ring, events: asked, .. } = theirs.entry(i);
        // The kernel ignores all negative ones.
        *e = PollEntry { fd: ring.max(-1), events: asked, revents: 0 };
        if internal(ring) {
            e.fd = NEVER_OPEN;
            continue;
        }
        let is_ring = fd::is_ring(ring);
        if is_ring && asked & (READABLE | WRITABLE) == 0 {
            // The ring has no answer to these events.
            e.fd = -1;
            continue;
        }
        match is_ring.then(|| poller.add(ring)).flatten() {
            Some(Source::Ready) => e.fd = READY,
            Some(Source::Driven(set)) => (e.fd, e.events) = (set, POLLIN),
            Some(Source::StandIn(fd)) => {
                e.fd = fd;
                if fds::sq_full(ring) {
                    // A ring is writable while its SQ has room; its stand-in always is.
                    e.events &= !WRITABLE;
                }
                continue;
            }
            None => {
                if let Some(free) = beside.get_mut(more)
                    && let Some(set) = poller.add_eventfd(ring)
                {
                    *free = PollEntry { fd: set, events: POLLIN, revents: 0 };
                    more += 1;
                }
                continue;
            }
        }
        ready |= asked & READABLE != 0 && e.fd == READY;
        ready |= asked & WRITABLE != 0 && !fds::sq_full(ring);
    }
    (ready, more)
}

/// Puts the answers of rings into the copy; returns how many entries have an answer.
fn answers(theirs: Theirs, ours: &mut [PollEntry], poller: &Poller) -> usize {
    let mut found = 0;
    for (i, e) in ours.iter_mut().enumerate() {
        let readable = match e.fd {
            READY => Some(true),
            set => poller.is_readable(set),
        };
        if let Some(readable) = readable {
            let asked = theirs.entry(i);
            let writable = asked.events & WRITABLE != 0 && !fds::sq_full(asked.fd);
            let now = if readable { READABLE } else { 0 } | if writable { WRITABLE } else { 0 };
            e.revents = now & asked.events;
        }
        found += usize::from(e.revents != 0);
    }
    found
}

/// Returns whether the program's array names a ring, an eventfd registered with one, or a
/// descriptor of the engine's own.
fn names_ours(theirs: Theirs, n: usize) -> bool {
    let ours = |fd| fd::is_ring(fd) || fd::is_internal(fd) || fds::is_eventfd(fd);
    (0..n).any(|i| ours(theirs.entry(i).fd))
}
