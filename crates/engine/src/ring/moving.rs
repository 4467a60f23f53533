//! Close of a number that is registered (`io::persistent`): its waiters move to an internal
//! descriptor before the number means another file.
//!
//! Two cases need care. The request for which another thread makes a system call without the lock
//! is in no table: it may be about to use the number. So the closer waits until that thread has the
//! lock back, or must be inside the call by now, and leaves it a duplicate. And if the closer is a
//! signal handler that has interrupted the lock's holder, the closer takes a duplicate itself and
//! leaves it to the next holder of the lock.

use alloc::sync::Arc;
use core::time::Duration;

use softring_host::os::fd::AsRawFd;

use crate::io::token::ReqId;
use crate::ring::ctx::{Ctx, Ring};
use crate::ring::opdef::{Outcome, Try};
use crate::ring::persistent::events_of;
use crate::ring::request::{Call, FileRef, Phase, Req};
use crate::ring::turn::{Drives, Turn};
use softring_host::fd::kind::Kind;
use softring_host::fd::{InternalFd, dup_internal};
use softring_host::sys;
use softring_uapi::errno::Errno;

impl Ring {
    /// Moves the waiters of `fd`, which the program closes. Called without any ring's lock.
    pub(crate) fn number_closes(&self, fd: i32) {
        let mut waited = 0;
        loop {
            let Some(mut ctx) = self.lock_soon() else { return self.moves.leave(fd) };
            if !ctx.is_about_to_use(fd, waited) {
                ctx.number_closes(fd, None);
                if !ctx.defers() {
                    ctx.turn(Turn::Work);
                }
                return;
            }
            drop(ctx);
            softring_host::sys::pause(Duration::from_micros(50));
            waited += 1;
        }
    }
}

impl Ctx {
    /// Makes an attempt at a request that is in no table, without the lock.
    #[inline]
    pub(crate) fn attempt(&mut self, req: &mut Req, f: fn(&mut Call, Try) -> Outcome) -> Outcome {
        if let FileRef::Plain(fd) = req.call.file {
            self.issue.begin_use(fd);
        }
        let outcome = self.unlocked(|| f(&mut req.call, Try::Nonblock));
        if self.issue.end_use() {
            self.take_moved(req);
        }
        outcome
    }

    #[cold]
    fn take_moved(&mut self, req: &mut Req) {
        let Some(dup) = self.issue.take_moved() else { return };
        req.call.file = FileRef::Owned(dup, Kind::Pollable);
        if let Phase::Polling(poll) = &mut req.phase
            && poll.persistent
        {
            (poll.at, poll.persistent) = (-1, false);
        }
    }

    /// Returns whether another thread is about to use the number for its current request. `waited`:
    /// number of calls so far.
    fn is_about_to_use(&self, fd: i32, waited: u32) -> bool {
        /// Pauses until the call must have begun: at least a quarter of a second.
        const LONG: u32 = 5000;
        self.issue.is_used_elsewhere(fd) && waited < LONG && self.issue.thread() != sys::thread()
    }

    /// Handles the numbers that closers have left.
    #[cold]
    pub(crate) fn take_moves(&mut self) {
        let Some(ring) = self.ring.upgrade() else { return };
        for (fd, dup) in ring.moves.take() {
            self.number_closes(fd, Some(&dup));
        }
    }

    /// Moves the waiters of a number that the program closes to an internal descriptor. `dup`: a
    /// duplicate of the number's file, if the number may be closed already.
    pub(crate) fn number_closes(&mut self, fd: i32, dup: Option<&InternalFd>) {
        let from = dup.map_or(fd, AsRawFd::as_raw_fd);
        if self.issue.is_used_elsewhere(fd) {
            self.issue.move_file(dup_internal(from).ok());
        }
        let Some(set) = &mut self.drive.transports.poll else { return };
        let waiters = set.unregister(fd);
        if waiters.len() > 1 && self.move_together(&waiters, from) {
            return;
        }
        waiters.into_iter().for_each(|id| self.move_separately(id, from));
    }

    /// Moves the requests that waited for the file of `from` to one shared duplicate.
    fn move_together(&mut self, waiters: &[ReqId], from: i32) -> bool {
        let Ok(dup) = dup_internal(from).map(Arc::new) else { return false };
        let events = |&id: &ReqId| {
            let req = self.reqs.slab.get(id)?;
            let Phase::Polling(poll) = req.phase else { return None };
            Some(events_of(req, poll))
        };
        let all = waiters.iter().filter_map(events).fold(0, |all, events| all | events);
        let Some(set) = &mut self.drive.transports.poll else { return false };
        if set.go_on(&dup, all, waiters) != Ok(true) {
            return false;
        }
        for &id in waiters {
            let Some(req) = self.reqs.slab.get_mut(id) else { continue };
            req.call.file = FileRef::Shared(dup.clone(), Kind::Pollable);
            if let Phase::Polling(poll) = &mut req.phase {
                (poll.at, poll.persistent) = (dup.as_raw_fd(), true);
            }
        }
        true
    }

    /// Moves a request that waited for the file of `from` to a duplicate of its own.
    fn move_separately(&mut self, id: ReqId, from: i32) {
        let Some(req) = self.reqs.slab.get_mut(id) else { return };
        if let Phase::Polling(poll) = &mut req.phase {
            (poll.at, poll.persistent) = (-1, false);
        }
        if let FileRef::Plain(_) = req.call.file
            && let Ok(own) = dup_internal(from)
        {
            req.call.file = FileRef::Owned(own, Kind::Pollable);
        }
        let held = req.call.file.hold_for_poll();
        let plain = matches!(req.call.file, FileRef::Plain(_));
        if held.is_err() || plain || self.register_poll(id).is_err() {
            // There is no descriptor left for it.
            self.complete(id, Errno::ECANCELED.res());
            self.turn(Turn::Publish);
        }
    }
}
