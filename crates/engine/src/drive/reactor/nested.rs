//! A ring's poll set within the reactor's set. The kernel passes each event of an inner set on to
//! the outer one, in the call that causes the event, also if the outer set is disarmed for it. So
//! the set of a ring that the program drives is taken out after a while.

use core::sync::atomic::Ordering::SeqCst;

use crate::ring::ctx::{Guard, Ring};
use softring_host::calls::epoll;
use softring_uapi::epoll_event;

/// Number of ticks in which a ring is driven before its poll set leaves: to add it again costs more
/// than to arm it again.
const TICKS: u8 = 4;

/// Makes the next event of a ring's poll set one of `set`, under the number `id`.
pub(super) fn arm(set: i32, id: u64, mut ctx: Guard<'_>) {
    let fd = ctx.drive.transports.epoll_fd().unwrap_or(-1);
    ctx.drive.transports.in_reactor = TICKS;
    drop(ctx);
    // EPOLLIN | EPOLLONESHOT
    let ev = epoll_event { events: 1 | 1 << 30, data: id };
    if epoll::epoll_ctl(set, epoll::EPOLL_CTL_MOD, fd, &ev).is_err() {
        let _ = epoll::epoll_ctl(set, epoll::EPOLL_CTL_ADD, fd, &ev);
    }
}

/// Notes that a waiter has driven the ring since the last tick. Whoever watches the ring sets
/// `watched` before it takes the lock, and calls [`arm`] afterwards: either this finds the flag, or
/// the poll set is added again.
pub(super) fn is_driven(set: i32, ring: &Ring, mut ctx: Guard<'_>) {
    let transports = &mut ctx.drive.transports;
    if transports.in_reactor == 0 || ring.watched.load(SeqCst) {
        return;
    }
    transports.in_reactor -= 1;
    if transports.in_reactor == 0
        && let Some(fd) = transports.epoll_fd()
    {
        let _ = epoll::epoll_ctl(set, epoll::EPOLL_CTL_DEL, fd, &epoll_event::default());
    }
}
