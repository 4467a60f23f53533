//! The known contexts, by id.
//!
//! Most programs never poll, so the calls on most contexts soon need no inspection. While the calls
//! on no context need one, a call costs one load.

use super::context::Context;
use super::emulated;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use softring_host::fork::{self, AtFork, keeps};
use softring_host::sync::real::{RwLock, RwLockWriteGuard};

#[derive(Clone)]
pub(super) enum Entry {
    /// Context of the kernel's.
    Kernels(Arc<Context>),
    /// Emulated context, if the kernel has none.
    Ours(Arc<emulated::Context>),
}

impl Entry {
    fn id(&self) -> usize {
        match self {
            Entry::Kernels(ctx) => ctx.id(),
            Entry::Ours(ctx) => ctx.id(),
        }
    }

    /// Returns whether calls on the context must be inspected.
    fn counts(&self) -> bool {
        match self {
            Entry::Kernels(ctx) => ctx.counts(),
            Entry::Ours(_) => true,
        }
    }
}

type Table = BTreeMap<usize, Entry>;

/// Process-wide state of kernel aio.
pub(super) struct OfProcess {
    table: RwLock<Table>,
    /// Number of contexts whose calls must be inspected. Relaxed: the program learns of a context
    /// after it was counted, and must itself order that before another thread's call.
    counted: AtomicUsize,
    /// Flag, true if every context is polled.
    pub(super) poll_all: AtomicBool,
    /// Flag, true if some calls on contexts do not reach the engine, as far as the entry points
    /// know.
    pub(super) misses_calls: AtomicBool,
    /// Flag, true if this process or its parents have made an emulated context.
    pub(super) emulated: AtomicBool,
    pub(super) counts: Counts,
}

/// Counters for statistics only, so relaxed. Written in each wait: in a cache line of their own.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Counts {
    /// Waits that peeked for events, and those of them that found the events.
    pub(super) peeked: AtomicU64,
    pub(super) found: AtomicU64,
    pub(super) idle_sleeps: AtomicU64,
}

pub(super) static PROCESS: OfProcess = OfProcess {
    table: RwLock::new(Table::new()),
    counted: AtomicUsize::new(0),
    poll_all: AtomicBool::new(false),
    misses_calls: AtomicBool::new(false),
    emulated: AtomicBool::new(false),
    counts: Counts {
        peeked: AtomicU64::new(0),
        found: AtomicU64::new(0),
        idle_sleeps: AtomicU64::new(0),
    },
};

fn write() -> RwLockWriteGuard<'static, Table> {
    write_to(&PROCESS.table)
}

fn write_to(table: &RwLock<Table>) -> RwLockWriteGuard<'_, Table> {
    table.write()
}

/// Records a context that the kernel has just made for `nr` iocbs.
pub(super) fn record(id: usize, nr: u32) {
    fork::init();
    insert(Entry::Kernels(Arc::new(Context::new(id, nr, PROCESS.poll_all.load(Relaxed)))));
}

pub(super) fn insert(entry: Entry) {
    let mut table = write();
    // The id was another context's before, whose end was not reported.
    drop(remove(&mut table, entry.id()));
    table.insert(entry.id(), entry);
    PROCESS.counted.fetch_add(1, Relaxed);
}

/// Returns the context behind an id, if its calls must be inspected.
#[inline]
pub(super) fn find(id: usize) -> Option<Entry> {
    if PROCESS.counted.load(Relaxed) == 0 {
        return None;
    }
    find_counted(id)
}

fn find_counted(id: usize) -> Option<Entry> {
    fork::check();
    let table = PROCESS.table.read();
    table.get(&id).filter(|e| e.counts()).cloned()
}

/// Removes the context behind an id, and returns it.
pub(super) fn take(id: usize) -> Option<Entry> {
    remove(&mut write(), id)
}

fn remove(table: &mut Table, id: usize) -> Option<Entry> {
    let entry = table.remove(&id)?;
    if entry.counts() {
        PROCESS.counted.fetch_sub(1, Relaxed);
    }
    Some(entry)
}

/// Ends the inspection of the calls on a context.
pub(super) fn stop_inspecting() {
    PROCESS.counted.fetch_sub(1, Relaxed);
}

/// Fork hooks: the table is locked, so that the child finds it whole.
pub(crate) const AT_FORK: AtFork =
    AtFork::locked(|| Some(Box::new(write())), |_| PROCESS.in_child());

impl OfProcess {
    fn in_child(&self) {
        let Self { table, counted, poll_all, misses_calls, emulated, counts } = self;
        counted.store(0, Relaxed);
        // The contexts are the parent's, and the kernel knows none of them here. Their locks may be
        // held by threads that are not here: the contexts are never peeked at again.
        Box::leak(Box::new(core::mem::take(&mut *write_to(table))));
        keeps(poll_all, "what the environment has set holds for children");
        keeps(misses_calls, "what the entry points know holds for children");
        keeps(emulated, "says so of its parents, too");
        keeps(counts, "for tests and reports only");
    }
}
