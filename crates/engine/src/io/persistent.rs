//! Persistent registrations: numbers of the program's own that stay in the poll set,
//! edge-triggered, from the first request that waits there to the close of the number. A request
//! that waits on a registered number costs no system call. Neither does a receive that is known to
//! find nothing.
//!
//! This needs notice of every close before it happens
//! ([`softring_host::fd::numbers::closes_all_reported`]): then the number means one file all the
//! time, and its waiters move to a duplicate when it is closed ([`Ctx::number_closes`]). If the
//! entry points cannot promise that, no registration is persistent.
//!
//! A number must not be registered after its waiters have moved away and before it is closed: the
//! registration would be taken for one of the next file with that number. So a closer marks the
//! number first ([`Closing`]) and then checks for registrations. A ring that registers counts its
//! registration first and then checks for closers. One of the two sees the other:
//!
//! ```text
//! closer                              ring                         If a check came before the
//! CLOSING[fd] += 1                    REGISTERED[fd] += 1          mark, both could see nothing:
//! REGISTERED[fd] > 0 -> unregister    CLOSING[fd] > 0 -> fails     the next file under the number
//! close                               epoll ADD (EBADF if closed)  would be taken as registered,
//! CLOSING[fd] -= 1                                                 and epoll would not know it
//! ```
//!
//! The steps are in `io::marks`; `verify::closing` has loom try every order.
//!
//! **Empty.** An edge comes only with a new event, so epoll does not report what was there before.
//! A request may wait without another poll only after an attempt that found nothing (or took all of
//! a TCP stream that was neither ended nor marked urgent), and only until the next event: `empty`
//! records that. Otherwise the registration is set again (EPOLL_CTL_MOD), and epoll polls the file
//! itself.
//!
//! **Told again.** Where an event has come since the last attempt, and nobody waited, a setting
//! would only make epoll report it once more. A request that is to be polled first takes that event
//! instead ([`Registration::tell_again`]): its attempt decides. Newer events are taken before that
//! (`Ctx::take_stash_now`), as they say whether the stream has ended meanwhile.
//!
//! **Several waiters and a close.** If more than one request waits under a number that is closed,
//! all go on under one duplicate, registered as the number was. With a registration each, one
//! request could be woken first and take the data before epoll polls for the other:
//!
//! ```text
//! writer                       ring
//! data, wakes RECV's entry     epoll_wait: RECV
//!                              recv takes the data
//! wakes POLL_ADD's entry       epoll_wait: POLL_ADD's file is not ready: no event
//! ```
//!
//! The kernel reports to every poll that a wake-up reaches.
//!
//! **A close that no entry point saw** leaves a stale registration. So the reactor asks epoll,
//! within a second, once for each number on which a request has begun to wait ([`PollSet::lost`]).
//! Requests on a number that epoll does not know are registered anew.
//!
//! [`Ctx::number_closes`]: crate::ring::ctx::Ctx::number_closes

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::SeqCst;

use softring_host::os::fd::AsRawFd;

use super::marks::{self, Marks};
use super::poll::{EVENTS, PollSet};
use crate::io::token::ReqId;
use softring_host::calls::epoll;
use softring_host::fd::InternalFd;
use softring_host::fork::{AtFork, keeps};
use softring_host::sys::nr;
use softring_host::sys::nr::{
    EPOLLERR, EPOLLET, EPOLLHUP, EPOLLNVAL, EPOLLONESHOT, EPOLLPRI, EPOLLRDHUP,
};
use softring_uapi::epoll_event;
use softring_uapi::errno::{Errno, Result};

/// Numbers that may be registered.
pub(crate) const NUMBERS: usize = 1 << 16;
/// Lower half of event data that names a number; the upper half is the number. No request's slot is
/// so high.
const TAG: u64 = 0xffff_fffd;

pub(crate) const IN: u32 = nr::EPOLLIN | nr::EPOLLRDNORM;
pub(crate) const OUT: u32 = nr::EPOLLOUT | nr::EPOLLWRNORM;
/// Events after which a receive has something to report, however much was taken.
pub(crate) const STICKY: u32 = EPOLLPRI | EPOLLERR | EPOLLHUP | EPOLLRDHUP;

/// Events of a stashed event that is told again: [`Registration::tell_again`]. epoll never reports
/// them.
pub(crate) const RETOLD: u32 = EPOLLET | IN;

/// Counts that exist once per process: all zero at first, so they take memory only where used.
#[derive(Debug)]
struct OfProcess {
    /// Number of rings in whose sets a number is registered; at 255 it counts as registered in all,
    /// for good.
    registered: [AtomicU8; NUMBERS],
    /// Number of threads about to close a number; at 255 the number is never registered again.
    closing: [AtomicU8; NUMBERS],
}

