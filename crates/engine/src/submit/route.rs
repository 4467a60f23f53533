//! Routes: this module alone decides where a request waits.
//!
//! A request that cannot block is tried inline; one that may block goes to kernel aio or to a
//! worker; one that waits for readiness goes to the poll set and is issued again. A cached read
//! never changes threads, and a pollable file never reaches a worker below the cap. Kernel
//! counterpart: `io_queue_async`, `io_arm_poll_handler`, `io_queue_iowq`.

use crate::io::kinds;
use crate::io::socket::{Socket, check_zero_copy, is_socket, is_unix};
use crate::ring::batch::SubmitState;
use crate::ring::ctx::Ctx;
use crate::ring::op_state::CURRENT;
use crate::ring::opdef::{self, Blocked, Issue, Outcome};
use crate::ring::req_box::ReqBox;
use crate::ring::request::{
    FileRef, Finding, OnWorker, OpState, Phase, Poll, Req, ReqFlags, kind_of,
};
use crate::stats::trace::Step;
use crate::submit::arm::awaits_news;
use alloc::boxed::Box;
use softring_host::fd::kind::Kind;
use softring_host::fd::numbers::{closes_all_reported, closes_reported};
use softring_host::limits::MAX_ARMS;
use softring_host::os::fs::FileType;
use softring_host::substitute::{file_type, limits_file_size};
use softring_uapi::IOSQE_ASYNC;
use softring_uapi::errno::Errno;

/// Route of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Aio,
    /// The route to a modelled device.
    Model,
    Worker,
    /// The queue of workers, for a call that cannot block: whoever drives the ring makes it when
    /// the batch is through.
    Iowq,
    Poll,
}

/// Number of batches for which a descriptor is trusted to be O_DIRECT after the kernel has said so.
const DIRECT_TRUSTED: u32 = 64;

impl Ctx {
    /// Returns the route of a request without an inline attempt; `None`: try it now.
    pub(crate) fn first_route(&mut self, req: &mut Req) -> Option<Route> {
        let def = req.row;
        if !matches!(def.issue, Issue::Call(_)) {
            return None;
        }
        if self.runs_elsewhere(req) {
            return Some(Route::Worker);
        }
        if req.goes_on_by_worker() {
            return Some(Route::Poll);
        }
        if req.polls_first() && req.arms == 0 {
            // All but these first check whether the file is a socket.
            let any = def.has(opdef::ANY_FILE) || req.receives_anything();
            let fd = req.call.file.fd();
            let copies = || !req.flags.contains(ReqFlags::NOTIF) || check_zero_copy(fd).is_ok();
            let waits = any || is_socket(fd) && copies();
            let route = if waits && self.drive.worker_finds_ready(req) {
                Route::Worker
            } else {
                Route::Poll
            };
            return waits.then_some(route);
        }
        if req.row.waiting.is_some() {
            // The operation waits by itself, also on a worker.
            return None;
        }
        let forced = req.flags.contains(ReqFlags::FORCE_ASYNC) || req.names_personality();
        // A worker also waits for a request that must not wait.
        let unwaiting = forced && req.flags.contains(ReqFlags::NOWAIT);
        if req.flags.contains(ReqFlags::ON_WORKER | ReqFlags::NOWAIT) && !forced {
            return Some(Route::Worker);
        }
        if def.has(opdef::AIO) {
            if self.submit.modelled(&req.call.file).is_some() {
                return Some(Route::Model);
            }
            if req.call.is_of_stream_socket() {
                req.flags |= ReqFlags::STREAM;
                return None;
            }
            return match self.submit.kind_in_batch(&req.call.file) {
                // A worker of the kernel's takes no SIGXFSZ, which kernel aio would send here.
                Kind::Direct if forced && def.writes() && limits_file_size() => Some(Route::Worker),
                Kind::Direct
                    if !req.names_personality() && !unwaiting && self.aio_is_to_try(req) =>
                {
                    Some(Route::Aio)
                }
                // Without kernel aio.
                Kind::Direct if req.may_not_wait() && !forced => None,
                Kind::Direct => Some(Route::Worker),
                Kind::Pollable => {
                    record_stream(req);
                    None
                }
                // A worker makes one attempt, after which the file's own position stays.
                kind => {
                    if kind == Kind::Buffered {
                        self.find_file_system(req);
                    }
                    (forced || (req.follows_in_worker() && req.call.sqe().off == CURRENT))
                        .then_some(Route::Worker)
                }
            };
        }
        let pollable = def.has(opdef::POLLIN | opdef::POLLOUT);
        req.flags.set(ReqFlags::STREAM, pollable);
        // A CLOSE that waited behind a barrier also runs inline.
        let closes = def.has(opdef::CLOSES) && req.call.sqe().flags & IOSQE_ASYNC == 0;
        if def.never_blocks.is_some_and(|f| !req.names_personality() && f(req)) {
            return (!req.flags.contains(ReqFlags::ON_WORKER)).then_some(Route::Iowq);
        }
        (def.has(opdef::ASYNC) || (forced && !pollable && !closes)).then_some(Route::Worker)
    }

