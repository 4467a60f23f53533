//! Where a request waits: the one place that decides.
//!
//! What cannot block is tried inline; what may block goes to kernel aio or to a worker; what waits
//! for readiness goes to the poll set and is issued again. A cached read never changes threads, and
//! a pollable file never reaches a worker below the cap. Kernel counterpart: `io_queue_async`,
//! `io_arm_poll_handler`, `io_queue_iowq`.

use crate::abi::{IORING_OP_POLL_ADD, IORING_OP_WAITID};
use crate::ctx::Ctx;
use crate::errno::{Errno, Result};
use crate::opdef::{self, Issue, OPS, Outcome};
use crate::ops;
use crate::req::request::{FileRef, Poll, Req, ReqFlags, State, Wait};
use crate::req::slab::ReqId;
use crate::transport::Transports;
use crate::transport::kind::Kind;

const EPOLLONESHOT: u32 = 1 << 30;

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Aio,
    Worker,
    Poll,
}

/// Readiness retries before a request goes to a worker (kernel: `APOLL_MAX_RETRY`).
pub const MAX_ARMS: u8 = 128;

/// What kind of file a request works on.
pub fn kind_of(file: &FileRef) -> Kind {
    match file {
        FileRef::Fixed(node) | FileRef::FixedDup(node, _) => node.kind,
        FileRef::Plain(fd) => crate::fds::kind(*fd),
        FileRef::Owned(_, kind) => *kind,
        FileRef::None => Kind::Unknown,
    }
}

impl Ctx {
    /// Where a request goes without an inline attempt; `None`: try it now.
    pub fn first_route(&mut self, req: &Req) -> Option<Way> {
        let def = &OPS[req.opcode() as usize];
        if !matches!(def.issue, Issue::Call(_)) {
            return None;
        }
        if req.call.sqe.ioprio & def.poll_first != 0 && req.arms == 0 {
            return Some(Way::Poll);
        }
        let forced = req.flags.contains(ReqFlags::FORCE_ASYNC) || req.call.creds.is_some();
        if req.flags.contains(ReqFlags::ON_WORKER | ReqFlags::NOWAIT) && !forced {
            return Some(Way::Worker);
        }
        if def.has(opdef::AIO) {
            return match self.kind_in_batch(&req.call.file) {
                Kind::Direct if req.call.creds.is_none() && self.aio_ready() => Some(Way::Aio),
                Kind::Direct => Some(Way::Worker),
                Kind::Pollable => None,
                _ => forced.then_some(Way::Worker),
            };
        }
        let pollable = def.has(opdef::POLLIN | opdef::POLLOUT);
        (def.has(opdef::ASYNC) || (forced && !pollable)).then_some(Way::Worker)
    }

    /// As [`kind_of`], which asks the kernel each time about a number that stands for O_DIRECT:
    /// here once in a batch.
    fn kind_in_batch(&mut self, file: &FileRef) -> Kind {
        let FileRef::Plain(fd) = *file else { return kind_of(file) };
        if self.submit.direct == Some(fd) {
            return Kind::Direct;
        }
        let kind = kind_of(file);
        if kind == Kind::Direct {
            self.submit.direct = Some(fd);
        }
        kind
    }

    /// Is the program's `fd` known to stand for an O_DIRECT file? What is not known yet shows when
    /// its first request goes the long way, so that a stream's reads ask nothing here.
    pub fn is_direct_in_batch(&mut self, fd: i32) -> bool {
        if self.submit.direct != Some(fd) {
            if !crate::fds::known_direct(fd) {
                return false;
            }
            self.submit.direct = Some(fd);
        }
        true
    }

    /// An attempt said it would block.
    pub fn queue_async(&mut self, req: &mut Req) {
        if req.flags.contains(ReqFlags::NOWAIT) {
            self.recycle_buffer(req);
            req.fail(Errno::EAGAIN);
            return self.finish(req);
        }
        let def = &OPS[req.opcode() as usize];
        let pollable = def.has(opdef::POLLIN | opdef::POLLOUT)
            && matches!(kind_of(&req.call.file), Kind::Pollable | Kind::Unknown);
        let blocks =
            req.flags & (ReqFlags::ON_WORKER | ReqFlags::FORCE_ASYNC) == ReqFlags::ON_WORKER;
        let poll = pollable && !blocks && req.arms < MAX_ARMS;
        self.take_route(if poll { Way::Poll } else { Way::Worker }, req);
    }

