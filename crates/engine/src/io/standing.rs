//! Numbers that stay in the poll set: the program's own, edge-triggered, from the first request
//! that waits there to the close of the number. What waits on one that stands already costs no
//! system call, and neither does a receive that is known to find nothing.
//!
//! This rests on hearing of every close before it happens
//! ([`softring_host::fd::numbers::closes_all_reported`]): then the number means one file all the
//! time, and those that wait there move to a duplicate when it is closed ([`Ctx::number_closes`]).
//! Where the entry points cannot promise that, nothing stands.
//!
//! A number must not come to stand between the moment at which its waiters move away and its close:
//! what stands then would be the file that gets the number next. So whoever closes says so first
//! ([`Closing`]) and looks who stands after that; whoever begins to stand says so first and then
//! looks whether the number is being closed. One of the two sees the other:
//!
//! ```text
//! closer                       ring                          where a look comes before the mark,
//! CLOSING[fd] += 1             STANDS[fd] += 1               both may see nothing: the next file
//! STANDS[fd] > 0 -> fall       CLOSING[fd] > 0 -> it fails   under that number would stand here
//! close                        epoll ADD (EBADF if closed)   without being known to epoll
//! CLOSING[fd] -= 1
//! ```
//!
//! The steps are in `io::marks`; `verify::closing` has loom try every order.
//!
//! **Dry.** An edge comes when something new happens, so the set is silent about what was there
//! before. A request may wait without a second look only after an attempt that found nothing (or
//! took all of a TCP stream that was neither ended nor marked urgent), and only until the next
//! event: that is what `dry` says. Otherwise the registration is changed to what it is
//! (EPOLL_CTL_MOD), and epoll looks itself.
//!
//! **Several waiters and a close.** Where more than one request waits under a number that is
//! closed, they go on together, under one duplicate that stands as the number did. With a
//! registration each, one could be woken first and take the data before epoll looks at the other:
//!
//! ```text
//! writer                       ring
//! data, wakes RECV's entry     epoll_wait: RECV
//!                              recv takes the data
//! wakes POLL_ADD's entry       epoll_wait: POLL_ADD's file is not ready: no event
//! ```
//!
//! The kernel tells every poll that a wake-up reaches.
//!
//! **A close that went past everybody** (code that no entry point knows of) leaves a registration
//! that means nothing. So the reactor asks epoll, within a second, once for each number on which
//! somebody has come to wait ([`PollSet::lost`]); whoever waits on one that epoll does not know is
//! put there anew.
//!
//! [`Ctx::number_closes`]: crate::ring::ctx::Ctx::number_closes

use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::SeqCst;
use std::sync::Arc;

use rustix::fd::AsRawFd;

use super::marks::{self, Marks};
use super::poll::PollSet;
use crate::io::token::ReqId;
use softring_host::calls::epoll;
use softring_host::fd::InternalFd;
use softring_host::fork::{AtFork, keeps};
use softring_host::sys::nr;
use softring_host::sys::nr::{EPOLLERR, EPOLLET, EPOLLHUP, EPOLLONESHOT, EPOLLPRI, EPOLLRDHUP};
use softring_uapi::errno::{Errno, Result};

/// Numbers that may stand.
pub(crate) const NUMBERS: usize = 1 << 16;
/// The lower half of event data that names a number; the upper half is the number. No request's
/// slot is so high.
const TAG: u64 = 0xffff_fffd;

pub(crate) const IN: u32 = nr::EPOLLIN | nr::EPOLLRDNORM;
pub(crate) const OUT: u32 = nr::EPOLLOUT | nr::EPOLLWRNORM;
/// Seen once, a receive has something to tell however much was taken.
pub(crate) const STICKY: u32 = EPOLLPRI | EPOLLERR | EPOLLHUP | EPOLLRDHUP;

/// What a process has once of them: all zero at first, so it takes memory only where it is used.
#[derive(Debug)]
struct OfProcess {
    /// In how many rings' sets a number stands; with 255 it is as if in all, for good.
    stands: [AtomicU8; NUMBERS],
    /// How many threads are about to close a number; with 255 it does not stand again.
    closing: [AtomicU8; NUMBERS],
}

static PROCESS: OfProcess = OfProcess {
    stands: [const { AtomicU8::new(0) }; NUMBERS],
    closing: [const { AtomicU8::new(0) }; NUMBERS],
};

pub(crate) const AT_FORK: AtFork = AtFork::new(|_| PROCESS.in_child());

impl OfProcess {
    fn in_child(&self) {
        let Self { stands, closing } = self;
        keeps(stands, "each ring gives back its own when a child first takes it");
        keeps(closing, "what a thread of the parent was closing does not stand: slower, not wrong");
    }
}

