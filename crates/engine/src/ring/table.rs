//! The rings by descriptor. `closing` adds and removes entries.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::io::persistent;
use crate::ring::ctx::Ring;
use softring_host::fd::numbers::{Answers, File, file, is_internal, is_known_ring, mark_ring};
use softring_host::fd::owned::{InternalFd, check_visible, is_hidden};
use softring_host::fd::table_lock::{Locked, Read, Write};
use softring_host::fd::{duplicates, moved, numbers};
use softring_host::fork::{AtFork, Child, keeps};
use softring_uapi::errno::{Errno, Result};

/// The table of ring descriptors.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Rings by descriptor, with the file id that proves that the number still means that ring.
    pub(crate) rings: Vec<(i32, File, Arc<Ring>)>,
    /// Descriptors by ring id that poll readable while the ring has completions.
    pub(crate) poll: Vec<(u64, InternalFd)>,
    /// Rings without a descriptor that have not ended yet, because a thread waits in them.
    pub(crate) closed: Vec<Weak<Ring>>,
}

/// State of this module, once per process.
#[derive(Debug)]
struct OfProcess {
    table: Locked<Table>,
    next_id: AtomicU64,
}

static PROCESS: OfProcess = OfProcess {
    table: Locked::new(Table { rings: Vec::new(), poll: Vec::new(), closed: Vec::new() }),
    next_id: AtomicU64::new(1),
};

/// The table is locked over a fork, as the rings are, and the rings are renewed before it
/// (`process::forked`).
pub(crate) const AT_FORK: AtFork = AtFork::new(|child| PROCESS.in_child(child));

impl OfProcess {
    fn in_child(&'static self, child: &Child) {
        let Self { table, next_id } = self;
        // If there never was a ring, no system call is made for them: the program's own filter may
        // kill the process for it.
        if child.parent != 0 {
            table.fork_child(child);
            // The threads that wait in them are the parent's.
            with_duplicates(table.write()).closed.clear();
        }
        keeps(next_id, "a child's rings are others than those that it has inherited");
    }
}

/// Number of entries for which the table reserves memory: dup(2) may be called in a signal handler,
/// which may not call malloc(3).
const SPARE: usize = 16;

pub(crate) fn read() -> Read<'static, Table> {
    PROCESS.table.read()
}

pub(crate) fn write() -> Write<Table> {
    with_duplicates(PROCESS.table.write())
}

/// Locks the table where a signal handler may call it: see [`write()`] and [`Locked::write_soon`].
pub(crate) fn write_soon() -> Option<Write<Table>> {
    PROCESS.table.write_soon().map(with_duplicates)
}

/// Enters the duplicates that handlers have left.
fn with_duplicates(mut table: Write<Table>) -> Write<Table> {
    for (new, old) in duplicates::take() {
        table.duplicated(old, new);
    }
    table
}

/// Returns a fresh ring id.
pub(crate) fn next_id() -> u64 {
    PROCESS.next_id.fetch_add(1, Relaxed)
}

/// Enters a ring under a descriptor that means `file`.
pub(crate) fn enter(fd: i32, file: File, ring: Arc<Ring>) {
    let mut table = write();
    numbers::answer_by(Answers { has, is_live });
    table.rings.reserve(1 + SPARE);
    mark_ring(fd, true);
    table.rings.push((fd, file, ring));
}

/// Moves an internal descriptor away from `fd`, the target of the program's dup2(2). True if `fd`
/// is still open, and to be replaced.
///
/// # Errors
/// `EMFILE`.
pub fn move_away(fd: i32) -> Result<bool> {
    moved::move_away(fd, |high| {
        if is_known_ring(fd) {
            ring_moved(fd, high);
        }
    })
}

/// Records a new number of the engine's own descriptor of a ring.
fn ring_moved(old: i32, new: i32) {
    let Some(mut table) = write_soon() else { return };
    for entry in table.rings.iter_mut().filter(|r| r.0 == old) {
        entry.0 = new;
    }
    mark_ring(old, false);
    mark_ring(new, true);
}

