//! The rings by descriptor: which ring a number means. How they get in and out is for `closing`.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::io::persistent;
use crate::ring::ctx::Ring;
use softring_host::fd::numbers::{Answers, File, file, is_internal, is_known_ring, mark_ring};
use softring_host::fd::owned::{InternalFd, check_visible, is_hidden};
use softring_host::fd::table_lock::{Locked, Read, Write};
use softring_host::fd::{duplicates, moved, numbers};
use softring_host::fork::{AtFork, Child, keeps};
use softring_uapi::errno::{Errno, Result};

/// What a table entry says about a number.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Rings by descriptor, with what proves that the number still means that ring.
    pub(crate) rings: Vec<(i32, File, Arc<Ring>)>,
    /// A descriptor that polls readable while a ring has completions.
    pub(crate) poll: Vec<(u64, InternalFd)>,
    /// Rings without a descriptor that have not ended yet: somebody waits in them.
    pub(crate) closed: Vec<Weak<Ring>>,
}

/// What a process has once of it.
#[derive(Debug)]
struct OfProcess {
    table: Locked<Table>,
    next_id: AtomicU64,
}

static PROCESS: OfProcess = OfProcess {
    table: Locked::new(Table { rings: Vec::new(), poll: Vec::new(), closed: Vec::new() }),
    next_id: AtomicU64::new(1),
};

/// The table is held over a fork, as the rings are, and they are renewed before this
/// (`process::forked`).
pub(crate) const AT_FORK: AtFork = AtFork::new(|child| PROCESS.in_child(child));

impl OfProcess {
    fn in_child(&'static self, child: &Child) {
        let Self { table, next_id } = self;
        // Where there never was a ring, nothing is called for them: the program's own filter may
        // kill for it.
        if child.parent != 0 {
            // Whoever waits in them does so in the parent.
            with_duplicates(table.write()).closed.clear();
        }
        keeps(next_id, "a child's rings are others than those that it has inherited");
    }
}

/// Entries for which the table has memory beforehand: dup(2) may be called in a signal handler,
/// which may not call malloc(3).
const SPARE: usize = 16;

pub(crate) fn read() -> Read<'static, Table> {
    PROCESS.table.read()
}

pub(crate) fn write() -> Write<Table> {
    with_duplicates(PROCESS.table.write())
}

/// As [`write`], where a signal handler may call it: see [`Locked::write_soon`].
pub(crate) fn write_soon() -> Option<Write<Table>> {
    PROCESS.table.write_soon().map(with_duplicates)
}

/// Enters what handlers have left.
fn with_duplicates(mut table: Write<Table>) -> Write<Table> {
    for (new, old) in duplicates::take() {
        table.duplicated(old, new);
    }
    table
}

/// A fresh ring id.
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

/// The program gets number `fd` by dup2(2): what the engine has there moves away. True if `fd` is
/// open still, and to be replaced.
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

/// The engine's own descriptor of a ring has another number.
fn ring_moved(old: i32, new: i32) {
    let Some(mut table) = write_soon() else { return };
    for entry in table.rings.iter_mut().filter(|r| r.0 == old) {
        entry.0 = new;
    }
    mark_ring(old, false);
    mark_ring(new, true);
}

/// `new` is a duplicate of ring `old`.
pub(crate) fn duplicated(old: i32, new: i32) {
    if let Some(mut table) = write_soon() {
        return table.duplicated(old, new);
    }
    if duplicates::leave(new, duplicates::original(old)) {
        mark_ring(new, true);
    }
}

/// The ring behind a descriptor.
///
/// # Errors
/// `EOPNOTSUPP` if the number is open but no ring, `EBADF` if it is not open.
pub fn ring(fd: i32) -> Result<Arc<Ring>> {
    if let Some(ring) = find(fd) {
        return Ok(ring);
    }
    check_visible(fd).and(Err(Errno::EOPNOTSUPP))
}

/// The ring behind a descriptor of the program's, if it is one of ours.
#[inline]
pub fn find(fd: i32) -> Option<Arc<Ring>> {
    if !is_known_ring(fd) || is_hidden(fd) {
        return None;
    }
    read().entry(fd).map(|r| r.2.clone())
}

/// A ring whose last descriptor was taken out of the table, and what stood for it in polls.
pub(crate) type Closed = (Arc<Ring>, Option<InternalFd>);

