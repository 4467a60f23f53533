//! **The op table**: one row per opcode. Probe, restrictions, statistics labels, `docs/SUPPORT.md`
//! and the coverage test all derive from it. To add an op: write its `prep` and `issue` in its
//! family's file under `ops/`, and set its row here. Kernel counterpart: `io_uring/opdef.c`.

use crate::ctx::Ctx;
use crate::ops;
use crate::req::request::{Call, Req};
use crate::sys::nr::{EPOLLONESHOT, EPOLLPRI, EPOLLRDHUP};
use crate::transport::standing;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

/// What one attempt at a request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Finished; the value is the CQE's `res` (negative: `-errno`).
    Done(i32),
    /// One result of a multishot request, which goes on.
    More(i32),
    /// It would block: [`req::route`](crate::req::route) chooses where it waits.
    Retry,
    /// Finished with that value, but its CQE comes with the next task work.
    Later(i32),
    /// Its owner (timeout queue, poll set) keeps it and completes it later; `Req::wait` says how.
    Queued,
}

/// May an attempt block?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Try {
    /// On the submitter: never block, answer [`Outcome::Retry`] instead.
    Nonblock,
    /// On a worker: block as long as it takes.
    Block,
}

/// How an opcode runs.
#[derive(Clone, Copy)]
pub enum Issue {
    /// Under the ring's lock, with the ring's state; never blocks.
    Ring(fn(&mut Ctx, &mut Req) -> Outcome),
    /// System calls only, on any thread.
    Call(fn(&mut Call, Try) -> Outcome),
}

/// How much of an opcode is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// As the kernel's.
    Full,
    /// As the kernel's but for what the note says.
    Partial(&'static str),
    /// Answers this, as a kernel without it does, and the probe says so.
    Refused(Errno),
}

/// One row.
#[derive(Clone, Copy)]
pub struct OpDef {
    pub name: &'static str,
    /// The kernel that brought it.
    pub since: &'static str,
    pub bits: u32,
    pub prep: fn(&mut Ctx, &mut Req) -> Result<()>,
    pub issue: Issue,
    /// The bit of `ioprio` that sends a request to the poll set before its first attempt.
    pub poll_first: u16,
    /// The fast lane: the CQE's `res` for an SQE without flags (but FIXED_FILE) that ends at once;
    /// `None` sends it the long way, as if nothing had been tried.
    pub fast: Option<fn(&mut Ctx, &io_uring_sqe) -> Option<i32>>,
    /// Under the lock after a `Call`: installs descriptors, selects results.
    pub finish: Option<fn(&mut Ctx, &mut Req)>,
    pub support: Support,
}

/// `fd` names a file that must be open.
pub(crate) const FILE: u32 = 1 << 0;
/// Waits for input.
pub(crate) const POLLIN: u32 = 1 << 1;
/// Waits for output.
pub(crate) const POLLOUT: u32 = 1 << 2;
/// `ioprio` is looked at by prep (else it must be 0).
pub(crate) const IOPRIO: u32 = 1 << 3;
/// Allowed on IOPOLL rings.
pub(crate) const IOPOLL: u32 = 1 << 4;
/// IOSQE_BUFFER_SELECT is legal.
pub(crate) const BUFSEL: u32 = 1 << 5;
/// May block whatever the file: a worker runs it, never the submitter.
pub(crate) const ASYNC: u32 = 1 << 6;
/// Writes of one file are serialised on workers.
pub(crate) const HASH: u32 = 1 << 7;
/// Runs in the unbounded account when its file is not a regular one.
pub(crate) const UNBOUND: u32 = 1 << 8;
/// Eligible for kernel aio.
pub(crate) const AIO: u32 = 1 << 9;
/// A second file is looked up with the first.
pub(crate) const FILE_IN: u32 = 1 << 10;
/// When the call itself fails, a chain goes on, and a skipped CQE stays skipped: the kernel's issue
/// functions of these do not mark the request as failed.
pub(crate) const LENIENT: u32 = 1 << 11;
/// Its result counts bytes: read with [`POLLIN`], written with [`POLLOUT`].
pub(crate) const BYTES: u32 = 1 << 12;
/// The call asks for the rights of who makes it: it names a file, changes one (whose set-user-id
/// bit goes if the writer may not keep it), or a socket passes them on.
pub(crate) const CREDS: u32 = 1 << 13;

impl OpDef {
    pub const fn has(&self, bit: u32) -> bool {
        self.bits & bit != 0
    }

    pub const fn supported(&self) -> bool {
        !matches!(self.support, Support::Refused(_))
    }
}

impl core::fmt::Debug for OpDef {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("OpDef")
            .field("name", &self.name)
            .field("support", &self.support)
            .finish_non_exhaustive()
    }
}

