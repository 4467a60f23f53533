//! Where a request waits: the one place that decides.
//!
//! What cannot block is tried inline; what may block goes to kernel aio or to a worker; what waits
//! for readiness goes to the poll set and is issued again. A cached read never changes threads, and
//! a pollable file never reaches a worker below the cap. Kernel counterpart: `io_queue_async`,
//! `io_arm_poll_handler`, `io_queue_iowq`.

use crate::abi::IORING_OP_POLL_ADD;
use crate::ctx::Ctx;
use crate::errno::Errno;
use crate::opdef::{self, Issue, OPS, Outcome};
use crate::ops;
use crate::req::request::{FileRef, Poll, Req, ReqFlags, State, Wait};
use crate::transport::kind::Kind;

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
        match *file {
            FileRef::Plain(fd) if self.is_direct_in_batch(fd) => Kind::Direct,
            _ => kind_of(file),
        }
    }

    /// Does the program's `fd` stand for an O_DIRECT file?
    pub fn is_direct_in_batch(&mut self, fd: i32) -> bool {
        if self.submit.direct == Some(fd) {
            return true;
        }
        let direct = fd >= 0 && crate::fds::kind(fd) == Kind::Direct;
        if direct {
            self.submit.direct = Some(fd);
        }
        direct
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
                let events = def.poll_events();
                req.wait = Wait::Poll(Poll { events, armed: false });
                req.arms += 1;
                self.arm_poll(req);
            }
        }
    }

    /// Puts a request into the poll set, or sends it where [`Self::cannot_poll`] says.
    pub fn arm_poll(&mut self, req: &mut Req) {
        let held = req.call.file.hold_for_poll();
        if let Err(e) = held {
            return self.cannot_poll(req, e);
        }
        let (Wait::Poll(poll), fd) = (req.wait, req.call.file.poll_fd()) else { return };
        req.state = State::Armed;
        let id = self.slab.insert(core::mem::take(req));
        let ring_op = self.slab.get(id).is_some_and(|r| r.opcode() == IORING_OP_POLL_ADD);
        let events = if ring_op { ops::poll::epoll_events(poll.events) } else { poll.events };
        match self.transports.poll_add(fd, events, id) {
            Ok(()) => {
                if let Some(req) = self.slab.get_mut(id) {
                    req.wait = Wait::Poll(Poll { armed: true, ..poll });
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
    pub fn poll_fired(&mut self, id: crate::req::slab::ReqId, events: u32) {
        let Some(req) = self.slab.get_mut(id) else { return };
        if req.state != State::Armed {
            return;
        }
        if matches!(OPS[req.opcode() as usize].issue, Issue::Ring(_)) {
            return ops::poll::fired(self, id, events);
        }
        if req.flags.contains(ReqFlags::ORPHAN) {
            self.transports.poll_del(req.call.file.poll_fd());
            return self.complete(id, Errno::ECANCELED.res());
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
                self.transports.poll_del(req.call.file.poll_fd());
                self.outcome(&mut req, outcome);
            }
        }
    }

    /// Not ready after all: wait again.
    fn rearm(&mut self, mut req: Req) {
        req.arms += 1;
        let Wait::Poll(poll) = req.wait else { return };
        let fd = req.call.file.poll_fd();
        // The id changes with the slot's generation, so the poll set learns the new one.
        let id = self.slab.insert(req);
        if let Err(e) = self.transports.poll_mod(fd, poll.events, id) {
            self.complete(id, e.res());
        }
    }
}