    /// Sends a request where it is to wait.
    pub fn take_route(&mut self, way: Way, req: &mut Req) {
        if way == Way::Poll && req.flags.contains(ReqFlags::NOWAIT) {
            self.recycle_buffer(req);
            req.fail(Errno::EAGAIN);
            return self.finish(req);
        }
        req.flags.remove(ReqFlags::ON_WORKER);
        match way {
            Way::Worker => {
                self.keep_buffer(req);
                self.punt(req);
            }
            Way::Aio => {
                self.keep_buffer(req);
                self.aio_queue(req);
            }
            Way::Poll => {
                self.recycle_buffer(req);
                let def = &OPS[req.opcode() as usize];
                let events = ops::net::poll_events(req, def.poll_events());
                req.wait = Wait::Poll(Poll::new(events));
                req.arms += 1;
                self.arm_poll(req);
            }
        }
    }

    /// Puts a request into the poll set, or sends it where [`Self::cannot_poll`] says.
    pub fn arm_poll(&mut self, req: &mut Req) {
        let Wait::Poll(poll) = req.wait else { return };
        let at = self.number_at_hand(req, poll);
        // A registered file is held as it is.
        let held = at.is_some() && matches!(req.call.file, FileRef::Fixed(_));
        if !held && let Err(e) = req.call.file.hold_for_poll() {
            return self.cannot_poll(req, e);
        }
        req.state = State::Armed;
        let (own, events) = (req.call.file.poll_fd(), events_of(req, poll));
        let id = self.slab.insert(core::mem::take(req));
        let added = self.transports.poll_set().and_then(|set| set.add(at, own, events, id));
        match added {
            Ok(at) => {
                if let Some(req) = self.slab.get_mut(id) {
                    req.wait = Wait::Poll(Poll { at, ..poll });
                }
                self.arm_linked_timeout(id);
            }
            Err(e) => {
                if let Some(mut req) = self.slab.remove(id) {
                    self.cannot_poll(&mut req, e);
                }
            }
        }
    }

    /// The number that a request's file has anyway, if a request that waits once may stand in the
    /// poll set under it.
    fn number_at_hand(&mut self, req: &Req, poll: Poll) -> Option<i32> {
        // Neither a ring's stand-in nor a child's pidfd has the number that the SQE names.
        let named = OPS[req.opcode() as usize].has(opdef::FILE)
            && !req.flags.contains(ReqFlags::POLLS_RING);
        let set = self.transports.poll_set().ok()?;
        let number = match &req.call.file {
            FileRef::Fixed(node) => node.fd(),
            FileRef::Plain(fd) if set.compares => *fd,
            FileRef::Owned(..) if set.compares && named => req.call.sqe.fd,
            _ => return None,
        };
        (poll.events & EPOLLONESHOT != 0 && set.is_free(number)).then_some(number)
    }

    /// A request in the poll set waits again: it has a new name, or other events.
    ///
    /// # Errors
    /// As [`PollSet::modify`](crate::transport::poll::PollSet::modify).
    pub fn poll_again(&mut self, id: ReqId) -> Result<()> {
        let Some(req) = self.slab.get_mut(id) else { return Ok(()) };
        let Wait::Poll(poll) = req.wait else { return Ok(()) };
        let (own, events) = (req.call.file.poll_fd(), events_of(req, poll));
        let at = self.transports.poll_set().and_then(|set| set.modify(poll.at, own, events, id));
        req.wait = Wait::Poll(Poll { at: at.unwrap_or(-1), ..poll });
        at.map(|_| ())
    }

    /// A request stands in the poll set no more. `fired`: an event has disarmed it.
    pub fn poll_leave(&mut self, id: ReqId, fired: bool) {
        if let Some(req) = self.slab.get_mut(id) {
            leave(&mut self.transports, req, fired);
        }
    }

