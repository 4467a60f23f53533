//! Numbers that stay in the poll set: the program's own, edge-triggered, from the first request
//! that waits there to the close of the number. What waits on one that stands already costs no
//! system call, and neither does a receive that is known to find nothing.
//!
//! This rests on hearing of every close before it happens
//! ([`crate::fds::closes_all_reported`]): then the number means one file all the time, and those
//! that wait there move to a duplicate when it is closed ([`Ctx::number_closes`]). Where the doors
//! cannot promise that, nothing stands.
//!
//! **Dry.** An edge comes when something new happens, so the set is silent about what was there
//! before. A request may wait without a second look only after an attempt that found nothing (or
//! took all of a TCP stream that was neither ended nor marked urgent), and only until the next
//! event: that is what `dry` says. Otherwise the registration is changed to what it is
//! (EPOLL_CTL_MOD), and epoll looks itself.
//!
//! [`Ctx::number_closes`]: crate::ctx::Ctx::number_closes

use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;

use super::poll::PollSet;
use crate::errno::{Errno, Result};
use crate::req::slab::ReqId;
use crate::sys::nr::{EPOLLERR, EPOLLET, EPOLLHUP, EPOLLONESHOT, EPOLLPRI, EPOLLRDHUP};
use crate::sys::{self, nr};

/// Numbers that may stand.
const NUMBERS: usize = 1 << 16;
/// The lower half of event data that names a number; the upper half is the number. No request's
/// slot is so high.
const TAG: u64 = 0xffff_fffd;

pub const IN: u32 = nr::EPOLLIN | nr::EPOLLRDNORM;
pub const OUT: u32 = nr::EPOLLOUT | nr::EPOLLWRNORM;
/// Seen once, a receive has something to tell however much was taken.
pub const STICKY: u32 = EPOLLPRI | EPOLLERR | EPOLLHUP | EPOLLRDHUP;

/// In how many rings' sets a number stands; with 255 it is as if in all, for good.
static STANDS: [AtomicU8; NUMBERS] = [const { AtomicU8::new(0) }; NUMBERS];

/// Does `fd` stand in the set of any ring?
pub fn stands_anywhere(fd: i32) -> bool {
    count(fd) > 0
}

/// In how many rings' sets `fd` stands.
pub fn count(fd: i32) -> u8 {
    let count = usize::try_from(fd).ok().and_then(|fd| STANDS.get(fd));
    count.map_or(0, |n| n.load(Relaxed))
}

/// May a receive be taken to find nothing, without trying?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    #[default]
    Unasked,
    Yes,
    No,
}

/// A number, as one ring's poll set knows it.
#[derive(Debug, Default)]
pub struct Standing {
    /// Events that it is registered for; 0: it does not stand.
    events: u32,
    /// What the last event said; before the first, that something may be there.
    pub seen: u32,
    /// A receive would find nothing, unless an event comes.
    pub dry: bool,
    pub trust: Trust,
    /// Who waits there, the longest first.
    pub waiters: Vec<ReqId>,
}

/// The number that event data names, if it names one.
pub fn number(data: u64) -> Option<i32> {
    (data & 0xffff_ffff == TAG).then_some((data >> 32) as i32)
}

impl PollSet {
    /// What stands under `fd`.
    pub fn standing(&mut self, fd: i32) -> Option<&mut Standing> {
        let at = usize::try_from(fd).ok()?;
        self.standing.get_mut(at).filter(|s| s.events != 0)
    }

    /// May a request stand so under `fd`?
    pub fn may_stand(&self, fd: i32) -> bool {
        usize::try_from(fd).is_ok_and(|fd| fd < NUMBERS) && self.is_unseated(fd)
    }

    /// Does `fd` stand in this set?
    pub(super) fn stands(&self, fd: i32) -> bool {
        usize::try_from(fd).is_ok_and(|fd| self.standing.get(fd).is_some_and(|s| s.events != 0))
    }

