//! The faults that an operation can have, and the shortening of its transfer. Each is one that the
//! kernel could produce for that request and that file; `docs/FAULTS.md` names the place for each.

use crate::io::socket::{MSG_WAITALL, Socket};
use crate::ring::file_ref::kind_of;
use crate::ring::opdef;
use crate::ring::request::{Call, OpState, Req, ReqFlags, Rw};
use softring_faults::{Decision, Fault, Kind};
use softring_host::calls::Part;
use softring_host::calls::sockets::address;
use softring_host::fd::kind::Kind as HostKind;
use softring_host::os::fs::FileType;
use softring_host::substitute::file_type;
use softring_host::sys;
use softring_uapi::*;

/// Largest write to a pipe that is never split (`PIPE_BUF`).
const PIPE_BUF: u64 = 4096;
/// Unit of transfers past the page cache: no device has larger sectors.
const SECTOR: u64 = 4096;

/// Operations that look up names.
const NAMES: [u8; 9] = [
    IORING_OP_OPENAT,
    IORING_OP_OPENAT2,
    IORING_OP_STATX,
    IORING_OP_RENAMEAT,
    IORING_OP_UNLINKAT,
    IORING_OP_MKDIRAT,
    IORING_OP_SYMLINKAT,
    IORING_OP_LINKAT,
    IORING_OP_SETXATTR,
];

/// Operations that may need a new block for a name.
const MAKES: [u8; 4] =
    [IORING_OP_MKDIRAT, IORING_OP_SYMLINKAT, IORING_OP_LINKAT, IORING_OP_RENAMEAT];

/// Returns the kind of a request's file; `None` if it has none.
pub(crate) fn file_kind(req: &Req) -> Option<Kind> {
    if !req.row.has(opdef::FILE) {
        return None;
    }
    let fd = req.call.file.fd();
    Some(match file_type(fd)? {
        FileType::RegularFile => Kind::File,
        FileType::BlockDevice => Kind::Block,
        FileType::Fifo => Kind::Pipe,
        FileType::Socket => Kind::Socket,
        _ => Kind::Other,
    })
}

fn reads(req: &Req) -> bool {
    req.row.has(opdef::AIO) && req.row.has(opdef::POLLIN)
}

fn sends(req: &Req) -> bool {
    req.flags.contains(ReqFlags::SENDRECV) && req.row.has(opdef::POLLOUT)
}

fn receives(req: &Req) -> bool {
    req.row.has(opdef::RECEIVES)
}

/// Returns whether the file keeps data in order, without limits of messages.
fn is_byte_stream(req: &Req) -> bool {
    const SOL_SOCKET: u32 = 1;
    const SO_TYPE: u32 = 3;
    const SOCK_STREAM: u32 = 1;
    let kind = sys::socket_option(req.call.file.fd(), SOL_SOCKET, SO_TYPE);
    kind.is_ok_and(|[kind]: [u32; 1]| kind == SOCK_STREAM)
}

/// Returns whether a request transfers data over a connection.
fn is_connected(req: &Req, file: Option<Kind>) -> bool {
    let transfers = reads(req) || req.row.writes() || sends(req) || receives(req);
    transfers
        && file == Some(Kind::Socket)
        && is_byte_stream(req)
        && address(req.call.file.fd(), true).1 > 0
}

/// Returns whether a fault can happen to a request that is about to be tried first.
pub(crate) fn can_happen(fault: Fault, req: &Req, file: Option<Kind>) -> bool {
    let op = req.opcode();
    let disk = matches!(file, Some(Kind::File | Kind::Block));
    let stream = matches!(file, Some(Kind::Pipe | Kind::Socket));
    let rw = reads(req) || req.row.writes();
    let multishot = req.flags.contains(ReqFlags::MULTISHOT);
    let unwaiting = req.flags.contains(ReqFlags::NOWAIT);
    match fault {
        Fault::ShortRead => most_bytes(req, file).is_some() && (reads(req) || receives(req)),
        Fault::ShortWrite => {
            let prefix = req.row.writes() || sends(req);
            prefix && most_bytes(req, file).is_some()
        }
        Fault::Eintr => {
            let waits = (rw || sends(req) || receives(req)) && stream;
            !multishot && !unwaiting && (waits || op == IORING_OP_ACCEPT)
        }
        Fault::Eagain => {
            let tcp = || Socket::of(req.call.file.fd()) == Socket::Tcp;
            unwaiting && (rw && disk || receives(req) && tcp() && !multishot)
        }
        Fault::Eio => {
            let syncs = [IORING_OP_FSYNC, IORING_OP_SYNC_FILE_RANGE, IORING_OP_FALLOCATE];
            disk && (rw || syncs.contains(&op) || op == IORING_OP_FTRUNCATE)
        }
        Fault::Enospc | Fault::Edquot => {
            let grows = req.row.writes() || op == IORING_OP_FALLOCATE;
            file == Some(Kind::File) && grows || MAKES.contains(&op) || creates(req)
        }
        Fault::Enomem => {
            let makes = [IORING_OP_ACCEPT, IORING_OP_CONNECT, IORING_OP_SOCKET];
            let transfers = rw && file.is_some() || sends(req) || receives(req);
            transfers || NAMES.contains(&op) || makes.contains(&op)
        }
        Fault::Econnreset | Fault::DropConnection => is_connected(req, file),
        Fault::MultishotEnd => has_shots(req),
        Fault::BuffersOut => {
            let selects = req.flags.contains(ReqFlags::BUFFER_SELECT);
            let plain = op == IORING_OP_RECV && is_byte_stream(req) && !bundles(req);
            let pipe = op == IORING_OP_READ_MULTISHOT && file == Some(Kind::Pipe);
            selects && multishot && (plain || pipe)
        }
        Fault::NotifLate => req.flags.contains(ReqFlags::NOTIF),
        Fault::CancelLate => req.row.has(opdef::SEARCHES),
        // Buffers of a group are told in the order in which they are picked, and a timeout ends
        // waits when it expires.
        Fault::Delay | Fault::Reorder => {
            op != IORING_OP_TIMEOUT && !req.flags.contains(ReqFlags::BUFFER_SELECT)
        }
        Fault::Overflow => op != IORING_OP_TIMEOUT,
        Fault::SpuriousWake | Fault::SqLate => true,
    }
}

