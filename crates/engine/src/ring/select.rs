//! IOSQE_BUFFER_SELECT: a request picks its buffer when it is tried, recycles it if it has to wait
//! for readiness, and names it in its CQE. Kernel counterpart: `io_buffer_select`, `io_put_kbuf`,
//! `io_kbuf_recycle`.

use crate::io::socket::{MSG_ERRQUEUE, MSG_OOB, POLLRDHUP, check_zero_copy, is_socket};
use crate::resources::kbuf::Pick;
use crate::ring::ctx::{Ctx, Driving, Resources};
use crate::ring::opdef;
use crate::ring::request::{Call, FileRef, Req, ReqFlags, Selection, Transfer, kind_of};
use softring_host::calls::UserPtr;
use softring_host::fd::kind::Kind;
use softring_host::fd::probe::tries;
use softring_host::sys;
use softring_host::sys::nr::EPOLLIN;
use softring_host::user::in_user;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::version::{Change, has};
use softring_uapi::*;

impl Ctx {
    /// Picks a buffer before an attempt, unless the request has one.
    ///
    /// # Errors
    /// `ENOBUFS`, `ENOENT`, `EFAULT`; `ENOTSOCK` if there is neither a buffer nor a socket.
    #[inline]
    pub(crate) fn select_buffer(&mut self, req: &mut Req) -> Result<()> {
        if !req.selects_in_vain() {
            return Ok(());
        }
        self.pick_buffer(req).map_err(|e| before_none(req, e))
    }

    #[inline(never)]
    fn pick_buffer(&mut self, req: &mut Req) -> Result<()> {
        // A request that is polled first checks for a socket only now, before it has a buffer.
        let transfers = req.flags.contains(ReqFlags::SENDRECV);
        if transfers && req.polls_first() && !is_socket(req.call.file.fd()) {
            return Err(Errno::ENOTSOCK);
        }
        // A worker's attempt runs without the ring's lock; an armed request goes back to its
        // worker.
        let forced = ReqFlags::FORCE_ASYNC | ReqFlags::MULTISHOT;
        let in_worker = req.is_with_worker() || req.flags & forced == ReqFlags::FORCE_ASYNC;
        if req.selects_many() {
            return self.resources.select_many(req, in_worker);
        }
        // A file that cannot be polled is read at once.
        let file = &req.call.file;
        let polled =
            kind_of(file) == Kind::Pollable || softring_host::fd::numbers::is_ring(file.fd());
        let at_once = in_worker || (req.reads_once() && !polled);
        if at_once && req.names_no_file() {
            // A buffer that is committed at once cannot be recycled.
            return Err(Errno::EBADF);
        }
        let call = &mut req.call;
        let mut pick = self.resources.groups.select(call.io().select.group)?;
        call.aim_at(pick.buf.addr, pick.buf.len);
        if at_once {
            self.resources.groups.commit(call.io().select.group, &mut pick, call.io().len);
        }
        call.set_pick(Some(pick));
        if !pick.buf.addr.is_null() {
            let reads = req.row.bits & (opdef::READS_ONCE | opdef::READS_MANY) != 0;
            // A RECV's own call reports a bad address itself.
            let bad = reads && in_user(call.io().addr.addr(), u64::from(call.io().len)).is_err();
            return if bad { Err(self.bad_buffer(req)) } else { Ok(()) };
        }
        if req.row.has(opdef::MESSAGE) {
            // The CQE names the buffer; a buffer of a ring stays there.
            call.set_pick(None);
            call.cflags |= pick.cqe_flags();
        }
        Err(Errno::ENOBUFS)
    }

    /// Returns EFAULT for a read whose buffer address is invalid, before its file is checked. The
    /// buffer is consumed if the file cannot be polled; some devices only seem pollable.
    #[cold]
    fn bad_buffer(&mut self, req: &mut Req) -> Errno {
        self.use_up(req);
        Errno::EFAULT
    }

    /// Consumes the buffer of a read that cannot wait for readiness, whatever the read's result.
    #[cold]
    fn use_up(&mut self, req: &mut Req) {
        if req.reads_once() && !self.drive.can_poll(&req.call.file) {
            self.resources.keep_buffer(req);
        }
    }

