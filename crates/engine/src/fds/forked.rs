//! `fork(3)`: what is held over it, and what the child makes of the engine.

use super::table::{Table, all, write};
use super::table_lock::Write;
use super::{kept, locks};
use crate::ctx::Ring;
use crate::transport::worker::signal::BlockAll;
use core::cell::Cell;
use core::mem::ManuallyDrop;
use std::sync::Arc;

std::thread_local! {
    /// What `fork_prepare` holds until the fork is over. A handler that forks may come between any
    /// two instructions while this is `None`, and finds and leaves it so; else signals are blocked.
    /// No destructor, which the first use in a thread would have to register.
    static HELD: Cell<Option<ManuallyDrop<Held>>> = const { Cell::new(None) };
}

struct Held {
    /// The rings that were locked, whatever has become of the table since they were listed.
    rings: Vec<Arc<Ring>>,
    _table: Write<Table>,
    _reactor: crate::wait::reactor::Held,
    _aio: crate::aio::Held,
    _stats: crate::stats::Held,
    _limit: crate::alone::Held,
    /// No handler runs in the middle: it might fork.
    signals: BlockAll,
}

impl Held {
    /// What this thread holds, if anything.
    fn take() -> Option<Held> {
        HELD.take().map(ManuallyDrop::into_inner)
    }

    /// Lets go of all but the signals, and the rings, the last of which may take locks.
    fn release(self) -> (Vec<Arc<Ring>>, BlockAll) {
        (self.rings, self.signals)
    }
}

/// Before `fork`: takes every lock so that the child finds a consistent engine.
pub fn fork_prepare() {
    if crate::fork::pid() == 0 || crate::fork::is_vfork_child() {
        return;
    }
    let signals = BlockAll::new();
    let mut rings = all();
    if !rings.is_empty() {
        // The child may ask it for what it cannot do itself.
        crate::wait::reactor::ensure();
    }
    lock_all(&rings);
    let table = loop {
        let table = write();
        // Other threads go on making rings until the table is held.
        let known = |ring: &Arc<Ring>| rings.iter().any(|other| other.id == ring.id);
        let mut new = table.all();
        new.retain(|ring| !known(ring));
        if new.is_empty() {
            break table;
        }
        drop(table);
        lock_all(&new);
        rings.append(&mut new);
    };
    let held = Held {
        rings,
        _table: table,
        _reactor: crate::wait::reactor::hold(),
        _aio: crate::aio::fork_prepare(),
        _stats: crate::stats::hold(),
        _limit: crate::mem::file::hold(),
        signals,
    };
    HELD.set(Some(ManuallyDrop::new(held)));
}

/// Takes the locks of rings, in the order of their ids, and leaves their files where a child finds
/// them.
fn lock_all(rings: &[Arc<Ring>]) {
    for ring in rings {
        ring.lock_now().files.deposit();
    }
    for ring in rings {
        ring.control.lock_now();
    }
}

/// After `fork`, in the parent.
pub fn fork_parent() {
    let Some(held) = Held::take() else { return };
    let (rings, _signals) = held.release();
    for ring in rings {
        ring.control.unlock();
    }
}

/// After `fork`, in the child: threads, epoll sets and aio contexts are gone and are rebuilt when
/// needed.
pub fn fork_child() {
    let parent = crate::fork::pid();
    // A handler that forks finds what follows done, or not begun: signals stay as they were blocked
    // before the fork, until the end. (Blocked once more, they would be left blocked.)
    let held = Held::take().map(Held::release);
    let (rings, signals) = held.map_or((Vec::new(), None), |(r, s)| (r, Some(s)));
    let _signals = signals.or_else(|| (parent != 0).then(BlockAll::new));
    // Dropped at the end: a last one would give its place on the parent's page back.
    let _rings = rings;
    crate::fork::adopt();
    crate::wait::reactor::fork_child(parent);
    crate::stats::fork_child();
    crate::stats::trace::fork_child();
    crate::aio::fork_child();
    crate::transport::aio::kept::fork_child();
    for ring in all() {
        crate::teardown::fork_child(&ring);
    }
    crate::req::estate::fork_child();
    kept::fork_child();
    locks::fork_child();
    // Whoever waits in them does so in the parent.
    write().closed.clear();
    if parent != 0 {
        crate::rsrc::ring_fds::fork_child();
    }
}
