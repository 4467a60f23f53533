//! One request, from the fetched SQE to its CQE.
//!
//! A request has one place ([`ReqBox`](super::req_box::ReqBox)) from its SQE to its end. The
//! submitter holds it during the inline attempt, which is all that most requests need; the ring's
//! [`Slab`](super::slab::Slab) holds it when it has to wait (armed, punted, linked, drained).
//! Kernel counterpart: `struct io_kiocb` in `include/linux/io_uring_types.h`.

use alloc::sync::Arc;
use core::mem::ManuallyDrop;

use crate::io::socket::Socket;
use crate::io::token::ReqId;
use crate::memory::sqe::Sqe;
use crate::resources::buffers::BufNode;
use crate::ring::op_state::CURRENT;
use crate::ring::opdef::{self, OpDef};
use softring_host::creds::Creds;
use softring_host::fd::file_systems::WrittenOn;
use softring_uapi::IORING_RECVSEND_FIXED_BUF;
use softring_uapi::errno::Errno;
use softring_uapi::flag_set;
use softring_uapi::{IOSQE_ASYNC, IOSQE_CQE_SKIP_SUCCESS, IOSQE_IO_DRAIN};

pub(crate) use super::file_ref::{FileRef, is_send, kind_of};
pub(crate) use super::op_state::{
    Attribute, Command, Connect, Net, OpState, Rw, Selection, Transfer,
};
pub(crate) use super::phase::{OnWorker, Phase, Poll, Timer, TimerArgs};

flag_set! {
    /// State flags of a request. The low seven bits are the SQE's own flags.
    pub(crate) struct ReqFlags: u32 {
        const FIXED_FILE = 1 << 0;
        const IO_DRAIN = 1 << 1;
        const LINK = 1 << 2;
        const HARDLINK = 1 << 3;
        const FORCE_ASYNC = 1 << 4;
        const BUFFER_SELECT = 1 << 5;
        const CQE_SKIP = 1 << 6;
        /// Flag, set once the result is a failure: a soft link after it is cancelled.
        const FAIL = 1 << 8;
        /// Flag, set once a request with CQE_SKIP failed: the CQEs of its cancelled links are
        /// skipped too.
        const SKIP_LINK_CQES = 1 << 9;
        /// Flag, set if the next request in the chain is a LINK_TIMEOUT, to arm once this one is
        /// issued and waits.
        const ARM_LTIMEOUT = 1 << 10;
        /// Flag, set while the linked timeout is armed.
        const LINK_TIMEOUT = 1 << 11;
        /// Flag, set for a CQE of 32 bytes: `big` is valid.
        const CQE32 = 1 << 12;
        /// Flag, set if the request never waits: it fails with EAGAIN (RWF_NOWAIT).
        const NOWAIT = 1 << 13;
        /// Flag, set if the request posts CQEs with F_MORE until it ends.
        const MULTISHOT = 1 << 14;
        /// Flag, set if the issue is a repetition after readiness.
        const REISSUED = 1 << 15;
        /// Flag, set once the request has its result: task work posts it.
        const ENDED = 1 << 16;
        /// Flag, set for a POLL_ADD on a ring: the file is that ring's stand-in.
        const POLLS_RING = 1 << 17;
        /// Flag, set if the kernel would run it on a worker, where it blocks instead of waiting for
        /// readiness.
        const ON_WORKER = 1 << 18;
        /// Flag, set once the request was issued, or passed on to be: its file was found.
        const ISSUED = 1 << 19;
        /// Flag, set once the thread that submitted it has ended.
        const ORPHAN = 1 << 20;
        /// Flag, set for SEND, RECV and the like: bytes transferred before a failure count.
        const SENDRECV = 1 << 21;
        /// Flag, set if a notification follows its CQE.
        const NOTIF = 1 << 22;
        /// Flag, set if the request ended with its chain, before it was tried.
        const WITH_CHAIN = 1 << 23;
        /// Flag, set if its file can be polled.
        const STREAM = 1 << 24;
        /// Flag, set if a worker does a device's transfer, past the page cache: it cannot be
        /// cancelled.
        const DIRECT = 1 << 25;
        /// Flag, set once `creds` are the credentials it runs under: its submitter's, or a
        /// restriction of them.
        const CREDS_RECORDED = 1 << 26;
        /// Flag, set if the request waited behind a barrier: it runs under its `creds` also on its
        /// submitter's thread.
        const CREDS_SAVED = 1 << 27;
        /// Flag, set if faults may be injected: `fault` is the request's entry.
        const FAULTED = 1 << 28;
        /// Bits that `flags` of the SQE may set.
        const SQE = 0x7f;
        const LINKS = Self::LINK.bits() | Self::HARDLINK.bits();
    }
}