static PROCESS: OfProcess = OfProcess {
    registered: [const { AtomicU8::new(0) }; NUMBERS],
    closing: [const { AtomicU8::new(0) }; NUMBERS],
};

pub(crate) const AT_FORK: AtFork = AtFork::new(|_| PROCESS.in_child());

impl OfProcess {
    fn in_child(&self) {
        let Self { registered, closing } = self;
        keeps(registered, "each ring gives back its own when a child first takes it");
        keeps(
            closing,
            "what a thread of the parent was closing is never registered: slower, not wrong",
        );
    }
}

fn at(counts: &'static [AtomicU8; NUMBERS], fd: i32) -> Option<&'static AtomicU8> {
    usize::try_from(fd).ok().and_then(|fd| counts.get(fd))
}

/// Returns whether `fd` is registered in the set of any ring.
pub(crate) fn registered_anywhere(fd: i32) -> bool {
    count(fd) > 0
}

/// Returns the number of rings in whose sets `fd` is registered.
pub(crate) fn count(fd: i32) -> u8 {
    at(&PROCESS.registered, fd).map_or(0, |n| n.load(SeqCst))
}

/// Mark on numbers that must not be registered: from before their waiters move away until after the
/// close.
#[derive(Debug)]
#[must_use = "a number may be registered again as soon as this is dropped"]
pub struct Closing(#[expect(dead_code, reason = "until it is dropped")] Marks<'static, AtomicU8>);

impl Closing {
    pub(crate) fn new(fd: i32) -> Closing {
        let first = usize::try_from(fd).unwrap_or(NUMBERS);
        Closing::range(first, first)
    }

    /// Marks the numbers from `first` to `last`.
    pub(crate) fn range(first: usize, last: usize) -> Closing {
        let first = first.min(NUMBERS);
        let numbers = first..last.saturating_add(1).clamp(first, NUMBERS);
        Closing(Marks::new(&PROCESS.closing[numbers]))
    }
}

fn is_closing(fd: i32) -> bool {
    at(&PROCESS.closing, fd).is_some_and(marks::any)
}

/// Answer to whether a receive may be taken to find nothing, without an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Trust {
    #[default]
    Unasked,
    Yes,
    No,
}

/// The persistent registration of a number in one ring's poll set.
#[derive(Debug, Default)]
pub(crate) struct Registration {
    /// Events that the number is registered for; 0: not registered.
    events: u32,
    /// Events last reported; before the first event, those that may be there.
    pub(crate) seen: u32,
    /// Count of registrations for data when it became one; 0: it is none.
    pub(super) for_data: u64,
    /// The poll after which a batch sent something to it ([`super::peers`]).
    pub(super) filled: u64,
    /// Flag, set if a receive would find nothing, unless an event comes.
    pub(crate) empty: bool,
    pub(crate) trust: Trust,
    /// Flag, set if epoll knew the number's file since a request last began to wait there.
    checked: bool,
    /// Flag, set from when an event is told again until a newer one comes, or it is handled.
    retold: bool,
    /// Requests that wait there, in the order in which they were armed.
    pub(crate) waiters: Vec<ReqId>,
    /// The descriptor, if it is the engine's: registered as long as a request waits.
    duplicate: Option<Arc<InternalFd>>,
}

impl Registration {
    /// Records an event.
    pub(crate) fn on_event(&mut self, seen: u32) {
        self.seen = seen;
        self.empty &= seen & (IN | STICKY) == 0;
        self.retold = false;
    }

    /// Tells an event again to a request that is to wait under `fd` for data, if one has come and
    /// no request has tried to take the data since.
    pub(crate) fn tell_again(&mut self, fd: i32, events: u32) -> Option<epoll_event> {
        let known = self.events & with_end(events) == with_end(events);
        let ready = self.seen & events & IN != 0 && !self.empty && self.waiters.is_empty();
        self.retold = known && ready;
        self.retold.then(|| epoll_event { events: RETOLD, data: data(fd) })
    }

    /// Returns the events that an event stands for: its own, or those told again, unless newer ones
    /// have come.
    pub(crate) fn events_of(&mut self, events: u32) -> Option<u32> {
        if events != RETOLD {
            return Some(events);
        }
        core::mem::take(&mut self.retold).then_some(self.seen)
    }
}

/// Returns the event data that name a number.
pub(crate) fn data(fd: i32) -> u64 {
    u64::from(fd.cast_unsigned()) << 32 | TAG
}

/// Returns the number that event data names, if any.
pub(crate) fn number(data: u64) -> Option<i32> {
    (data & 0xffff_ffff == TAG).then_some((data >> 32) as i32)
}

impl PollSet {
    /// Returns the persistent registration of `fd`.
    pub(crate) fn registration(&mut self, fd: i32) -> Option<&mut Registration> {
        let at = usize::try_from(fd).ok()?;
        self.registrations.get_mut(at).filter(|s| s.events != 0)
    }

    /// Returns whether `fd` may be registered.
    pub(crate) fn may_register(&self, fd: i32) -> bool {
        at(&PROCESS.registered, fd).is_some() && !is_closing(fd) && self.is_not_armed(fd)
    }

    /// Returns whether `fd` is registered in this set.
    pub(super) fn is_registered(&self, fd: i32) -> bool {
        usize::try_from(fd)
            .is_ok_and(|fd| self.registrations.get(fd).is_some_and(|s| s.events != 0))
    }

    /// Makes `id` wait under `fd` for `events`; false if the number is being closed. `absent`: the
    /// events were not there just now.
    ///
    /// # Errors
    /// `EPERM` for a file that cannot be polled; `EBADF`, `ENOMEM`, `ENOSPC`.
    pub(crate) fn register(
        &mut self,
        fd: i32,
        events: u32,
        absent: bool,
        id: ReqId,
    ) -> Result<bool> {
        if self.is_registered(fd) {
            self.rearm(fd, events, absent)?;
        } else if !self.begin(fd, events)? {
            return Ok(false);
        }
        self.join(fd, id);
        Ok(true)
    }

    /// Returns whether a request may wait under `fd` for `events` that are not there now without a
    /// change of the registration.
    #[inline]
    pub(crate) fn waits_for(&self, fd: i32, events: u32) -> bool {
        let wanted = with_end(events) & EVENTS & !EPOLLNVAL;
        let known = usize::try_from(fd).ok().and_then(|at| self.registrations.get(at));
        known.is_some_and(|s| s.events & wanted == wanted) && wanted != 0 && !is_closing(fd)
    }

    /// Adds `id` to the waiters of `fd`, which is registered.
    pub(crate) fn join(&mut self, fd: i32, id: ReqId) {
        let s = &mut self.registrations[fd as usize];
        s.waiters.push(id);
        s.checked = false;
        self.unchecked = true;
        self.armed += 1;
    }

    /// Makes all of `ids` wait under one duplicate of their file; false if it cannot be registered.
    ///
    /// # Errors
    /// Those of [`Self::register`].
    pub(crate) fn go_on(
        &mut self,
        dup: &Arc<InternalFd>,
        events: u32,
        ids: &[ReqId],
    ) -> Result<bool> {
        let fd = dup.as_raw_fd();
        if !self.may_register(fd) || !self.begin(fd, events)? {
            return Ok(false);
        }
        self.registrations[fd as usize].duplicate = Some(dup.clone());
        ids.iter().for_each(|&id| self.join(fd, id));
        Ok(true)
    }

    /// Registers `fd`; false if it is being closed.
    ///
    /// # Errors
    /// Those of [`Self::register`].
    pub(crate) fn begin(&mut self, fd: i32, events: u32) -> Result<bool> {
        let (at, events) = (fd as usize, with_end(events) | EPOLLET);
        let (registered, closing) = (&PROCESS.registered[at], &PROCESS.closing[at]);
        if !marks::begin(registered, closing, || self.add_edge_triggered(fd, events))? {
            return Ok(false);
        }
        if at >= self.registrations.len() {
            self.registrations.resize_with(at + 1, Registration::default);
        }
        let for_data = if events & IN != 0 { self.peers.next_registration() } else { 0 };
        self.registrations[at] =
            Registration { events, seen: events & IN, for_data, ..Registration::default() };
        Ok(true)
    }

    fn add_edge_triggered(&mut self, fd: i32, events: u32) -> Result<bool> {
        let data = data(fd);
        match self.ctl(epoll::EPOLL_CTL_ADD, fd, events, data) {
            // A one-shot request was registered there.
            Err(Errno::EEXIST) => self.ctl(epoll::EPOLL_CTL_MOD, fd, events, data)?,
            done => done?,
        }
        self.forget_one_shot(fd);
        Ok(true)
    }

    /// Makes a request wait again under `fd`, perhaps for other events. `absent`: as in
    /// [`Self::register`].
    ///
    /// # Errors
    /// `EBADF`, `ENOENT`, `ENOMEM`.
    pub(crate) fn rearm(&mut self, fd: i32, events: u32, absent: bool) -> Result<()> {
        let known = self.registrations[fd as usize].events;
        let all = known | with_end(events);
        if all == known && absent {
            return Ok(());
        }
        self.ctl(epoll::EPOLL_CTL_MOD, fd, all, data(fd))?;
        self.registrations[fd as usize].events = all;
        if known & IN == 0 && all & IN != 0 {
            self.registrations[fd as usize].for_data = self.peers.next_registration();
        }
        Ok(())
    }

    /// Removes `id` from the waiters of `fd`.
    pub(crate) fn remove_waiter(&mut self, fd: i32, id: ReqId) {
        self.armed -= 1;
        let Some(s) = self.registration(fd) else { return };
        s.waiters.retain(|&w| w != id);
        if s.waiters.is_empty() && s.duplicate.is_some() {
            self.unregister(fd);
        }
    }

    /// Removes the only waiter of `fd`.
    #[inline]
    pub(crate) fn remove_only(&mut self, fd: i32) {
        self.armed -= 1;
        let Some(s) = self.registration(fd) else { return };
        s.waiters.clear();
        if s.duplicate.is_some() {
            self.unregister(fd);
        }
    }

    /// Moves `id`, which waits under `fd` and is armed anew, to the end of the order.
    pub(crate) fn armed_anew(&mut self, fd: i32, id: ReqId) {
        let Some(s) = self.registration(fd) else { return };
        if let Some(at) = s.waiters.iter().position(|w| *w == id) {
            s.waiters[at..].rotate_left(1);
        }
    }

    /// Returns numbers on which a request waits and whose file epoll does not know: they were
    /// closed unseen by the entry points. Asks once for each number since a request last began to
    /// wait there.
    pub(crate) fn lost(&mut self) -> Vec<i32> {
        let mut lost = Vec::new();
        if !core::mem::take(&mut self.unchecked) {
            return lost;
        }
        for at in 0..self.registrations.len() {
            let s = &self.registrations[at];
            if s.events == 0 || s.checked || s.waiters.is_empty() {
                continue;
            }
            let done = self.ctl(epoll::EPOLL_CTL_MOD, at as i32, s.events, data(at as i32));
            match done {
                Err(Errno::ENOENT | Errno::EBADF) => lost.push(at as i32),
                _ => self.registrations[at].checked = true,
            }
        }
        lost
    }

    /// Takes `fd` out of the set; returns its waiters.
    pub(crate) fn unregister(&mut self, fd: i32) -> Vec<ReqId> {
        let Some(s) = self.registration(fd).map(core::mem::take) else { return Vec::new() };
        let _ = self.ctl(epoll::EPOLL_CTL_DEL, fd, 0, 0);
        marks::less(&PROCESS.registered[fd as usize]);
        self.armed -= s.waiters.len() as u32;
        s.waiters
    }
}

/// Adds the end of input to the events of a request that waits for input, and urgent data to those
/// of all, as retries do (`io_arm_poll_handler`).
fn with_end(events: u32) -> u32 {
    let end = if events & IN != 0 { EPOLLRDHUP } else { 0 };
    events & !(EPOLLONESHOT | EPOLLET) | end | EPOLLPRI
}

impl Drop for PollSet {
    fn drop(&mut self) {
        for (at, s) in self.registrations.iter().enumerate() {
            if s.events != 0 {
                marks::less(&PROCESS.registered[at]);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::io::poll::{BATCH, wait};
    use softring_host::os::fd::OwnedFd;

    fn pipe() -> Result<(OwnedFd, OwnedFd)> {
        softring_host::os::pipe::pipe_with(Default::default())
    }

    #[test]
    fn one_event_wakes_all_waiters_of_a_file() {
        let mut set = PollSet::new().unwrap();
        let (r, w) = pipe().unwrap();
        let ids = [1, 2].map(|n| ReqId::from_u64(1 << 32 | n));
        let dup = Arc::new(softring_host::fd::dup_internal(r.as_raw_fd()).unwrap());
        let fd = dup.as_raw_fd();
        assert_eq!(set.go_on(&dup, IN | EPOLLONESHOT, &ids), Ok(true));
        assert_eq!((set.armed(), count(fd)), (2, 1));
        softring_host::os::io::write(&w, b"x").unwrap();
        let mut buf = [epoll_event::default(); BATCH];
        assert_eq!(wait(set.fd().as_raw_fd(), &mut buf, Some(0), None), Ok(1));
        assert_eq!(number(buf[0].data), Some(fd));
        assert_eq!(set.registration(fd).unwrap().waiters, ids);
        set.remove_waiter(fd, ids[0]);
        assert!(set.is_registered(fd));
        set.remove_waiter(fd, ids[1]);
        assert_eq!((set.is_registered(fd), set.armed(), count(fd)), (false, 0, 0));
        assert_eq!(Arc::strong_count(&dup), 1);
    }
}
