//! SOCKET, BIND, LISTEN, SHUTDOWN: operations before and after a socket's life as a stream.
//! Kernel counterpart: `io_uring/net.c`.

use crate::ops::{answer, zero};
use crate::ring::ctx::Ctx;
use crate::ring::opdef::{Outcome, Try};
use crate::ring::request::{Call, FileRef, OpState, Req, ReqFlags};
use alloc::vec;
use alloc::vec::Vec;
use softring_host::calls::sockets;
use softring_host::fd::kind::Kind;
use softring_host::user;
use softring_uapi::errno::{Errno, Result};

/// `SOCK_TYPE_MASK`.
const TYPE: u32 = 0xf;
pub(crate) const SOCK_NONBLOCK: u32 = 0o4000;
pub(crate) const SOCK_CLOEXEC: u32 = 0o2_000_000;
/// Size of `struct sockaddr_storage`.
const ADDR_MAX: u32 = 128;

/// Checks a SOCKET (`io_socket_prep`).
pub(crate) fn socket_prep(_: &mut Ctx, req: &mut Req) -> Result<()> {
    let s = req.call.sqe();
    zero(&[s.addr, u64::from(s.op_flags), u64::from(s.buf_index)])?;
    let flags = s.off as u32 & !TYPE;
    let leaks = s.file_index != 0 && flags & SOCK_CLOEXEC != 0;
    if leaks || flags & !(SOCK_CLOEXEC | SOCK_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Makes a socket, for the program or for a slot.
pub(crate) fn socket(call: &mut Call, _: Try) -> Outcome {
    let s = call.sqe();
    let direct = s.file_index != 0;
    let kind = s.off as u32 | if direct { SOCK_CLOEXEC } else { 0 };
    match sockets::socket(s.fd, kind, s.len) {
        Err(e) => Outcome::Done(e.res()),
        Ok(fd) if direct => {
            let fd = softring_host::fd::make_internal(fd);
            call.file = FileRef::Owned(fd, Kind::Unknown);
            Outcome::Done(0)
        }
        Ok(fd) => {
            let fd = softring_host::fd::release(fd);
            softring_host::fd::forget_kind(fd);
            Outcome::Done(fd)
        }
    }
}

/// Copies an address in (`move_addr_to_kernel`).
///
/// # Errors
/// `EINVAL` for a length that no address has, `EFAULT`.
pub(crate) fn address(addr: u64, len: u64) -> Result<Vec<u8>> {
    // The length is an int, as in the system calls.
    let len = len as u32;
    if len > ADDR_MAX {
        return Err(Errno::EINVAL);
    }
    let mut bytes = vec![0u8; len as usize];
    user::read_slice(addr, &mut bytes)?;
    Ok(bytes)
}

/// Checks a BIND (`io_bind_prep`).
pub(crate) fn bind_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let s = req.call.sqe();
    zero(&[s.len, u32::from(s.buf_index), s.op_flags, s.file_index].map(u64::from))?;
    let addr = ctx.unlocked(|| address(s.addr, s.off))?;
    if makes_file(&addr) {
        req.flags |= ReqFlags::FORCE_ASYNC;
    }
    req.call.state = OpState::Bind(addr);
    Ok(())
}

/// Returns whether a bind to the address would make a file (`io_bind_file_create`).
pub(super) fn makes_file(addr: &[u8]) -> bool {
    const AF_UNIX: [u8; 2] = 1u16.to_ne_bytes();
    addr.starts_with(&AF_UNIX) && addr.get(2).is_some_and(|&c| c != 0)
}

/// Gives the socket an address.
pub(crate) fn bind(call: &mut Call, _: Try) -> Outcome {
    let OpState::Bind(addr) = &call.state else { return Outcome::Done(Errno::EINVAL.res()) };
    answer(sockets::bind(call.file.fd(), addr))
}

/// Checks a LISTEN (`io_listen_prep`).
pub(crate) fn listen_prep(_: &mut Ctx, req: &mut Req) -> Result<()> {
    let s = req.call.sqe();
    zero(&[s.addr, s.off])?;
    zero(&[u32::from(s.buf_index), s.op_flags, s.file_index].map(u64::from))
}

/// Makes the socket take connections.
pub(crate) fn listen(call: &mut Call, _: Try) -> Outcome {
    answer(sockets::listen(call.file.fd(), call.sqe().len))
}

/// Checks a SHUTDOWN (`io_shutdown_prep`).
pub(crate) fn shutdown_prep(_: &mut Ctx, req: &mut Req) -> Result<()> {
    let s = req.call.sqe();
    zero(&[s.off, s.addr])?;
    zero(&[s.op_flags, u32::from(s.buf_index), s.file_index].map(u64::from))
}

/// Ends one direction of a connection, or both.
pub(crate) fn shutdown(call: &mut Call, _: Try) -> Outcome {
    let done = answer(sockets::shutdown(call.file.fd(), call.sqe().len));
    // A refusal by the socket itself breaks no chain.
    call.short = done == Outcome::Done(Errno::ENOTSOCK.res());
    done
}

/// Returns whether `res` is the failure that SHUTDOWN, BIND and LISTEN return from issue.
pub(crate) fn needs_socket(_: &Req, res: i32) -> bool {
    res == Errno::ENOTSOCK.res()
}

/// Returns whether a request that makes a socket fails in issue for want of a number.
pub(crate) fn needs_number(req: &Req, res: i32) -> bool {
    res == Errno::EMFILE.res() && req.call.sqe().file_index == 0
}

/// Writes what a filter may load of a SOCKET: family, type and protocol.
pub(crate) fn filtered(req: &Req, to: &mut [u8]) {
    let s = req.call.sqe();
    for (to, word) in to.chunks_exact_mut(4).zip([s.fd as u32, s.off as u32, s.len]) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
}