    /// The file cannot be polled (EPERM), or there is no descriptor or memory for it: a worker
    /// waits instead. A POLL_ADD of what cannot be polled is ready.
    fn cannot_poll(&mut self, req: &mut Req, e: Errno) {
        match OPS[req.opcode() as usize].issue {
            Issue::Call(_) if e != Errno::EBADF => {
                req.wait = Wait::None;
                req.call.file.look_again();
                self.punt(req);
            }
            Issue::Ring(_) if e == Errno::EPERM => {
                let res = ops::poll::unpollable(req);
                self.outcome(req, Outcome::Done(res));
            }
            _ => {
                req.fail(e);
                self.finish(req);
            }
        }
    }

    /// Hands a request to a worker; where no worker can be had, runs it here, slower but right. One
    /// that is known to block would hold up the ring: it is cancelled, as io-wq cancels what it has
    /// no thread for. A file that no descriptor could be had for is also worked on here, before its
    /// number can mean another.
    pub fn punt(&mut self, req: &mut Req) {
        let held = req.call.file.hold();
        if let Err(e) = held {
            req.fail(e);
            return self.finish(req);
        }
        req.state = State::Punted;
        let call = core::mem::take(&mut req.call);
        req.call.sqe = call.sqe;
        req.held = call.file.fd();
        let kind = kind_of(&call.file);
        let unbound = kind == Kind::Other || kind == Kind::Pollable;
        let blocks = req.arms > 0 && kind == Kind::Pollable;
        let at_once = matches!(call.file, FileRef::Plain(_)) && !unbound;
        let id = self.slab.insert(core::mem::take(req));
        self.transports.workers += 1;
        let call = Box::new(call);
        let queued = if at_once { Err(call) } else { self.worker_queue(id, call, unbound) };
        if let Err(call) = queued {
            self.transports.workers -= 1;
            let mut call = *call;
            let outcome = if blocks {
                Outcome::Done(Errno::ECANCELED.res())
            } else {
                crate::req::issue::issue_blocking(&mut call)
            };
            self.finished(crate::req::complete::Finished { id, call, outcome });
        }
        // No linked timeout is armed here: the kernel arms none behind a request that it hands to a
        // worker.
    }

    /// An armed request is ready: issue it again.
    pub fn poll_fired(&mut self, id: ReqId, events: u32) {
        let Some(req) = self.slab.get_mut(id) else { return };
        if req.state != State::Armed {
            return;
        }
        if matches!(OPS[req.opcode() as usize].issue, Issue::Ring(_)) {
            return ops::poll::fired(self, id, events);
        }
        if req.flags.contains(ReqFlags::ORPHAN) {
            let child = req.opcode() == IORING_OP_WAITID;
            self.poll_leave(id, true);
            let res = if child { ops::waitid::ORPHANED } else { Errno::ECANCELED.res() };
            return self.complete(id, res);
        }
        req.flags |= ReqFlags::REISSUED;
        let Some(mut req) = self.slab.remove(id) else { return };
        self.async_posted = true;
        let outcome = match self.select_buffer(&mut req) {
            Ok(()) => self.issue(&mut req),
            Err(e) => Outcome::Done(e.res()),
        };
        let more = req.arms < MAX_ARMS;
        match outcome {
            Outcome::Retry if more => {
                self.recycle_buffer(&mut req);
                self.rearm(req);
            }
            outcome => {
                leave(&mut self.transports, &mut req, true);
                self.outcome(&mut req, outcome);
            }
        }
    }

    /// Not ready after all: wait again.
    fn rearm(&mut self, mut req: Req) {
        req.arms += 1;
        // The id changes with the slot's generation, so the poll set learns the new one.
        let id = self.slab.insert(req);
        if let Err(e) = self.poll_again(id) {
            self.complete(id, e.res());
        }
    }
}

/// The events that the poll set is told to wait for.
fn events_of(req: &Req, poll: Poll) -> u32 {
    let asked = req.opcode() == IORING_OP_POLL_ADD;
    if asked { ops::poll::epoll_events(poll.events) } else { poll.events }
}

/// Takes a request out of the poll set. Where an event has disarmed it under a number that is not
/// its own, the registration stays for the next.
fn leave(transports: &mut Transports, req: &mut Req, fired: bool) {
    let Wait::Poll(poll) = &mut req.wait else { return };
    let at = core::mem::replace(&mut poll.at, -1);
    if at < 0 {
        return;
    }
    if fired && !req.call.file.owns(at) {
        transports.poll_leave(at);
    } else {
        transports.poll_del(at);
    }
}
