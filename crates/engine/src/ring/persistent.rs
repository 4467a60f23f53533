//! Requests that wait under a persistent registration (`io::persistent`), and facts about such a
//! number that need no system call.

use crate::io::Transports;
use crate::io::clock::CLOCK_DATA;
use crate::io::peers::Polled;
use crate::io::persistent::{self, IN, Registration, STICKY, Trust};
use crate::io::poll::{self, AIO_DATA, BATCH, PollSet};
use crate::io::socket::{self, MSG_DONTWAIT, MSG_NOSIGNAL, Socket};
use crate::io::token::ReqId;
use crate::ring::ctx::{Ctx, Driving};
use crate::ring::opdef;
use crate::ring::request::{FileRef, Finding, Phase, Poll, Req, ReqFlags};
use crate::ring::turn::{Drives, Turn};
use alloc::vec::Vec;
use softring_host::sys::nr::{EPOLLERR, EPOLLHUP, EPOLLONESHOT};
use softring_uapi::epoll_event;
use softring_uapi::errno::Errno;

/// Events that are reported whatever was asked for.
pub(crate) const ALWAYS: u32 = EPOLLERR | EPOLLHUP;

/// Returns the number that may be registered for a request; `None` if its registration is one-shot.
pub(crate) fn number(set: &PollSet, req: &Req, poll: Poll) -> Option<i32> {
    let FileRef::Plain(fd) = req.call.file else { return None };
    // Of reads and writes, those of stream sockets say that they have found nothing.
    let known = req.flags.contains(ReqFlags::SENDRECV)
        || req.row.bits & (opdef::POLLS | opdef::READS_MANY) != 0
        || req.row.has(opdef::AIO) && req.call.found_nothing();
    let once = poll.events & EPOLLONESHOT != 0 && !req.flags.contains(ReqFlags::POLLS_RING);
    (known && once && softring_host::fd::numbers::closes_all_reported() && set.may_register(fd))
        .then_some(fd)
}

/// Returns the events for which the request is registered in the poll set.
pub(crate) fn events_of(req: &Req, wait: Poll) -> u32 {
    let asked = req.row.has(opdef::POLLS);
    if asked { poll::epoll_events(wait.events) } else { wait.events }
}

/// Removes a request from the poll set. If an event has disarmed it under a number that is not its
/// own, the registration stays for the next request.
pub(crate) fn leave(transports: &mut Transports, id: ReqId, req: &mut Req, fired: bool) {
    let Phase::Polling(poll) = &mut req.phase else { return };
    let at = core::mem::replace(&mut poll.at, -1);
    if at < 0 {
        return;
    }
    transports.one_poll_less(poll.tells_each());
    if core::mem::take(&mut poll.persistent) {
        if let Some(set) = &mut transports.poll {
            set.remove_waiter(at, id);
        }
    } else if fired && !req.call.file.owns(at) {
        transports.poll_leave(at);
    } else {
        transports.poll_del(at);
    }
}

/// Returns whether the request receives incoming data.
fn receives(req: &Req) -> bool {
    req.row.has(opdef::RECEIVES) && req.call.sqe().op_flags & !(MSG_DONTWAIT | MSG_NOSIGNAL) == 0
}

/// Records in the registration what an attempt found.
pub(crate) fn record_attempt(s: Option<&mut Registration>, req: &Req) {
    if let Some(s) = s
        && matches!(req.call.found, Finding::Nothing | Finding::TookAll)
        && receives(req)
    {
        s.empty = s.seen & STICKY == 0;
    }
}

impl Ctx {
    /// Registers requests again whose number was closed where no entry point saw it: they wait for
    /// the file that has the number now.
    pub(crate) fn check_registrations(&mut self) {
        let lost = self.drive.transports.poll.as_mut().map(PollSet::lost).unwrap_or_default();
        for fd in lost {
            softring_host::fd::forget_kind(fd);
            let waiters = self.drive.transports.poll.as_mut().map(|set| set.unregister(fd));
            for id in waiters.into_iter().flatten() {
                let Some(req) = self.reqs.slab.get_mut(id) else { continue };
                if let Phase::Polling(poll) = &mut req.phase {
                    (poll.at, poll.persistent) = (-1, false);
                }
                if self.register_poll(id).is_err() {
                    self.complete(id, Errno::ECANCELED.res());
                    self.turn(Turn::Publish);
                }
            }
        }
    }

