//! epoll(7) with rings in a set. A ring's memfd cannot be polled, so the set holds the ring's
//! eventfd, its *stand-in*.
//!
//! | member | the set has | completions are found by |
//! |---|---|---|
//! | quiet | the stand-in without events | the thread that waits on the set, which drives the ring |
//! | revealed | the stand-in with the program's events | everybody: each poster signals the stand-in |
//!
//! A member is quiet where each wait on the set comes through here: call sites that bypass us, and
//! other ways to wait for the set, reveal it ([`softring_host::fd::sets`]). A second thread that
//! waits on the set does, too, as a ring has one driver.
//!
//! A ring is readable while it holds completions; an eventfd stays readable until it is read. So
//! the engine updates the stand-ins of revealed members before each wait on the set.
#![allow(unsafe_code)]

use super::wait::Limit;
use super::{epoll_wait, visible};
use crate::gate::watched;
use crate::raw::{self, raw};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};
use libc::epoll_event;
use libc::{EPOLLEXCLUSIVE, EPOLLONESHOT, EPOLLOUT, EPOLLWRBAND, EPOLLWRNORM};
use softring_engine::fds::{self, MOST, Report};
use softring_host::fd::{self, numbers, sets};
use softring_host::user;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Events and flags that no quiet member has: its ring's SQ has room, and the kernel's own rules for
/// EPOLLEXCLUSIVE.
const NOT_QUIET: u32 = (EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND | EPOLLEXCLUSIVE) as u32;
/// Times that a member is revealed for a second waiter before it stays so.
const PATIENCE: u32 = 3;

/// A ring in a set.
pub(super) struct Member {
    pub set: c_int,
    pub ring: c_int,
    /// Descriptor that represents the ring in the set.
    stand_in: c_int,
    pub event: epoll_event,
    pub quiet: bool,
    /// False after the event of an EPOLLONESHOT member.
    pub enabled: bool,
    /// State of the ring when it was last reported.
    pub last: Option<Report>,
    reveals: u32,
}

struct Sets {
    members: Mutex<Vec<Member>>,
    /// Threads that wait on sets, by the set's number.
    waiters: [AtomicU32; 64],
}

static SETS: Sets =
    Sets { members: Mutex::new(Vec::new()), waiters: [const { AtomicU32::new(0) }; 64] };

fn members() -> MutexGuard<'static, Vec<Member>> {
    SETS.members.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the list where a signal handler may have interrupted its holder; `None` if it has.
pub(super) fn members_soon() -> Option<MutexGuard<'static, Vec<Member>>> {
    const TRIES: u32 = 1000;
    (0..TRIES).find_map(|_| {
        let list = SETS.members.try_lock().ok();
        if list.is_none() {
            softring_host::threads::yield_now();
        }
        list
    })
}

fn waiters(set: c_int) -> &'static AtomicU32 {
    &SETS.waiters[set.unsigned_abs() as usize % 64]
}

/// `epoll_ctl(2)`: control interface for an epoll file descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    raw::libc_answer(by_number(epfd, op, fd, event.expose_provenance())) as c_int
}

/// Handles epoll_ctl(2) by number.
pub fn by_number(epfd: c_int, op: c_int, fd: c_int, event: usize) -> isize {
    match watched() && fd::is_ring(fd) {
        true => control_ring(epfd, op, fd, event),
        false => control(epfd, op, fd, event),
    }
}

fn control(epfd: c_int, op: c_int, fd: c_int, at: usize) -> isize {
    if op == libc::EPOLL_CTL_ADD {
        sets::share(fd);
    }
    // SAFETY: the program's own call, with its own pointer.
    unsafe { raw!(libc::SYS_epoll_ctl, visible(epfd), op, visible(fd), at) }
}