    /// Returns whether the kernel's worker gives up on a bundle to send: the worker only arms it,
    /// and fails if it could go at once. Once armed and woken, it goes back to a worker if it
    /// started with one.
    pub(crate) fn worker_gives_up(&self, req: &Req) -> bool {
        let forced = ReqFlags::MULTISHOT | ReqFlags::FORCE_ASYNC;
        req.row.has(opdef::SELECT_MANY) && req.flags.contains(forced) && may_send(req)
    }

    /// Names the buffer in the CQE of a request with its result, if the buffer was used.
    #[inline]
    pub(crate) fn put_buffer(&mut self, req: &mut Req, res: i32) {
        if req.flags.contains(ReqFlags::BUFFER_SELECT) {
            self.put_selected(req, res);
        }
    }

    fn put_selected(&mut self, req: &mut Req, res: i32) {
        if res <= 0 && req.call.io().select.pick.is_some_and(|pick| pick.in_ring) {
            self.use_up(req);
        }
        let Some(pick) = req.call.io().select.pick else { return };
        // The end of a stream uses no buffer; the end of a file does, and a READ that fails has
        // lost its buffer from a list. A SEND always uses its buffer.
        let used = res > 0
            || (pick.in_ring && pick.committed)
            || req.row.has(opdef::SELECT_MANY)
            || (req.reads_once() && (res == 0 || !pick.in_ring));
        if used && res == Errno::EBADF.res() && req.names_no_file() {
            // The kernel looks the file up before it picks a buffer.
            req.call.set_pick(None);
            return self.resources.groups.recycle(req.call.io().select.group, pick);
        }
        if !used {
            return self.resources.recycle_selected(req);
        }
        let group = req.call.io().select.group;
        req.call.set_pick(None);
        let flags = self.resources.groups.put(group, pick, res.unsigned_abs());
        // A buffer that a worker has consumed at once is not reported (`io_read_mshot`), except by
        // a cancellation.
        let reported = res > 0 || res == Errno::ECANCELED.res();
        if reported || !req.row.has(opdef::READS_MANY) {
            req.call.cflags |= flags;
        }
        if pick.count > 1 {
            self.resources.groups.drop_second(group, pick);
        }
    }
}

impl Req {
    /// Returns the epoll events that a retry waits for. A reader of the error queue does not wait
    /// for POLLIN; normal data (POLLRDNORM) still wakes it in vain.
    pub(crate) fn poll_events(&self) -> u32 {
        let events = self.row.poll_events();
        if self.asks_for(MSG_ERRQUEUE) { events & !EPOLLIN } else { events }
    }

    /// Returns whether a receive asks for less than the poll set reports.
    pub(crate) fn asks_for_less(&self) -> bool {
        self.asks_for(MSG_ERRQUEUE | MSG_OOB)
    }

    /// Returns whether the request sends or receives with one of these flags.
    fn asks_for(&self, flags: u32) -> bool {
        self.flags.contains(ReqFlags::SENDRECV) && self.call.sqe().op_flags & flags != 0
    }

    /// Returns whether the request is to pick a buffer and has none.
    #[inline]
    pub(crate) fn selects_in_vain(&self) -> bool {
        self.flags.contains(ReqFlags::BUFFER_SELECT) && self.call.io().select.pick.is_none()
    }

    /// Returns whether the request picks its buffers as a bundle does.
    fn selects_many(&self) -> bool {
        let bundle = self.call.sqe().ioprio & IORING_RECVSEND_BUNDLE != 0;
        self.flags.contains(ReqFlags::SENDRECV) && (self.row.has(opdef::SELECT_MANY) || bundle)
    }

    /// Returns whether the request is a RECV that is polled first on any file. Since 7.2 the kernel
    /// checks for a socket before.
    pub(crate) fn receives_anything(&self) -> bool {
        self.receives_plainly() && self.polls_first() && !has(Change::CheckedFields)
    }

    /// Returns whether the request looks its socket up before its registered buffer. SENDMSG_ZC did
    /// not, once (`io_sendmsg_zc`).
    fn has_socket_first(&self) -> bool {
        let imports_first = self.row.has(opdef::BUFFER_FIRST) && !has(Change::CheckedFields);
        self.transfers_fixed() && !imports_first
    }

    /// Returns whether the request is polled before it looks its registered buffer up.
    pub(crate) fn waits_for_buffer(&self) -> bool {
        self.polls_first() && self.arms == 0 && self.has_socket_first()
    }

    /// Returns whether the request receives into the buffer that its SQE names, or picks.
    pub(crate) fn receives_plainly(&self) -> bool {
        self.row.bits & (opdef::RECEIVES | opdef::MESSAGE) == opdef::RECEIVES
    }