/// Returns whether a request posts results until the CQ is full.
fn has_shots(req: &Req) -> bool {
    let (sqe, multishot) = (req.call.sqe(), req.flags.contains(ReqFlags::MULTISHOT));
    match req.opcode() {
        IORING_OP_POLL_ADD => sqe.len & IORING_POLL_ADD_MULTI != 0,
        IORING_OP_TIMEOUT => sqe.op_flags & IORING_TIMEOUT_MULTISHOT != 0,
        IORING_OP_ACCEPT | IORING_OP_READ_MULTISHOT => multishot,
        _ => multishot && receives(req),
    }
}

fn bundles(req: &Req) -> bool {
    let transfers = sends(req) || receives(req);
    transfers && req.call.sqe().ioprio & IORING_RECVSEND_BUNDLE != 0
}

/// Returns whether an OPENAT may create its file.
fn creates(req: &Req) -> bool {
    const O_CREAT: u32 = 0o100;
    req.opcode() == IORING_OP_OPENAT && req.call.sqe().op_flags & O_CREAT != 0
}

/// Returns the most bytes of a shortened transfer, and their unit; `None` if the kernel would
/// transfer all or nothing.
fn most_bytes(req: &Req, file: Option<Kind>) -> Option<(u64, u64)> {
    let (call, writes) = (&req.call, req.row.writes() || sends(req));
    if call.io().flags & MSG_WAITALL != 0 && (sends(req) || receives(req)) || bundles(req) {
        return None;
    }
    if req.flags.contains(ReqFlags::BUFFER_SELECT) {
        let single = !writes && !req.flags.contains(ReqFlags::MULTISHOT);
        let stream = matches!(file, Some(Kind::File | Kind::Pipe)) || is_byte_stream(req);
        let most = match call.io().select.want {
            0 => 64,
            want => u64::from(want) - 1,
        };
        let plain = !req.row.has(opdef::MESSAGE);
        return (single && stream && plain && most > 0).then_some((most, 1));
    }
    let total = total(call)?;
    let whole = req.row.has(opdef::AIO) && call.io().flags & RWF_ATOMIC != 0;
    let (least, unit) = match file? {
        Kind::File | Kind::Block if is_direct(req) => (SECTOR, SECTOR),
        Kind::File | Kind::Block => (1, 1),
        Kind::Pipe if writes => (PIPE_BUF, 1),
        Kind::Pipe => (1, 1),
        Kind::Socket if is_byte_stream(req) => (1, 1),
        Kind::Socket | Kind::Other => return None,
    };
    (!whole && total > least).then(|| (total - 1, unit)).filter(|&(most, unit)| most >= unit)
}

fn is_direct(req: &Req) -> bool {
    kind_of(&req.call.file) == HostKind::Direct || crate::io::kinds::is_direct(req.call.file.fd())
}

/// Returns the number of bytes that a transfer asks for; `None` if it is not known yet.
fn total(call: &Call) -> Option<u64> {
    match &call.state {
        OpState::Rw(_) => Some(call.total()),
        OpState::Net(net) => match &net.msg {
            Some(msg) if !msg.iov.is_empty() => Some(msg.iov.iter().map(|part| part.len).sum()),
            Some(_) => None,
            None => Some(u64::from(net.io.len)),
        },
        _ => None,
    }
}

/// Shortens a request's transfer by a decision; returns the number of bytes that it transfers now
/// at most.
pub(crate) fn shorten(req: &mut Req, file: Option<Kind>, decision: Decision) -> Option<u64> {
    let (most, unit) = most_bytes(req, file)?;
    let units = match decision {
        Decision::Replayed(bytes) => Decision::Replayed(bytes / unit),
        drawn @ Decision::Drawn { .. } => drawn,
    };
    let bytes = units.between(1, most / unit)? * unit;
    limit(req, bytes);
    Some(bytes)
}

/// Limits a request's transfer, or each of its receives, to so many bytes.
pub(crate) fn limit(req: &mut Req, bytes: u64) {
    let selects = req.flags.contains(ReqFlags::BUFFER_SELECT);
    let few = u32::try_from(bytes).unwrap_or(u32::MAX);
    match &mut req.call.state {
        OpState::Rw(Rw { vector: Some(parts), .. }) => limit_parts(parts, bytes),
        OpState::Net(net) if net.msg.as_ref().is_some_and(|msg| !msg.iov.is_empty()) => {
            if let Some(msg) = &mut net.msg {
                limit_parts(&mut msg.iov, bytes);
            }
        }
        state => {
            if let Some(io) = state.io_mut() {
                if selects {
                    io.select.want = few;
                } else {
                    io.len = few;
                }
            }
        }
    }
}

fn limit_parts(parts: &mut [Part], mut bytes: u64) {
    for part in parts {
        *part = part.first(bytes);
        bytes -= part.len;
    }
}