/// Handles epoll_ctl(2) of ring `fd`.
fn control_ring(epfd: c_int, op: c_int, fd: c_int, at: usize) -> isize {
    let mut bytes = [0u8; size_of::<epoll_event>()];
    let read = user::read_slice(at as u64, &mut bytes).is_ok();
    // SAFETY: an event is plain bytes.
    let event: epoll_event = unsafe { core::mem::transmute(bytes) };
    let mut list = members();
    list.retain(|m| fd::is_ring(m.ring));
    let known = list.iter().position(|m| (m.set, m.ring) == (epfd, fd));
    let adds = op != libc::EPOLL_CTL_DEL;
    let quiet = adds && read && may_be_quiet(&list, epfd, fd, event.events, 0);
    let stand_in = match known {
        Some(i) if !adds => Some(list[i].stand_in),
        _ if quiet || !adds => fds::stand_in(fd),
        _ => fds::set_fd(fd),
    };
    let Some(stand_in) = stand_in else { return control(epfd, op, fd, at) };
    let silent = epoll_event { events: 0, u64: event.u64 };
    let at = if quiet { (&raw const silent).expose_provenance() } else { at };
    // SAFETY: the program's own call, with its own pointer or an event of ours.
    let ret = unsafe { raw!(libc::SYS_epoll_ctl, visible(epfd), op, stand_in, at) };
    if ret == 0 {
        let reveals = known.map_or(0, |i| list.swap_remove(i).reveals);
        if adds {
            let (set, ring) = (epfd, fd);
            let (enabled, last) = (true, None);
            list.push(Member { set, ring, stand_in, event, quiet, enabled, last, reveals });
        }
        mark(&list, epfd);
    }
    ret
}

/// True if the set may do without the ring's events: each wait comes through here, no more than
/// `waiting` threads wait now, and a waiting thread can drive the ring.
fn may_be_quiet(list: &[Member], set: c_int, ring: c_int, events: u32, waiting: u32) -> bool {
    let others = |m: &&Member| m.set == set && m.ring != ring && m.quiet;
    let gave_up = |m: &Member| (m.set, m.ring) == (set, ring) && m.reveals >= PATIENCE;
    events & NOT_QUIET == 0
        && numbers::closes_all_reported()
        && sets::can_be_quiet(set)
        && waiters(set).load(Ordering::SeqCst) == waiting
        && list.iter().filter(others).count() < MOST
        && !list.iter().any(gave_up)
        && fds::can_drive(ring)
}

fn mark(list: &[Member], set: c_int) {
    sets::on_reveal(reveal);
    let mut of_set = list.iter().filter(|m| m.set == set).peekable();
    let holds = of_set.peek().is_some();
    sets::mark(set, holds, of_set.any(|m| m.quiet));
}

/// Gives the set the events of its rings.
fn reveal(set: c_int) {
    let Some(mut list) = members_soon() else { return };
    list.iter_mut().filter(|m| m.set == set && m.quiet).for_each(Member::reveal);
    mark(&list, set);
}

/// Forgets the sets and rings from `first` to `last`, which the program is about to close.
pub fn closes(first: c_int, last: c_int) {
    for fd in (first.max(0)..=last).take_while(|&fd| sets::is_known(fd)) {
        if fd::is_known_ring(fd) {
            ring_closes(fd);
        }
    }
    for fd in (first.max(0)..=last).take_while(|&fd| sets::is_known(fd)) {
        if sets::holds_ring(fd)
            && let Some(mut list) = members_soon()
        {
            list.retain(|m| m.set != fd);
        }
        sets::closes(fd);
    }
}

/// Takes a ring from its sets, or has its stand-in stay there, if the ring has other descriptors.
fn ring_closes(ring: c_int) {
    let Some(mut list) = members_soon() else { return };
    let last = fds::is_last(ring);
    for m in list.iter_mut().filter(|m| m.ring == ring) {
        match last {
            true => m.control(libc::EPOLL_CTL_DEL),
            false if m.quiet => m.reveal(),
            false => {}
        }
    }
    let sets: Vec<c_int> = list.extract_if(.., |m| m.ring == ring).map(|m| m.set).collect();
    sets.into_iter().for_each(|set| mark(&list, set));
}

