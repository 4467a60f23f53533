//! SENDMSG and RECVMSG. The header and its vector are copied when the request is submitted;
//! received names and control data go straight to the program. Kernel counterpart:
//! `io_uring/net.c`.
#![allow(unsafe_code)]

use crate::io::iov::{import_iov, skip};
use crate::io::socket::{MSG_CMSG_COMPAT, MSG_CTRUNC, MSG_NOSIGNAL, MSG_TRUNC, MSG_WAITALL};
use crate::io::socket::{Socket, minds_empty_name};
use crate::ops::net::{attempt, common_prep, received, recv_common};
use crate::ops::socket::address;
use crate::ring::ctx::Ctx;
use crate::ring::message::Msg;
use crate::ring::opdef::{Blocked, Outcome, Try};
use crate::ring::request::{Call, Net, OpState, Req, ReqFlags, Transfer};
use alloc::boxed::Box;
use softring_host::calls::{Incoming, Outgoing, Part, ReadPtr, UserPtr};
use softring_host::fd::kind::is_socket;
use softring_host::limits::MAX_ARMS;
use softring_host::sys;
use softring_host::user;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;
use softring_uapi::{iovec, msghdr};

/// `UIO_MAXIOV`.
const MAX_IOV: u64 = 1024;
/// Size of `struct sockaddr_storage`.
const NAME_MAX: usize = 128;
/// Size of `struct io_uring_recvmsg_out`.
const OUT: u32 = 16;

/// A name that is too short for any family.
static SHORT: [u8; 1] = [0];

/// Sends what is left of a vector by one sendmsg(2).
pub(crate) fn send_vector(call: &Call, msg: &Msg, flags: u32) -> Result<usize> {
    let done = call.io().done;
    let rest = if done > 0 { Some(skip(&msg.iov, done)) } else { None };
    let iov = rest.as_deref().unwrap_or(&msg.iov);
    let mut name = msg.name.as_deref();
    let plain = matches!(call.opcode, IORING_OP_SEND | IORING_OP_SEND_ZC);
    if plain && name.is_some_and(<[u8]>::is_empty) && minds_empty_name(call.file.fd()) {
        // sendmsg(2) takes an empty name for none; this name is too short as well.
        name = Some(&SHORT);
    }
    let mut out = Outgoing::new(iov);
    if let Some(name) = name {
        out = out.to(name);
    }
    // Control data goes with the first bytes.
    if done == 0 {
        out = out.with_control(ReadPtr(msg.hdr.control), msg.hdr.controllen);
    }
    out.send(call.file.fd(), flags)
}

/// Receives for a RECV by one recvmsg(2), into what is left of its buffer or vector.
pub(crate) fn recv_vector(call: &mut Call, flags: u32) -> Result<usize> {
    let io = call.io();
    let one = [io.rest()];
    let rest;
    let iov = match call.state.message() {
        Some(msg) if io.done > 0 => {
            rest = skip(&msg.iov, io.done);
            &rest[..]
        }
        Some(msg) => &msg.iov[..],
        None => &one[..],
    };
    let (n, hdr) = Incoming::new(iov).receive(call.file.fd(), flags)?;
    call.short |= cut(flags, &hdr);
    Ok(n)
}

/// Returns what follows an attempt that would block. sendmsg(2) and recvmsg(2) ask the file itself
/// whether it blocks, also on a worker; SEND and RECV do not (`____sys_recvmsg`). A worker makes
/// the attempts of a chain that it runs, and the one behind the last of [`MAX_ARMS`] waits.
pub(crate) fn would_block(req: &Req) -> Blocked {
    let capped = req.arms >= MAX_ARMS && !req.flags.contains(ReqFlags::MULTISHOT);
    match (capped || req.follows_in_worker()) && !sys::blocks(req.call.file.fd()) {
        true => Blocked::Fails(Errno::EAGAIN),
        false => Blocked::Waits,
    }
}

/// Returns whether a message did not fit though all was wanted, which breaks a chain.
fn cut(flags: u32, hdr: &msghdr) -> bool {
    flags & MSG_WAITALL != 0 && hdr.flags & (MSG_TRUNC | MSG_CTRUNC) != 0
}

/// Copies a message header and its vector (`io_msg_copy_hdr`).
fn copy_header(req: &mut Req) -> Result<()> {
    let msg = header_of(req)?;
    if let OpState::Net(net) = &mut req.call.state {
        net.msg = Some(msg);
    }
    Ok(())
}