/// Records that `new` is a duplicate of ring `old`.
pub(crate) fn duplicated(old: i32, new: i32) {
    if let Some(mut table) = write_soon() {
        return table.duplicated(old, new);
    }
    if duplicates::leave(new, duplicates::original(old)) {
        mark_ring(new, true);
    }
}

/// Returns the ring behind a descriptor.
///
/// # Errors
/// `EOPNOTSUPP` if the number is open but no ring, `EBADF` if it is not open.
pub fn ring(fd: i32) -> Result<Arc<Ring>> {
    if let Some(ring) = find(fd) {
        return Ok(ring);
    }
    check_visible(fd).and(Err(Errno::EOPNOTSUPP))
}

/// Returns the ring behind a descriptor of the program, if it is one of ours.
#[inline]
pub fn find(fd: i32) -> Option<Arc<Ring>> {
    if !is_known_ring(fd) || is_hidden(fd) {
        return None;
    }
    read().entry(fd).map(|r| r.2.clone())
}

/// Returns whether `fd` is the only descriptor of a ring of ours.
pub fn is_last(fd: i32) -> bool {
    let Some(ring) = find(fd) else { return false };
    read().rings.iter().filter(|r| r.2.id == ring.id).count() == 1
}

/// Value of [`Ring::stand_in`] once the ring has no descriptor.
pub(crate) const CLOSED: i32 = -2;

/// A ring whose last descriptor was taken out of the table, and its stand-in for polls, which may
/// be closed once `drive::teardown::end` has ended its use.
pub(crate) type Closed = (Arc<Ring>, Option<InternalFd>);

/// Takes the matching entry out of the table; returns its ring, if that was the last one. In a
/// signal handler whose thread reads the table, or has the lock of the ring that is to end, the
/// entry stays.
pub(crate) fn take_out(meant: impl Fn(&(i32, File, Arc<Ring>)) -> bool) -> Option<Closed> {
    let mut table = write_soon()?;
    let at = table.rings.iter().position(meant)?;
    let of = &table.rings[at].2;
    let last = table.rings.iter().filter(|r| r.2.id == of.id).count() == 1;
    if last && of.control.is_locked_here() {
        return None;
    }
    let (fd, _, ring) = table.rings.swap_remove(at);
    mark_ring(fd, table.rings.iter().any(|r| r.0 == fd));
    let poll = table.poll.iter().position(|p| last && p.0 == ring.id);
    let poll = poll.map(|i| table.poll.swap_remove(i).1);
    if last {
        // From here on no other stand-in is made.
        ring.stand_in.store(CLOSED, SeqCst);
        table.closed.push(Arc::downgrade(&ring));
    }
    last.then_some((ring, poll))
}

/// Removes closed rings that have ended.
pub(crate) fn forget_ended() {
    // These references keep a ring from ending under the table's lock.
    let mut held = Vec::new();
    let Some(mut table) = write_soon() else { return };
    table.closed.retain(|w| {
        let Some(ring) = w.upgrade() else { return false };
        let lives = !ring.dead.load(Relaxed);
        held.push(ring);
        lives
    });
    drop(table);
}

/// Returns every ring, including closed rings in which a thread waits.
pub(crate) fn all() -> Vec<Arc<Ring>> {
    read().all()
}

/// Returns the rings for which `wanted` holds. Writes to no memory of the others.
pub(crate) fn some(wanted: impl Fn(&Ring) -> bool) -> Vec<Arc<Ring>> {
    let table = read();
    let mut rings: Vec<_> = table.open().into_iter().filter(|r| wanted(r)).cloned().collect();
    rings.extend(table.closed.iter().filter_map(Weak::upgrade));
    drop(table);
    rings.retain(|ring| wanted(ring));
    rings
}

impl Table {
    /// Returns each ring that has a descriptor, once, in the order of their ids.
    pub(crate) fn open(&self) -> Vec<&Arc<Ring>> {
        let mut rings: Vec<_> = self.rings.iter().map(|r| &r.2).collect();
        rings.sort_by_key(|r| r.id);
        rings.dedup_by_key(|r| r.id);
        rings
    }

