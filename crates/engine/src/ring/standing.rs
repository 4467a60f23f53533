//! Requests that wait under a number that stays in the poll set (`io::standing`), and what
//! is known there without asking.

use crate::io::Transports;
use crate::io::clock::CLOCK_DATA;
use crate::io::poll::{self, AIO_DATA, BATCH, PollSet};
use crate::io::socket::{self, MSG_DONTWAIT, MSG_NOSIGNAL, Socket};
use crate::io::standing::{self, IN, OUT, STICKY, Standing, Trust};
use crate::io::token::ReqId;
use crate::ring::ctx::Ctx;
use crate::ring::opdef;
use crate::ring::request::{FileRef, Finding, Phase, Poll, Req, ReqFlags};
use softring_host::sys::nr::{EPOLLERR, EPOLLHUP, EPOLLONESHOT};
use softring_uapi::epoll_event;
use softring_uapi::errno::Errno;

/// Whatever was asked for.
const ALWAYS: u32 = EPOLLERR | EPOLLHUP;

/// The number under which a request may wait that stays in the set; none if it may not.
pub(crate) fn number(set: &PollSet, req: &Req, poll: Poll) -> Option<i32> {
    let FileRef::Plain(fd) = req.call.file else { return None };
    let known = req.flags.contains(ReqFlags::SENDRECV)
        || req.row.bits & (opdef::POLLS | opdef::READS_MANY) != 0;
    let once = poll.events & EPOLLONESHOT != 0 && !req.flags.contains(ReqFlags::POLLS_RING);
    (known && once && softring_host::fd::numbers::closes_all_reported() && set.may_stand(fd))
        .then_some(fd)
}

/// The events that the poll set is told to wait for.
pub(crate) fn events_of(req: &Req, wait: Poll) -> u32 {
    let asked = req.row.has(opdef::POLLS);
    if asked { poll::epoll_events(wait.events) } else { wait.events }
}

/// Takes a request out of the poll set. Where an event has disarmed it under a number that is not
/// its own, the registration stays for the next.
pub(crate) fn leave(transports: &mut Transports, id: ReqId, req: &mut Req, fired: bool) {
    let Phase::Polling(poll) = &mut req.phase else { return };
    let at = core::mem::replace(&mut poll.at, -1);
    if at < 0 {
        return;
    }
    transports.one_poll_less(poll.tells_each());
    if core::mem::take(&mut poll.stays) {
        if let Some(set) = &mut transports.poll {
            set.depart(at, id);
        }
    } else if fired && !req.call.file.owns(at) {
        transports.poll_leave(at);
    } else {
        transports.poll_del(at);
    }
}

/// Does a request take what comes in?
fn receives(req: &Req) -> bool {
    req.row.has(opdef::RECEIVES) && req.call.sqe().op_flags & !(MSG_DONTWAIT | MSG_NOSIGNAL) == 0
}

/// Notes what an attempt found out about the number.
pub(crate) fn note(s: Option<&mut Standing>, req: &Req) {
    if let Some(s) = s
        && matches!(req.call.found, Finding::Nothing | Finding::TookAll)
        && receives(req)
    {
        s.dry = s.seen & STICKY == 0;
    }
}

impl Standing {
    /// The poll set tells something.
    fn hear(&mut self, seen: u32) {
        self.seen = seen;
        self.dry &= seen & (IN | STICKY) == 0;
    }
}

impl Ctx {
    pub(crate) fn standing(&mut self, fd: i32) -> Option<&mut Standing> {
        self.transports.poll.as_mut()?.standing(fd)
    }

    /// Something happened under a number: those that wait for it are issued again, the last to be
    /// armed first, until there is nothing left for them. That is the order of the kernel's wait
    /// queue, in which who waits again is first, too. What goes back to a worker comes behind them.
    pub(crate) fn standing_fired(&mut self, fd: i32, seen: u32) {
        let Some(s) = self.standing(fd) else { return };
        s.hear(seen);
        if let [only] = s.waiters[..] {
            self.wake_standing(fd, only, seen, 0);
            return;
        }
        let mut waiters = s.waiters.clone();
        waiters.reverse();
        waiters.sort_by_key(|id| self.slab.get(*id).is_some_and(Req::goes_back_to_worker));
        let mut over = 0;
        for id in waiters {
            over |= self.wake_standing(fd, id, seen, over);
        }
    }

