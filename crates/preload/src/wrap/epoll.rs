//! epoll(7): a set that holds rings, whose memfds cannot be polled.
//!
//! The thread that waits on the set drives the rings in it while it sleeps: it polls the set beside
//! what the rings wait for, and reaps when it wakes (`engine::drive::poller`). Their events it adds
//! to those of the set.
//!
//! In the set itself an eventfd stands for each ring, for whoever waits in another way: by a system
//! call that no wrapper sees, on the set as a member of another, beside a thread that drives. An
//! eventfd stays readable until it is read. So before such a wait the engine brings it up to date.
#![allow(unsafe_code)]

use super::wait::{Limit, timespec_of};
use super::{polled, visible};
use crate::gate::watched;
use crate::raw::{self, next, raw};
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicUsize};
use libc::{
    EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLPRI, EPOLLRDHUP, EPOLLRDNORM, POLLIN, epoll_event,
    pollfd, sigset_t, timespec,
};
use softring_engine::fds::{self, MOST, Poller, Readiness, Ring, Source, Trigger};
use softring_host::fd::numbers::closes_all_reported;
use softring_host::user;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// A ring in a set, or an eventfd that is registered with one.
#[derive(Clone)]
struct Member {
    set: c_int,
    /// Its number there.
    number: c_int,
    /// None: an eventfd.
    ring: Option<Weak<Ring>>,
    /// The descriptor that stands for it; the eventfd itself.
    stand_in: c_int,
    event: epoll_event,
    /// Edge-triggered: [`Readiness::wakes`] when the program was last told of it.
    told: Option<u32>,
    /// Somebody may wait for the set whom no wrapper sees.
    exposed: bool,
}

static MEMBERS: Mutex<Vec<Member>> = Mutex::new(Vec::new());
/// Their number.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Whose turn it is where there is room for one event only: a ring's?
static TURN: AtomicBool = AtomicBool::new(false);

/// The list; none if another thread keeps it for long: the one that a signal handler has
/// interrupted, perhaps.
fn members() -> Option<MutexGuard<'static, Vec<Member>>> {
    const TRIES: u32 = 100;
    (0..TRIES).find_map(|_| {
        let list = MEMBERS.try_lock().ok();
        if list.is_none() {
            std::thread::yield_now();
        }
        list
    })
}

/// `epoll_ctl(2)`: control interface for an epoll file descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let (stand_in, ring) = (polled(fd), fds::find(fd));
    let at = event.expose_provenance();
    // SAFETY: the program's own call, with its own pointer.
    let ret = unsafe {
        let member = stand_in.unwrap_or_else(|| visible(fd));
        raw!(libc::SYS_epoll_ctl, visible(epfd), op, member, at)
    };
    if ret == 0 && stand_in.is_none() && COUNT.load(Relaxed) > 0 {
        expose(fd);
    }
    let stand_in = stand_in.or_else(|| fds::is_eventfd(fd).then_some(fd));
    if let Some((stand_in, mut members)) = stand_in.filter(|_| ret == 0).zip(members()) {
        let known = members.iter().any(|m| m.set == epfd && m.exposed);
        members.retain(|m| m.is_there() && (m.set, m.number) != (epfd, fd));
        if op != libc::EPOLL_CTL_DEL {
            // SAFETY: the kernel has just read it.
            let event = unsafe { event.read_unaligned() };
            let ring = ring.map(|ring| Arc::downgrade(&ring));
            let (set, number, told) = (epfd, fd, None);
            let m = Member { set, number, ring, stand_in, event, told, exposed: known };
            if !m.may_be_driven() || m.is_edge() {
                fds::share_poll_fd(fd, m.may_be_driven());
            }
            members.push(m);
        }
        COUNT.store(members.len(), Relaxed);
    }
    raw::libc_answer(ret) as c_int
}

/// The set `fd`, if it is one with rings, is polled itself, or is in another: what stands for its
/// rings is to be signalled from now on.
pub fn expose(fd: c_int) {
    if COUNT.load(Relaxed) == 0 {
        return;
    }
    let Some(mut list) = members() else { return };
    let mut found = false;
    for m in list.iter_mut().filter(|m| m.set == fd) {
        found |= !core::mem::replace(&mut m.exposed, true);
        m.follow();
    }
    if found {
        // For good.
        core::mem::forget({
            let mut poller = Poller::default();
            poller.sleeps_passively();
            poller
        });
        list.iter_mut().filter(|m| m.set == fd).for_each(Member::follow);
    }
}

/// `new` is another number for the set `old`, if that is one.
pub fn duplicated(old: c_int, new: c_int) {
    if COUNT.load(Relaxed) == 0 {
        return;
    }
    let Some(mut list) = members() else { return };
    list.retain(|m| m.set != new);
    let copies: Vec<Member> = list.iter().filter(|m| m.set == old).cloned().collect();
    list.extend(copies.into_iter().map(|m| Member { set: new, ..m }));
    COUNT.store(list.len(), Relaxed);
}

