//! Requests that a kernel worker ends itself, and requests that it leaves to task work. The
//! difference shows in two ways: only a worker signals an eventfd for late completions, and a link
//! runs where the request before it ended. Kernel counterpart: `io_wq_submit_work`,
//! `io_req_complete_post`.

use crate::io::socket::{MSG_DONTWAIT, MSG_WAITALL, check_zero_copy};
use crate::ring::ctx::{Completion, Ctx};
use crate::ring::opdef::{self, Issue, Outcome};
use crate::ring::request::{Phase, Req, ReqFlags, kind_of};
use crate::ring::turn::Drives;
use softring_host::fd::kind::Kind;
use softring_host::fd::probe::is_simple;
use softring_host::sys;
use softring_uapi::errno::Errno;

impl Req {
    /// Returns whether the kernel runs the request on a worker.
    pub(crate) fn is_workers(&self) -> bool {
        self.flags.intersects(ReqFlags::FORCE_ASYNC | ReqFlags::ON_WORKER)
    }

    /// Returns whether the request failed in a kernel worker that returns it to task work, later
    /// than the batch's own task work.
    pub(crate) fn fails_by_task_work(&self) -> bool {
        self.flags.contains(ReqFlags::ENDED)
            && !self.flags.contains(ReqFlags::WITH_CHAIN)
            && self.row.has(opdef::AIO)
            && !self.is_refused_inline()
    }

    /// Returns whether the file refused a write that no worker made. The request ends with the
    /// batch's task work, unless it was cancelled.
    fn is_refused_inline(&self) -> bool {
        let kind = kind_of(&self.call.file);
        self.row.writes()
            && self.res != Errno::ECANCELED.res()
            && !self.is_workers()
            && matches!(kind, Kind::Pollable | Kind::Other)
            && !self.only_blocks(kind)
    }

    /// Returns whether the request is a write to a blocking file without `write_iter`. The kernel
    /// makes no nonblocking attempt at such a write (`loop_rw_iter`).
    fn only_blocks(&self, kind: Kind) -> bool {
        let fd = self.call.file.fd();
        self.row.writes() && is_simple(fd, kind) && sys::blocks(fd)
    }

    /// Returns whether there was an attempt to send. A request returned before its attempt releases
    /// its buffer when it is freed (`io_send_zc_cleanup`).
    pub(crate) fn tried_to_send(&self) -> bool {
        let has_buffer = self.call.buf.is_some() || !self.transfers_fixed();
        self.flags.contains(ReqFlags::ISSUED) && has_buffer && !issue_fails(self, self.res)
    }

    /// Returns whether the kernel would give the request to a device, though a worker does its
    /// transfer here. A request with IOSQE_ASYNC belongs to the worker until the worker begins.
    pub(crate) fn is_with_device(&self) -> bool {
        let flags = self.flags & (ReqFlags::DIRECT | ReqFlags::FORCE_ASYNC);
        flags == ReqFlags::DIRECT
    }

    /// Returns whether the kernel passes the request back to a worker once it is ready
    /// (`io_req_task_submit`). Other requests that wait for its file run before it.
    pub(crate) fn goes_back_to_worker(&self) -> bool {
        let flags = self.flags & (ReqFlags::FORCE_ASYNC | ReqFlags::MULTISHOT);
        let waits_itself = self.row.waiting.is_some();
        flags == ReqFlags::FORCE_ASYNC && matches!(self.row.issue, Issue::Call(_)) && !waits_itself
    }

    /// Returns whether the kernel's worker reaches the request by a chain, without IOSQE_ASYNC.
    pub(crate) fn follows_in_worker(&self) -> bool {
        self.flags.contains(ReqFlags::ON_WORKER) && !self.flags.contains(ReqFlags::FORCE_ASYNC)
    }

    /// Returns whether an attempt wrote only a part to a stream that blocks. A kernel worker that
    /// continues a chain makes only blocking attempts, which wait until all is written.
    pub(crate) fn writes_rest_by_worker(&self, outcome: Outcome) -> bool {
        self.call.short
            && self.follows_in_worker()
            && matches!(outcome, Outcome::Done(1..))
            && self.row.writes()
            && kind_of(&self.call.file) == Kind::Pollable
            && sys::blocks(self.call.file.fd())
    }

    /// Has a send go on until all is sent, if the kernel would make it by a blocking call: on a
    /// worker that continues a chain.
    pub(crate) fn send_all_by_worker(&mut self) {
        let sends = self.flags.contains(ReqFlags::SENDRECV) && self.row.has(opdef::POLLOUT);
        if sends
            && self.follows_in_worker()
            && sys::blocks(self.call.file.fd())
            && let Some(io) = self.call.state.io_mut()
            && io.flags & MSG_DONTWAIT == 0
        {
            io.flags |= MSG_WAITALL;
        }
    }
}