    /// One of them; answers for which direction nothing is left. `over`: those of which that is
    /// known.
    fn wake_standing(&mut self, fd: i32, id: ReqId, seen: u32, over: u32) -> u32 {
        let Some(req) = self.slab.get_mut(id) else { return 0 };
        let Phase::Polling(poll) = req.phase else { return 0 };
        let way = if req.row.has(opdef::POLLS) { 0 } else { poll.events & (IN | OUT) };
        let here = poll.stays && poll.at == fd;
        if !here || seen & (poll.events | ALWAYS) == 0 {
            return 0;
        }
        if way & over != 0 {
            // It would wait again.
            let many = req.flags.contains(ReqFlags::MULTISHOT);
            if let Some(set) = self.transports.poll.as_mut().filter(|_| !many) {
                set.armed_anew(fd, id);
            }
            return 0;
        }
        req.call.set_seen(seen);
        if self.poll_fired(id, seen) { way } else { 0 }
    }

    /// Numbers that were closed, and nobody heard of it: who waits there waits for the file that
    /// has the number now.
    pub(crate) fn check_standing(&mut self) {
        let lost = self.transports.poll.as_mut().map(PollSet::lost).unwrap_or_default();
        for fd in lost {
            softring_host::fd::forget_kind(fd);
            let waiters = self.transports.poll.as_mut().map(|set| set.fall(fd));
            for id in waiters.into_iter().flatten() {
                let Some(req) = self.slab.get_mut(id) else { continue };
                if let Phase::Polling(poll) = &mut req.phase {
                    (poll.at, poll.stays) = (-1, false);
                }
                if self.stand(id).is_err() {
                    self.complete(id, Errno::ECANCELED.res());
                    self.commit();
                }
            }
        }
    }

    /// A CLOSE is about to run here. True if it has to be left to a worker, because those who wait
    /// on the number belong to another ring as well, whose lock must not be waited for here.
    pub(crate) fn closes_number(&mut self, req: &Req) -> bool {
        let fd = req.call.sqe().fd;
        if req.call.sqe().file_index != 0 || standing::count(fd) == 0 {
            return false;
        }
        self.number_closes(fd, None);
        standing::count(fd) > 0
    }

    /// Would a receive find nothing, surely? If not, it learns what the poll set says. `looked`: at
    /// that was looked since anything else was tried.
    pub(crate) fn known_dry(&mut self, req: &mut Req, looked: bool) -> bool {
        let FileRef::Plain(fd) = req.call.file else { return false };
        if !receives(req) || req.flags.contains(ReqFlags::NOWAIT) || self.driver.active {
            return false;
        }
        let Some(dry) = self.standing(fd).map(|s| s.dry) else { return false };
        if !self.trusts(fd) {
            return false;
        }
        if !looked {
            if dry && self.wait_looks() {
                return true;
            }
            self.look_aside();
        }
        self.submit.looked = true;
        let Some(s) = self.standing(fd) else { return false };
        req.call.set_seen(s.seen);
        s.dry
    }

    /// A receive was successful at once. It may have taken all that there was; and the next one on
    /// that number shall know more than this one did.
    pub(crate) fn received_at_once(&mut self, req: &Req, res: i32) {
        let FileRef::Plain(fd) = req.call.file else { return };
        if res <= 0 || !receives(req) || !softring_host::fd::numbers::closes_all_reported() {
            return;
        }
        if self.standing(fd).is_some() {
            return note(self.standing(fd), req);
        }
        let stream = Socket::of(fd) == Socket::Tcp;
        if let Some(set) = self.transports.poll_set().ok().filter(|s| stream && s.may_stand(fd)) {
            // Where that fails, the next one knows no more.
            let _ = set.begin(fd, IN);
        }
    }