    /// Moves the waiters of a number before a CLOSE runs here. True if the CLOSE must be left to a
    /// worker, because another ring also has waiters on the number: its lock must not be waited for
    /// here.
    pub(crate) fn closes_number(&mut self, req: &Req) -> bool {
        let fd = req.call.sqe().fd;
        if req.call.sqe().file_index != 0 || persistent::count(fd) == 0 {
            return false;
        }
        self.number_closes(fd, None);
        persistent::count(fd) > 0
    }

    /// Returns whether a receive would surely find nothing. If not, stores epoll's events in the
    /// request. `polled`: what was done since epoll was polled.
    pub(crate) fn known_empty(&mut self, req: &mut Req, polled: Polled) -> bool {
        let FileRef::Plain(fd) = req.call.file else { return false };
        if !receives(req) || req.flags.contains(ReqFlags::NOWAIT) {
            return false;
        }
        let empty = self.is_known_empty(fd, polled);
        if self.submit.polled == Polled::Yes
            && let Some(s) = self.drive.registration(fd)
        {
            req.call.set_seen(s.seen);
        }
        empty
    }

    /// Returns whether a plain receive on `fd` would surely find nothing. Sets `submit.polled` if
    /// epoll was polled. See [`Self::known_empty`].
    pub(crate) fn is_known_empty(&mut self, fd: i32, polled: Polled) -> bool {
        if self.drive.driver.active {
            return false;
        }
        if polled == Polled::Yes
            && let Some(s) = self.drive.transports.poll.as_ref().and_then(|set| set.unfilled(fd))
        {
            self.submit.polled = polled;
            return s.empty;
        }
        let Some(empty) = self.drive.registration(fd).map(|s| s.empty) else { return false };
        if !self.drive.trusts(fd) {
            return false;
        }
        if empty && self.wait_will_poll() {
            return true;
        }
        self.poll_in_batch(polled);
        self.submit.polled = Polled::Yes;
        self.drive.registration(fd).is_some_and(|s| s.empty)
    }

    /// Returns whether the request is the last of a batch and the wait that follows polls epoll.
    fn wait_will_poll(&self) -> bool {
        let s = &self.submit;
        s.left == 0
            && s.head.is_none()
            && !self.work.any_queued()
            && !self.work.any_iowq()
            && self.completion.overflow.is_empty()
            && self.drive.transports.stash.is_empty()
            && self.mem.cq_filled() < s.waits
    }

    /// Returns whether a request waits for this event.
    pub(crate) fn awaited(&mut self, ev: &epoll_event) -> bool {
        let (data, seen) = (ev.data, ev.events);
        let Some(fd) = persistent::number(data) else {
            let id = ReqId::from_u64(data);
            return match data {
                0 => {
                    // The wake event of a wait that is over.
                    self.drive.transports.poll.as_ref().map(PollSet::clear_wake);
                    false
                }
                AIO_DATA => true,
                CLOCK_DATA => false,
                _ => self.reqs.slab.get(id).is_some_and(|r| matches!(r.phase, Phase::Polling(_))),
            };
        };
        let waits =
            |req: &Req| matches!(req.phase, Phase::Polling(p) if seen & (p.events | ALWAYS) != 0);
        let Some(s) = self.drive.transports.poll.as_mut().and_then(|set| set.registration(fd))
        else {
            return false;
        };
        s.waiters.iter().any(|&id| self.reqs.slab.get(id).is_some_and(waits))
    }

    /// Polls epoll in the middle of a batch, or to learn its state: the events are stashed for
    /// later.
    pub(crate) fn poll_aside(&mut self) {
        if self.issue.leaves_work() {
            return;
        }
        let mut buf = [epoll_event::default(); BATCH];
        self.begin_pass(true);
        loop {
            let n = self.drive.transports.ready_events(&mut buf);
            self.stash_events(&buf[..n]);
            if n < BATCH {
                return;
            }
        }
    }