const _: () = assert!(ReqFlags::IO_DRAIN.bits() == IOSQE_IO_DRAIN as u32);
const _: () = assert!(ReqFlags::FORCE_ASYNC.bits() == IOSQE_ASYNC as u32);
const _: () = assert!(ReqFlags::CQE_SKIP.bits() == IOSQE_CQE_SKIP_SUCCESS as u32);

/// Finding of the last attempt about the available data, or of the router about the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Finding {
    #[default]
    Unknown,
    /// No data: EAGAIN, or poll(2) said so.
    Nothing,
    /// All data that was there, of a stream that goes on.
    TookAll,
    /// A failure, though earlier attempts have transferred something.
    Failed,
    /// A stream: the attempt that follows need not ask again.
    Stream,
}

/// The part of a request that its system call needs; a worker takes it and returns it.
#[derive(Debug, Default)]
pub(crate) struct Call {
    /// The SQE, copied once and never written.
    sqe: Sqe,
    pub(crate) file: FileRef,
    pub(crate) state: OpState,
    /// The registered buffer of the request.
    pub(crate) buf: Option<Arc<BufNode>>,
    /// The effective opcode: the SQE's, except for a vector into one provided buffer.
    pub(crate) opcode: u8,
    /// Flags for the CQE.
    pub(crate) cflags: u32,
    /// Flag, true if the result is short of the requested length: a link after it breaks though
    /// `res` is no error. Every operation has it, as `req->flags` has REQ_F_FAIL; it is not one of
    /// [`ReqFlags`], because the attempt that sets it may run on a worker.
    pub(crate) short: bool,
    pub(crate) found: Finding,
    /// The file system of a buffered write (`ops::rw_quick`).
    pub(crate) written_on: WrittenOn,
    /// Credentials to act under: the submitter's, if another thread may run it (see
    /// `ring::caller`), or those that the SQE names.
    pub(crate) creds: Option<Arc<Creds>>,
}

impl Call {
    pub(crate) fn new(sqe: Sqe) -> Self {
        Call { sqe, opcode: sqe.opcode, ..Call::default() }
    }

    /// Returns the SQE, as the program wrote it.
    pub(crate) const fn sqe(&self) -> &Sqe {
        &self.sqe
    }

    /// Sets the state that prep has made. There is no state yet, so nothing need be dropped.
    #[inline]
    pub(crate) fn begin(&mut self, state: OpState) {
        debug_assert!(matches!(self.state, OpState::None), "prep is called once");
        let _nothing = ManuallyDrop::new(core::mem::replace(&mut self.state, state));
    }

    /// Returns the transfer and its progress.
    #[inline]
    pub(crate) const fn io(&self) -> &Transfer {
        self.state.io()
    }

    /// Adds `n` bytes to the progress; returns the new total.
    #[inline]
    pub(crate) const fn add_done(&mut self, n: u64) -> u64 {
        let Some(io) = self.state.io_mut() else { return 0 };
        io.done += n;
        io.done
    }

    /// Sets the number of bytes transferred.
    #[inline]
    pub(crate) const fn set_done(&mut self, done: u64) {
        if let Some(io) = self.state.io_mut() {
            io.done = done;
        }
    }

    /// Sets the number of bytes to transfer to or from the one buffer.
    pub(crate) const fn set_len(&mut self, len: u32) {
        if let Some(io) = self.state.io_mut() {
            io.len = len;
        }
    }

    /// Sets `RWF_*` or `MSG_*`.
    pub(crate) const fn set_flags(&mut self, flags: u32) {
        if let Some(io) = self.state.io_mut() {
            io.flags = flags;
        }
    }