    /// Routes a request whose attempt would block. `punts`: it would although its file is ready.
    pub(crate) fn queue_async(&mut self, mut req: ReqBox, punts: bool) {
        if req.may_not_wait() {
            return self.not_now(req);
        }
        let def = req.row;
        // Only a socket returns this for a send or a receive, or finds nothing for a read.
        let pollable = def.has(opdef::POLLIN | opdef::POLLOUT)
            && (req.flags.contains(ReqFlags::SENDRECV)
                || req.call.found_nothing()
                || matches!(kind_of(&req.call.file), Kind::Pollable | Kind::Unknown));
        let blocks = req.follows_in_worker() && req.row.waiting.is_none();
        let blocked = req.row.would_block.map_or(Blocked::Waits, |f| f(&req));
        if let Blocked::Fails(e) = blocked {
            // Bytes that were transferred before count.
            let done = req.call.io().done;
            (req.call.cflags, req.call.short) = (0, done > 0);
            let res = if done > 0 { done as i32 } else { e.res() };
            return self.outcome(req, Outcome::Done(res));
        }
        let capped = req.arms >= MAX_ARMS && !awaits_news(&req);
        self.stats.reissue.capped.add(u64::from(pollable && !blocks && capped));
        if pollable && capped && req.flags.contains(ReqFlags::MULTISHOT) {
            // The kernel's worker would only arm it.
            return self.outcome(req, Outcome::Later(Errno::ECANCELED.res()));
        }
        let punts = punts || blocked == Blocked::Punts;
        let poll = pollable && !blocks && !capped && !punts;
        self.take_route(if poll { Route::Poll } else { Route::Worker }, req);
    }

    /// Fails a request that must not wait.
    fn not_now(&mut self, mut req: ReqBox) {
        req.call.cflags = 0;
        self.outcome(req, Outcome::Done(Errno::EAGAIN.res()));
    }

    /// Sends a request along a route to where it waits.
    pub(crate) fn take_route(&mut self, route: Route, mut req: ReqBox) {
        if route == Route::Poll && req.may_not_wait() {
            if req.names_no_file() {
                return self.outcome(req, Outcome::Done(Errno::EBADF.res()));
            }
            return self.not_now(req);
        }
        self.record_creds_of_links(&req);
        let blocks = req.follows_in_worker();
        if route == Route::Poll && blocks && req.polls_first() && !req.goes_on_by_worker() {
            // The kernel's worker does not poll for it, unless it is a multishot request.
            let e = if req.names_no_file() { Errno::EBADF } else { Errno::EAGAIN };
            return self.outcome(req, Outcome::Done(e.res()));
        }
        match route {
            Route::Worker => {
                self.resources.keep_buffer(&mut req);
                self.punt(req);
            }
            Route::Iowq => {
                let id = self.reqs.slab.insert(req);
                self.queue_iowq(id);
            }
            Route::Aio => {
                self.resources.keep_buffer(&mut req);
                self.aio_queue(req);
            }
            Route::Model => {
                self.resources.keep_buffer(&mut req);
                self.model_queue(req);
            }
            Route::Poll => {
                self.resources.recycle_buffer(&mut req);
                self.stats.routes.poll.add(u64::from(req.arms == 0));
                let def = req.row;
                let events = req.poll_events();
                req.arms = req.arms.saturating_add(1);
                if let OpState::Net(net) = &mut req.call.state {
                    net.polled = true;
                }
                if def.has(opdef::CREDS) && passes_creds(&req) {
                    self.record_creds_ahead(&mut req);
                }
                self.arm_poll(req, Poll::new(events));
            }
        }
    }

    /// Passes a request to a worker; without a free worker runs it here, slower but right. A
    /// request that is known to block would hold up the ring: it is cancelled, as io-wq cancels a
    /// request without a thread. A file without a free descriptor for a duplicate is also handled
    /// here, before its number can mean another.
    pub(crate) fn punt(&mut self, req: ReqBox) {
        self.punt_for(req, None);
    }