    /// Does the same in a batch, and learns from the events whose peers were sent to. `polled`:
    /// what was done since epoll was polled.
    pub(crate) fn poll_in_batch(&mut self, polled: Polled) {
        let before = self.drive.transports.events_state();
        self.poll_aside();
        let transports = &mut self.drive.transports;
        let after = transports.events_state();
        let new = transports.stash.range(before.1.min(after.1)..);
        let numbers: Vec<i32> = new.filter_map(|ev| persistent::number(ev.data)).collect();
        // Events that were merged into older ones are not among these.
        let polled = if transports.multishot_polls > 0 { Polled::No } else { polled };
        if let Some(set) = &mut transports.poll {
            set.polled(polled, &numbers, (before, after));
        }
    }

    /// Returns whether an event for an armed request is still to be handled. Polls epoll.
    pub(crate) fn has_pending_event(&mut self, id: ReqId) -> bool {
        self.poll_aside();
        let Some(&Phase::Polling(poll)) = self.reqs.slab.get(id).map(|req| &req.phase) else {
            return false;
        };
        let (name, wanted) = (id.to_u64(), poll.events | ALWAYS);
        self.drive.transports.stash.iter().any(|ev| {
            let (data, seen) = (ev.data, ev.events);
            let persistent = poll.persistent && persistent::number(data) == Some(poll.at);
            data == name || (persistent && seen & wanted != 0)
        })
    }

    /// Keeps events for [`take_stash`](Self::take_stash).
    pub(crate) fn stash_events(&mut self, events: &[epoll_event]) {
        for ev in events {
            if ev.data == 0 {
                // Kept for later, it would clear a wake-up that comes in between.
                self.drive.clear_wake();
                continue;
            }
            if let Some(s) = persistent::number(ev.data).and_then(|fd| self.drive.registration(fd))
            {
                s.on_event(ev.events);
            }
            if !self.joins_stashed(ev) {
                self.drive.transports.stash.push_back(*ev);
            }
        }
    }

    /// Merges the event of a multishot poll that is woken again before its task work has run
    /// (DEFER_TASKRUN); one CQE reports both (`io_poll_check_events`).
    fn joins_stashed(&mut self, ev: &epoll_event) -> bool {
        if !self.defers() || self.drive.transports.multishot_polls == 0 {
            return false;
        }
        let data = ev.data;
        let stashed = self.drive.transports.stash.iter_mut().find(|s| s.data == data);
        stashed.map(|s| s.events |= ev.events).is_some()
    }

    /// Begins a pass over the poll set, the first for what was registered since the last pass.
    /// `prompt`: the pass does not sleep.
    pub(crate) fn begin_pass(&mut self, prompt: bool) {
        if self.issue.leaves_work() {
            // Requests that the issuing thread arms are not polled yet.
            return;
        }
        self.drive.transports.passes = self.drive.transports.passes.wrapping_add(1);
        self.drive.transports.new_polls = 0;
        self.drive.transports.prompt = prompt;
    }
}

impl Driving {
    pub(crate) fn registration(&mut self, fd: i32) -> Option<&mut Registration> {
        self.transports.poll.as_mut()?.registration(fd)
    }
}

impl Driving {
    /// Records a receive that succeeded at once, which may have taken all data. Registers its
    /// number, so that the next receive on it knows more.
    pub(crate) fn received_at_once(&mut self, req: &Req, res: i32) {
        let FileRef::Plain(fd) = req.call.file else { return };
        if res <= 0 || !receives(req) || !softring_host::fd::numbers::closes_all_reported() {
            return;
        }
        if self.registration(fd).is_some() {
            return record_attempt(self.registration(fd), req);
        }
        let stream = Socket::of(fd) == Socket::Tcp;
        if let Some(set) = self.transports.poll_set().ok().filter(|s| stream && s.may_register(fd))
        {
            // On failure the next receive knows no more than this one.
            let _ = set.begin(fd, IN);
        }
    }

    /// Returns whether an event comes for everything that a receive could find.
    fn trusts(&mut self, fd: i32) -> bool {
        let Some(s) = self.registration(fd) else { return false };
        if s.trust == Trust::Unasked {
            s.trust = if socket::tells_all(fd) { Trust::Yes } else { Trust::No };
        }
        s.trust == Trust::Yes
    }
}
