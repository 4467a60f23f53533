//! CONNECT and ACCEPT. Kernel counterpart: `io_uring/net.c`.
//!
//! Neither system call can be told not to wait, as `MSG_DONTWAIT` tells the others. If the
//! program's socket is a blocking one:
//!
//! - CONNECT sets O_NONBLOCK for the one call. Nobody else has use for a socket that is not
//!   connected yet.
//! - ACCEPT first checks whether a connection is there. Another process may take that connection
//!   before we do, so SO_RCVTIMEO limits the wait of the one call to a moment. Only one thread at a
//!   time does so: a second thread would take the moment for the program's timeout and restore it
//!   last, or wait without a limit once the first has removed its own. The length of the moment
//!   shows that it is another process's.

use softring_host::os::fd::{AsRawFd, OwnedFd};
use softring_host::os::fs::OFlags;

use crate::io::of_process::PROCESS;
use crate::io::socket::{POLLERR, POLLRDHUP, is_internet, option};
use crate::ops::socket::makes_file;
use crate::ops::socket::{SOCK_CLOEXEC, SOCK_NONBLOCK, address};
use crate::ops::zero;
use crate::ring::ctx::Ctx;
use crate::ring::opdef::{Blocked, Outcome, Try};
use crate::ring::request::{Call, Connect, Finding, OpState, Req, ReqFlags};
use softring_host::calls::{files, sockets};
use softring_host::sys;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

const SOL_SOCKET: u32 = 1;
const SO_ERROR: u32 = 4;
const SO_RCVTIMEO: u32 = 20;
const SO_ACCEPTCONN: u32 = 30;
const AF_UNIX: i32 = 1;
const SOCK_DGRAM: u32 = 2;
/// Wait that is left to an ACCEPT that was beaten to its connection, in s and µs: a time that no
/// program would ask for.
const MOMENT: [i64; 2] = [0, 13_000];

/// Checks a CONNECT and copies its address (`io_connect_prep`).
pub(crate) fn connect_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let s = req.call.sqe();
    zero(&[s.len, u32::from(s.buf_index), s.op_flags, s.file_index].map(u64::from))?;
    let addr = ctx.unlocked(|| address(s.addr, s.off))?;
    req.call.state = OpState::Connect(Connect { addr, ..Connect::default() });
    Ok(())
}

/// Connects. A connection under way waits for room to write, then reports how it went.
pub(crate) fn connect(call: &mut Call, how: Try) -> Outcome {
    let fd = call.file.fd();
    let OpState::Connect(c) = &mut call.state else { return Outcome::Done(Errno::EINVAL.res()) };
    let pending = c.pending;
    if pending && how == Try::Nonblock && sys::poll_now(fd, 0) & POLLERR != 0 {
        return Outcome::Done(pending_error(fd));
    }
    let done = match how {
        Try::Block => try_connect(fd, &c.addr),
        Try::Nonblock => without_waiting(fd, || try_connect(fd, &c.addr)),
    };
    match done {
        Err(Errno::EAGAIN) if how == Try::Nonblock => Outcome::Retry,
        Err(Errno::EINPROGRESS) if how == Try::Nonblock => {
            c.pending = true;
            Outcome::Retry
        }
        Err(Errno::ECONNABORTED) if how == Try::Nonblock && !c.aborted => {
            c.aborted = true;
            Outcome::Retry
        }
        Err(Errno::EBADFD | Errno::EISCONN) if pending => Outcome::Done(pending_error(fd)),
        Err(e) => Outcome::Done(e.res()),
        Ok(_) => Outcome::Done(0),
    }
}

/// Returns the error of a CONNECT under way that does not wait.
fn progress_error(req: &Req) -> Option<Errno> {
    match &req.call.state {
        OpState::Connect(c) if c.pending => Some(Errno::EINPROGRESS),
        OpState::Connect(c) if c.aborted => Some(Errno::ECONNABORTED),
        _ => None,
    }
}

/// Returns whether the last attempt was on a socket whose last connection failed, for a request
/// that the kernel gives to a worker. The worker finds it ready at once, and waits with its next
/// attempt.
fn waits_with_next(req: &Req) -> bool {
    matches!(&req.call.state, OpState::Connect(c) if c.aborted && !c.pending)
        && req.flags.contains(ReqFlags::FORCE_ASYNC)
}