    fn reads_once(&self) -> bool {
        self.row.has(opdef::READS_ONCE)
    }

    /// Returns whether the number names no file, or only a path.
    pub(crate) fn names_no_file(&self) -> bool {
        matches!(self.call.file, FileRef::Plain(fd) if softring_host::fd::is_path_only(fd))
    }

    /// Returns whether the request fails instead of waiting. A request that waits already, or is
    /// armed by a worker, waits on; but an ACCEPT told not to wait fails when it finds nothing
    /// (`io_accept`).
    pub(crate) fn may_not_wait(&self) -> bool {
        let now = self.call.found_nothing() && self.call.sqe().ioprio & self.row.dont_wait != 0;
        let waits = self.flags.contains(ReqFlags::REISSUED) || self.goes_on_by_worker();
        self.flags.contains(ReqFlags::NOWAIT) && (now || !waits)
    }

    /// Returns whether the kernel would make the first attempt on a worker.
    fn is_with_worker(&self) -> bool {
        self.is_workers() && !self.flags.contains(ReqFlags::REISSUED)
    }

    /// Returns whether the kernel would first pass this multishot request to a worker.
    pub(crate) fn goes_on_by_worker(&self) -> bool {
        self.flags.contains(ReqFlags::MULTISHOT) && self.is_with_worker()
    }
}

/// Returns whether a send would go at once. A peer that has shut down its direction also wakes a
/// sender.
fn may_send(req: &Req) -> bool {
    sys::poll_now(req.call.file.fd(), sys::POLLOUT | POLLRDHUP) != 0
}

/// Returns the error `e`, or `EBADF` if `fd` names no open file.
fn open_or(fd: i32, e: Errno) -> Result<()> {
    Err(if softring_host::fd::is_path_only(fd) { Errno::EBADF } else { e })
}

/// Returns ENOTSOCK instead of `e` if the file is no socket: the kernel checks for the socket
/// before it picks a buffer. A request that was polled first does so only now; if it has a buffer,
/// its system call returns the same error.
#[cold]
fn before_none(req: &Req, e: Errno) -> Errno {
    let transfers = req.flags.contains(ReqFlags::SENDRECV);
    if transfers && !is_socket(req.call.file.fd()) { Errno::ENOTSOCK } else { e }
}

impl Call {
    /// Aims at the buffer picked: all of it, but no more than was asked for, and no more than the
    /// buffer of an attempt that found nothing (`io_buffer_select` gets that buffer's length).
    pub(crate) fn aim_at(&mut self, addr: UserPtr, len: u32) {
        let most = |most: u32| if most == 0 { u32::MAX } else { most };
        if let Some(io) = self.state.io_mut() {
            io.addr = addr;
            io.len = len.min(most(io.select.want)).min(most(io.select.most));
        }
    }

    /// Returns the buffer picked, if there is one.
    pub(crate) fn pick_mut(&mut self) -> Option<&mut Pick> {
        self.state.io_mut()?.select.pick.as_mut()
    }

    pub(crate) fn set_pick(&mut self, pick: Option<Pick>) {
        if let Some(io) = self.state.io_mut() {
            io.select.pick = pick;
        }
    }

    /// Limits the next attempt to a buffer of that length; 0: no limit.
    pub(crate) fn set_most(&mut self, most: u32) {
        if let Some(io) = self.state.io_mut() {
            io.select.most = most;
        }
    }
}

impl Driving {
    /// Returns whether the file can be polled. A device may look like a stream and not be one.
    fn can_poll(&mut self, file: &FileRef) -> bool {
        const ALWAYS: i16 = 0x001 | 0x004 | 0x040 | 0x100;
        let fd = file.fd();
        if softring_host::fd::numbers::is_ring(fd) {
            return true;
        }
        if kind_of(file) != Kind::Pollable {
            return false;
        }
        sys::poll_now(fd, ALWAYS) != ALWAYS
            || self.transports.poll_set().map_or(true, |set| set.takes(fd))
    }
}