impl Ctx {
    /// Handles ready events before task work goes on with a chained request that searches for
    /// others. Task work of those events was queued earlier, and a worker reaches the request after
    /// it.
    pub(crate) fn events_first(&mut self, req: &Req) {
        // With DEFER_TASKRUN events are task work themselves, and a cancellation runs before them.
        if req.row.has(opdef::SEARCHES) && !self.defers() {
            self.poll_aside();
            self.take_stash();
        }
    }

    /// Records who ends a request with `res`: if a worker ends it, its links run on the worker.
    /// Task work ends multishot requests that a worker armed, and all requests of DEFER_TASKRUN
    /// rings.
    pub(crate) fn ends_by(&mut self, req: &mut Req, res: i32) {
        let posts = !self.defers() && !req.flags.contains(ReqFlags::MULTISHOT);
        let punted = !req.is_workers() && self.completion.worker_ends(req);
        let workers = req.is_workers() || punted;
        if punted && self.defers() && self.completion.eventfd.is_some() {
            self.set_taskrun_by(true);
        }
        let skips = res >= 0 && req.flags.contains(ReqFlags::CQE_SKIP);
        let later = if res < 0 { issue_fails(req, res) } else { stops_short(req) };
        let by_itself = workers && posts && !later && !device_ends(req, res);
        // If the CQ has no room, task work posts; but the worker has tried, and has signalled the
        // eventfd for the CQEs before (`io_req_complete_post`).
        let room = self.mem.cq_has_room(&self.completion.overflow);
        req.flags.set(ReqFlags::ON_WORKER, by_itself && (skips || room));
        if let Some(e) = self.completion.eventfd.as_mut().filter(|_| by_itself) {
            e.worker_posts(skips || !room);
        }
    }
}

/// Returns whether a device did the transfer, so that an interrupt ends the request. An empty
/// transfer ends in the worker. So does a write that the file refused to do without blocking
/// (`ext4_dio_write_iter`).
fn device_ends(req: &Req, res: i32) -> bool {
    let by_device = match req.phase {
        Phase::Aio(_) => true,
        Phase::Modelled => !req.row.writes() && kind_of(&req.call.file) == Kind::Direct,
        _ => !req.row.writes() && req.flags.contains(ReqFlags::DIRECT),
    };
    res > 0 && by_device
}

/// Returns whether the request is a write to a file that has stopped short. The kernel's issue
/// function asks for another attempt (`need_complete_io`), and the worker's task work ends the
/// request with the bytes written.
fn stops_short(req: &Req) -> bool {
    req.call.short && req.row.writes() && kind_of(&req.call.file).is_file()
}

/// Returns whether the kernel's issue function returns this failure, rather than storing it as the
/// result. Task work then ends a worker's request (`io_req_task_queue_fail`).
fn issue_fails(req: &Req, res: i32) -> bool {
    let transfers = req.flags.contains(ReqFlags::SENDRECV);
    let is = |e: Errno| res == e.res();
    // A request that names no file is not issued.
    let never_issued = || is(Errno::EBADF) && req.names_no_file();
    if req.row.has(opdef::AIO | opdef::ISSUE_FAILS) || never_issued() {
        return true;
    }
    if req.row.issue_fails.is_some_and(|f| f(req, res)) {
        return true;
    }
    if is(Errno::EAGAIN) {
        // The request was to wait for readiness, which the worker does not do, or was not to wait.
        let unwaiting = ReqFlags::FORCE_ASYNC | ReqFlags::NOWAIT;
        return req.polls_first() || transfers && req.flags.contains(unwaiting);
    }
    // A protocol may also answer EOPNOTSUPP for the data to send.
    let unfit = || check_zero_copy(req.call.file.fd()).is_err();
    let copies = req.flags.contains(ReqFlags::NOTIF) && is(Errno::EOPNOTSUPP);
    transfers && (copies && unfit() || is(Errno::ENOTSOCK))
}

impl Completion {
    /// Returns whether the kernel's worker ends the request: its file is in memory, or it writes to
    /// a blocking file that has no nonblocking attempt, or on a file system that refuses those to
    /// the page cache. Computed only if a link or an eventfd shows it.
    fn worker_ends(&self, req: &Req) -> bool {
        (req.linked() || self.eventfd.is_some())
            && req.row.has(opdef::AIO)
            && match kind_of(&req.call.file) {
                Kind::Memory => true,
                kind => req.only_blocks(kind) || req.call.written_on.may_wait(),
            }
    }
}