fn header_of(req: &mut Req) -> Result<Box<Msg>> {
    let at = req.call.sqe().addr();
    let mut hdr: msghdr = user::read(at.addr())?;
    // A multishot receive's buffer has room for a name, even if the header has no place for one.
    let multishot = req.flags.contains(ReqFlags::MULTISHOT);
    if hdr.name == 0 && !multishot {
        hdr.namelen = 0;
    }
    if hdr.namelen.cast_signed() < 0 && hdr.name != 0 {
        return Err(Errno::EINVAL);
    }
    let mut msg = Msg { at, hdr, ..Msg::default() };
    if req.opcode() != IORING_OP_RECVMSG && hdr.namelen > 0 {
        msg.name = Some(address(hdr.name, u64::from(hdr.namelen.min(128)))?);
    }
    if hdr.iovlen > MAX_IOV {
        return Err(Errno::EMSGSIZE);
    }
    if !req.flags.contains(ReqFlags::BUFFER_SELECT) {
        // SAFETY: the program's header names it.
        msg.iov = import_iov(unsafe { UserPtr::of_program(hdr.iov) }, hdr.iovlen as u32)?;
        return Ok(Box::new(msg));
    }
    let want = match hdr.iovlen {
        0 => 0,
        1 => user::read::<iovec>(hdr.iov)?.len as u32,
        _ => return Err(Errno::EINVAL),
    };
    if let Some(io) = req.call.state.io_mut() {
        io.select.want = want;
    }
    Ok(Box::new(msg))
}

/// Checks a SENDMSG (`io_sendmsg_prep`).
pub(crate) fn send_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let mut io = Transfer::of(req.call.sqe());
    io.flags |= MSG_NOSIGNAL;
    common_prep(req, IORING_RECVSEND_POLL_FIRST | IORING_SEND_VECTORIZED, io)?;
    send_setup(ctx, req)
}

/// Copies what a SENDMSG names (`io_sendmsg_setup`).
pub(crate) fn send_setup(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let s = req.call.sqe();
    crate::ops::zero(&[s.off, u64::from(s.file_index)])?;
    ctx.unlocked(|| copy_header(req))
}

/// Sends a message.
pub(crate) fn send(call: &mut Call, how: Try) -> Outcome {
    let all = call.io().flags & MSG_WAITALL != 0;
    call.set_len(0);
    attempt(call, how, sys::POLLOUT, all, |call, flags| match call.state.message() {
        Some(msg) => send_vector(call, msg, flags),
        None => Err(Errno::EINVAL),
    })
}

/// Checks a RECVMSG (`io_recvmsg_prep`).
pub(crate) fn recv_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    recv_common(req, 0, Transfer::of(req.call.sqe()))?;
    let s = req.call.sqe();
    if s.file_index != 0 || s.ioprio & IORING_RECVSEND_BUNDLE != 0 {
        return Err(Errno::EINVAL);
    }
    let multishot = s.ioprio & IORING_RECV_MULTISHOT != 0;
    ctx.unlocked(|| copy_header(req))?;
    if multishot && req.call.state.message().and_then(Msg::out_len).is_none() {
        return Err(Errno::EOVERFLOW);
    }
    Ok(())
}

/// Receives a message.
pub(crate) fn recv(call: &mut Call, how: Try) -> Outcome {
    let outcome = if call.sqe().ioprio & IORING_RECV_MULTISHOT != 0 {
        attempt(call, how, sys::POLLIN, false, recv_out)
    } else {
        let control = call.state.message().is_some_and(|msg| msg.hdr.controllen > 0);
        let all = call.io().flags & MSG_WAITALL != 0 && !control;
        if call.io().select.pick.is_none() {
            call.set_len(0);
        }
        attempt(call, how, sys::POLLIN, all, recv_message)
    };
    received(call, outcome)
}

/// Receives by one recvmsg(2), whose header the program gets back.
fn recv_message(call: &mut Call, flags: u32) -> Result<usize> {
    let OpState::Net(Net { io, msg: Some(msg), .. }) = &call.state else {
        return Err(Errno::EINVAL);
    };
    let one = [io.rest().nowhere_is_null()];
    let rest;
    let iov = match () {
        () if io.select.pick.is_some() => &one[..],
        () if io.done > 0 => {
            rest = skip(&msg.iov, io.done);
            &rest[..]
        }
        () => &msg.iov[..],
    };
    let mut name = [0u8; NAME_MAX];
    // SAFETY: the program's header names it.
    let control = unsafe { UserPtr::of_program(msg.hdr.control) };
    let to = Incoming::new(iov).with_programs_control(control, msg.hdr.controllen);
    let to = match msg.hdr.name {
        0 => to.with_programs_name(UserPtr::NULL, msg.hdr.namelen),
        _ => to.with_name(&mut name),
    };
    let (n, hdr) = to.receive(call.file.fd(), flags)?;
    if let Err(e) = report_header(msg, &hdr, &name, io.flags & MSG_CMSG_COMPAT != 0) {
        return end_unreported(call, e);
    }
    call.short |= cut(flags, &hdr);
    Ok(n)
}

