//! POLL_ADD, POLL_REMOVE and its updates. Kernel counterpart: `io_uring/poll.c`.
//!
//! A single poll that is ready at once is one poll(2); else it is registered in the ring's poll
//! set. A multishot poll is edge-triggered there: each wake-up posts a CQE, until the poll is
//! cancelled or the CQ is full.

use crate::io::persistent;
use crate::io::poll::EVENTS;
use crate::io::socket::is_socket;
use crate::io::token::ReqId;
use crate::ops::epoll;
use crate::ring::cancel::same_file;
use crate::ring::ctx::{Completion, Ctx};
use crate::ring::opdef::Outcome;
use crate::ring::request::{FileRef, Finding, OpState, Phase, Poll, Req, ReqFlags};
use crate::ring::ring_file;
use softring_host::fd::kind::Kind;
use softring_host::fd::probe::is_epoll;
use softring_host::os::fd::AsRawFd;
use softring_host::sys;
use softring_host::sys::nr::{
    EPOLLERR, EPOLLET, EPOLLEXCLUSIVE, EPOLLHUP, EPOLLIN, EPOLLNVAL, EPOLLONESHOT, EPOLLOUT,
    EPOLLPRI, EPOLLRDBAND, EPOLLRDHUP, EPOLLRDNORM, EPOLLWRBAND, EPOLLWRNORM,
};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

/// Events that are reported whether asked for or not (`IO_POLL_UNMASK`).
pub(crate) const UNMASK: u32 = EPOLLERR | EPOLLHUP | EPOLLNVAL | EPOLLRDHUP;

pub(crate) const ONE_EDGE: u32 = EPOLLET | EPOLLONESHOT;
const UPDATES: u32 = IORING_POLL_UPDATE_EVENTS | IORING_POLL_UPDATE_USER_DATA;

/// Reads the events word as the kernel does (`io_poll_parse_events`).
const fn parse(events: u32, flags: u32) -> u32 {
    let once = if flags & IORING_POLL_ADD_MULTI == 0 { EPOLLONESHOT } else { 0 };
    let edge = if flags & IORING_POLL_ADD_LEVEL == 0 { EPOLLET } else { 0 };
    events & (EVENTS | EPOLLEXCLUSIVE | EPOLLONESHOT | EPOLLET) | once | edge
}

/// Checks a POLL_ADD (`io_poll_add_prep`).
pub(crate) fn add_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let sqe = req.call.sqe();
    if sqe.buf_index != 0 || sqe.off != 0 || sqe.addr != 0 {
        return Err(Errno::EINVAL);
    }
    let multi = sqe.len & IORING_POLL_ADD_MULTI != 0;
    if sqe.len & !IORING_POLL_ADD_MULTI != 0 || (multi && req.flags.contains(ReqFlags::CQE_SKIP)) {
        return Err(Errno::EINVAL);
    }
    let (events, fd) = (parse(sqe.op_flags, sqe.len) | UNMASK, sqe.fd);
    epoll::polls_set(ctx, req, fd);
    req.call.begin(OpState::Poll(events));
    Ok(())
}

/// Returns which of `events` are ready on `fd` now, by one poll(2).
fn ready(fd: i32, events: u32) -> Result<u32> {
    let revents = sys::poll_now(fd, (events as u16 & EVENTS as u16).cast_signed());
    let revents = u32::from(revents.cast_unsigned());
    if revents & EPOLLNVAL != 0 { Err(Errno::EBADF) } else { Ok(revents) }
}

/// Returns which of its events a request reports, given what its file reports.
fn mask_of(req: &Req, events: u32, mut revents: u32) -> u32 {
    if req.flags.contains(ReqFlags::POLLS_RING) {
        revents |= if revents & EPOLLIN != 0 { EPOLLRDNORM } else { 0 };
        revents |= if revents & EPOLLOUT != 0 { EPOLLWRNORM } else { 0 };
    }
    revents & events & EVENTS
}

/// Returns the events that the kernel reports to a waiter: not what is ready, but what woke it.
/// Data that come to a socket also wake those that wait for urgent data (`sock_def_readable`). An
/// epoll set that becomes ready wakes with EPOLLIN alone (`ep_poll_safewake`).
fn woken(req: &Req, events: u32, revents: u32) -> u32 {
    const URGENT: u32 = EPOLLPRI | EPOLLRDBAND;
    const BOTH: u32 = EPOLLIN | EPOLLRDNORM;
    if events & revents & BOTH == BOTH && is_epoll(req.call.file.fd()) {
        return revents & !EPOLLRDNORM;
    }
    let ended = revents & (EPOLLERR | EPOLLHUP | EPOLLRDHUP) != 0;
    let data = events & URGENT != 0 && revents & (EPOLLIN | EPOLLRDNORM) != 0 && !ended;
    if data && is_socket(req.call.file.fd()) { revents | URGENT } else { revents }
}

