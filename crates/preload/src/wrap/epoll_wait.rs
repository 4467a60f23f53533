//! epoll_wait(2) and its forms. On a set with quiet rings ([`super::epoll`]) the thread drives the
//! rings: it polls the set beside what they wait for, and adds the rings' events to the set's.
#![allow(unsafe_code)]

use super::cancel::cancelled_here;
use super::epoll::{Member, members_soon, wait};
use super::visible;
use super::wait::Limit;
use crate::raw::{self, next, raw};
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};
use libc::{EPOLLET, EPOLLONESHOT, POLLIN, POLLNVAL};
use libc::{epoll_event, sigset_t, timespec};
use softring_engine::fds::{self, MOST, Poller, Report, Source};
use softring_host::fd::sets;
use softring_host::sys::PollEntry;
use softring_host::user::{self, UserPtr};
use softring_uapi::errno::{Errno, Result};

const EVENT: usize = size_of::<epoll_event>();
const NONE: PollEntry = PollEntry { fd: -1, events: 0, revents: 0 };

/// `epoll_wait(2)`: wait for an I/O event on an epoll file descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: c_int,
) -> c_int {
    let next = next!(c"epoll_wait", fn(c_int, *mut epoll_event, c_int, c_int) -> c_int);
    // SAFETY: the program's own call, here and in the other two; libc's, because it is a
    // cancellation point.
    let call = || next.map_or(-1, |f| unsafe { f(visible(epfd), events, max, timeout) });
    libc_wait(epfd, (events, max), || Limit::of_poll(timeout), call)
}

/// `epoll_pwait(2)`: `epoll_wait` with a signal mask.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait(
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    let next =
        next!(c"epoll_pwait", fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int);
    // SAFETY: as in `epoll_wait`.
    let call = || next.map_or(-1, |f| unsafe { f(visible(epfd), events, max, timeout, mask) });
    libc_wait(epfd, (events, max), || limit(timeout, mask), call)
}

/// `epoll_pwait2(2)`: `epoll_pwait` with nanoseconds.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait2(
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let next = next!(
        c"epoll_pwait2",
        fn(c_int, *mut epoll_event, c_int, *const timespec, *const sigset_t) -> c_int
    );
    let Some(next) = next else {
        raw::set_errno(libc::ENOSYS);
        return -1;
    };
    // SAFETY: as in `epoll_wait`.
    let call = || unsafe { next(visible(epfd), events, max, timeout, mask) };
    // SAFETY: the program's time, which libc reads as well.
    let limit = || unsafe { Limit::of_ppoll(timeout, mask) };
    libc_wait(epfd, (events, max), limit, call)
}

fn libc_wait(
    set: c_int,
    room: (*mut epoll_event, c_int),
    limit: impl FnOnce() -> Limit,
    mut call: impl FnMut() -> c_int,
) -> c_int {
    let call = || raw::kernel_answer(call());
    raw::libc_answer(wait(set, room, limit, cancelled_here, call)) as c_int
}

fn limit(timeout: c_int, mask: *const sigset_t) -> Limit {
    // SAFETY: there is no time.
    let masked = unsafe { Limit::of_ppoll(core::ptr::null(), mask) };
    Limit { ns: Limit::of_poll(timeout).ns, ..masked }
}

/// Handles the three calls by number.
///
/// # Safety
/// The program's own call.
pub unsafe fn by_number(nr: usize, a: &[usize; 6]) -> isize {
    let (epfd, max) = (a[0] as c_int, a[2] as c_int);
    let room = core::ptr::with_exposed_provenance_mut::<epoll_event>(a[1]);
    let limit = || match nr as i64 {
        libc::SYS_epoll_wait => Limit::of_poll(a[3] as c_int),
        libc::SYS_epoll_pwait => {
            Limit { ns: Limit::of_poll(a[3] as c_int).ns, ..Limit::of_call(0, a[4], a[5]) }
        }
        _ => Limit::of_call(a[3], a[4], a[5]),
    };
    let call = || {
        let own = [visible(epfd) as usize, a[1], a[2], a[3], a[4], a[5]];
        // SAFETY: our caller's.
        unsafe { raw::syscall6(nr, &own) }
    };
    wait(epfd, (room, max), limit, || (), call)
}

/// A ring whose events the calling thread adds to those of its set.
#[derive(Clone, Copy)]
struct Watched {
    ring: c_int,
    /// Events that the member asks for.
    asked: u32,
    /// Last report, of an edge-triggered member.
    last: Option<Report>,
    found: Found,
}

const NO_RING: Watched = Watched { ring: -1, asked: 0, last: None, found: Found::Nothing };

#[derive(Clone, Copy)]
enum Found {
    Nothing,
    Ready,
    /// Descriptor of the poll set of a ring that the thread drives.
    Driven(i32),
}

/// Waits on a set with quiet rings; `None` if the thread cannot drive them. `cancelled` does what
/// libc's function does as a cancellation point.
pub(super) fn drive(
    set: c_int,
    room: (*mut epoll_event, c_int),
    limit: Limit,
    cancelled: fn(),
) -> Option<isize> {
    let most = i32::MAX as usize / EVENT;
    let max = usize::try_from(room.1).ok().filter(|max| (1..=most).contains(max) && !limit.bad)?;
    let to = room.0.expose_provenance() as u64;
    limit.repeat(cancelled, |deadline, cancels| pass(set, (to, max), &limit, (deadline, cancels)))
}