    /// Stores the events of the poll set for the socket of a send or receive.
    pub(crate) const fn set_seen(&mut self, seen: u32) {
        if let OpState::Net(net) = &mut self.state {
            net.seen = seen;
        }
    }

    /// Returns the number of bytes that a read or write asks for, cut as the kernel cuts
    /// (`MAX_RW_COUNT`).
    pub(crate) fn total(&self) -> u64 {
        const MAX_RW_COUNT: u64 = 0x7fff_f000;
        let sum = match &self.state {
            OpState::Rw(Rw { vector: Some(vector), .. }) => vector.iter().map(|v| v.len).sum(),
            OpState::Rw(Rw { io, .. }) => u64::from(io.len),
            _ => 0,
        };
        sum.min(MAX_RW_COUNT)
    }

    /// Returns whether the call reads or writes a number of the program's that is remembered as a
    /// stream socket, and asks for nothing but bytes: other positions are refused.
    pub(crate) fn is_of_stream_socket(&self) -> bool {
        let (FileRef::Plain(fd), OpState::Rw(Rw { io, .. })) = (&self.file, &self.state) else {
            return false;
        };
        let plain = io.flags == 0 && io.done == 0 && (io.off == 0 || io.off == CURRENT);
        plain
            && matches!(Socket::remembered(*fd), Some(Socket::Tcp | Socket::UnixStream))
            && self.total() > 0
    }

    /// Returns whether the last attempt found nothing.
    pub(crate) fn found_nothing(&self) -> bool {
        self.found == Finding::Nothing
    }

    /// Returns whether the result is the last of a multishot request.
    pub(crate) fn is_last(&self) -> bool {
        matches!(&self.state, OpState::Net(net) if net.msg.as_ref().is_some_and(|msg| msg.last))
    }

    /// Returns, and clears, whether others run before the next result of a multishot receive.
    pub(crate) fn takes_turn_over(&mut self) -> bool {
        let OpState::Net(Net { msg: Some(msg), .. }) = &mut self.state else { return false };
        core::mem::take(&mut msg.turn_over)
    }

    /// Takes out the part for a worker; the nodes of registered files stay.
    pub(crate) fn detach(&mut self) -> Call {
        let mut detached = core::mem::take(self);
        (self.sqe, self.opcode) = (detached.sqe, detached.opcode);
        let file = detached.file.detach();
        self.file = core::mem::replace(&mut detached.file, file);
        if let OpState::Source(file) = &mut detached.state {
            let second = file.detach();
            self.state = OpState::Source(core::mem::replace(file, second));
        }
        detached
    }

    /// Returns whether it may leave the uring lock: it owns no nodes of registered files, the only
    /// parts that are not [`Send`].
    pub(crate) fn may_leave(&self) -> bool {
        let Call { sqe, file, state, buf, opcode, cflags, short, found, written_on, creds } = self;
        let others = is_send(sqe) && is_send(buf) && is_send(opcode) && is_send(cflags);
        let others = others && is_send(short) && is_send(found);
        let others = others && is_send(written_on) && is_send(creds);
        others && file.may_leave() && state.may_leave()
    }

    /// Takes back the part that a worker has finished with, or never got.
    pub(crate) fn take_back(&mut self, detached: Call) {
        let stayed = core::mem::replace(self, detached);
        self.file.restore(stayed.file);
        let (state, stayed) = (&mut self.state, stayed.state);
        if let (OpState::Source(file), OpState::Source(second)) = (state, stayed) {
            file.restore(second);
        }
    }
}

// Eleven requests fit into a page.
const _: () = assert!(size_of::<Req>() <= 360);