/// Returns which ready events a multishot poll reports: those that woke it, in the direction that
/// has an event which its last report had not. An end wakes without flags, and then all are
/// reported.
fn news(p: &Poll, revents: u32, mask: u32) -> u32 {
    const OUTPUT: u32 = EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND;
    let ended = revents & (EPOLLERR | EPOLLHUP | EPOLLRDHUP) != 0;
    let fresh = mask & !p.reported;
    match (fresh & !OUTPUT != 0, fresh & OUTPUT != 0) {
        (true, false) if !ended => mask & !OUTPUT,
        (false, true) if !ended => mask & OUTPUT,
        _ => mask,
    }
}

/// Returns the ready events, or arms (`__io_arm_poll_handler`).
pub(crate) fn add(ctx: &mut Ctx, req: &mut Req) -> Outcome {
    let OpState::Poll(events) = req.call.state else { return Outcome::Done(Errno::EINVAL.res()) };
    if let FileRef::Plain(fd) = req.call.file
        && softring_host::fd::numbers::is_ring(fd)
        && crate::io::kinds::kind(fd) == Kind::Memory
    {
        let none = if ring_file::is_full(ctx, req, fd) { persistent::OUT } else { 0 };
        return ring_file::poll(ctx, req, fd, events & !none);
    }
    if events & EPOLLONESHOT == 0
        && let Some(own) = &ctx.completion.eventfd
        && same_file(own.fd.as_raw_fd(), req.call.file.fd())
    {
        own.is_to_be_polled();
    }
    let absent = core::mem::take(&mut ctx.submit.absent);
    let revents = if absent { Ok(0) } else { ready(req.call.file.fd(), events) };
    match revents.map(|r| mask_of(req, events, r)) {
        Err(Errno::EBADF) if req.call.file.is_path() => Outcome::Done(unpollable(req)),
        Err(e) => Outcome::Done(e.res()),
        Ok(0) => {
            req.call.found = Finding::Nothing;
            Outcome::Polled(events)
        }
        Ok(mask) if events & ONE_EDGE == ONE_EDGE => Outcome::Done(mask.cast_signed()),
        Ok(_) => {
            ctx.drive.transports.ready_now = true;
            Outcome::Polled(events)
        }
    }
}

/// Returns the result for a file that knows no waiting: its ready events (`!ipt->nr_entries`).
pub(crate) fn unpollable(req: &Req) -> i32 {
    let OpState::Poll(events) = req.call.state else { return Errno::EINVAL.res() };
    let revents = match ready(req.call.file.fd(), events) {
        // A registered file that is only a path (`DEFAULT_POLLMASK`).
        Err(Errno::EBADF) if req.call.file.is_path() => {
            Ok(EPOLLIN | EPOLLOUT | EPOLLRDNORM | EPOLLWRNORM)
        }
        revents => revents,
    };
    match revents.map(|r| mask_of(req, events, r)) {
        Ok(mask) if mask != 0 && events & EPOLLET != 0 => mask.cast_signed(),
        Ok(_) => Errno::EINVAL.res(),
        Err(e) => e.res(),
    }
}

/// Acts on the readiness of an armed POLL_ADD.
pub(crate) fn fired(ctx: &mut Ctx, id: ReqId, revents: u32) {
    let Some(req) = ctx.reqs.slab.get(id) else { return };
    let Phase::Polling(p) = req.phase else { return };
    let revents = if revents & EPOLLERR != 0 { error_left(req, revents) } else { revents };
    let revents = if p.waits { woken(req, p.events, revents) } else { revents };
    let (all, user_data) = (mask_of(req, p.events, revents), req.user_data);
    let mask = news(&p, revents, all).cast_signed();
    let ring = p.waits
        && (req.flags.contains(ReqFlags::POLLS_RING)
            || ctx.completion.signalled_itself(&req.call.file, &p));
    let orphan = req.flags.contains(ReqFlags::ORPHAN);
    if mask == 0 {
        if p.events & EPOLLONESHOT != 0 {
            let _ = ctx.poll_again(id);
        }
        return;
    }
    // A poll woken by a ring ends with that wake-up, lest rings wake each other, or themselves, for
    // ever (`EPOLL_URING_WAKE`).
    let goes_on = p.events & EPOLLONESHOT == 0 && !ring && !orphan && !ctx.faults_end_waiting(id);
    if goes_on && ctx.post_more(user_data, mask, 0) {
        ctx.trace_more(id, mask);
        if let Some(Phase::Polling(p)) = ctx.reqs.slab.get_mut(id).map(|req| &mut req.phase) {
            (p.waits, p.reported) = (true, all);
        }
        return;
    }
    ctx.poll_leave(id, p.events & EPOLLONESHOT != 0);
    ctx.complete(id, if orphan { Errno::ECANCELED.res() } else { mask });
}