/// Takes the entry that is meant out of the table; answers its ring, if that was the last one. In a
/// signal handler whose thread reads the table, or has the lock of the ring that is to end, it
/// stays.
pub(crate) fn take_out(meant: impl Fn(&(i32, File, Arc<Ring>)) -> bool) -> Option<Closed> {
    let mut table = write_soon()?;
    let at = table.rings.iter().position(meant)?;
    let of = &table.rings[at].2;
    let last = table.rings.iter().filter(|r| r.2.id == of.id).count() == 1;
    if last && of.control.is_held_here() {
        return None;
    }
    let (fd, _, ring) = table.rings.swap_remove(at);
    mark_ring(fd, table.rings.iter().any(|r| r.0 == fd));
    let poll = table.poll.iter().position(|p| last && p.0 == ring.id);
    let poll = poll.map(|i| table.poll.swap_remove(i).1);
    if last {
        table.closed.push(Arc::downgrade(&ring));
    }
    last.then_some((ring, poll))
}

/// A closed ring has ended.
pub(crate) fn forget_ended() {
    // None of them ends under the table's lock.
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

/// Every ring there is, also those that are closed while somebody waits in them.
pub(crate) fn all() -> Vec<Arc<Ring>> {
    read().all()
}

/// The rings for which `wanted` holds. Writes to no memory of the others.
pub(crate) fn some(wanted: impl Fn(&Ring) -> bool) -> Vec<Arc<Ring>> {
    let table = read();
    let mut rings: Vec<_> = table.open().into_iter().filter(|r| wanted(r)).cloned().collect();
    rings.extend(table.closed.iter().filter_map(Weak::upgrade));
    drop(table);
    rings.retain(|ring| wanted(ring));
    rings
}

impl Table {
    /// Each ring that has a descriptor, once, in the order of their ids.
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

    /// As [`all`].
    pub(crate) fn all(&self) -> Vec<Arc<Ring>> {
        let open = self.rings.iter().map(|r| r.2.clone());
        let closed = self.closed.iter().filter_map(Weak::upgrade);
        let mut rings: Vec<_> = open.chain(closed).collect();
        rings.sort_by_key(|r| r.id);
        rings.dedup_by_key(|r| r.id);
        rings
    }
}

/// Calls `f` with every ring there is, some more than once. As [`all`] for a signal handler: asks
/// for no memory. From the end, since a ring that goes moves those behind it forward.
fn each(f: impl Fn(&Ring)) {
    let open = |i: usize| read().rings.get(i).map(|r| r.2.clone());
    let closed = |i: usize| read().closed.get(i).and_then(Weak::upgrade);
    let rings = read().rings.len();
    (0..rings).rev().filter_map(open).for_each(|ring| f(&ring));
    let rings = read().closed.len();
    (0..rings).rev().filter_map(closed).for_each(|ring| f(&ring));
}

/// Whoever waits on `fd` in a poll set goes on under a number of the engine's. Called without any
/// ring's lock, and while the number is [`persistent::Closing`].
pub(crate) fn number_closes(fd: i32) {
    if persistent::registered_anywhere(fd) {
        each(|ring| ring.number_closes(fd));
    }
}

/// The ring behind the `i`th ring descriptor: to go through them all in a signal handler, without
/// asking for memory, or for a lock that the interrupted thread may hold.
pub(crate) fn nth(i: usize) -> Option<Arc<Ring>> {
    let table = read();
    table.rings.get(i).map(|r| r.2.clone())
}

fn has(fd: i32) -> bool {
    read().rings.iter().any(|r| r.0 == fd)
}

fn is_live(fd: i32) -> bool {
    let known = read().entry(fd).map(|r| r.1);
    known.is_some_and(|known| file(fd) == known)
}

/// Is no ring of ours open? Never waits: `false` if the table is in use.
pub fn surely_no_ring() -> bool {
    PROCESS.table.try_read().is_some_and(|t| t.rings.is_empty())
}

pub(crate) fn first_ring(within: impl Fn(i32) -> bool) -> Option<i32> {
    duplicates::any(&within).or_else(|| first_entry(within))
}

fn first_entry(within: impl Fn(i32) -> bool) -> Option<i32> {
    read().rings.iter().map(|r| r.0).find(|&fd| within(fd) && !is_internal(fd) && is_known_ring(fd))
}
