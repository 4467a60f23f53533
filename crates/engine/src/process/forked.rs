//! `fork(3)`: the locks held over it, and the engine's renewal in the child.
#![allow(unsafe_code)]

use crate::drive::{self, reactor, stand_in};
use crate::memory::{self, lock};
use crate::process::journal;
use crate::process::registered;
use crate::resources::{self, task_rules};
use crate::ring::ctx::{Ctx, Ring};
use crate::ring::table::{self, Table, all, some, surely_no_ring, write};
use crate::ring::task;
use crate::{io, libaio, stats};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::cell::Cell;
use core::mem::ManuallyDrop;
use softring_host::fd::table_lock::Write;
use softring_host::fd::{children, dup_cache, exec, lock_race, locks, same_table};
use softring_host::fork::{self, AtFork, Child};
use softring_host::signal::BlockAll;

/// Process-wide states that a fork concerns, in the order in which a child goes through them.
const STATES: &[AtFork] = &[
    // Asked by the states below before they close anything.
    same_table::AT_FORK,
    lock_race::AT_FORK,
    resources::AT_FORK,
    // From here on this process is one of its own.
    fork::AT_FORK,
    drive::AT_FORK,
    stats::AT_FORK,
    libaio::AT_FORK,
    io::AT_FORK,
    io::persistent::AT_FORK,
    memory::AT_FORK,
    // A ring gives things back to all states above.
    AtFork::new(renew_rings),
    table::AT_FORK,
    task::AT_FORK,
    journal::AT_FORK,
    dup_cache::AT_FORK,
    locks::AT_FORK,
    exec::AT_FORK,
    registered::AT_FORK,
];

softring_host::per_thread! {
    /// Guards that `prepare` holds until the fork is over. A handler that forks may come between
    /// any two instructions while this is `None`, and finds and leaves it so; else signals are
    /// blocked. There is no destructor, which the first use in a thread would have to register.
    static GUARDS: Cell<Option<ManuallyDrop<ForkGuards>>> = const { Cell::new(None) };
}

struct ForkGuards {
    /// Locked rings that are in the table no more, or closed.
    closed: Vec<Arc<Ring>>,
    /// Table, all of whose rings are locked.
    table: Write<Table>,
    children: children::ListGuard,
    /// Guards of [`STATES`].
    others: Vec<Box<dyn Any>>,
    /// Block of all signals: a handler in the middle might fork.
    signals: BlockAll,
}

impl ForkGuards {
    /// Returns the guards that this thread holds, if any.
    fn take() -> Option<ForkGuards> {
        GUARDS.take().map(ManuallyDrop::into_inner)
    }

    /// Releases all guards but those of the signals and the list of children. Rings are returned,
    /// too: dropping the last reference to a ring may take locks.
    fn release(self) -> (Vec<Arc<Ring>>, BlockAll, children::ListGuard) {
        lock::set_forking(false);
        drop(self.others);
        (self.closed, self.signals, self.children)
    }
}

/// Number of attempts to lock all rings, before the fork waits for each.
const TRIES: u32 = 20;

/// Makes the engine notice, from now on, forks that are not reported, wherever it checks for one.
pub fn notice() {
    fork::noticed_by(in_child);
}

/// Notices a fork that was not reported (by a raw system call).
pub fn check() {
    fork::check();
}

/// Takes every lock before `fork`, so that the child finds a consistent engine.
pub fn prepare() {
    task_rules::before_fork();
    check();
    if fork::pid() == 0 && fork::begin_bare() || fork::is_vfork_child() {
        return;
    }
    let signals = BlockAll::begin();
    if !surely_no_ring() {
        // The child may ask the reactor for what it cannot do itself.
        reactor::ensure();
    }
    // Neither list of rings lives on below: dropping a last reference takes locks held there.
    some(stand_in::was_polled).iter().for_each(stand_in::before_fork);
    // SAFETY: the lock has just been taken.
    for ring in some(|ring| !ring.control.try_hold() || unsafe { is_fresh(ring) }) {
        ring.lock_now().resources.files.deposit();
    }
    let (table, closed) = try_hold_all().unwrap_or_else(lock_all);
    // SAFETY: the locks of all rings in the table are held, without guards.
    let tell = |ring: &&Arc<Ring>| unsafe { ring.peek() }.is_some_and(has_deposits);
    let tell = table.open().iter().any(tell);
    let held = ForkGuards {
        closed,
        table,
        children: children::fork_prepare(tell),
        others: STATES.iter().filter_map(|state| (state.hold)()).collect(),
        signals,
    };
    GUARDS.set(Some(ManuallyDrop::new(held)));
}

