//! Requests in the poll set: registration, a change of their events, removal. Kernel counterpart:
//! `__io_arm_poll_handler`, `io_poll_remove_entries`.

use crate::io::persistent::{OUT, STICKY};
use crate::io::poll::PollSet;
use crate::io::token::ReqId;
use crate::ring::ctx::Ctx;
use crate::ring::opdef::{self, Issue};
use crate::ring::persistent::{events_of, leave};
use crate::ring::request::{FileRef, Phase, Poll, Req, ReqFlags};
use crate::ring::{exclusive, persistent};
use softring_host::sys::nr::EPOLLONESHOT;
use softring_uapi::errno::Result;

impl Ctx {
    /// Registers a request in the poll set.
    ///
    /// # Errors
    /// Same as [`PollSet::add`]; `EMFILE`, `EBADF`.
    pub(crate) fn register_poll(&mut self, id: ReqId) -> Result<()> {
        let Some(req) = self.reqs.slab.get_mut(id) else { return Ok(()) };
        let Phase::Polling(poll) = req.phase else { return Ok(()) };
        let transports = &mut self.drive.transports;
        let set = transports.poll_set()?;
        if let Some(fd) = persistent::number(set, req, poll) {
            persistent::record_attempt(set.registration(fd), req);
            let vain = match set.registration(fd) {
                Some(s) if sends(req) => found_nothing(req) && s.seen & STICKY == 0,
                Some(s) => found_nothing(req) || (s.empty && poll.events & OUT == 0),
                None => found_nothing(req),
            };
            let events = events_of(req, poll);
            let told = set
                .registration(fd)
                .filter(|_| !vain && takes_old_event(req))
                .and_then(|s| s.tell_again(fd, events));
            if set.register(fd, events, vain || told.is_some(), id)? {
                persistent::record_attempt(set.registration(fd), req);
                if let Some(told) = told {
                    transports.stash.push_back(told);
                }
                req.phase.registered_at(fd, transports.passes, true);
                if reissues(req) {
                    transports.new_polls += 1;
                    self.stats.reissue.armed.add(1);
                }
                return Ok(());
            }
        }
        let at = existing_number(set, req, poll);
        // A registered file is held as it is.
        if at.is_none() || !matches!(req.call.file, FileRef::Fixed(_)) {
            req.call.file.hold_for_poll()?;
        }
        let at = set.add(at, req.call.file.poll_fd(), events_of(req, poll), id)?;
        transports.multishot_polls += u32::from(poll.tells_each());
        req.phase.registered_at(at, transports.passes, false);
        if reissues(req) {
            transports.new_polls += 1;
            self.stats.reissue.armed.add(1);
        }
        Ok(())
    }

    /// Rearms a request in the poll set, possibly for other events.
    ///
    /// # Errors
    /// Same as [`PollSet::modify`].
    pub(crate) fn poll_again(&mut self, id: ReqId) -> Result<()> {
        let Some(req) = self.reqs.slab.get_mut(id) else { return Ok(()) };
        let Phase::Polling(poll) = req.phase else { return Ok(()) };
        let (own, events) = (req.call.file.poll_fd(), events_of(req, poll));
        let set = self.drive.transports.poll_set()?;
        if poll.persistent {
            return set.rearm(poll.at, events, found_nothing(req));
        }
        let at = set.modify(poll.at, own, events, id);
        req.phase.registered_at(at.unwrap_or(-1), self.drive.transports.passes, false);
        if at.is_err() {
            self.drive.transports.one_poll_less(poll.tells_each());
        }
        at.map(|_| ())
    }

    /// Removes a request from the poll set. `fired`: an event has disarmed it.
    pub(crate) fn poll_leave(&mut self, id: ReqId, fired: bool) {
        let Some(req) = self.reqs.slab.get_mut(id) else { return };
        let (key, was_armed) = (exclusive::key(req), exclusive::is_armed(req));
        leave(&mut self.drive.transports, id, req, fired);
        self.arm_next_waiter(key, id, was_armed);
    }
}

/// Returns whether a request is issued again when it is ready.
pub(crate) fn reissues(req: &Req) -> bool {
    !req.is_command() && matches!(req.row.issue, Issue::Call(_))
}

/// Returns whether a request that is to be polled first may go by an event that came before it: if
/// the data are gone, an attempt shows nowhere, as it takes no provided buffer.
fn takes_old_event(req: &Req) -> bool {
    let careful = ReqFlags::MULTISHOT | ReqFlags::BUFFER_SELECT;
    let first = req.polls_first() && req.arms <= 1;
    req.row.has(opdef::RECEIVES) && first && !req.flags.intersects(careful)
}

/// Returns whether the request waits for room to send.
pub(crate) fn sends(req: &Req) -> bool {
    matches!(req.phase, Phase::Polling(poll) if poll.events & OUT != 0) && reissues(req)
}

/// Returns whether the last attempt showed that the awaited data are not there. A request for
/// errors or urgent data only learns nothing about other data, for which the kernel tries it again.
fn found_nothing(req: &Req) -> bool {
    let once = !req.flags.contains(ReqFlags::MULTISHOT);
    req.call.found_nothing() && !(once && req.asks_for_less())
}

/// Returns the file's existing descriptor, if a one-shot request may be registered in the poll set
/// under it.
fn existing_number(set: &PollSet, req: &Req, poll: Poll) -> Option<i32> {
    // The descriptor of a ring's stand-in or a child's pidfd is not the number that the SQE names.
    let named = req.row.has(opdef::FILE) && !req.flags.contains(ReqFlags::POLLS_RING);
    let number = match &req.call.file {
        FileRef::Fixed(node) => node.fd(),
        FileRef::Plain(fd) if set.compares => *fd,
        FileRef::Owned(..) if set.compares && named => req.call.sqe().fd,
        _ => return None,
    };
    (poll.events & EPOLLONESHOT != 0 && set.is_free(number)).then_some(number)
}
