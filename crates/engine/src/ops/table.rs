//! **The op table**: one row per opcode. Probe, restrictions, statistics labels, `docs/SUPPORT.md`
//! and the coverage test all derive from it. To add an op: write its `prep` and `issue` in its
//! family's file beside this one, and set its row here. Kernel counterpart: `io_uring/opdef.c`.

use super::openclose::{close_finish, open, open_finish};
use super::rw_select::{multishot, multishot_prep};
use super::{
    advise, cancel, connect, epoll, files_update, fs, futex, msg_ring, net, net_msg, net_zc, nop,
    nvme, openclose, poll, provide, rw, rw_cached, socket, splice, statx, sync, timeout, truncate,
    tx_timestamp, uring_cmd, waitid, xattr,
};
use crate::ring::opdef::Issue::{Call as Sys, Ring};
use crate::ring::opdef::{
    AIO, ANY_FILE, ASYNC, BUFFER_FIRST, BUFSEL, BYTES, CALL_FAILS, CLOSES, COMMANDS, COUNTED,
    CREDS, DOUBLE, EXCLUSIVE, FILE, FIXED, FIXED_BY_FLAG, HASH, IOPOLL, IOPRIO, ISSUE_FAILS,
    LENIENT, MESSAGE, NO_FD, OpDef, POLLIN, POLLOUT, POLLS, READS_MANY, READS_ONCE, RECEIVES,
    SEARCHES, SELECT_MANY, STRUCTURE, UNBOUND, ZERO_COPY, no, op, refused,
};
use crate::ring::request::Req;
use softring_uapi::errno::Errno;
use softring_uapi::*;

/// Rows that work on names, on a worker.
const NAMES: u64 = ASYNC | LENIENT | CREDS;
/// Rows that work on an open file, on a worker.
const FILE_ASYNC: u64 = FILE | ASYNC | LENIENT;
/// Rows that change an open file, on a worker, one at a time.
const FILE_HASH: u64 = FILE | ASYNC | HASH | LENIENT | CREDS;
/// Rows that move bytes between files, on a worker.
const SPLICE: u64 = FILE | ASYNC | HASH | UNBOUND | CREDS;

/// Rows that send and receive.
const NET: u64 = FILE | IOPRIO | UNBOUND | BYTES;
const SEND: u64 = NET | POLLOUT | CREDS;
const RECV: u64 = NET | POLLIN | BUFSEL | RECEIVES;
const SEND_MANY: u64 = SEND | BUFSEL | SELECT_MANY | FIXED_BY_FLAG;
const SEND_ZC: u64 = SEND | ZERO_COPY | FIXED_BY_FLAG;
const SENDMSG_ZC: u64 = SEND_ZC | MESSAGE | BUFFER_FIRST;
/// Rows that make connections.
const ACCEPT: u64 = FILE | IOPRIO | POLLIN | UNBOUND | EXCLUSIVE | ANY_FILE;
const CONNECT: u64 = FILE | POLLOUT | UNBOUND | CREDS;
/// Rows that read and write.
const RW: u64 = FILE | IOPRIO | IOPOLL | AIO | UNBOUND | BYTES;
const WRITE: u64 = RW | POLLOUT | HASH | CREDS;
const READ_MANY: u64 = FILE | POLLIN | BUFSEL | BYTES | ISSUE_FAILS | READS_MANY;
/// Rows for commands of a file's own.
const COMMAND: u64 = FILE | IOPOLL | BUFSEL | CREDS | COMMANDS;

/// The bit of `ioprio` by which sends and receives wait for readiness first.
const POLL_FIRST: u16 = IORING_RECVSEND_POLL_FIRST;