/// Ends a receive of a message of which something could not be reported: the bytes before it count,
/// and the CQE says whether there is more.
fn end_unreported(call: &mut Call, e: Errno) -> Result<usize> {
    if call.io().done > 0 {
        return Ok(0);
    }
    let fd = call.file.fd();
    let more = Socket::of(fd).has_more(fd, false) == Some(true);
    call.cflags = if more { IORING_CQE_F_SOCK_NONEMPTY } else { 0 };
    Err(e)
}

/// Tells the program of a message: its sender, its control data's length, its flags
/// (`____sys_recvmsg`).
fn report_header(msg: &Msg, hdr: &msghdr, name: &[u8; NAME_MAX], compat: bool) -> Result<()> {
    // A program of 32 bits has these fields elsewhere (`struct compat_msghdr`).
    let (namelen, controllen, flags) = match compat {
        true => (4, 20, 24),
        false => (msghdr::NAMELEN, msghdr::CONTROLLEN, msghdr::FLAGS),
    };
    let field = |offset| msg.at.add(offset);
    if msg.hdr.name != 0 {
        let room: i32 = user::read(field(namelen).addr())?;
        let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
        let len = room.min(hdr.namelen as usize).min(NAME_MAX);
        // SAFETY: the program's header names it.
        user::write_slice(unsafe { UserPtr::of_program(msg.hdr.name) }, &name[..len])?;
        user::write(field(namelen), &hdr.namelen)?;
    }
    if compat {
        user::write(field(controllen), &(hdr.controllen as u32))?;
    } else {
        user::write(field(controllen), &hdr.controllen)?;
    }
    user::write(field(flags), &hdr.flags)
}

impl Msg {
    /// Returns the bytes before the payload in a multishot receive's buffer; none if out of range.
    fn out_len(&self) -> Option<u32> {
        let control = i32::try_from(self.hdr.controllen).ok()?.cast_unsigned();
        let sum = OUT.checked_add(self.hdr.namelen)?.checked_add(control)?;
        i32::try_from(sum).ok().map(i32::cast_unsigned)
    }
}

/// Makes one recvmsg(2) of a multishot receive: header fields, name, control data and payload lie
/// behind each other in the buffer (`io_recvmsg_multishot`).
fn recv_out(call: &mut Call, flags: u32) -> Result<usize> {
    let OpState::Net(Net { io, msg: Some(msg), .. }) = &call.state else {
        return Err(Errno::EINVAL);
    };
    let buf = Part::new(io.addr, io.len.into());
    let before = msg.out_len().ok_or(Errno::EOVERFLOW)?;
    let no_room = || if is_socket(call.file.fd()) { Errno::EFAULT } else { Errno::ENOTSOCK };
    let room = io.len.checked_sub(before).ok_or_else(no_room)?;
    let (namelen, controllen) = (msg.hdr.namelen, msg.hdr.controllen);
    let name = buf.skip(OUT.into());
    let control = name.skip(namelen.into());
    let control = if controllen > 0 { control.base() } else { UserPtr::NULL };
    let name = if namelen > 0 { name.base() } else { UserPtr::NULL };
    let payload = [buf.skip(before.into()).nowhere_is_null()];
    let to = Incoming::new(&payload)
        .with_programs_name(name, namelen)
        .with_programs_control(control, controllen);
    let (n, hdr) = to.receive(call.file.fd(), flags)?;
    let n = n as u32;
    let out = [hdr.namelen, hdr.controllen as u32, n, hdr.flags];
    if let Err(e) = user::write_slice(buf.base(), &out) {
        return end_unreported(call, e);
    }
    call.message().last = n == 0;
    Ok((before + n.min(room)) as usize)
}

/// Returns whether the issue function of a RECVMSG returns that no buffer is left.
pub(crate) fn recv_issue_fails(req: &Req, res: i32) -> bool {
    res == Errno::ENOBUFS.res() && req.selects_in_vain()
}