/// Calls `go`, which may move the engine's `fd` to another number. If `fd` represents a ring, the
/// program's sets get the new number. In a signal handler that has interrupted the holder of the
/// list, [`refresh`] adds the number later; the set keeps the old entry as well, and reports the
/// ring twice.
pub fn moving<E>(fd: c_int, go: impl FnOnce() -> Result<bool, E>) -> Result<bool, E> {
    let moved = go()?;
    let Some(mut list) = members_soon().filter(|_| moved) else { return Ok(moved) };
    for m in list.iter_mut().filter(|m| m.stand_in == fd) {
        // SAFETY: numbers. The old one means the same file until the program's call replaces it.
        unsafe { raw!(libc::SYS_epoll_ctl, m.set, libc::EPOLL_CTL_DEL, fd, 0) };
        m.follow();
    }
    Ok(moved)
}

impl Member {
    /// Replaces the descriptor in the set by the one that represents the ring now.
    fn follow(&mut self) {
        // Both make the eventfd; `set_fd` also updates it.
        let new = if self.quiet { fds::stand_in(self.ring) } else { fds::set_fd(self.ring) };
        let Some(new) = new.filter(|new| *new != self.stand_in) else { return };
        self.stand_in = new;
        self.control(libc::EPOLL_CTL_ADD);
    }

    /// Gives the set the events of this ring.
    fn reveal(&mut self) {
        self.quiet = false;
        self.reveals += 1;
        self.control(libc::EPOLL_CTL_MOD);
        // Signals the stand-in if the ring is readable.
        let _ = fds::set_fd(self.ring);
    }

    /// Takes the events of this ring from the set.
    fn hide(&mut self) {
        self.quiet = true;
        self.last = None;
        self.control(libc::EPOLL_CTL_MOD);
    }

    fn control(&self, op: c_int) {
        let told = !self.quiet && self.enabled;
        let event = epoll_event { events: if told { self.event.events } else { 0 }, ..self.event };
        let at = (&raw const event).expose_provenance();
        // SAFETY: numbers, and an event of ours.
        unsafe { raw!(libc::SYS_epoll_ctl, self.set, op, self.stand_in, at) };
    }
}

/// Waits on a set: drives its quiet rings, or calls `call`.
pub(super) fn wait(
    set: c_int,
    room: (*mut epoll_event, c_int),
    limit: impl FnOnce() -> Limit,
    cancelled: fn(),
    call: impl FnOnce() -> c_int,
) -> c_int {
    if !watched() {
        return call();
    }
    let others = waiters(set).fetch_add(1, Ordering::SeqCst);
    refresh(set, others == 0);
    if others > 0 {
        sets::reveal(set);
    }
    let ret =
        sets::is_quiet(set).then(|| epoll_wait::drive(set, room, limit(), cancelled)).flatten();
    let ret = ret.unwrap_or_else(call);
    waiters(set).fetch_sub(1, Ordering::SeqCst);
    ret
}

/// Updates the stand-ins of a set. `alone`: no other thread waits on it, so its rings may become
/// quiet.
fn refresh(set: c_int, alone: bool) {
    if sets::is_known(set) && !sets::holds_ring(set) {
        return;
    }
    let Some(mut list) = members_soon() else { return };
    for i in 0..list.len() {
        if list[i].set != set {
            continue;
        }
        list[i].follow();
        let ring = list[i].ring;
        let others = |m: &Member| m.ring == ring && m.set != set && !m.quiet;
        if alone && may_hide(&list, &list[i]) && !list.iter().any(others) && fds::silence(ring) {
            list[i].hide();
            mark(&list, set);
        }
    }
}

/// True if a revealed member may become quiet while the calling thread alone waits on its set.
fn may_hide(list: &[Member], m: &Member) -> bool {
    // The kernel does not tell whether a member of this kind has fired.
    let once = m.event.events & EPOLLONESHOT as u32 != 0;
    !m.quiet && !once && may_be_quiet(list, m.set, m.ring, m.event.events, 1)
}
