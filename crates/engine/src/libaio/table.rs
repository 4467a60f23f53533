//! The contexts that we know of, by id.
//!
//! Most programs never poll, so most contexts soon need no second look; while all that there are
//! need none, a call costs one load.

use super::context::Context;
use super::{POLL_ALL, emulated};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;
use softring_host::fork::{self, AtFork};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

#[derive(Clone)]
pub(super) enum Entry {
    /// The kernel's.
    Kernels(Arc<Context>),
    /// Emulated, where the kernel has none.
    Ours(Arc<emulated::Context>),
}

impl Entry {
    fn id(&self) -> usize {
        match self {
            Entry::Kernels(ctx) => ctx.id(),
            Entry::Ours(ctx) => ctx.id(),
        }
    }

    /// Do its calls need a look?
    fn counts(&self) -> bool {
        match self {
            Entry::Kernels(ctx) => ctx.counts(),
            Entry::Ours(_) => true,
        }
    }
}

type Table = BTreeMap<usize, Entry>;

static TABLE: RwLock<Table> = RwLock::new(Table::new());
/// Contexts whose calls need a look. Relaxed: the program learns of a context after it was counted,
/// and must itself order that before another thread's call.
static COUNTED: AtomicUsize = AtomicUsize::new(0);

fn write() -> RwLockWriteGuard<'static, Table> {
    TABLE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Notes a context that the kernel has just made for `nr` iocbs.
pub(super) fn note(id: usize, nr: u32) {
    fork::init();
    insert(Entry::Kernels(Arc::new(Context::new(id, nr, POLL_ALL.load(Relaxed)))));
}

pub(super) fn insert(entry: Entry) {
    let mut table = write();
    // The number was another's before, whose end we did not hear of.
    drop(remove(&mut table, entry.id()));
    table.insert(entry.id(), entry);
    COUNTED.fetch_add(1, Relaxed);
}

/// The context behind an id, if it needs a look.
#[inline]
pub(super) fn find(id: usize) -> Option<Entry> {
    if COUNTED.load(Relaxed) == 0 {
        return None;
    }
    find_counted(id)
}

fn find_counted(id: usize) -> Option<Entry> {
    fork::check();
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    table.get(&id).filter(|e| e.counts()).cloned()
}

/// The same, and forgets it.
pub(super) fn take(id: usize) -> Option<Entry> {
    remove(&mut write(), id)
}

fn remove(table: &mut Table, id: usize) -> Option<Entry> {
    let entry = table.remove(&id)?;
    if entry.counts() {
        COUNTED.fetch_sub(1, Relaxed);
    }
    Some(entry)
}

/// A context needs no look any more.
pub(super) fn settled() {
    COUNTED.fetch_sub(1, Relaxed);
}

/// The child finds the table whole.
pub(crate) const AT_FORK: AtFork = AtFork::held(|| Some(Box::new(write())), |_| forget());

/// The contexts are the parent's, and the kernel knows none of them here. Their locks may be held
/// by threads that are not here: never looked at again.
fn forget() {
    COUNTED.store(0, Relaxed);
    Box::leak(Box::new(core::mem::take(&mut *write())));
}
