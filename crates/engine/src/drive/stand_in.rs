//! A ring's state as poll(2) knows it, and the descriptor that stands for a ring where the program
//! polls it: a memfd cannot be polled.

use alloc::sync::Arc;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::sleep::sleep_on_sequence;
use crate::ring::ctx::{Ctx, Ring};
use crate::ring::table::{CLOSED, find, write_soon};
use softring_host::fd::{make_internal, now};
use softring_host::handlers::Call;
use softring_host::sys::{self, borrow};

/// Size of the stack of a thread that signals for others, and the time after which it asks whether
/// the ring is still open.
const FOLLOWER_STACK: usize = 64 << 10;
const FOLLOWER_NS: u64 = 500_000_000;

/// Returns whether the submission queue of ring `fd` is full. False if `fd` is not a ring of ours,
/// or if a signal handler cannot find out.
pub fn sq_full(fd: i32) -> bool {
    let _call = Call::begin();
    let Some(ring) = find(fd) else { return false };
    let ctx = ring.lock_soon();
    ctx.is_some_and(|ctx| ctx.mem.sq_full())
}

/// Returns a descriptor that polls readable while ring `fd` has completions, to stand for the ring
/// in epoll, poll and select; `None` if `fd` is not a ring of ours. Clears stale readability.
///
/// poll(2) is called in signal handlers, too. If the interrupted thread has the ring's lock, the
/// descriptor is made readable without a check of the ring, and the program polls it once in vain.
pub fn poll_fd(fd: i32) -> Option<i32> {
    let _call = Call::begin();
    let ring = find(fd)?;
    ring.uses_stand_in();
    of_ring(&ring)
}

/// Does the same as [`poll_fd`] for an epoll set, which may do without later
/// ([`silence`](super::sets::silence)).
pub fn set_fd(fd: i32) -> Option<i32> {
    let _call = Call::begin();
    of_ring(&find(fd)?)
}

/// Returns the number of the ring's stand-in, which is made if need be.
pub(super) fn number(ring: &Ring) -> Option<i32> {
    stand_in(ring).map(now)
}

/// Returns whether a thread has polled the ring.
pub(crate) fn was_polled(ring: &Ring) -> bool {
    ring.polled_ever.load(SeqCst) || ring.stand_in.load(SeqCst) >= 0
}

/// Prepares a polled ring for a fork: threads of both processes poll it by one stand-in from now
/// on, which both processes signal.
pub(crate) fn before_fork(ring: &Arc<Ring>) {
    ring.uses_stand_in();
    of_ring(ring);
    ring.forked.store(true, SeqCst);
}

/// Returns the stand-in of a ring, from now on signalled; `None` if the ring is closed.
fn of_ring(ring: &Arc<Ring>) -> Option<i32> {
    let first = stand_in(ring)?;
    let stand_in = now(first);
    let locked = match ring.lock_soon() {
        None => false,
        // Another thread has closed the ring, and its stand-in is gone, or about to.
        Some(_) if !is_open(ring, first) => return None,
        Some(mut ctx) => {
            ctx.completion.poll_fd = Some(first);
            update(ring, &mut ctx, stand_in);
            true
        }
    };
    follow(ring);
    if !locked || !crate::drive::reactor::guard_soon(ring) {
        signal_unsure(ring, first);
    }
    Some(stand_in)
}

/// Returns whether a stand-in is still the ring's. The caller holds the ring's lock.
fn is_open(ring: &Ring, first: i32) -> bool {
    ring.stand_in.load(SeqCst) == first
}

/// Makes a stand-in readable, whatever the ring has.
fn signal_unsure(ring: &Ring, first: i32) {
    // Without a guard, this is a signal handler whose thread holds the lock.
    let _ctx = ring.lock_soon();
    let Some(e) = borrow(now(first)).filter(|_| is_open(ring, first)) else { return };
    let _ = softring_host::os::io::write(e, &1u64.to_ne_bytes());
    // Not before: who clears the flag must find the signal.
    ring.stand_in_unsure.store(true, SeqCst);
}

/// Makes a stand-in readable if the ring is, else not. A waiter for an edge must not see a false
/// one.
fn update(ring: &Ring, ctx: &mut Ctx, stand_in: i32) {
    let ready =
        ctx.mem.cq_ready() > 0 || !ctx.completion.overflow.is_empty() || ctx.owes_task_work();
    signal(ring, ctx, stand_in, ready);
}

/// Makes a stand-in readable, or not.
pub(super) fn signal(ring: &Ring, ctx: &mut Ctx, stand_in: i32, ready: bool) {
    let Some(e) = borrow(stand_in) else { return };
    match (ready, is_signalled(ring, ctx, stand_in)) {
        (true, false) => drop(softring_host::os::io::write(e, &1u64.to_ne_bytes())),
        (false, true) => drop(softring_host::os::io::read(e, &mut [0u8; 8])),
        _ => {}
    }
    ctx.completion.signalled = Some(ready);
}

/// Returns whether a stand-in is readable. Asks only where others than holders of the lock may have
/// changed that: another process that has the ring, or a thread that could not have the lock.
fn is_signalled(ring: &Ring, ctx: &Ctx, stand_in: i32) -> bool {
    let unsure = ring.stand_in_unsure.swap(false, SeqCst)
        || ring.forked.load(Relaxed)
        || ring.is_inherited();
    let known = ctx.completion.signalled.filter(|_| !unsure);
    known.unwrap_or_else(|| sys::poll_now(stand_in, sys::POLLIN) != 0)
}

/// Starts the thread that signals the stand-in for processes that share the ring, if they do not:
/// the ring came by a fork, and had no stand-in then. They change the sequence word when they post.
fn follow(ring: &Arc<Ring>) {
    if !ring.unsignalled.load(SeqCst) || ring.followed.swap(true, SeqCst) {
        return;
    }
    let known = Arc::downgrade(ring);
    let signals = move || while known.upgrade().is_some_and(|ring| signal_next(&ring)) {};
    if softring_host::threads::spawn("fol", FOLLOWER_STACK, signals).is_err() {
        ring.followed.store(false, SeqCst);
    }
}

/// Updates the stand-in, and sleeps until somebody posts; false once the ring is closed.
fn signal_next(ring: &Ring) -> bool {
    let mut ctx = ring.lock_now();
    if ring.dead.load(SeqCst) {
        return false;
    }
    if let Some(stand_in) = ctx.completion.poll_fd.map(now) {
        update(ring, &mut ctx, stand_in);
    }
    let control = ctx.mem.control.clone();
    let unlock = || {
        drop(ctx);
        true
    };
    sleep_on_sequence(&control, false, FOLLOWER_NS, None, unlock);
    true
}

/// Returns the eventfd that stands for a ring, made now if need be, by its first number; `None` if
/// the ring is closed.
fn stand_in(ring: &Ring) -> Option<i32> {
    let known = ring.stand_in.load(SeqCst);
    if known != -1 {
        return (known != CLOSED).then_some(known);
    }
    let e = softring_host::substitute::eventfd().ok()?;
    let e = make_internal(e);
    let first = e.first();
    let mut table = write_soon()?;
    match ring.stand_in.compare_exchange(-1, first, SeqCst, SeqCst) {
        Ok(_) => {
            table.poll.push((ring.id, e));
            Some(first)
        }
        Err(other) => {
            // Another thread was faster, or has closed the ring: ours goes, when the table's lock
            // is free.
            drop(table);
            drop(e);
            (other != CLOSED).then_some(other)
        }
    }
}