    /// Punts a request that a modelled device completes at `due`; see [`Self::punt`].
    pub(crate) fn punt_for(&mut self, mut req: ReqBox, due: Option<u64>) {
        self.stats.routes.worker.add(u64::from(req.arms == 0));
        if let Err(e) = req.call.file.hold() {
            // For a worker, task work ends a request without a file, and its links go on there.
            req.flags.remove(ReqFlags::ON_WORKER);
            req.fail(e);
            return self.finish(req);
        }
        let other = kind_of(&req.call.file) == Kind::Other;
        if other || !self.writes_alike(&req) {
            self.record_creds(&mut req, other);
        }
        self.trace(Step::Punt, &req);
        let call = req.call.detach();
        req.phase = Phase::Worker(OnWorker { fd: call.file.fd(), due });
        let kind = kind_of(&call.file);
        // If kernel aio is missing, or refuses the request, a worker does the device's transfer.
        // ON_WORKER stays, as with kernel aio and modelled devices: it says at the end who asked.
        let device = kind == Kind::Direct && req.row.has(opdef::AIO);
        req.flags.set(ReqFlags::DIRECT, device);
        if !device {
            req.flags.remove(ReqFlags::ON_WORKER);
        }
        let unbound = kind == Kind::Other || kind == Kind::Pollable;
        let blocks = req.arms > 0 && kind == Kind::Pollable;
        let at_once = matches!(call.file, FileRef::Plain(_)) && !unbound;
        let id = self.reqs.slab.insert(req);
        self.drive.transports.workers += 1;
        let call = Box::new(call);
        let queued = if at_once { Err(call) } else { self.worker_queue(id, call, unbound) };
        if let Err(call) = queued {
            self.drive.transports.workers -= 1;
            let mut call = *call;
            let outcome = if blocks {
                Outcome::Done(Errno::ECANCELED.res())
            } else {
                self.unlocked(|| crate::submit::issue::issue_blocking(&mut call))
            };
            self.finished(crate::ring::job::Finished { id, call, outcome });
        }
        // No linked timeout is armed here: the kernel arms none behind a request that it passes to
        // a worker.
    }
}

/// Records that a request's file can be polled, and finds out which socket its number means, if
/// that can be remembered. Only a socket is asked for options.
fn record_stream(req: &mut Req) {
    req.flags |= ReqFlags::STREAM;
    req.call.found = Finding::Stream;
    let FileRef::Plain(fd) = req.call.file else { return };
    if !closes_reported() || Socket::remembered(fd).is_some() {
        return;
    }
    match file_type(fd) {
        Some(FileType::Socket) => Socket::learn(fd),
        None => {}
        Some(_) => Socket::Other.remember(fd),
    }
}

/// Returns whether a request on a socket that waits at first asks for its submitter's rights when
/// it is tried again. A unix socket looks its peer up by name, or tells it who sends.
fn passes_creds(req: &Req) -> bool {
    req.row.passes_creds.map_or_else(|| is_unix(req.call.file.fd()), |f| f(req))
}

impl SubmitState {
    /// Returns whether `fd` counts as O_DIRECT, as when the kernel was last asked. The program's
    /// F_SETFL is reported. If another process has cleared the flag, the request is attempted as if
    /// the flag were set, and goes to a worker if it would block.
    fn trusts_direct(&mut self, fd: i32) -> bool {
        if !kinds::was_direct(fd) || !closes_all_reported() {
            return false;
        }
        self.direct_trusted = (self.direct_trusted + 1) % DIRECT_TRUSTED;
        self.direct_trusted != 0
    }
}

impl SubmitState {
    /// Returns the kind of a file, as [`kind_of`] does. For an O_DIRECT number the kernel is asked
    /// only once in [`DIRECT_TRUSTED`] batches, or in each batch if closes may go unreported.
    fn kind_in_batch(&mut self, file: &FileRef) -> Kind {
        let FileRef::Plain(fd) = *file else { return kind_of(file) };
        if self.direct == Some(fd) || self.trusts_direct(fd) {
            self.direct = Some(fd);
            return Kind::Direct;
        }
        let kind = kind_of(file);
        if kind == Kind::Direct {
            self.direct = Some(fd);
        }
        kind
    }

    /// Returns whether the program's `fd` is known to be O_DIRECT. An unknown number becomes known
    /// when its first request takes the slow path, so that a stream's reads ask nothing here.
    pub(crate) fn is_direct_in_batch(&mut self, fd: i32) -> bool {
        if self.direct != Some(fd) {
            if !self.trusts_direct(fd) && !kinds::known_direct(fd) {
                return false;
            }
            self.direct = Some(fd);
        }
        true
    }
}