/// The table, in opcode order.
#[rustfmt::skip]
pub static OPS: [OpDef; IORING_OP_LAST as usize] = [
    op(IORING_OP_NOP, "5.1", NO_FD | IOPOLL, nop::prep, Ring(nop::issue)).fast(nop::fast),
    op(IORING_OP_READV, "5.1", RW | POLLIN | BUFSEL, rw::prep, Sys(rw::issue))
        .fast(rw_cached::fast_vector)
        .ring_error(rw::refused_by_ring),
    op(IORING_OP_WRITEV, "5.1", WRITE, rw::prep, Sys(rw::issue))
        .ring_error(rw::refused_by_ring),
    op(IORING_OP_FSYNC, "5.1", FILE_ASYNC, sync::fsync_prep, Sys(sync::fsync))
        .ring_error(|_| Errno::EINVAL),
    op(IORING_OP_READ_FIXED, "5.1", RW | FIXED | POLLIN, rw::prep, Sys(rw::issue))
        .fast(rw_cached::fast)
        .ring_error(rw::refused_by_ring),
    op(IORING_OP_WRITE_FIXED, "5.1", WRITE | FIXED, rw::prep, Sys(rw::issue))
        .ring_error(rw::refused_by_ring),
    op(IORING_OP_POLL_ADD, "5.1", FILE | ISSUE_FAILS | POLLS, poll::add_prep, Ring(poll::add))
        .fired(poll::fired).unpollable(poll::unpollable),
    op(IORING_OP_POLL_REMOVE, "5.1", NO_FD | ISSUE_FAILS | SEARCHES, poll::remove_prep,
        Ring(poll::remove)),
    op(IORING_OP_SYNC_FILE_RANGE, "5.1", FILE_ASYNC, sync::range_prep, Sys(sync::range))
        .ring_error(|_| Errno::ESPIPE),
    op(IORING_OP_SENDMSG, "5.3", SEND | MESSAGE, net_msg::send_prep, Sys(net_msg::send))
        .poll_first(POLL_FIRST).fail(net::failed)
        .would_block(net_msg::would_block),
    op(IORING_OP_RECVMSG, "5.3", RECV | MESSAGE, net_msg::recv_prep, Sys(net_msg::recv))
        .poll_first(POLL_FIRST).fail(net::failed).issue_fails(net_msg::recv_issue_fails)
        .would_block(net_msg::would_block),
    op(IORING_OP_TIMEOUT, "5.4", NO_FD, timeout::prep, Ring(timeout::issue)),
    op(IORING_OP_TIMEOUT_REMOVE, "5.5", NO_FD, timeout::remove_prep, Ring(timeout::remove)),
    op(IORING_OP_ACCEPT, "5.5", ACCEPT, connect::accept_prep, Sys(connect::accept))
        .poll_first(IORING_ACCEPT_POLL_FIRST).dont_wait(IORING_ACCEPT_DONTWAIT)
        .finish(connect::accept_finish).issue_fails(socket::needs_number),
    op(IORING_OP_ASYNC_CANCEL, "5.5", SEARCHES, cancel::prep, Ring(cancel::issue)),
    op(IORING_OP_LINK_TIMEOUT, "5.5", NO_FD, timeout::link_prep, Ring(refused)),
    op(IORING_OP_CONNECT, "5.5", CONNECT, connect::connect_prep, Sys(connect::connect))
        .filtered(24, connect::filtered)
        .would_block(connect::would_block).passes_creds(connect::passes_creds),
    op(IORING_OP_FALLOCATE, "5.6", FILE_HASH, sync::fallocate_prep, Sys(sync::fallocate))
        .ring_error(|_| Errno::ENODEV),
    op(IORING_OP_OPENAT, "5.6", CREDS, openclose::openat_prep, Sys(open)).finish(open_finish)
        .filtered(24, openclose::filtered),
    op(IORING_OP_CLOSE, "5.6", CLOSES, openclose::close_prep, Sys(openclose::close))
        .finish(close_finish),
    op(IORING_OP_FILES_UPDATE, "5.6", NO_FD | IOPOLL, files_update::prep,
        Ring(files_update::issue)),
    op(IORING_OP_STATX, "5.6", NAMES, statx::prep, Sys(statx::issue))
        .never_blocks(statx::never_blocks),
    op(IORING_OP_READ, "5.6", RW | POLLIN | BUFSEL | READS_ONCE, rw::prep, Sys(rw::issue))
        .fast(rw_cached::fast)
        .ring_error(rw::refused_by_ring),
    op(IORING_OP_WRITE, "5.6", WRITE, rw::prep, Sys(rw::issue))
        .ring_error(rw::refused_by_ring),
    op(IORING_OP_FADVISE, "5.6", FILE, advise::fadvise_prep, Sys(advise::fadvise)),
    op(IORING_OP_MADVISE, "5.6", NO_FD | NAMES, advise::madvise_prep, Sys(advise::madvise)),
    op(IORING_OP_SEND, "5.6", SEND_MANY, net::send_prep, Sys(net::send))
        .poll_first(POLL_FIRST).fail(net::failed).issue_fails(net::send_issue_fails),
    op(IORING_OP_RECV, "5.6", RECV | FIXED_BY_FLAG, net::recv_prep, Sys(net::recv))
        .poll_first(POLL_FIRST).fail(net::failed),
    op(IORING_OP_OPENAT2, "5.6", CREDS | STRUCTURE, openclose::openat2_prep, Sys(open))
        .finish(open_finish).filtered(24, openclose::filtered),
    op(IORING_OP_EPOLL_CTL, "5.6", 0, epoll::ctl_prep, Ring(epoll::ctl)),
    op(IORING_OP_SPLICE, "5.7", SPLICE, splice::prep, Sys(splice::issue))
        .second_file(splice::assign_in),
    op(IORING_OP_PROVIDE_BUFFERS, "5.7", NO_FD | IOPOLL, provide::provide_prep,
        Ring(provide::provide)),
    op(IORING_OP_REMOVE_BUFFERS, "5.7", NO_FD | IOPOLL, provide::remove_prep,
        Ring(provide::remove)),
    op(IORING_OP_TEE, "5.8", SPLICE, splice::tee_prep, Sys(splice::tee))
        .second_file(splice::assign_in),
    op(IORING_OP_SHUTDOWN, "5.11", FILE_ASYNC, socket::shutdown_prep, Sys(socket::shutdown))
        .issue_fails(socket::needs_socket),
    op(IORING_OP_RENAMEAT, "5.11", NAMES, fs::rename_prep, Sys(fs::rename)),
    op(IORING_OP_UNLINKAT, "5.11", NAMES, fs::unlink_prep, Sys(fs::unlink)),
    op(IORING_OP_MKDIRAT, "5.15", NAMES, fs::mkdir_prep, Sys(fs::mkdir)),
    op(IORING_OP_SYMLINKAT, "5.15", NAMES, fs::symlink_prep, Sys(fs::symlink)),
    op(IORING_OP_LINKAT, "5.15", NAMES, fs::link_prep, Sys(fs::link)),
    op(IORING_OP_MSG_RING, "5.18", FILE | IOPOLL, msg_ring::prep, Ring(msg_ring::issue)),
    op(IORING_OP_FSETXATTR, "5.19", FILE_ASYNC | CREDS, xattr::fset_prep, Sys(xattr::fset)),
    op(IORING_OP_SETXATTR, "5.19", NO_FD | NAMES, xattr::set_prep, Sys(xattr::set)),
    op(IORING_OP_FGETXATTR, "5.19", FILE_ASYNC | CREDS, xattr::fget_prep, Sys(xattr::fget)),
    op(IORING_OP_GETXATTR, "5.19", NO_FD | NAMES, xattr::get_prep, Sys(xattr::get)),
    op(IORING_OP_SOCKET, "5.19", NO_FD | CREDS | CALL_FAILS, socket::socket_prep,
        Sys(socket::socket))
        .filtered(12, socket::filtered).finish(open_finish).issue_fails(socket::needs_number),
    op(IORING_OP_URING_CMD, "5.19", COMMAND, uring_cmd::prep, Sys(uring_cmd::issue))
        .finish(nvme::finish).issue_fails(uring_cmd::issue_fails).partly("sockets and NVMe")
        .fired(tx_timestamp::fired),
    op(IORING_OP_SEND_ZC, "6.0", SEND_ZC, net_zc::prep, Sys(net_zc::send))
        .poll_first(POLL_FIRST).fail(net::failed),
    op(IORING_OP_SENDMSG_ZC, "6.1", SENDMSG_ZC, net_zc::prep, Sys(net_zc::send))
        .poll_first(POLL_FIRST).fail(net::failed)
        .would_block(net_msg::would_block),
    op(IORING_OP_READ_MULTISHOT, "6.7", READ_MANY, multishot_prep, Sys(multishot))
        .ring_error(rw::refused_by_ring),
    op(IORING_OP_WAITID, "6.7", NO_FD | POLLIN | COUNTED, waitid::prep, Sys(waitid::issue))
        .waiting(&waitid::WAITING),
    op(IORING_OP_FUTEX_WAIT, "6.7", NO_FD | COUNTED, futex::prep, Ring(futex::wait)),
    op(IORING_OP_FUTEX_WAKE, "6.7", NO_FD | COUNTED, futex::prep, Ring(futex::wake)),
    op(IORING_OP_FUTEX_WAITV, "6.7", NO_FD | COUNTED, futex::waitv_prep, Ring(futex::waitv)),
    op(IORING_OP_FIXED_FD_INSTALL, "6.8", FILE, openclose::install_prep, Sys(openclose::install)),
    op(IORING_OP_FTRUNCATE, "6.9", FILE_HASH, truncate::prep, Sys(truncate::issue))
        .ring_error(|_| Errno::EINVAL),
    op(IORING_OP_BIND, "6.11", FILE | CREDS, socket::bind_prep, Sys(socket::bind))
        .issue_fails(socket::needs_socket),
    op(IORING_OP_LISTEN, "6.11", FILE | CREDS, socket::listen_prep, Sys(socket::listen))
        .issue_fails(socket::needs_socket),
    no(IORING_OP_RECV_ZC, "6.15"),
    op(IORING_OP_EPOLL_WAIT, "6.15", FILE | POLLIN | UNBOUND, epoll::wait_prep, Sys(epoll::wait))
        .issue_fails(epoll::issue_fails),
    op(IORING_OP_READV_FIXED, "6.15", RW | FIXED | POLLIN, rw::prep, Sys(rw::issue))
        .ring_error(rw::refused_by_ring),
    op(IORING_OP_WRITEV_FIXED, "6.15", WRITE | FIXED, rw::prep, Sys(rw::issue))
        .ring_error(rw::refused_by_ring),
    op(IORING_OP_PIPE, "6.16", NO_FD | ISSUE_FAILS, openclose::pipe_prep, Ring(openclose::pipe)),
    op(IORING_OP_NOP128, "6.19", NO_FD | IOPOLL | DOUBLE, nop::prep, Ring(nop::issue)),
    op(IORING_OP_URING_CMD128, "6.19", COMMAND | DOUBLE, uring_cmd::prep, Sys(uring_cmd::issue))
        .finish(nvme::finish).issue_fails(uring_cmd::issue_fails).partly("sockets and NVMe")
        .fired(tx_timestamp::fired),
];

/// Opcode of a request that is only to end.
pub(crate) const ENDS: u8 = IORING_OP_NOP;

/// Makes a request whose opcode does not exist fail as one that is only to end.
pub(crate) fn stands_for_unknown(req: &mut Req) {
    (req.call.opcode, req.row) = (ENDS, &OPS[ENDS as usize]);
}

/// Row of a request without an SQE, or with a number that no row has.
static NONE: OpDef = no(IORING_OP_NOP, "");

impl Default for &OpDef {
    fn default() -> Self {
        &NONE
    }
}