/// Returns what follows an attempt that would block. A worker's one attempt ends with the failure
/// of the socket's last connection; connect(2) asks the file itself whether it blocks.
pub(crate) fn would_block(req: &Req) -> Blocked {
    let progress = progress_error(req);
    let fails = || progress == Some(Errno::ECONNABORTED) || !sys::blocks(req.call.file.fd());
    if req.follows_in_worker() && fails() {
        return Blocked::Fails(progress.unwrap_or(Errno::EAGAIN));
    }
    if waits_with_next(req) { Blocked::Punts } else { Blocked::Waits }
}

/// Returns whether the address is a name, which the peer is looked up by.
pub(crate) fn passes_creds(req: &Req) -> bool {
    matches!(&req.call.state, OpState::Connect(c) if makes_file(&c.addr))
}

fn try_connect(fd: i32, addr: &[u8]) -> Result<usize> {
    sockets::connect(fd, addr)
}

/// Runs `f` with O_NONBLOCK on the file.
fn without_waiting<T>(fd: i32, f: impl FnOnce() -> T) -> T {
    let flags = sys::file_flags(fd);
    match flags {
        Some(flags) if !flags.contains(OFlags::NONBLOCK) => {
            let _ = files::set_flags(fd, (flags | OFlags::NONBLOCK).bits().into());
            let done = f();
            let _ = files::set_flags(fd, flags.bits().into());
            done
        }
        _ => f(),
    }
}

/// Returns the outcome of a connection (`sock_error`), as a result.
fn pending_error(fd: i32) -> i32 {
    -option(fd, SO_ERROR).unwrap_or(0)
}

/// Checks an ACCEPT (`io_accept_prep`).
pub(crate) fn accept_prep(_: &mut Ctx, req: &mut Req) -> Result<()> {
    let s = req.call.sqe();
    zero(&[u64::from(s.len), u64::from(s.buf_index)])?;
    let leaks = s.file_index != 0 && s.op_flags & SOCK_CLOEXEC != 0;
    if leaks || s.op_flags & !(SOCK_CLOEXEC | SOCK_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let known = IORING_ACCEPT_MULTISHOT | IORING_ACCEPT_DONTWAIT | IORING_ACCEPT_POLL_FIRST;
    if s.ioprio & !known != 0 {
        return Err(Errno::EINVAL);
    }
    if s.ioprio & IORING_ACCEPT_MULTISHOT != 0 {
        if s.file_index != 0 && s.file_index != IORING_FILE_INDEX_ALLOC {
            return Err(Errno::EINVAL);
        }
        req.flags |= ReqFlags::MULTISHOT;
    }
    if s.ioprio & IORING_ACCEPT_DONTWAIT != 0 {
        req.flags |= ReqFlags::NOWAIT;
    }
    Ok(())
}

/// Takes a connection, for the program or for a slot.
pub(crate) fn accept(call: &mut Call, how: Try) -> Outcome {
    let listener = call.file.fd();
    let direct = call.sqe().file_index != 0;
    let accepted = match how {
        Try::Block => try_accept(call),
        Try::Nonblock => accept_now(call),
    };
    let nothing = matches!(accepted, Err(Errno::EAGAIN));
    call.found = if nothing { Finding::Nothing } else { Finding::Unknown };
    let fd = match accepted {
        Err(Errno::EAGAIN) if how == Try::Nonblock => return Outcome::Retry,
        Err(e) => {
            if took_one(listener, e) {
                tell_more(call, listener);
            }
            return Outcome::Done(e.res());
        }
        Ok(fd) => fd,
    };
    let more = tell_more(call, listener);
    let res = if direct {
        let fd = softring_host::fd::make_internal(fd);
        call.state = OpState::Accepted(fd);
        0
    } else {
        let fd = softring_host::fd::release(fd);
        softring_host::fd::forget_kind(fd);
        fd
    };
    let multishot = call.sqe().ioprio & IORING_ACCEPT_MULTISHOT != 0;
    match more {
        _ if !multishot => Outcome::Done(res),
        Some(false) => Outcome::MoreThenWait(res),
        _ => Outcome::More(res),
    }
}

fn try_accept(call: &Call) -> Result<OwnedFd> {
    let s = call.sqe();
    let flags = s.op_flags | if s.file_index != 0 { SOCK_CLOEXEC } else { 0 };
    sockets::accept(call.file.fd(), s.addr(), s.addr2(), flags)
}

fn accept_now(call: &Call) -> Result<OwnedFd> {
    let fd = call.file.fd();
    let flags = sys::file_flags(fd);
    if flags.is_none_or(|flags| flags.contains(OFlags::NONBLOCK)) {
        return try_accept(call);
    }
    let listens = option(fd, SO_ACCEPTCONN) == Some(1);
    let ready = if listens { sys::poll_now(fd, sys::POLLIN | POLLRDHUP) } else { 0 };
    if listens && ready == 0 {
        return Err(Errno::EAGAIN);
    }
    if ready & POLLRDHUP != 0 && !is_internet(fd) {
        // Only a caller that would wait is told that no connection will come any more.
        return try_accept(call).map_err(|e| if e == Errno::EINVAL { Errno::EAGAIN } else { e });
    }
    // No handler of the program's runs meanwhile, either: it might accept, too.
    let _held = PROCESS.receive_timeouts.hold();
    let Some(old) = timeout(fd) else { return try_accept(call) };
    set_timeout(fd, MOMENT);
    let done = try_accept(call);
    set_timeout(fd, put_back(old));
    done
}

/// Returns the timeout to restore: the old one, or none if that is another process's moment.
fn put_back(old: [i64; 2]) -> [i64; 2] {
    if old != [0; 2] && Some(old) == moment() { [0; 2] } else { old }
}

/// Returns SO_RCVTIMEO, in s and µs.
fn timeout(fd: i32) -> Option<[i64; 2]> {
    sys::socket_option(fd, SOL_SOCKET, SO_RCVTIMEO).ok()
}

fn set_timeout(fd: i32, to: [i64; 2]) {
    let _ = sockets::set_option(fd, SOL_SOCKET, SO_RCVTIMEO, &to);
}

/// Returns [`MOMENT`] as a socket reports it: the kernel rounds it up to its ticks.
fn moment() -> Option<[i64; 2]> {
    let fd = sockets::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0).ok()?;
    // Not closed by the interposed close(2): the lock is held.
    let any = sys::EngineFd::from(fd);
    set_timeout(any.as_raw_fd(), MOMENT);
    timeout(any.as_raw_fd())
}

