//! What a worker of the kernel's ends by itself, and what it leaves to task work. Two things show
//! it: only a worker signals an eventfd for late completions, and what is linked behind a request
//! goes on where that has ended. Kernel counterpart: `io_wq_submit_work`, `io_req_complete_post`.

use crate::io::socket::check_zero_copy;
use crate::ring::ctx::{Completion, Ctx};
use crate::ring::opdef::{self, Issue, Outcome};
use crate::ring::request::{Phase, Req, ReqFlags, kind_of};
use softring_host::fd::kind::Kind;
use softring_host::fd::probe::is_simple;
use softring_host::sys;
use softring_uapi::errno::Errno;

impl Req {
    /// Does the kernel run it on a worker?
    pub(crate) fn is_workers(&self) -> bool {
        self.flags.intersects(ReqFlags::FORCE_ASYNC | ReqFlags::ON_WORKER)
    }

    /// Has it failed in the kernel's worker, which hands it back later than the batch's own task
    /// work?
    pub(crate) fn is_handed_back(&self) -> bool {
        self.flags.contains(ReqFlags::ENDED)
            && !self.flags.contains(ReqFlags::WITH_CHAIN)
            && self.row.has(opdef::AIO)
            && !self.is_refused_inline()
    }

    /// Has its file refused a write that no worker made? It ends with the batch's task work, as one
    /// that is cancelled does not.
    fn is_refused_inline(&self) -> bool {
        let kind = kind_of(&self.call.file);
        self.row.writes()
            && self.res != Errno::ECANCELED.res()
            && !self.is_workers()
            && matches!(kind, Kind::Pollable | Kind::Other)
            && !self.only_blocks(kind)
    }

    /// Is it a write to a file without `write_iter` that blocks? No attempt is made without
    /// (`loop_rw_iter`).
    fn only_blocks(&self, kind: Kind) -> bool {
        let fd = self.call.file.fd();
        self.row.writes() && is_simple(fd, kind) && sys::blocks(fd)
    }

    /// Was there an attempt to send? What is handed back before gives its buffer back when it is
    /// freed (`io_send_zc_cleanup`).
    pub(crate) fn tried_to_send(&self) -> bool {
        let has_buffer = self.call.buf.is_some() || !self.transfers_fixed();
        self.flags.contains(ReqFlags::ISSUED) && has_buffer && !handed_back(self, self.res)
    }

    /// Is it a device's, though a worker stands in for it here? What was to go to a worker is the
    /// worker's until that one begins.
    pub(crate) fn is_with_device(&self) -> bool {
        let flags = self.flags & (ReqFlags::DIRECT | ReqFlags::FORCE_ASYNC);
        flags == ReqFlags::DIRECT
    }

    /// Once it is ready, does the kernel hand it back to a worker (`io_req_task_submit`)? Others
    /// that wait for its file are faster then.
    pub(crate) fn goes_back_to_worker(&self) -> bool {
        let flags = self.flags & (ReqFlags::FORCE_ASYNC | ReqFlags::MULTISHOT);
        let waits_itself = self.row.waiting.is_some();
        flags == ReqFlags::FORCE_ASYNC && matches!(self.row.issue, Issue::Call(_)) && !waits_itself
    }

    /// Does the kernel's worker come to it by a chain? No attempt of its own was asked for.
    pub(crate) fn follows_in_worker(&self) -> bool {
        self.flags.contains(ReqFlags::ON_WORKER) && !self.flags.contains(ReqFlags::FORCE_ASYNC)
    }

    /// Has an attempt written a part to a stream that blocks? The kernel's worker that goes on with
    /// a chain makes no other attempt than one that waits until all is written.
    pub(crate) fn writes_rest_by_worker(&self, outcome: Outcome) -> bool {
        self.call.short
            && self.follows_in_worker()
            && matches!(outcome, Outcome::Done(1..))
            && self.row.writes()
            && kind_of(&self.call.file) == Kind::Pollable
            && sys::blocks(self.call.file.fd())
    }
}