    /// Does an event come for everything that a receive could find?
    fn trusts(&mut self, fd: i32) -> bool {
        let Some(s) = self.standing(fd) else { return false };
        if s.trust == Trust::Unasked {
            s.trust = if socket::tells_all(fd) { Trust::Yes } else { Trust::No };
        }
        s.trust == Trust::Yes
    }

    /// Is this the last of a batch, and will the wait that follows look at the poll set?
    fn wait_looks(&self) -> bool {
        let s = &self.submit;
        s.left == 0
            && s.head.is_none()
            && self.run.is_empty()
            && self.iowq.is_empty()
            && self.overflow.is_empty()
            && self.transports.stash.is_empty()
            && self.mem.cq_filled() < s.waits
    }

    /// Does a request wait for this event?
    pub(crate) fn awaited(&mut self, ev: &epoll_event) -> bool {
        let (data, seen) = (ev.data, ev.events);
        let Some(fd) = standing::number(data) else {
            let id = ReqId::from_u64(data);
            return match data {
                0 => {
                    // The end of a wait that is over.
                    self.transports.poll.as_ref().map(PollSet::clear_wake);
                    false
                }
                AIO_DATA => true,
                CLOCK_DATA => false,
                _ => self.slab.get(id).is_some_and(|r| matches!(r.phase, Phase::Polling(_))),
            };
        };
        let waits =
            |req: &Req| matches!(req.phase, Phase::Polling(p) if seen & (p.events | ALWAYS) != 0);
        let Some(s) = self.transports.poll.as_mut().and_then(|set| set.standing(fd)) else {
            return false;
        };
        s.waiters.iter().any(|&id| self.slab.get(id).is_some_and(waits))
    }

    /// Looks at the poll set in the middle of a batch, or for a look's sake: what there is to do is
    /// left for later.
    pub(crate) fn look_aside(&mut self) {
        if self.leaves_work() {
            return;
        }
        let mut buf = [epoll_event::default(); BATCH];
        self.look(true);
        loop {
            let n = self.transports.ready_events(&mut buf);
            self.stash_events(&buf[..n]);
            if n < BATCH {
                return;
            }
        }
    }

    /// Was there an event for an armed request that is yet to be acted on? Looks at the poll set.
    pub(crate) fn is_told(&mut self, id: ReqId) -> bool {
        self.look_aside();
        let Some(&Phase::Polling(poll)) = self.slab.get(id).map(|req| &req.phase) else {
            return false;
        };
        let (name, wanted) = (id.to_u64(), poll.events | ALWAYS);
        self.transports.stash.iter().any(|ev| {
            let (data, seen) = (ev.data, ev.events);
            let stands = poll.stays && standing::number(data) == Some(poll.at);
            data == name || (stands && seen & wanted != 0)
        })
    }

    /// Keeps events for [`take_stash`](Self::take_stash).
    pub(crate) fn stash_events(&mut self, events: &[epoll_event]) {
        for ev in events {
            if let Some(s) = standing::number(ev.data).and_then(|fd| self.standing(fd)) {
                s.hear(ev.events);
            }
            if !self.joins_stashed(ev) {
                self.transports.stash.push_back(*ev);
            }
        }
    }

    /// DEFER_TASKRUN: a multishot poll that is woken again before its task work has run tells once
    /// of both (`io_poll_check_events`).
    fn joins_stashed(&mut self, ev: &epoll_event) -> bool {
        if !self.defers() || self.transports.multishot_polls == 0 {
            return false;
        }
        let data = ev.data;
        let stashed = self.transports.stash.iter_mut().find(|s| s.data == data);
        stashed.map(|s| s.events |= ev.events).is_some()
    }

    /// Acts on what was found on the way.
    #[inline]
    pub(crate) fn take_stash(&mut self) {
        if !self.transports.stash.is_empty() && !self.leaves_work() {
            self.take_stash_now();
        }
    }

    fn take_stash_now(&mut self) {
        while let Some(ev) = self.transports.stash.pop_front() {
            if self.transports.stash.is_empty() {
                self.poll_events(&[ev]);
            } else {
                // Together, for several may be of one file.
                let others = self.transports.stash.drain(..);
                let events: Vec<_> = core::iter::once(ev).chain(others).collect();
                self.poll_events(&events);
            }
        }
    }
}