fn has_deposits(ctx: &Ctx) -> bool {
    ctx.resources.files.is_deposited()
}

/// Returns whether a ring, whose lock is held, has files that a child would not find. Unlocks.
///
/// # Safety
/// The caller holds the lock, without a guard.
unsafe fn is_fresh(ring: &Ring) -> bool {
    // SAFETY: the lock is held, without a guard, and is given up below.
    let fresh = unsafe { ring.peek() }.is_none_or(|ctx| ctx.resources.files.is_fresh());
    // SAFETY: as above; `fresh` borrows nothing.
    unsafe { ring.control.unlock() };
    fresh
}

/// Takes the table and the locks of all rings, if nobody holds one for long. Writes to no memory of
/// a ring that a child has in common with this process: such a page would be copied.
fn try_hold_all() -> Option<(Write<Table>, Vec<Arc<Ring>>)> {
    lock::set_forking(true);
    for _ in 0..TRIES {
        let table = write();
        if !table.closed.is_empty() {
            break;
        }
        let rings = table.open();
        let Some(busy) = rings.iter().position(|ring| !ring.control.try_hold()) else {
            return Some((table, Vec::new()));
        };
        // SAFETY: taken just now, by this loop.
        rings[..busy].iter().for_each(|ring| unsafe { ring.control.unlock() });
        drop(table);
        softring_host::threads::yield_now();
    }
    lock::set_forking(false);
    None
}

/// Does the same, but waits for each lock. The locks come first, in the order of ring ids.
fn lock_all() -> (Write<Table>, Vec<Arc<Ring>>) {
    let mut rings = all();
    rings.iter().for_each(|ring| ring.control.lock_now());
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
        for ring in &new {
            ring.lock_now().resources.files.deposit();
            ring.control.lock_now();
        }
        rings.append(&mut new);
    };
    let open: Vec<u64> = table.open().iter().map(|ring| ring.id).collect();
    rings.retain(|ring| open.binary_search(&ring.id).is_err());
    (table, rings)
}

/// Releases everything after `fork`, in the parent.
pub fn in_parent() {
    let Some(held) = ForkGuards::take() else { return fork::end_bare() };
    // SAFETY: `prepare` has taken the locks of all rings in the table, and those of `closed`.
    held.table.open().iter().for_each(|ring| unsafe { ring.control.unlock() });
    let (rings, _signals, children) = held.release();
    children.fork_parent();
    // SAFETY: as above.
    rings.iter().for_each(|ring| unsafe { ring.control.unlock() });
}

/// Renews the engine after `fork`, in the child: threads, epoll sets and aio contexts are gone and
/// are rebuilt when needed.
///
/// Closes what the child inherits and does not need. The child has no POSIX locks, unless this call
/// comes late because the fork was not reported: then the engine asks before each close of a file
/// of the program's, as in any process.
///
/// # Safety
/// This is a forked child that has not been here before. The calling thread is the only one, and is
/// in no call on a ring: nobody holds a guard of a ring or of the engine's other states, but for
/// those of [`prepare`] in this thread.
pub unsafe fn in_child() {
    let parent = fork::pid();
    // A handler that forks finds what follows done, or not begun: signals stay blocked as before
    // the fork until the end. (Blocked once more, they would be left blocked.)
    let held = ForkGuards::take().map(ForkGuards::release);
    let late = parent != 0 && held.is_none();
    let (rings, signals, children) =
        held.map_or((Vec::new(), None, None), |(r, s, c)| (r, Some(s), Some(c)));
    let _signals = signals.or_else(|| (parent != 0).then(BlockAll::begin));
    // Dropped at the end: a last reference would give its slot on the parent's page back.
    let _rings = rings;
    lock::set_forking(false);
    // SAFETY: the caller's.
    STATES.iter().for_each(|state| unsafe { (state.child)(&Child { parent, late }) });
    children.map_or_else(children::forget, children::ListGuard::fork_child);
}

/// # Safety
/// As [`AtFork::child`].
unsafe fn renew_rings(child: &Child) {
    // If there never was a ring, this makes no call: the program's own filter may kill for it.
    if child.parent == 0 {
        return;
    }
    // SAFETY: a fresh child has this one thread, which is in no call on a ring, says our caller.
    for ring in some(|ring| unsafe { drive::teardown::must_let_go(ring) }) {
        if ring.is_inherited() {
            // SAFETY: as above.
            unsafe { ring.renew_now() };
        }
    }
}