/// The numbers from `first` to `last` are closed.
pub fn closed(first: c_int, last: c_int) {
    if COUNT.load(Relaxed) > 0
        && let Some(mut list) = members()
    {
        list.retain(|m| m.is_there() && !(first..=last).contains(&m.set));
        COUNT.store(list.len(), Relaxed);
    }
}

/// The engine's `fd` is about to have another number: if it stands for a ring, the program's sets
/// must know that number. In a signal handler that has interrupted who holds the list, [`refresh`]
/// adds the number later; the set keeps the old entry as well, and tells of the ring twice.
pub fn moving<E>(fd: c_int, go: impl FnOnce() -> Result<bool, E>) -> Result<bool, E> {
    let moved = go()?;
    let Some(mut list) = members().filter(|_| moved) else { return Ok(moved) };
    for m in list.iter_mut().filter(|m| m.stand_in == fd) {
        // SAFETY: numbers. The old one means the same file until the program's call replaces it.
        unsafe { raw!(libc::SYS_epoll_ctl, m.set, libc::EPOLL_CTL_DEL, fd, 0) };
        m.follow();
    }
    Ok(moved)
}

impl Member {
    /// The ring's descriptor in the set is the one that stands for it now.
    fn follow(&mut self) {
        // Also what makes the eventfd, and brings it up to date.
        let Some(ring) = self.ring() else { return };
        let Some(new) = fds::poll_fd_of(&ring).filter(|new| *new != self.stand_in) else { return };
        let event = (&raw const self.event).expose_provenance();
        // SAFETY: numbers, and an event of ours.
        unsafe { raw!(libc::SYS_epoll_ctl, self.set, libc::EPOLL_CTL_ADD, new, event) };
        self.stand_in = new;
    }

    fn is_eventfd(&self) -> bool {
        self.ring.is_none()
    }

    fn ring(&self) -> Option<Arc<Ring>> {
        self.ring.as_ref().and_then(Weak::upgrade)
    }

    fn is_there(&self) -> bool {
        self.is_eventfd() || self.ring.as_ref().is_some_and(|ring| ring.strong_count() > 0)
    }

    /// May a thread that waits on the set drive the ring? Only the kernel counts who takes part in
    /// an event (EPOLLONESHOT, EPOLLEXCLUSIVE); and a ring is writable by other rules.
    fn may_be_driven(&self) -> bool {
        const PLAIN: c_int =
            EPOLLIN | EPOLLRDNORM | EPOLLPRI | EPOLLRDHUP | EPOLLERR | EPOLLHUP | EPOLLET;
        self.is_eventfd() || !self.exposed && self.event.events & !PLAIN.cast_unsigned() == 0
    }

    fn is_edge(&self) -> bool {
        self.event.events & EPOLLET.cast_unsigned() != 0
    }

    fn trigger(&self) -> Trigger {
        if self.is_edge() { Trigger::Edge(self.told) } else { Trigger::Level }
    }

    /// What it answers once it is readable; none if nothing was asked for that it could.
    fn answer(&self) -> Option<epoll_event> {
        let events = self.event.events & (EPOLLIN | EPOLLRDNORM).cast_unsigned();
        (events != 0).then_some(epoll_event { events, u64: self.event.u64 })
    }
}

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
    wait(epfd, events, max, || Limit::of_poll(timeout), call)
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
    wait(epfd, events, max, || Limit { mask, ..Limit::of_poll(timeout) }, call)
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
    wait(epfd, events, max, || Limit::of_ppoll(timeout, mask), call)
}

fn wait(
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    limit: impl FnOnce() -> Limit,
    call: impl FnOnce() -> c_int,
) -> c_int {
    if !watched() || COUNT.load(Relaxed) == 0 {
        return call();
    }
    let Some(list) = members_of(epfd) else {
        let mut poller = Poller::default();
        poller.sleeps_passively();
        refresh(epfd);
        return call();
    };
    let limit = limit();
    let at = events.expose_provenance() as u64;
    let bytes = usize::try_from(max).unwrap_or(0).saturating_mul(size_of::<epoll_event>());
    let good = (1..1 << 20).contains(&max) && user::check_writable(at, bytes).is_ok();
    if list[0].is_none() || limit.bad || !good {
        return call();
    }
    let set = Set { epfd, events, max: max as usize };
    set.wait(list, limit)
}