fn at(counts: &'static [AtomicU8; NUMBERS], fd: i32) -> Option<&'static AtomicU8> {
    usize::try_from(fd).ok().and_then(|fd| counts.get(fd))
}

/// Does `fd` stand in the set of any ring?
pub(crate) fn stands_anywhere(fd: i32) -> bool {
    count(fd) > 0
}

/// In how many rings' sets `fd` stands.
pub(crate) fn count(fd: i32) -> u8 {
    at(&PROCESS.stands, fd).map_or(0, |n| n.load(SeqCst))
}

/// While this lives, its numbers do not come to stand: from before those that wait on them move
/// away until after the close.
#[derive(Debug)]
#[must_use = "a number may stand again as soon as this is dropped"]
pub struct Closing(#[expect(dead_code, reason = "until it is dropped")] Marks<'static, AtomicU8>);

impl Closing {
    pub(crate) fn new(fd: i32) -> Closing {
        let first = usize::try_from(fd).unwrap_or(NUMBERS);
        Closing::range(first, first)
    }

    /// From `first` to `last`.
    pub(crate) fn range(first: usize, last: usize) -> Closing {
        let first = first.min(NUMBERS);
        let numbers = first..last.saturating_add(1).clamp(first, NUMBERS);
        Closing(Marks::new(&PROCESS.closing[numbers]))
    }
}

fn is_closing(fd: i32) -> bool {
    at(&PROCESS.closing, fd).is_some_and(marks::any)
}

/// May a receive be taken to find nothing, without trying?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Trust {
    #[default]
    Unasked,
    Yes,
    No,
}

/// A number, as one ring's poll set knows it.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// Events that it is registered for; 0: it does not stand.
    events: u32,
    /// What the last event said; before the first, that something may be there.
    pub(crate) seen: u32,
    /// A receive would find nothing, unless an event comes.
    pub(crate) dry: bool,
    pub(crate) trust: Trust,
    /// The set knew the number's file since somebody last came to wait there.
    checked: bool,
    /// Who waits there, the last to be armed last.
    pub(crate) waiters: Vec<ReqId>,
    /// The descriptor, where it is the engine's: it stands as long as somebody waits.
    duplicate: Option<Arc<InternalFd>>,
}

/// The number that event data names, if it names one.
pub(crate) fn number(data: u64) -> Option<i32> {
    (data & 0xffff_ffff == TAG).then_some((data >> 32) as i32)
}

impl PollSet {
    /// What stands under `fd`.
    pub(crate) fn standing(&mut self, fd: i32) -> Option<&mut Standing> {
        let at = usize::try_from(fd).ok()?;
        self.standing.get_mut(at).filter(|s| s.events != 0)
    }

    /// May a request stand so under `fd`?
    pub(crate) fn may_stand(&self, fd: i32) -> bool {
        at(&PROCESS.stands, fd).is_some() && !is_closing(fd) && self.is_not_armed(fd)
    }

    /// Does `fd` stand in this set?
    pub(super) fn stands(&self, fd: i32) -> bool {
        usize::try_from(fd).is_ok_and(|fd| self.standing.get(fd).is_some_and(|s| s.events != 0))
    }

    /// `id` waits under `fd` for `events`; false if it cannot, because the number is being closed.
    /// `looked`: just now they were not there.
    ///
    /// # Errors
    /// `EPERM` for a file that cannot be polled; `EBADF`, `ENOMEM`, `ENOSPC`.
    pub(crate) fn stand(&mut self, fd: i32, events: u32, looked: bool, id: ReqId) -> Result<bool> {
        if self.stands(fd) {
            self.look_again(fd, events, looked)?;
        } else if !self.begin(fd, events)? {
            return Ok(false);
        }
        self.join(fd, id);
        Ok(true)
    }

    /// `id` waits under `fd`, which stands.
    fn join(&mut self, fd: i32, id: ReqId) {
        let s = &mut self.standing[fd as usize];
        s.waiters.push(id);
        s.checked = false;
        self.unchecked = true;
        self.armed += 1;
    }

    /// All of `ids` go on under one duplicate of what they waited for; false if it cannot stand.
    ///
    /// # Errors
    /// As [`Self::stand`].
    pub(crate) fn go_on(
        &mut self,
        dup: &Arc<InternalFd>,
        events: u32,
        ids: &[ReqId],
    ) -> Result<bool> {
        let fd = dup.as_raw_fd();
        if !self.may_stand(fd) || !self.begin(fd, events)? {
            return Ok(false);
        }
        self.standing[fd as usize].duplicate = Some(dup.clone());
        ids.iter().for_each(|&id| self.join(fd, id));
        Ok(true)
    }

    /// `fd` is to stand in the set from now on; false if it is being closed.
    ///
    /// # Errors
    /// As [`Self::stand`].
    pub(crate) fn begin(&mut self, fd: i32, events: u32) -> Result<bool> {
        let (at, events) = (fd as usize, with_end(events) | EPOLLET);
        let (stands, closing) = (&PROCESS.stands[at], &PROCESS.closing[at]);
        if !marks::begin(stands, closing, || self.register(fd, events))? {
            return Ok(false);
        }
        if at >= self.standing.len() {
            self.standing.resize_with(at + 1, Standing::default);
        }
        self.standing[at] = Standing { events, seen: events & IN, ..Standing::default() };
        Ok(true)
    }