/// Returns whether accept4(2) took a connection and then failed to tell its address.
fn took_one(listener: i32, e: Errno) -> bool {
    matches!(e, Errno::EFAULT | Errno::EINVAL | Errno::ECONNABORTED)
        && option(listener, SO_ACCEPTCONN) == Some(1)
}

/// Sets the CQE's flag for a further connection after one was taken. Returns the same.
fn tell_more(call: &mut Call, listener: i32) -> Option<bool> {
    let more = more_wait(listener);
    call.cflags = if more == Some(true) { IORING_CQE_F_SOCK_NONEMPTY } else { 0 };
    more
}

/// Returns whether a further connection is there already. Only internet sockets tell.
fn more_wait(fd: i32) -> Option<bool> {
    is_internet(fd).then(|| sys::poll_now(fd, sys::POLLIN) & sys::POLLIN != 0)
}

/// Puts the accepted socket into the table, under the lock.
pub(crate) fn accept_finish(ctx: &mut Ctx, req: &mut Req) {
    let index = req.call.sqe().file_index;
    if index == 0 || req.res < 0 {
        return;
    }
    if let OpState::Accepted(fd) = core::mem::take(&mut req.call.state) {
        req.res = crate::ops::openclose::into_slot(ctx, index, fd);
    }
}

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// Writes what a filter may load of a CONNECT: family, port and address, as far as the name has
/// them (`io_connect_bpf_populate`).
pub(crate) fn filtered(req: &Req, to: &mut [u8]) {
    let OpState::Connect(Connect { addr: name, .. }) = &req.call.state else { return };
    let Some(family) = name.first_chunk().map(|b| u16::from_ne_bytes(*b)) else { return };
    to[..4].copy_from_slice(&u32::from(family).to_ne_bytes());
    let (whole, at, len) = match family {
        AF_INET => (16, 4, 4),
        // Without the scope (`SIN6_LEN_RFC2133`).
        AF_INET6 => (24, 8, 16),
        _ => return,
    };
    if name.len() >= whole {
        to[4..6].copy_from_slice(&name[2..4]);
        to[8..8 + len].copy_from_slice(&name[at..at + len]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_shortest_timeout_is_not_restored() {
        let moment = moment().expect("a socket");
        assert!(moment[0] == 0 && moment[1] >= MOMENT[1], "{moment:?}");
        assert_eq!(put_back(moment), [0; 2]);
        for own in [[0; 2], [1, 0], [0, 4_000], [0, 100_000]] {
            assert_eq!(put_back(own), own);
        }
    }
}