/// Returns the ready events, without the error if another request has taken it since. An error
/// wakes without flags, and the kernel asks the file when it reports.
fn error_left(req: &Req, revents: u32) -> u32 {
    let left = ready(req.call.file.poll_fd(), EPOLLERR).map_or(EPOLLERR, |now| now & EPOLLERR);
    revents & (!EPOLLERR | left)
}

/// Checks a POLL_REMOVE (`io_poll_remove_prep`).
pub(crate) fn remove_prep(_: &mut Ctx, req: &mut Req) -> Result<()> {
    let sqe = req.call.sqe();
    let flags = sqe.len;
    if sqe.buf_index != 0 || sqe.file_index != 0 {
        return Err(Errno::EINVAL);
    }
    // Multishot without an update means nothing.
    if flags & !(UPDATES | IORING_POLL_ADD_MULTI) != 0 || flags == IORING_POLL_ADD_MULTI {
        return Err(Errno::EINVAL);
    }
    let named = flags & IORING_POLL_UPDATE_USER_DATA != 0;
    let events = flags & IORING_POLL_UPDATE_EVENTS != 0;
    if (!named && sqe.off != 0) || (!events && sqe.op_flags != 0) {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Removes an armed poll, or changes its events or its name (`io_poll_remove`).
pub(crate) fn remove(ctx: &mut Ctx, req: &mut Req) -> Outcome {
    let sqe = *req.call.sqe();
    if req.is_workers() {
        ctx.events_first(req);
    }
    let cancelled = |r: &Req| match r.phase {
        Phase::Polling(_) => Some(false),
        Phase::Cancelled => Some(true),
        _ => None,
    };
    let polls = ctx.reqs.slab.named(sqe.addr).filter(|(_, r)| r.opcode() == IORING_OP_POLL_ADD);
    let found = { polls }.find_map(|(id, r)| Some((id, cancelled(r)?)));
    let id = match found {
        None => return Outcome::Done(Errno::ENOENT.res()),
        Some((_, true)) => return Outcome::Done(Errno::EALREADY.res()),
        // The poll's wake-up is on its way (`io_poll_get_ownership`).
        Some((id, _)) if ctx.has_pending_event(id) => return Outcome::Done(Errno::EALREADY.res()),
        Some((id, _)) => id,
    };
    if sqe.len & UPDATES == 0 {
        ctx.poll_leave(id, false);
        ctx.end_soon(id, Errno::ECANCELED.res());
    } else {
        update(ctx, id, &sqe);
    }
    Outcome::Done(0)
}

/// Changes an armed poll's events or name; a single poll that is ready now ends.
fn update(ctx: &mut Ctx, id: ReqId, sqe: &io_uring_sqe) {
    if sqe.len & IORING_POLL_UPDATE_USER_DATA != 0 {
        ctx.reqs.slab.rename(id, sqe.off);
    }
    let Some(poll) = ctx.reqs.slab.get_mut(id) else { return };
    let Phase::Polling(p) = &mut poll.phase else { return };
    if sqe.len & IORING_POLL_UPDATE_EVENTS != 0 {
        // The mask changes, the behaviour stays.
        p.events = p.events & !0xffff | sqe.op_flags & EVENTS | UNMASK;
        p.reported = 0;
    }
    let events = p.events;
    let now = ready(poll.call.file.fd(), events).map_or(0, |r| mask_of(poll, events, r));
    if now != 0 && events & EPOLLONESHOT != 0 {
        ctx.poll_leave(id, false);
        return ctx.end_soon(id, now.cast_signed());
    }
    // Events that are ready now have woken nobody.
    if let Phase::Polling(p) = &mut poll.phase {
        p.waits = now == 0;
    }
    // An update makes the poll set check the file again: a multishot poll that is ready fires.
    ctx.drive.transports.ready_now = true;
    if let Err(e) = ctx.poll_again(id) {
        ctx.end_soon(id, e.res());
    }
}

impl Completion {
    /// Returns whether a multishot poll waits for the ring's own eventfd, and the ring has
    /// signalled it.
    fn signalled_itself(&self, file: &FileRef, poll: &Poll) -> bool {
        poll.tells_each()
            && self.eventfd.as_ref().is_some_and(|own| {
                own.may_be_polled()
                    && same_file(own.fd.as_raw_fd(), file.fd())
                    && own.take_signalled()
            })
    }
}