    fn register(&mut self, fd: i32, events: u32) -> Result<bool> {
        let data = u64::from(fd.cast_unsigned()) << 32 | TAG;
        match self.ctl(epoll::EPOLL_CTL_ADD, fd, events, data) {
            // A request stood there that waited once.
            Err(Errno::EEXIST) => self.ctl(epoll::EPOLL_CTL_MOD, fd, events, data)?,
            done => done?,
        }
        self.forget_one_shot(fd);
        Ok(true)
    }

    /// A request waits on under `fd`, perhaps for other events. `looked`: as in [`Self::stand`].
    ///
    /// # Errors
    /// `EBADF`, `ENOENT`, `ENOMEM`.
    pub(crate) fn look_again(&mut self, fd: i32, events: u32, looked: bool) -> Result<()> {
        let known = self.standing[fd as usize].events;
        let all = known | with_end(events);
        if all == known && looked {
            return Ok(());
        }
        self.ctl(epoll::EPOLL_CTL_MOD, fd, all, (fd as u64) << 32 | TAG)?;
        self.standing[fd as usize].events = all;
        Ok(())
    }

    /// `id` waits there no more.
    pub(crate) fn depart(&mut self, fd: i32, id: ReqId) {
        self.armed -= 1;
        let Some(s) = self.standing(fd) else { return };
        s.waiters.retain(|&w| w != id);
        if s.waiters.is_empty() && s.duplicate.is_some() {
            self.fall(fd);
        }
    }

    /// A request that waits there is armed anew: it is the last that was.
    pub(crate) fn armed_anew(&mut self, fd: i32, id: ReqId) {
        let Some(s) = self.standing(fd) else { return };
        if let Some(at) = s.waiters.iter().position(|w| *w == id) {
            s.waiters[at..].rotate_left(1);
        }
    }

    /// Numbers on which somebody waits and whose file the set does not know: they were closed, and
    /// nobody heard of it. Asks once for each since somebody last came to wait there.
    pub(crate) fn lost(&mut self) -> Vec<i32> {
        let mut lost = Vec::new();
        if !core::mem::take(&mut self.unchecked) {
            return lost;
        }
        for at in 0..self.standing.len() {
            let s = &self.standing[at];
            if s.events == 0 || s.checked || s.waiters.is_empty() {
                continue;
            }
            let done = self.ctl(epoll::EPOLL_CTL_MOD, at as i32, s.events, (at as u64) << 32 | TAG);
            match done {
                Err(Errno::ENOENT | Errno::EBADF) => lost.push(at as i32),
                _ => self.standing[at].checked = true,
            }
        }
        lost
    }

    /// Takes `fd` out of the set; answers who waited there.
    pub(crate) fn fall(&mut self, fd: i32) -> Vec<ReqId> {
        let Some(s) = self.standing(fd).map(core::mem::take) else { return Vec::new() };
        let _ = self.ctl(epoll::EPOLL_CTL_DEL, fd, 0, 0);
        marks::less(&PROCESS.stands[fd as usize]);
        self.armed -= s.waiters.len() as u32;
        s.waiters
    }
}

/// Whoever waits for something to come hears of the end, too, and of urgent data, as retries do
/// (`io_arm_poll_handler`).
fn with_end(events: u32) -> u32 {
    let end = if events & IN != 0 { EPOLLRDHUP } else { 0 };
    events & !(EPOLLONESHOT | EPOLLET) | end | EPOLLPRI
}

impl Drop for PollSet {
    fn drop(&mut self) {
        for (at, s) in self.standing.iter().enumerate() {
            if s.events != 0 {
                marks::less(&PROCESS.stands[at]);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::io::poll::{BATCH, wait};
    use rustix::pipe::pipe;
    use softring_uapi::epoll_event;

    #[test]
    fn those_who_go_on_together_are_told_by_one_event_and_leave_nothing() {
        let mut set = PollSet::new().unwrap();
        let (r, w) = pipe().unwrap();
        let ids = [1, 2].map(|n| ReqId::from_u64(1 << 32 | n));
        let dup = Arc::new(softring_host::fd::dup_internal(r.as_raw_fd()).unwrap());
        let fd = dup.as_raw_fd();
        assert_eq!(set.go_on(&dup, IN | EPOLLONESHOT, &ids), Ok(true));
        assert_eq!((set.armed(), count(fd)), (2, 1));
        rustix::io::write(&w, b"x").unwrap();
        let mut buf = [epoll_event::default(); BATCH];
        assert_eq!(wait(set.fd().as_raw_fd(), &mut buf, Some(0), None), Ok(1));
        assert_eq!(number(buf[0].data), Some(fd));
        assert_eq!(set.standing(fd).unwrap().waiters, ids);
        set.depart(fd, ids[0]);
        assert!(set.stands(fd));
        set.depart(fd, ids[1]);
        assert_eq!((set.stands(fd), set.armed(), count(fd)), (false, 0, 0));
        assert_eq!(Arc::strong_count(&dup), 1);
    }
}
