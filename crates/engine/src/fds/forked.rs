//! `fork(3)`: what is held over it, and what the child makes of the engine.

use super::{Table, all, write};
use crate::ctx::Ring;
use std::sync::{Arc, RwLockWriteGuard};

std::thread_local! {
    /// What `fork_prepare` holds until the fork is over.
    static HELD: core::cell::RefCell<Option<Held>> = const { core::cell::RefCell::new(None) };
}

struct Held {
    /// The rings that were locked, whatever has become of the table since they were listed.
    rings: Vec<Arc<Ring>>,
    _table: RwLockWriteGuard<'static, Table>,
    _reactor: crate::wait::reactor::Held,
    _aio: crate::aio::Held,
    _stats: crate::stats::Held,
    _limit: crate::alone::Held,
}

impl Held {
    /// Lets go of all but the rings, the last of which may take locks.
    fn release(self) -> Vec<Arc<Ring>> {
        self.rings
    }
}

/// Before `fork`: takes every lock so that the child finds a consistent engine.
pub fn fork_prepare() {
    if crate::fork::pid() == 0 || crate::fork::is_vfork_child() {
        return;
    }
    let rings = all();
    if !rings.is_empty() {
        // The child may ask it for what it cannot do itself.
        crate::wait::reactor::ensure();
    }
    for ring in &rings {
        ring.control.lock();
    }
    let held = Held {
        rings,
        _table: write(),
        _reactor: crate::wait::reactor::hold(),
        _aio: crate::aio::fork_prepare(),
        _stats: crate::stats::hold(),
        _limit: crate::mem::file::hold(),
    };
    HELD.with_borrow_mut(|h| *h = Some(held));
}

/// After `fork`, in the parent.
pub fn fork_parent() {
    let Some(held) = HELD.take() else { return };
    for ring in held.release() {
        ring.control.unlock();
    }
}

/// After `fork`, in the child: threads, epoll sets and aio contexts are gone and are rebuilt when
/// needed.
pub fn fork_child() {
    // Dropped at the end: a last one would give its place on the parent's page back.
    let _rings = HELD.take().map(Held::release);
    let parent = crate::fork::pid();
    crate::fork::adopt();
    crate::wait::reactor::fork_child(parent);
    crate::stats::fork_child();
    crate::stats::trace::fork_child();
    crate::aio::fork_child();
    for ring in all() {
        crate::teardown::fork_child(&ring);
    }
    // Whoever waits in them does so in the parent.
    write().closed.clear();
    crate::rsrc::ring_fds::fork_child();
}