/// A request.
#[derive(Debug, Default)]
pub(crate) struct Req {
    pub(crate) call: Call,
    /// The table's row for its opcode.
    pub(crate) row: &'static OpDef,
    /// The request's id in the table, once it has waited.
    pub(crate) id: Option<ReqId>,
    /// The `user_data` of its CQEs, by which others search for the request; an update may change
    /// it.
    pub(crate) user_data: u64,
    pub(crate) flags: ReqFlags,
    pub(crate) phase: Phase,
    /// Result for the CQE.
    pub(crate) res: i32,
    /// Upper half of a 32-byte CQE.
    pub(crate) big: [u64; 2],
    /// The next request of its chain.
    pub(crate) link: Option<ReqId>,
    /// The submitting task, once the request waits: see [`crate::ring::task`].
    pub(crate) task: u32,
    /// The request's number in the trace; 0: it is not traced.
    pub(crate) trace: u32,
    /// Time at which it was found to wait, in ns of CLOCK_MONOTONIC; 0: not yet.
    pub(crate) start: u64,
    /// Number of poll arms so far (a cap sends the request to a worker).
    pub(crate) arms: u8,
    /// The request's entry among the faults of its ring (`io::faults`).
    pub(crate) fault: u32,
}

impl Req {
    pub(crate) fn new(sqe: Sqe, row: &'static OpDef) -> Self {
        let flags = ReqFlags::from_bits_retain(u32::from(sqe.flags));
        let user_data = sqe.user_data;
        Req { call: Call::new(sqe), row, user_data, flags, ..Req::default() }
    }

    /// Receives the SQE that `fetch` copies; [`Self::reset`] makes it a request.
    #[inline(always)]
    pub(crate) fn fetch(&mut self, fetch: impl FnOnce(&mut Sqe) -> bool) -> bool {
        fetch(&mut self.call.sqe)
    }

    /// Makes an ended request ([`Self::drop_resources`]) fresh for the SQE now in its place, field
    /// by field: most fields were never touched.
    #[inline]
    pub(crate) fn reset(&mut self) {
        let call = &mut self.call;
        (call.opcode, self.user_data) = (call.sqe.opcode, call.sqe.user_data);
        (call.cflags, call.short, call.found) = (0, false, Finding::Unknown);
        call.written_on = WrittenOn::default();
        self.flags = ReqFlags::from_bits_retain(u32::from(call.sqe.flags));
        (self.res, self.big, self.link, self.arms) = (0, [0; 2], None, 0);
        (self.task, self.trace, self.start) = (0, 0, 0);
    }

    /// Releases the resources of an ended request.
    #[inline(always)]
    pub(crate) fn drop_resources(&mut self) {
        let call = &mut self.call;
        call.state.clear();
        call.file.clear();
        // Checked first: dropping an empty option costs calls.
        if call.buf.is_some() || call.creds.is_some() {
            (call.buf, call.creds) = (None, None);
        }
        if !matches!(self.phase, Phase::Prepped) {
            self.phase = Phase::Prepped;
        }
    }

    /// Marks the request failed, as `req_set_fail` does.
    pub(crate) fn set_fail(&mut self) {
        self.flags |= ReqFlags::FAIL;
        if self.flags.contains(ReqFlags::CQE_SKIP) {
            self.flags.remove(ReqFlags::CQE_SKIP);
            self.flags |= ReqFlags::SKIP_LINK_CQES;
        }
    }

    /// Sets a failure as result.
    pub(crate) fn fail(&mut self, e: Errno) {
        self.set_fail();
        self.res = e.res();
        self.call.cflags = 0;
    }

    pub(crate) fn opcode(&self) -> u8 {
        self.call.opcode
    }

    /// Returns whether the request is a file-specific command.
    pub(crate) fn is_command(&self) -> bool {
        self.row.has(opdef::COMMANDS)
    }

    /// Returns whether the request sends from, or receives into, a registered buffer.
    pub(crate) fn transfers_fixed(&self) -> bool {
        self.row.has(opdef::FIXED_BY_FLAG) && self.call.sqe.ioprio & IORING_RECVSEND_FIXED_BUF != 0
    }

    /// Returns whether the request waits for readiness before its first attempt.
    pub(crate) fn polls_first(&self) -> bool {
        self.call.sqe.ioprio & self.row.poll_first != 0
    }

    /// Returns whether the SQE asks for credentials other than the submitter's.
    pub(crate) fn names_personality(&self) -> bool {
        self.call.sqe.personality != 0 && self.call.creds.is_some()
    }

    pub(crate) fn linked(&self) -> bool {
        self.flags.intersects(ReqFlags::LINKS)
    }
}