impl Default for &OpDef {
    /// The row of a request that has no SQE.
    fn default() -> Self {
        static NONE: OpDef = no(IORING_OP_NOP, "");
        &NONE
    }
}

/// A row: opcode, kernel, bits, prep, issue.
const fn op(
    code: u8,
    since: &'static str,
    bits: u32,
    prep: fn(&mut Ctx, &mut Req) -> Result<()>,
    issue: Issue,
) -> OpDef {
    OpDef {
        name: OP_NAMES[code as usize],
        since,
        bits,
        prep,
        issue,
        poll_first: 0,
        fast: None,
        finish: None,
        support: Support::Full,
    }
}

/// A row whose `Call` is followed by a step under the lock.
const fn then(mut row: OpDef, finish: fn(&mut Ctx, &mut Req)) -> OpDef {
    row.finish = Some(finish);
    row
}

/// A row whose `ioprio` may say to wait for readiness first.
const fn waits(mut row: OpDef, bit: u16) -> OpDef {
    row.poll_first = bit;
    row
}

/// A row with a fast lane.
const fn quick(mut row: OpDef, fast: fn(&mut Ctx, &io_uring_sqe) -> Option<i32>) -> OpDef {
    row.fast = Some(fast);
    row
}

/// A row that is not all there.
const fn but(mut row: OpDef, note: &'static str) -> OpDef {
    row.support = Support::Partial(note);
    row
}

/// A row that is not there (yet): prep answers EINVAL.
const fn no(code: u8, since: &'static str) -> OpDef {
    let mut row = op(code, since, 0, ops::refuse, Ring(ops::refused));
    row.support = Support::Refused(Errno::EINVAL);
    row
}

use Issue::{Call as Sys, Ring};
use ops::openclose::{close_finish, open, open_finish};

/// Rows that work on names, on a worker.
const NAMES: u32 = ASYNC | LENIENT | CREDS;
/// Rows that work on an open file, on a worker.
const FILE_ASYNC: u32 = FILE | ASYNC | LENIENT;
/// Rows that change an open file, on a worker, one at a time.
const FILE_HASH: u32 = FILE | ASYNC | HASH | LENIENT | CREDS;
/// Rows that move bytes between files, on a worker.
const SPLICE: u32 = FILE | FILE_IN | ASYNC | HASH | UNBOUND | CREDS;

/// Rows that send and receive.
const NET: u32 = FILE | IOPRIO | UNBOUND | BYTES;
const SEND: u32 = NET | POLLOUT | CREDS;
/// Support rows that read and write.
const RW: u32 = FILE | IOPRIO | IOPOLL | AIO | UNBOUND | BYTES;
const WRITE: u32 = RW | POLLOUT | HASH | CREDS;