    /// `id` waits under `fd` for `events`. `looked`: just now they were not there.
    ///
    /// # Errors
    /// `EPERM` for a file that cannot be polled; `EBADF`, `ENOMEM`, `ENOSPC`.
    pub fn stand(&mut self, fd: i32, events: u32, looked: bool, id: ReqId) -> Result<()> {
        if self.stands(fd) {
            self.look_again(fd, events, looked)?;
        } else {
            self.begin(fd, events)?;
        }
        self.standing[fd as usize].waiters.push(id);
        self.armed += 1;
        Ok(())
    }

    /// `fd` is to stand in the set from now on.
    ///
    /// # Errors
    /// As [`Self::stand`].
    pub fn begin(&mut self, fd: i32, events: u32) -> Result<()> {
        let (at, events) = (fd as usize, with_end(events) | EPOLLET);
        self.register(fd, events)?;
        if at >= self.standing.len() {
            self.standing.resize_with(at + 1, Standing::default);
        }
        self.standing[at] = Standing { events, seen: events & IN, ..Standing::default() };
        STANDS[at].fetch_update(Relaxed, Relaxed, |n| Some(n.saturating_add(1))).ok();
        Ok(())
    }

    fn register(&mut self, fd: i32, events: u32) -> Result<()> {
        let data = u64::from(fd.cast_unsigned()) << 32 | TAG;
        match self.ctl(sys::EPOLL_CTL_ADD, fd, events, data) {
            // A request stood there that waited once.
            Err(Errno::EEXIST) => self.ctl(sys::EPOLL_CTL_MOD, fd, events, data)?,
            done => done?,
        }
        self.empty_seat(fd);
        Ok(())
    }

    /// A request waits on under `fd`, perhaps for other events. `looked`: as in [`Self::stand`].
    ///
    /// # Errors
    /// `EBADF`, `ENOENT`, `ENOMEM`.
    pub fn look_again(&mut self, fd: i32, events: u32, looked: bool) -> Result<()> {
        let known = self.standing[fd as usize].events;
        let all = known | with_end(events);
        if all == known && looked {
            return Ok(());
        }
        self.ctl(sys::EPOLL_CTL_MOD, fd, all, (fd as u64) << 32 | TAG)?;
        self.standing[fd as usize].events = all;
        Ok(())
    }

    /// `id` waits there no more.
    pub fn depart(&mut self, fd: i32, id: ReqId) {
        self.armed -= 1;
        if let Some(s) = self.standing(fd) {
            s.waiters.retain(|&w| w != id);
        }
    }

    /// A request that waits there has a new name.
    pub fn rename(&mut self, fd: i32, old: ReqId, new: ReqId) {
        let waiters = self.standing(fd).map(|s| s.waiters.iter_mut());
        if let Some(place) = waiters.into_iter().flatten().find(|w| **w == old) {
            *place = new;
        }
    }

    /// Takes `fd` out of the set; answers who waited there.
    pub fn fall(&mut self, fd: i32) -> Vec<ReqId> {
        let Some(s) = self.standing(fd).map(core::mem::take) else { return Vec::new() };
        let _ = self.ctl(sys::EPOLL_CTL_DEL, fd, 0, 0);
        uncount(fd as usize);
        self.armed -= s.waiters.len() as u32;
        s.waiters
    }
}

/// Whoever waits for something to come hears of the end, too.
fn with_end(events: u32) -> u32 {
    let end = if events & IN != 0 { EPOLLRDHUP | EPOLLPRI } else { 0 };
    events & !(EPOLLONESHOT | EPOLLET) | end
}

fn uncount(at: usize) {
    let less = |n: u8| (n < u8::MAX).then(|| n.saturating_sub(1));
    STANDS[at].fetch_update(Relaxed, Relaxed, less).ok();
}

impl Drop for PollSet {
    fn drop(&mut self) {
        for (at, s) in self.standing.iter().enumerate() {
            if s.events != 0 {
                uncount(at);
            }
        }
    }
}
