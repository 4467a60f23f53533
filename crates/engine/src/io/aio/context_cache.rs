//! Contexts of rings that have ended.
//!
//! io_destroy(2) waits for everything in flight, and then for a grace period of the kernel's: tens
//! of milliseconds even for an idle context. Close of a ring waits for neither, as on the kernel.
//! So the context is kept for a later ring, which takes it once all its events have come. The
//! kernel has copied the iocbs, and writes into no memory of ours but the context's ring. Beyond a
//! bound, a thread is started that destroys the surplus contexts and exits.
//!
//! ```text
//! ring ends ──▶ kept ──▶ next ring          (all its events have come)
//!                └─────▶ ending ──▶ thread: io_destroy
//! ```
//!
//! Nobody waits for the lock: a thread that finds the lock taken does without the cache. So a
//! signal handler may interrupt the holder, and another thread may fork meanwhile.
#![allow(unsafe_code)]

use super::ring::Ring;
use crate::io::of_process::PROCESS;
use alloc::vec::Vec;
use core::time::Duration;
use softring_host::calls::aio::{self, Ending};
use softring_host::limits::{AIO_CACHED, AIO_CACHED_DEPTH};
use softring_host::signal::BlockAll;
use softring_host::sync::real::{Mutex, MutexGuard};

/// A kernel aio context.
#[derive(Debug)]
pub(super) struct CachedContext {
    pub(crate) id: usize,
    /// Iocbs that the context was made for.
    pub(crate) depth: u32,
    /// `None` where the mapped ring is not of the known form.
    pub(crate) ring: Option<Ring>,
    /// Iocbs whose events have not come.
    pub(crate) in_flight: u32,
    /// Flag, set if a thread is in io_getevents on the context.
    pub(crate) awaited: bool,
}

#[derive(Debug)]
pub(crate) struct State {
    /// Contexts for later rings, the oldest first.
    cached: Vec<CachedContext>,
    /// Ids of contexts that the thread is to destroy.
    ending: Vec<usize>,
    /// Flag, set while such a thread runs.
    ends: bool,
}

/// Name and stack size of the thread, and its pause between two tries for the lock.
const NAME: &str = "aio";
const STACK: usize = 64 << 10;
const RETRY: Duration = Duration::from_millis(1);

fn state() -> Option<MutexGuard<'static, State>> {
    PROCESS.aio_contexts.try_lock()
}

impl CachedContext {
    /// Drops the events that have come; returns true if no more are to come.
    fn is_idle(&mut self) -> bool {
        let Some(ring) = &mut self.ring else { return false };
        while self.in_flight > 0 && ring.pop().is_some() {
            self.in_flight -= 1;
        }
        ring.release();
        self.in_flight == 0
    }

    fn end(self) {
        destroy(self.id);
    }
}

/// Ends a context that a ring has left, and the cache no longer has.
fn destroy(id: usize) {
    // SAFETY: the context was the engine's own; its `Ring` is gone with the `CachedContext`.
    let _ = aio::io_destroy(unsafe { Ending::of(id) });
}

/// Takes an idle context with room for `depth` iocbs from the cache.
pub(super) fn take(depth: u32) -> Option<CachedContext> {
    let mut state = state()?;
    let fits = |one: &mut CachedContext| one.depth >= depth && one.is_idle();
    let at = state.cached.iter_mut().position(fits)?;
    Some(state.cached.remove(at))
}

/// Keeps the context of a ring that has ended.
pub(super) fn keep(ctx: CachedContext) {
    // With signals blocked, no handler interrupts the holder of the lock.
    let _blocked = BlockAll::begin();
    let Some(mut state) = state() else { return ctx.end() };
    if ctx.ring.is_none() || ctx.awaited {
        state.ending.push(ctx.id);
    } else {
        state.cached.push(ctx);
    }
    while state.is_too_much() {
        let idle = state.cached.iter_mut().position(CachedContext::is_idle);
        let surplus = state.cached.remove(idle.unwrap_or(0));
        state.ending.push(surplus.id);
    }
    if state.ending.is_empty() || state.ends {
        return;
    }
    state.ends = softring_host::threads::spawn(NAME, STACK, end_surplus).is_ok();
    if !state.ends {
        let ending = core::mem::take(&mut state.ending);
        drop(state);
        ending.into_iter().for_each(destroy);
    }
}

impl State {
    pub(crate) const fn new() -> Self {
        State { cached: Vec::new(), ending: Vec::new(), ends: false }
    }

    fn is_too_much(&self) -> bool {
        let depth: u32 = self.cached.iter().map(|one| one.depth).sum();
        self.cached.len() > AIO_CACHED || depth > AIO_CACHED_DEPTH
    }
}

/// Destroys surplus contexts until none is left.
fn end_surplus() {
    loop {
        let Some(mut state) = state() else {
            softring_host::sys::pause(RETRY);
            continue;
        };
        let Some(id) = state.ending.pop() else {
            state.ends = false;
            return;
        };
        drop(state);
        destroy(id);
    }
}

/// Destroys the idle contexts of the cache, because the system has no room for another context.
/// Returns true if there were any.
pub(super) fn make_room() -> bool {
    let Some(mut state) = state() else { return false };
    let all = core::mem::take(&mut state.cached);
    let (idle, busy): (Vec<_>, Vec<_>) =
        all.into_iter().map(|mut one| (one.is_idle(), one)).partition(|(idle, _)| *idle);
    state.cached = busy.into_iter().map(|(_, one)| one).collect();
    drop(state);
    let some = !idle.is_empty();
    idle.into_iter().for_each(|(_, one)| one.end());
    some
}

/// Empties the cache in a forked child: the contexts are the parent's, but their rings are still
/// mapped here.
pub(crate) fn forget(state: &Mutex<State>) {
    let Some(mut state) = state.try_lock() else { return };
    for one in state.cached.drain(..) {
        if let Some(ring) = one.ring {
            ring.unmap();
        }
    }
    state.ending.clear();
    state.ends = false;
}