impl Resources {
    fn recycle_selected(&mut self, req: &mut Req) {
        if req.flags.contains(ReqFlags::SENDRECV) && req.call.io().done > 0 {
            let Some(Transfer { select, done, .. }) = req.call.state.io_mut() else { return };
            if let Some(pick) = select.pick.as_mut().filter(|pick| !pick.committed) {
                // The CQE does not say whether the buffer has room left.
                self.groups.commit(select.group, pick, *done as u32);
                pick.more = false;
            }
            return;
        }
        let keeps = req.row.bits & (opdef::READS_ONCE | opdef::SELECT_MANY) != 0;
        // A READ_MULTISHOT forgets the length, and a RECVMSG keeps it apart.
        let clamps = (req.reads_once() || req.receives_plainly()) && !req.selects_many();
        let Some(Transfer { select, len, .. }) = req.call.state.io_mut() else { return };
        if let Some(pick) = select.pick.filter(|pick| clamps && pick.count <= 1) {
            select.most = pick.buf.len.min(*len);
        }
        let free = |pick: &mut Pick| if pick.in_ring { !pick.committed } else { !keeps };
        if let Some(pick) = select.pick.take_if(free) {
            self.groups.recycle(select.group, pick);
        }
    }

    /// Commits the buffer of a request that leaves the ring's lock: the request owns it from here
    /// on.
    pub(crate) fn keep_buffer(&mut self, req: &mut Req) {
        if let Some(Transfer { select: Selection { group, pick: Some(pick), .. }, len, .. }) =
            req.call.state.io_mut()
        {
            self.groups.commit(*group, pick, *len);
        }
    }
}

impl Driving {
    /// Returns whether the file can be polled but supports no nonblocking attempt. The kernel's
    /// worker then makes a blocking one, and a multishot request ends with it.
    fn waits_once(&mut self, file: &FileRef) -> bool {
        let fd = file.fd();
        self.can_poll(file)
            && (softring_host::fd::numbers::is_ring(fd) || !is_socket(fd) && !tries(fd))
    }

    /// Returns whether the kernel's worker, which polls first, would find the file ready. It then
    /// makes a blocking attempt and does not poll any more.
    pub(crate) fn worker_finds_ready(&mut self, req: &Req) -> bool {
        let waits = ReqFlags::FORCE_ASYNC | ReqFlags::NOWAIT;
        let events = req.poll_events();
        req.flags & waits == ReqFlags::FORCE_ASYNC
            && self.can_poll(&req.call.file)
            && sys::poll_now(req.call.file.fd(), (events as u16).cast_signed()) != 0
    }
}

impl Resources {
    /// Recycles the buffer of a request that has to wait for readiness: another request may use it
    /// meanwhile. (A READ and a SEND keep a buffer from a list, as in the kernel.)
    #[inline]
    pub(crate) fn recycle_buffer(&mut self, req: &mut Req) {
        if req.flags.contains(ReqFlags::BUFFER_SELECT) {
            self.recycle_selected(req);
        }
    }
}

impl Driving {
    /// Refuses a request before a buffer is picked or looked up.
    ///
    /// # Errors
    /// `ENOTSOCK`, `EBADFD`, `ECANCELED`; `EAGAIN` for a request that is polled first and must not
    /// wait.
    pub(crate) fn before_buffers(&mut self, req: &mut Req) -> Result<()> {
        if req.goes_on_by_worker() && self.waits_once(&req.call.file) {
            req.flags.remove(ReqFlags::MULTISHOT);
        }
        let req = &*req;
        let file = &req.call.file;
        if req.receives_anything() {
            return Ok(());
        }
        let sends_fixed = req.has_socket_first();
        let buffers = req.flags.contains(ReqFlags::BUFFER_SELECT) || sends_fixed;
        let transfers = req.flags.contains(ReqFlags::SENDRECV);
        let many = req.goes_on_by_worker();
        if transfers && buffers && !is_socket(file.fd()) && !many {
            return open_or(file.fd(), Errno::ENOTSOCK);
        }
        if sends_fixed {
            if req.row.has(opdef::ZERO_COPY) {
                check_zero_copy(file.fd())?;
            }
            let waits = !req.flags.contains(ReqFlags::NOWAIT) && !req.follows_in_worker();
            if req.polls_first() && !waits {
                return Err(Errno::EAGAIN);
            }
        }
        let reads_many = req.row.has(opdef::READS_MANY);
        if (reads_many || many) && !self.can_poll(file) {
            return open_or(file.fd(), Errno::EBADFD);
        }
        if many && req.row.has(opdef::SELECT_MANY) && may_send(req) {
            return Err(Errno::ECANCELED);
        }
        Ok(())
    }
}