/// The rings of the set, if the thread may drive them: if no duplicate of the set goes unreported,
/// for whoever waits there must be counted.
fn members_of(epfd: c_int) -> Option<[Option<Member>; MOST]> {
    let (mut list, mut n) = ([const { None }; MOST], 0);
    for m in members()?.iter().filter(|m| m.set == epfd && m.is_there()) {
        if n == MOST || !m.may_be_driven() || !closes_all_reported() {
            return None;
        }
        list[n] = Some(m.clone());
        n += 1;
    }
    Some(list)
}

/// A wait on a set.
struct Set {
    epfd: c_int,
    /// Room for `max` events, which can be written.
    events: *mut epoll_event,
    max: usize,
}

impl Set {
    fn wait(&self, mut list: [Option<Member>; MOST], limit: Limit) -> c_int {
        let Some(ppoll) = super::wait::ppoll() else { return -1 };
        let deadline = limit.deadline();
        loop {
            let mut poller = Poller::default();
            let mut sources = [None; MOST];
            for (m, source) in list.iter().flatten().zip(&mut sources) {
                *source = match (m.is_eventfd(), m.ring()) {
                    (true, _) => poller.add_eventfd(m.number).map(Source::Driven),
                    (_, Some(ring)) => poller.add_member(&ring, m.trigger()),
                    _ => None,
                };
            }
            let ready = sources.iter().any(|s| matches!(s, Some(Source::Ready(_))));
            let mut fds = [pollfd { fd: -1, events: POLLIN, revents: 0 }; MOST + 1];
            fds[0].fd = visible(self.epfd);
            fds[1..].iter_mut().zip(poller.sets()).for_each(|(entry, set)| entry.fd = set);
            let time = timespec_of(limit.left(ready, deadline, poller.until()));
            let time = time.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
            // SAFETY: an array and a time of ours, and the program's own mask.
            let ret = unsafe { ppoll(fds.as_mut_ptr(), fds.len() as u64, time, limit.mask) };
            let errno = raw::errno();
            poller.end(|set| fds[1..].iter().any(|e| e.fd == set && e.revents != 0));
            // An eventfd in the set may have been signalled.
            let others = fds[0].revents != 0
                || (list.iter().flatten().any(Member::is_eventfd)
                    && fds.iter().any(|e| e.revents != 0));
            let found = self.answers(&list, &sources, &poller, others);
            raw::set_errno(errno);
            if ret < 0 || found < 0 {
                return if ret < 0 { ret } else { raw::libc_answer(found) as c_int };
            }
            if found > 0 || limit.is_over(deadline) {
                return found as c_int;
            }
            // Other threads may have been told meanwhile.
            list = members_of(self.epfd).unwrap_or([const { None }; MOST]);
        }
    }

    /// Puts what the rings answer behind the set's own events; how many there are. Of the room the
    /// rings have theirs, so that neither keeps the other out for good.
    fn answers(
        &self,
        list: &[Option<Member>],
        sources: &[Option<Source>],
        poller: &Poller,
        others: bool,
    ) -> isize {
        let now = |source: &Option<Source>| match source {
            Some(Source::Ready(now)) => Some(*now),
            Some(Source::Driven(set)) => poller.readiness(*set),
            _ => None,
        };
        let readable = || {
            let with = list.iter().flatten().zip(sources.iter().map(now));
            with.filter_map(|(m, now)| Some((m, now.filter(|n| n.readable)?, m.answer()?)))
        };
        // An edge is for one thread: for whoever takes it from the set, where one sleeps there.
        let by_set = |m: &Member, now: Readiness| m.is_edge() && now.signalled;
        let others = others || readable().any(|(m, now, _)| by_set(m, now));
        let ready = || readable().filter(|(m, now, _)| !by_set(m, *now));
        readable().filter(|(m, ..)| m.is_edge()).for_each(|(m, now, _)| note_told(m, now));
        let turn = usize::from(TURN.fetch_xor(true, Relaxed));
        let room = self.max - ready().count().min((self.max - 1).max(turn));
        let mut n = 0;
        if others && room > 0 {
            // SAFETY: there is room for `max` events.
            let got = unsafe {
                let at = self.events.expose_provenance();
                raw!(libc::SYS_epoll_wait, visible(self.epfd), at, room, 0)
            };
            if got < 0 {
                return got;
            }
            n = got as usize;
        }
        for (_, _, event) in ready().take(self.max - n) {
            // SAFETY: as above; the array need not be aligned.
            unsafe { self.events.wrapping_add(n).write_unaligned(event) };
            n += 1;
        }
        n as isize
    }
}

/// The program is told of a ring.
fn note_told(m: &Member, now: Readiness) {
    let Some(mut list) = members() else { return };
    if let Some(m) = list.iter_mut().find(|o| (o.set, o.number) == (m.set, m.number)) {
        m.told = Some(now.wakes);
    }
}

fn refresh(epfd: c_int) {
    let Some(mut list) = members() else { return };
    list.iter_mut().filter(|m| m.set == epfd).for_each(Member::follow);
}
