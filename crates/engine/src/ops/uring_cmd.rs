//! URING_CMD: commands of a file's own. Sockets and NVMe devices have some. Kernel counterpart:
//! `io_uring/uring_cmd.c`, `io_uring/cmd_net.c`.

use crate::io::socket::is_socket;
use crate::memory::sqe::Sqe;
use crate::ops::{nvme, tx_timestamp};
use crate::ring::ctx::Ctx;
use crate::ring::opdef::{Outcome, Try};
use crate::ring::request::{Call, Command, OpState, Req, ReqFlags};
use softring_host::calls::ioctl::Queue;
use softring_host::calls::{ReadPtr, ioctl, sockets};
use softring_host::sys;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::version::{Change, has};
use softring_uapi::*;

const SOL_SOCKET: u32 = 1;
const SO_DOMAIN: u32 = 39;
const AF_INET: i32 = 2;
const AF_INET6: i32 = 10;

/// Checks a URING_CMD (`io_uring_cmd_prep`).
pub(crate) fn prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let s = *req.call.sqe();
    let (fixed, multi) = (IORING_URING_CMD_FIXED, IORING_URING_CMD_MULTISHOT);
    if s.off >> 32 != 0 || s.op_flags & !(fixed | multi) != 0 {
        return Err(Errno::EINVAL);
    }
    let selects = req.flags.contains(ReqFlags::BUFFER_SELECT);
    if s.op_flags == fixed | multi || (s.op_flags & multi != 0) != selects {
        return Err(Errno::EINVAL);
    }
    let double =
        s.opcode == IORING_OP_URING_CMD128 && ctx.setup.flags & IORING_SETUP_SQE_MIXED != 0;
    let half = ctx.mem.sq_second_half(double);
    let wide = ctx.setup.flags & (IORING_SETUP_CQE32 | IORING_SETUP_CQE_MIXED) != 0;
    let nvme = NVME_URING_CMD_IO..=NVME_URING_CMD_ADMIN_VEC;
    let rest = half.filter(|_| wide && nvme.contains(&(s.off as u32)));
    let nvme = rest.map(|rest| nvme::prep(ctx, &mut req.call, rest));
    req.call.state = OpState::Command(Command { wide_cqe: wide, big_sqe: half.is_some(), nvme });
    // No existing command takes a buffer.
    req.flags.remove(ReqFlags::BUFFER_SELECT);
    Ok(())
}

/// Runs a command (`io_uring_cmd_sock`).
pub(crate) fn issue(call: &mut Call, how: Try) -> Outcome {
    let s = call.sqe();
    let fd = call.file.fd();
    let done = match domain(fd) {
        Err(Errno::ENOTSOCK) => match nvme::Device::of(fd) {
            Some(device) => return nvme::issue(call, device, how),
            None if is_null(fd) => {
                call.state = OpState::None;
                return Outcome::Done(0);
            }
            None => Err(Errno::EOPNOTSUPP),
        },
        Err(e) => Err(e),
        Ok(domain) => match s.off as u32 {
            SOCKET_URING_OP_TX_TIMESTAMP => {
                let wide = matches!(&call.state, OpState::Command(command) if command.wide_cqe);
                return tx_timestamp::issue(call, wide).unwrap_or_else(|e| Outcome::Done(e.res()));
            }
            SOCKET_URING_OP_SIOCINQ => queued(fd, domain, Queue::Received),
            SOCKET_URING_OP_SIOCOUTQ => queued(fd, domain, Queue::Unsent),
            SOCKET_URING_OP_GETSOCKOPT => getsockopt(fd, s),
            SOCKET_URING_OP_SETSOCKOPT => setsockopt(fd, s),
            SOCKET_URING_OP_GETSOCKNAME if has(Change::SocketNames) => name(fd, call),
            _ => Err(Errno::EOPNOTSUPP),
        },
    };
    Outcome::Done(done.unwrap_or_else(Errno::res))
}

/// Returns whether the file is `/dev/null`, which takes every command, and does nothing.
fn is_null(fd: i32) -> bool {
    let stat = sys::borrow(fd).and_then(|fd| softring_host::substitute::fstat(fd).ok());
    let null = softring_host::os::fs::makedev(1, 3);
    let device = |s: &softring_host::os::fs::Stat| {
        softring_host::os::fs::FileType::from_raw_mode(s.st_mode)
            == softring_host::os::fs::FileType::CharacterDevice
    };
    stat.is_some_and(|s| device(&s) && s.st_rdev == null)
}

/// Returns the socket's family.
fn domain(fd: i32) -> Result<i32> {
    sys::socket_option(fd, SOL_SOCKET, SO_DOMAIN)
}

/// Returns the number of bytes in a queue. The kernel asks the protocol; it does not ask if only
/// the family above knows, as with AF_UNIX.
fn queued(fd: i32, domain: i32, which: Queue) -> Result<i32> {
    if !matches!(domain, AF_INET | AF_INET6) {
        return Err(Errno::EOPNOTSUPP);
    }
    match ioctl::queued(fd, which) {
        Err(Errno::ENOTTY) => Err(Errno::EOPNOTSUPP),
        other => other,
    }
}

/// Gets a name by getsockname(2), or getpeername(2) if `optlen` is 1; `addr` and `addr3` are
/// theirs.
fn name(fd: i32, call: &Call) -> Result<i32> {
    let s = call.sqe();
    if s.len != 0 || s.op_flags != 0 {
        return Err(Errno::EINVAL);
    }
    let done = match s.file_index {
        0 => sockets::getsockname(fd, s.addr(), s.addr3()),
        1 => sockets::getpeername(fd, s.addr(), s.addr3()),
        _ => return Err(Errno::EINVAL),
    };
    done.map(|_| 0)
}

/// Gets an option. `level` and `optname` share the word of `addr`; `optlen` is where `file_index`
/// is, `optval` where `addr3` is.
fn getsockopt(fd: i32, s: &Sqe) -> Result<i32> {
    let (level, name) = (s.addr as u32, (s.addr >> 32) as u32);
    if level != SOL_SOCKET {
        return Err(Errno::EOPNOTSUPP);
    }
    sockets::getsockopt(fd, level, name, s.addr3(), s.file_index.cast_signed())
}

fn setsockopt(fd: i32, s: &io_uring_sqe) -> Result<i32> {
    let (level, name) = (s.addr as u32, (s.addr >> 32) as u32);
    let value = ReadPtr(s.addr3);
    sockets::setsockopt(fd, level, name, value, s.file_index).map(|n| n as i32)
}

/// Returns whether a command's issue hands its failure back: only sockets keep theirs.
pub(crate) fn issue_fails(req: &Req, res: i32) -> bool {
    res == Errno::EOPNOTSUPP.res() && !is_socket(req.call.file.fd())
}
