//! Work that a ring has for other rings (`ring::work`), done once its own lock is free.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::io::token::ReqId;
use crate::ring::ctx::{Ctx, Ring};
use crate::ring::opdef::{self, Outcome};
use crate::ring::request::{FileRef, OpState};
use crate::ring::work::{EpollChange, Pending, What};
use softring_host::fd::InternalFd;
use softring_host::fd::kind::Kind;
use softring_uapi::errno::{Errno, Result};

/// Takes the work that a ring has for others. Only one thread delivers: a second thread gets none,
/// so that nothing overtakes what the first has in hand.
fn take_pending(ring: &Arc<Ring>, mine: bool) -> Vec<Pending> {
    ring.lock_now().work.take_pending(mine)
}

/// Delivers the work that a ring has for others. Called without any ring's lock.
pub(crate) fn flush(ring: &Arc<Ring>) {
    let mut mine = false;
    loop {
        let pending = take_pending(ring, mine);
        if pending.is_empty() {
            return;
        }
        mine = true;
        for pending in pending {
            let Some(from) = pending.from else { continue };
            match pending.what {
                What::Poll(fd, events) => arm_on_ring(ring, from, fd, events),
                What::Epoll(change) => change_epoll(ring, from, &change),
                What::Msg(target, msg) => {
                    let sent = target.lock_now().accept_and_wake(&msg);
                    ring.lock_now().complete_elsewhere(from, sent.unwrap_or_else(Errno::res));
                }
            }
        }
        ring.lock_now().turn_behind_call();
    }
}

/// Changes the entry of a ring in an epoll set. Called without any lock.
fn change_epoll(ring: &Ring, from: ReqId, change: &EpollChange) {
    let res = match crate::drive::stand_in::poll_fd(change.fd) {
        Some(stand_in) => change.apply(stand_in),
        None => Errno::EBADF.res(),
    };
    ring.lock_now().complete_elsewhere(from, res);
}

/// Arms a poll of a ring whose stand-in could not be looked up under our own lock. Called without
/// any lock.
fn arm_on_ring(ring: &Ring, from: ReqId, fd: i32, events: u32) {
    let stand_in = crate::drive::stand_in::poll_fd(fd).ok_or(Errno::EBADF);
    let held = stand_in.and_then(softring_host::fd::dup_internal);
    ring.lock_now().worker_delivers(from, |ctx| arm_on(ctx, from, held, events));
}

/// Arms the poll on the ring's stand-in.
fn arm_on(ctx: &mut Ctx, from: ReqId, stand_in: Result<InternalFd>, events: u32) {
    let Some(mut req) = ctx.reqs.slab.take(from) else { return };
    match stand_in {
        Ok(file) => {
            req.call.file = FileRef::Owned(file, Kind::Pollable);
            let outcome = if req.row.has(opdef::POLLS) {
                req.call.state = OpState::Poll(events);
                ctx.issue(&mut req)
            } else {
                Outcome::Polled(events)
            };
            ctx.outcome(req, outcome);
        }
        Err(e) => {
            req.fail(e);
            ctx.finish(req);
        }
    }
}