/// The table, in opcode order.
pub static OPS: [OpDef; IORING_OP_LAST as usize] = [
    quick(op(IORING_OP_NOP, "5.1", IOPOLL, ops::nop::prep, Ring(ops::nop::issue)), ops::nop::fast),
    op(IORING_OP_READV, "5.1", RW | POLLIN | BUFSEL, ops::rw::prep, Sys(ops::rw::issue)),
    op(IORING_OP_WRITEV, "5.1", WRITE, ops::rw::prep, Sys(ops::rw::issue)),
    op(IORING_OP_FSYNC, "5.1", FILE_ASYNC, ops::sync::fsync_prep, Sys(ops::sync::fsync)),
    quick(
        op(IORING_OP_READ_FIXED, "5.1", RW | POLLIN, ops::rw::prep, Sys(ops::rw::issue)),
        ops::rw_hot::fast,
    ),
    op(IORING_OP_WRITE_FIXED, "5.1", WRITE, ops::rw::prep, Sys(ops::rw::issue)),
    op(IORING_OP_POLL_ADD, "5.1", FILE, ops::poll::add_prep, Ring(ops::poll::add)),
    op(IORING_OP_POLL_REMOVE, "5.1", 0, ops::poll::remove_prep, Ring(ops::poll::remove)),
    op(IORING_OP_SYNC_FILE_RANGE, "5.1", FILE_ASYNC, ops::sync::range_prep, Sys(ops::sync::range)),
    waits(
        op(IORING_OP_SENDMSG, "5.3", SEND, ops::net_msg::send_prep, Sys(ops::net_msg::send)),
        IORING_RECVSEND_POLL_FIRST,
    ),
    waits(
        op(
            IORING_OP_RECVMSG,
            "5.3",
            NET | POLLIN | BUFSEL,
            ops::net_msg::recv_prep,
            Sys(ops::net_msg::recv),
        ),
        IORING_RECVSEND_POLL_FIRST,
    ),
    op(IORING_OP_TIMEOUT, "5.4", 0, ops::timeout::prep, Ring(ops::timeout::issue)),
    op(IORING_OP_TIMEOUT_REMOVE, "5.5", 0, ops::timeout::remove_prep, Ring(ops::timeout::remove)),
    then(
        waits(
            op(
                IORING_OP_ACCEPT,
                "5.5",
                FILE | IOPRIO | POLLIN | UNBOUND,
                ops::connect::accept_prep,
                Sys(ops::connect::accept),
            ),
            IORING_ACCEPT_POLL_FIRST,
        ),
        ops::connect::accept_finish,
    ),
    op(IORING_OP_ASYNC_CANCEL, "5.5", 0, ops::cancel::prep, Ring(ops::cancel::issue)),
    op(IORING_OP_LINK_TIMEOUT, "5.5", 0, ops::timeout::link_prep, Ring(ops::refused)),
    op(
        IORING_OP_CONNECT,
        "5.5",
        FILE | POLLOUT | UNBOUND | CREDS,
        ops::connect::connect_prep,
        Sys(ops::connect::connect),
    ),
    op(IORING_OP_FALLOCATE, "5.6", FILE_HASH, ops::sync::fallocate_prep, Sys(ops::sync::fallocate)),
    then(op(IORING_OP_OPENAT, "5.6", CREDS, ops::openclose::openat_prep, Sys(open)), open_finish),
    then(
        op(IORING_OP_CLOSE, "5.6", 0, ops::openclose::close_prep, Sys(ops::openclose::close)),
        close_finish,
    ),
    op(
        IORING_OP_FILES_UPDATE,
        "5.6",
        IOPOLL,
        ops::files_update::prep,
        Ring(ops::files_update::issue),
    ),
    op(IORING_OP_STATX, "5.6", NAMES, ops::statx::prep, Sys(ops::statx::issue)),
    quick(
        op(IORING_OP_READ, "5.6", RW | POLLIN | BUFSEL, ops::rw::prep, Sys(ops::rw::issue)),
        ops::rw_hot::fast,
    ),
    op(IORING_OP_WRITE, "5.6", WRITE, ops::rw::prep, Sys(ops::rw::issue)),
    op(IORING_OP_FADVISE, "5.6", FILE, ops::advise::fadvise_prep, Sys(ops::advise::fadvise)),
    op(IORING_OP_MADVISE, "5.6", NAMES, ops::advise::madvise_prep, Sys(ops::advise::madvise)),
    waits(
        op(IORING_OP_SEND, "5.6", SEND | BUFSEL, ops::net::send_prep, Sys(ops::net::send)),
        IORING_RECVSEND_POLL_FIRST,
    ),
    waits(
        op(IORING_OP_RECV, "5.6", NET | POLLIN | BUFSEL, ops::net::recv_prep, Sys(ops::net::recv)),
        IORING_RECVSEND_POLL_FIRST,
    ),
    then(op(IORING_OP_OPENAT2, "5.6", CREDS, ops::openclose::openat2_prep, Sys(open)), open_finish),
    op(IORING_OP_EPOLL_CTL, "5.6", 0, ops::epoll::ctl_prep, Ring(ops::epoll::ctl)),
    op(IORING_OP_SPLICE, "5.7", SPLICE, ops::splice::prep, Sys(ops::splice::issue)),
    op(
        IORING_OP_PROVIDE_BUFFERS,
        "5.7",
        IOPOLL,
        ops::provide::provide_prep,
        Ring(ops::provide::provide),
    ),
    op(
        IORING_OP_REMOVE_BUFFERS,
        "5.7",
        IOPOLL,
        ops::provide::remove_prep,
        Ring(ops::provide::remove),
    ),
    op(IORING_OP_TEE, "5.8", SPLICE, ops::splice::tee_prep, Sys(ops::splice::tee)),
    op(
        IORING_OP_SHUTDOWN,
        "5.11",
        FILE_ASYNC,
        ops::socket::shutdown_prep,
        Sys(ops::socket::shutdown),
    ),
    op(IORING_OP_RENAMEAT, "5.11", NAMES, ops::fs::rename_prep, Sys(ops::fs::rename)),
    op(IORING_OP_UNLINKAT, "5.11", NAMES, ops::fs::unlink_prep, Sys(ops::fs::unlink)),
    op(IORING_OP_MKDIRAT, "5.15", NAMES, ops::fs::mkdir_prep, Sys(ops::fs::mkdir)),
    op(IORING_OP_SYMLINKAT, "5.15", NAMES, ops::fs::symlink_prep, Sys(ops::fs::symlink)),
    op(IORING_OP_LINKAT, "5.15", NAMES, ops::fs::link_prep, Sys(ops::fs::link)),
    op(IORING_OP_MSG_RING, "5.18", FILE | IOPOLL, ops::msg_ring::prep, Ring(ops::msg_ring::issue)),
    op(
        IORING_OP_FSETXATTR,
        "5.19",
        FILE_ASYNC | CREDS,
        ops::xattr::fset_prep,
        Sys(ops::xattr::fset),
    ),
    op(IORING_OP_SETXATTR, "5.19", NAMES, ops::xattr::set_prep, Sys(ops::xattr::set)),
    op(
        IORING_OP_FGETXATTR,
        "5.19",
        FILE_ASYNC | CREDS,
        ops::xattr::fget_prep,
        Sys(ops::xattr::fget),
    ),
    op(IORING_OP_GETXATTR, "5.19", NAMES, ops::xattr::get_prep, Sys(ops::xattr::get)),
    then(
        op(IORING_OP_SOCKET, "5.19", CREDS, ops::socket::socket_prep, Sys(ops::socket::socket)),
        open_finish,
    ),
    but(
        then(
            op(
                IORING_OP_URING_CMD,
                "5.19",
                FILE | IOPOLL | BUFSEL | CREDS,
                ops::uring_cmd::prep,
                Sys(ops::uring_cmd::issue),
            ),
            ops::nvme::finish,
        ),
        "sockets and NVMe",
    ),
    waits(
        op(IORING_OP_SEND_ZC, "6.0", SEND, ops::net_zc::prep, Sys(ops::net_zc::send)),
        IORING_RECVSEND_POLL_FIRST,
    ),
    waits(
        op(IORING_OP_SENDMSG_ZC, "6.1", SEND, ops::net_zc::prep, Sys(ops::net_zc::send)),
        IORING_RECVSEND_POLL_FIRST,
    ),
    op(
        IORING_OP_READ_MULTISHOT,
        "6.7",
        FILE | POLLIN | BUFSEL | BYTES,
        ops::rw_select::multishot_prep,
        Sys(ops::rw_select::multishot),
    ),
    op(IORING_OP_WAITID, "6.7", POLLIN, ops::waitid::prep, Sys(ops::waitid::issue)),
    op(IORING_OP_FUTEX_WAIT, "6.7", 0, ops::futex::prep, Ring(ops::futex::wait)),
    op(IORING_OP_FUTEX_WAKE, "6.7", 0, ops::futex::prep, Ring(ops::futex::wake)),
    op(IORING_OP_FUTEX_WAITV, "6.7", 0, ops::futex::waitv_prep, Ring(ops::futex::waitv)),
    op(
        IORING_OP_FIXED_FD_INSTALL,
        "6.8",
        FILE,
        ops::openclose::install_prep,
        Sys(ops::openclose::install),
    ),
    op(IORING_OP_FTRUNCATE, "6.9", FILE_HASH, ops::truncate::prep, Sys(ops::truncate::issue)),
    op(IORING_OP_BIND, "6.11", FILE | CREDS, ops::socket::bind_prep, Sys(ops::socket::bind)),
    op(IORING_OP_LISTEN, "6.11", FILE | CREDS, ops::socket::listen_prep, Sys(ops::socket::listen)),
    no(IORING_OP_RECV_ZC, "6.15"),
    op(
        IORING_OP_EPOLL_WAIT,
        "6.15",
        FILE | POLLIN | UNBOUND,
        ops::epoll::wait_prep,
        Sys(ops::epoll::wait),
    ),
    op(IORING_OP_READV_FIXED, "6.15", RW | POLLIN, ops::rw::prep, Sys(ops::rw::issue)),
    op(IORING_OP_WRITEV_FIXED, "6.15", WRITE, ops::rw::prep, Sys(ops::rw::issue)),
    op(IORING_OP_PIPE, "6.16", 0, ops::openclose::pipe_prep, Ring(ops::openclose::pipe)),
    op(IORING_OP_NOP128, "6.19", IOPOLL, ops::nop::prep, Ring(ops::nop::issue)),
    but(
        then(
            op(
                IORING_OP_URING_CMD128,
                "6.19",
                FILE | IOPOLL | BUFSEL | CREDS,
                ops::uring_cmd::prep,
                Sys(ops::uring_cmd::issue),
            ),
            ops::nvme::finish,
        ),
        "sockets and NVMe",
    ),
];

impl OpDef {
    /// The epoll events that a retry waits for, one-shot.
    pub const fn poll_events(&self) -> u32 {
        // What can be read when the peer has ended its direction is what wakes who receives.
        let dir = if self.has(POLLIN) { standing::IN } else { standing::OUT | EPOLLRDHUP };
        dir | EPOLLPRI | EPOLLONESHOT
    }
}
