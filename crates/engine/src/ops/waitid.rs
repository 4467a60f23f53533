//! WAITID. Kernel counterpart: `io_uring/waitid.c`.
//!
//! A wait for the end of one child uses its pidfd in the poll set. Any other wait uses a thread
//! that sleeps in waitid(2) and takes nothing ([`crate::io::futex_waiter`]).

use softring_host::os::fs::OFlags;

use crate::io::futex_waiter::{Child, Job};
use crate::ops::zero;
use crate::ring::ctx::Ctx;
use crate::ring::opdef::{Outcome, Try, Waiting};
use crate::ring::request::{Call, FileRef, OpState, Req};
use softring_host::calls::process::{self, Info};
use softring_host::fd::InternalFd;
use softring_host::fd::kind::Kind;
use softring_host::sys;
use softring_host::user;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::version::{Change, has};

const P_PID: u32 = 1;
const P_PGID: u32 = 2;
const P_PIDFD: u32 = 3;
const WNOHANG: u32 = 1;
const WSTOPPED: u32 = 2;
const WEXITED: u32 = 4;
const WCONTINUED: u32 = 8;
const WNOWAIT: u32 = 0x0100_0000;
/// `__WNOTHREAD`, `__WALL`, `__WCLONE`
const LINUX_ONLY: u32 = 0xe000_0000;

/// Checks a WAITID (`io_waitid_prep`).
pub(crate) fn prep(_: &mut Ctx, req: &mut Req) -> Result<()> {
    let s = req.call.sqe();
    zero(&[s.addr, s.addr3, u64::from(s.buf_index), u64::from(s.op_flags)])?;
    let child = Child { which: s.len, id: s.fd, options: s.file_index };
    req.call.state = OpState::Sleep(Job::Child(child));
    Ok(())
}

fn child(call: &Call) -> Child {
    let s = call.sqe();
    Child { which: s.len, id: s.fd, options: s.file_index }
}

/// Checks the arguments themselves (`kernel_waitid_prepare`).
fn judge(c: Child) -> Result<()> {
    let events = WEXITED | WSTOPPED | WCONTINUED;
    let known = events | WNOHANG | WNOWAIT | LINUX_ONLY;
    let named = match c.which {
        0 => true,
        P_PID => c.id > 0,
        P_PGID | P_PIDFD => c.id >= 0,
        _ => false,
    };
    if !named || c.options & !known != 0 || c.options & events == 0 {
        return Err(Errno::EINVAL);
    }
    if c.which == P_PIDFD && softring_host::fd::is_hidden(c.id) {
        Err(Errno::EBADF)
    } else {
        Ok(())
    }
}

/// Takes the report of a child, or waits for it.
pub(crate) fn issue(call: &mut Call, how: Try) -> Outcome {
    let c = child(call);
    if let Err(e) = judge(c) {
        return Outcome::Done(e.res());
    }
    if how == Try::Block {
        return ask(call, 0);
    }
    match reap(call) {
        Outcome::Retry if matches!(call.file, FileRef::None) => match pidfd(c) {
            Some(fd) => {
                call.file = FileRef::Owned(fd, Kind::Pollable);
                Outcome::Retry
            }
            None => Outcome::Sleeps,
        },
        outcome => outcome,
    }
}

/// Returns a descriptor that is readable once the one awaited child has ended.
fn pidfd(c: Child) -> Option<InternalFd> {
    if c.options & (WSTOPPED | WCONTINUED) != 0 {
        return None;
    }
    match c.which {
        P_PID => {
            let fd = process::pidfd_open(c.id).ok()?;
            Some(softring_host::fd::make_internal(fd))
        }
        P_PIDFD => softring_host::fd::dup_internal(c.id).ok(),
        _ => None,
    }
}

/// Takes the report of a child; `Retry` if there is none yet.
fn reap(call: &mut Call) -> Outcome {
    ask(call, WNOHANG)
}

fn ask(call: &mut Call, more: u32) -> Outcome {
    let c = child(call);
    let mut info: Info = [0; 32];
    let done = process::waitid(c.which, c.id, Some(&mut info), c.options | more);
    match done {
        // The descriptor is none of a process.
        Err(e @ (Errno::EINVAL | Errno::EBADF)) => Outcome::Done(e.res()),
        Err(Errno::EINTR) => crate::ops::answer_waiting(done),
        Ok(_) if info[0] == 0 && !may_be_nothing(c) => Outcome::Retry,
        done => write_info(call, &info, done.map_or_else(Errno::res, |_| 0)),
    }
}

/// Returns whether the wait may end with nothing, as on a pidfd that must not be waited on.
fn may_be_nothing(c: Child) -> bool {
    let nonblocking = || sys::file_flags(c.id).is_some_and(|f| f.contains(OFlags::NONBLOCK));
    c.options & WNOHANG != 0 || (c.which == P_PIDFD && nonblocking())
}

/// Fills in the program's `siginfo_t`, all but the padding, as the kernel does.
fn write_info(call: &Call, info: &Info, res: i32) -> Outcome {
    let at = call.sqe().addr2();
    // Words are written one by one, as memory may end between them.
    let word = |i: usize| user::write_whole(at.add(4 * i as u64), &info[i]).is_ok();
    let written = at.is_null() || [0, 1, 2, 4, 5, 6].into_iter().all(word);
    Outcome::Done(if written { res } else { Errno::EFAULT.res() })
}

/// Hooks of a WAITID that waits.
pub(crate) static WAITING: Waiting = Waiting { ready: reap, cancel: cancelled, orphan: orphaned };

/// Returns the result for a task that has ended: nobody is there to tell of the child, which is
/// left alone.
fn orphaned() -> i32 {
    let e = if has(Change::OrphanedWaits) { Errno::ECANCELED } else { Errno::EFAULT };
    e.res()
}

/// Cancels the request, and reports no child. Returns the result, whatever comes of the report
/// (`__io_waitid_cancel`).
fn cancelled(call: &Call) -> i32 {
    write_info(call, &[0; 32], 0);
    Errno::ECANCELED.res()
}