/// Sleeps once; returns how many events are in the program's array. Handlers that have ended the
/// sleep run at its end. `None` if the thread cannot drive the set's rings.
fn pass(
    set: c_int,
    (to, max): (u64, usize),
    limit: &Limit,
    (deadline, cancels): (Option<u64>, u32),
) -> Option<Result<usize>> {
    let mut rings = [NO_RING; MOST];
    let rings = watched_rings(set, &mut rings)?;
    let mut poller = Poller::begin(cancels);
    let mut entries = [NONE; 1 + MOST];
    entries[0] = PollEntry { fd: visible(set), events: POLLIN, revents: 0 };
    let mut ready = false;
    for (w, entry) in rings.iter_mut().zip(&mut entries[1..]) {
        match poller.add_member(w.ring, w.asked, w.last) {
            Some(Source::Ready) => (w.found, ready) = (Found::Ready, true),
            Some(Source::Driven(fd)) => {
                w.found = Found::Driven(fd);
                *entry = PollEntry { fd, events: POLLIN, revents: 0 };
            }
            _ => {
                // Another thread drives it.
                poller.end(|_| false);
                drop(poller);
                sets::reveal(set);
                return None;
            }
        }
    }
    let until = if ready { Some(0) } else { deadline.or(limit.ns) };
    let slept = poller.sleep(&mut entries[..=rings.len()], until, limit.mask);
    if slept.is_err() {
        entries.iter_mut().for_each(|e| e.revents = 0);
    }
    poller.end(|set| entries[1..].iter().any(|e| e.fd == set && e.revents != 0));
    if entries[0].revents & POLLNVAL != 0 || slept == Err(Errno::EINVAL) {
        // No set any more, or more entries than RLIMIT_NOFILE allows.
        drop(poller);
        sets::reveal(set);
        return None;
    }
    let found = take(set, (to, max), entries[0].revents != 0, rings, &poller);
    Some(match (found, slept) {
        (Ok(0), Err(e)) => Err(e),
        (found, _) => found,
    })
}

/// Copies the set's quiet members; `None` if there is none that may fire.
fn watched_rings(set: c_int, rings: &mut [Watched; MOST]) -> Option<&mut [Watched]> {
    let (list, id) = (members_soon()?, sets::id(set));
    let mut n = 0;
    for m in list.iter().filter(|m| m.set == id && m.quiet) {
        let edge = m.event.events & EPOLLET as u32 != 0;
        if let Some(free) = rings.get_mut(n).filter(|_| m.enabled) {
            let last = m.last.filter(|_| edge);
            *free = Watched { ring: m.ring, asked: m.event.events, last, ..NO_RING };
            n += 1;
        }
    }
    (n > 0).then(|| &mut rings[..n])
}

/// Puts the events of rings and, if it is `ready`, of the set into the program's array, of `max`
/// events at `to`; returns how many.
fn take(
    set: c_int,
    (to, max): (u64, usize),
    ready: bool,
    rings: &[Watched],
    poller: &Poller,
) -> Result<usize> {
    /// Flag, true if the set comes first next time where there is too little room for all.
    static SET_FIRST: AtomicBool = AtomicBool::new(false);
    let of_set = |n: usize| {
        if !ready || n == 0 {
            return Ok(0);
        }
        // SAFETY: the kernel checks the program's array.
        let got = unsafe { raw!(libc::SYS_epoll_wait, visible(set), to as usize, n, 0) };
        usize::try_from(got).map_err(|_| Errno(-got as i32))
    };
    let first = ready && max <= rings.len() && SET_FIRST.fetch_xor(true, Ordering::Relaxed);
    let before = if first { of_set(max)? } else { 0 };
    let mut own = [0u8; MOST * EVENT];
    let n = of_rings(set, rings, poller, &mut own, max - before);
    let behind =
        if first { 0 } else { of_set(max - n).or_else(|e| if n > 0 { Ok(0) } else { Err(e) })? };
    if n > 0 {
        // SAFETY: the array of the program's call.
        let to = unsafe { UserPtr::of_program(to) };
        user::write_slice(to.add(((before + behind) * EVENT) as u64), &own[..n * EVENT])?;
    }
    Ok(before + n + behind)
}

/// Takes the events of at most `max` rings; returns how many have one.
fn of_rings(
    set: c_int,
    rings: &[Watched],
    poller: &Poller,
    own: &mut [u8; MOST * EVENT],
    max: usize,
) -> usize {
    let Some(mut list) = members_soon() else { return 0 };
    let id = sets::id(set);
    let mut n = 0;
    for w in rings {
        let report = match w.found {
            Found::Nothing => None,
            Found::Ready => fds::report(w.ring),
            Found::Driven(fd) => poller.report(fd),
        };
        let (Some((events, report)), true) = (report, n < max) else { continue };
        let mine = |m: &Member| (m.set, m.ring) == (id, w.ring) && m.quiet && m.enabled;
        let Some(at) = list.iter().position(mine) else { continue };
        if let Some(event) = list[at].fires(events, report) {
            own[n * EVENT..][..EVENT].copy_from_slice(&event);
            n += 1;
            // The others come first next time.
            list[at..].rotate_left(1);
        }
    }
    n
}

impl Member {
    /// Returns the event of a ring that has these events, unless the member has reported it.
    fn fires(&mut self, events: u32, report: Report) -> Option<[u8; EVENT]> {
        let (asked, data) = (self.event.events, self.event.u64);
        let news = self.last.is_none_or(|last| report.is_news(last));
        let events = events & asked;
        if events == 0 || (asked & EPOLLET as u32 != 0 && !news) {
            return None;
        }
        self.last = Some(report);
        self.enabled = asked & EPOLLONESHOT as u32 == 0;
        let mut bytes = [0; EVENT];
        bytes[..4].copy_from_slice(&events.to_ne_bytes());
        bytes[4..].copy_from_slice(&data.to_ne_bytes());
        Some(bytes)
    }
}