impl Ctx {
    /// Acts on what is ready before task work goes on with a request that searches for others, in a
    /// chain: their own was queued earlier, and a worker gets to it when that is done.
    pub(crate) fn events_first(&mut self, req: &Req) {
        // With DEFER_TASKRUN their own is task work itself, which a cancellation comes before.
        if req.row.has(opdef::SEARCHES) && !self.defers() {
            self.poll_aside();
            self.take_stash();
        }
    }

    /// A request ends with `res`: if in a worker, what is linked behind it goes on there. Task work
    /// ends what armed a worker's poll for many, and all on rings that only their task posts to.
    pub(crate) fn ends_by(&mut self, req: &mut Req, res: i32) {
        let posts = !self.defers() && !req.flags.contains(ReqFlags::MULTISHOT);
        let punted = !req.is_workers() && self.completion.worker_ends(req);
        let workers = req.is_workers() || punted;
        if punted && self.defers() && self.completion.eventfd.is_some() {
            self.set_taskrun_by(true);
        }
        let skips = res >= 0 && req.flags.contains(ReqFlags::CQE_SKIP);
        let later = if res < 0 { handed_back(req, res) } else { stops_short(req) };
        let by_itself = workers && posts && !later && !device_ends(req, res);
        // Where the CQ has no room, task work posts, too; but the worker has tried, and has told
        // the eventfd of what was there (`io_req_complete_post`).
        let room = self.mem.cq_has_room(&self.completion.overflow);
        req.flags.set(ReqFlags::ON_WORKER, by_itself && (skips || room));
        if let Some(e) = self.completion.eventfd.as_mut().filter(|_| by_itself) {
            e.worker_posts(skips || !room);
        }
    }
}

/// Has a device done something for it, whose interrupt ends it? Where there is nothing to do a
/// worker is told at once, and it waits itself for a write that its file has refused to do without
/// (`ext4_dio_write_iter`).
fn device_ends(req: &Req, res: i32) -> bool {
    let by_device = match req.phase {
        Phase::Aio(_) => true,
        Phase::Modelled => !req.row.writes() && kind_of(&req.call.file) == Kind::Direct,
        _ => !req.row.writes() && req.flags.contains(ReqFlags::DIRECT),
    };
    res > 0 && by_device
}

/// Is it a write to a file that has stopped short? The kernel's issue function asks for another
/// attempt (`need_complete_io`), and a worker's task work ends it with what is written.
fn stops_short(req: &Req) -> bool {
    req.call.short && req.row.writes() && kind_of(&req.call.file).is_file()
}

/// Does the kernel's issue function hand this failure back, where others keep theirs as the result?
/// From a worker's hand task work ends the request (`io_req_task_queue_fail`).
fn handed_back(req: &Req, res: i32) -> bool {
    let transfers = req.flags.contains(ReqFlags::SENDRECV);
    let is = |e: Errno| res == e.res();
    // What names no file is not issued.
    let never_issued = || is(Errno::EBADF) && req.names_no_file();
    if req.row.has(opdef::AIO | opdef::HANDS_BACK) || never_issued() {
        return true;
    }
    if req.row.hands_back.is_some_and(|f| f(req, res)) {
        return true;
    }
    if is(Errno::EAGAIN) {
        // It was to wait for readiness, and the worker does not, or it was not to wait.
        let unwaiting = ReqFlags::FORCE_ASYNC | ReqFlags::NOWAIT;
        return req.polls_first() || transfers && req.flags.contains(unwaiting);
    }
    // A protocol may say so as well, of what it is to send.
    let unfit = || check_zero_copy(req.call.file.fd()).is_err();
    let copies = req.flags.contains(ReqFlags::NOTIF) && is(Errno::EOPNOTSUPP);
    transfers && (copies && unfit() || is(Errno::ENOTSOCK))
}

impl Completion {
    /// Is its file in memory, or is it to write to one that blocks and knows no other way? The
    /// kernel's worker does that, since no attempt may be made without one. Asked only where it
    /// shows.
    fn worker_ends(&self, req: &Req) -> bool {
        (req.linked() || self.eventfd.is_some())
            && req.row.has(opdef::AIO)
            && match kind_of(&req.call.file) {
                Kind::Memory => true,
                kind => req.only_blocks(kind),
            }
    }
}