    #[inline]
    fn entry(&self, fd: i32) -> Option<&(i32, File, Arc<Ring>)> {
        let find = |fd: i32| self.rings.iter().find(|r| r.0 == fd);
        find(fd).or_else(|| find(duplicates::original(fd)))
    }

    fn duplicated(&mut self, old: i32, new: i32) {
        if let Some((_, file, ring)) = self.entry(old) {
            let entry = (new, *file, ring.clone());
            mark_ring(new, true);
            self.rings.push(entry);
        }
    }

    /// Returns every ring; see [`all`].
    pub(crate) fn all(&self) -> Vec<Arc<Ring>> {
        let open = self.rings.iter().map(|r| r.2.clone());
        let closed = self.closed.iter().filter_map(Weak::upgrade);
        let mut rings: Vec<_> = open.chain(closed).collect();
        rings.sort_by_key(|r| r.id);
        rings.dedup_by_key(|r| r.id);
        rings
    }
}

/// Calls `f` with every ring, with some more than once: [`all`] for a signal handler, without an
/// allocation. The walk is backward, since a removal moves later entries forward.
fn each(f: impl Fn(&Ring)) {
    let open = |i: usize| read().rings.get(i).map(|r| r.2.clone());
    let closed = |i: usize| read().closed.get(i).and_then(Weak::upgrade);
    let rings = read().rings.len();
    (0..rings).rev().filter_map(open).for_each(|ring| f(&ring));
    let rings = read().closed.len();
    (0..rings).rev().filter_map(closed).for_each(|ring| f(&ring));
}

/// Moves all waiters on `fd` in poll sets to an internal number. Called without any ring's lock,
/// and while the number is [`persistent::Closing`].
pub(crate) fn number_closes(fd: i32) {
    if persistent::registered_anywhere(fd) {
        each(|ring| ring.number_closes(fd));
    }
}

/// Returns the ring behind the `i`th ring descriptor, so that a signal handler can walk all rings
/// without an allocation, or a lock that the interrupted thread may hold.
pub(crate) fn nth(i: usize) -> Option<Arc<Ring>> {
    let table = read();
    table.rings.get(i).map(|r| r.2.clone())
}

/// Returns whether one of the first few rings is likely to have completions, as a thread has left
/// it so. Never waits, as it is asked in every poll: a signal handler may poll amid a malloc(3) for
/// which a fork waits that has the table. `false` if the table is in use.
pub fn left_ready() -> bool {
    /// Number of rings that are checked.
    const FEW: usize = 4;
    let left_ready = |ring: &(i32, File, Arc<Ring>)| ring.2.regular.left_ready.load(Relaxed);
    PROCESS.table.try_read().is_some_and(|table| table.rings.iter().take(FEW).any(left_ready))
}

fn has(fd: i32) -> bool {
    read().rings.iter().any(|r| r.0 == fd)
}

fn is_live(fd: i32) -> bool {
    let known = read().entry(fd).map(|r| r.1);
    known.is_some_and(|known| file(fd) == known)
}

/// Returns whether no ring of ours is open. Never waits: `false` if the table is in use.
pub fn surely_no_ring() -> bool {
    PROCESS.table.try_read().is_some_and(|t| t.rings.is_empty())
}

pub(crate) fn first_ring(within: impl Fn(i32) -> bool) -> Option<i32> {
    duplicates::any(&within).or_else(|| first_entry(within))
}

fn first_entry(within: impl Fn(i32) -> bool) -> Option<i32> {
    read().rings.iter().map(|r| r.0).find(|&fd| within(fd) && !is_internal(fd) && is_known_ring(fd))
}

#[cfg(all(test, not(loom)))]
mod tests {
    #[test]
    fn a_poll_does_not_wait_for_the_table() {
        let _table = super::write();
        assert!(!super::left_ready());
    }
}
