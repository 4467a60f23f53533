//! Workers: threads that run blocking work, the io-wq of user space.
//!
//! Runs on: its own threads, named `iou-wrk-PID`, all signals blocked but the one that interrupts a
//! running item. A worker may block on anything that a [`Work`] does; callers of this module block
//! only on the pool's lock.
//!
//! Two accounts, as in the kernel: *bounded* work ends in finite time (regular files), *unbounded*
//! work may not (pipes, sockets). Each has its own workers and limit, so that neither waits behind
//! the other. A worker is created when an item finds no idle one and the limit allows it; it exits
//! after [`WORKER_IDLE`] unless it is its account's last. Items
//! with equal hash keys run one at a time, in order, and never occupy more than one worker.
//!
//! # No item is left behind
//! All decisions are made under the pool's lock. An item is pushed and an idle worker chosen in one
//! critical section. A worker finds the queue empty and joins the idle list in one. It exits only
//! if still in the idle list. The interleaving that could lose an item, and why it does not:
//!
//! ```text
//! submitter                               worker W (idle, alone in the list)
//!                                         park() times out
//! lock; push item; take W off the list
//! unlock; unpark W  ── token kept ──┐     lock: W is not in the idle list, so a wake-up
//!                                   │     is on its way: it must not leave; it pops the
//!                                   │     item (or finds it taken and parks, which the
//!                                   └───▶ token ends at once)
//! ```
//!
//! `tests::model` has loom try every order of this, and `verify::cancel` every order of the next.
//!
//! # Interrupting a running item
//! A signal handler without `SA_RESTART` makes the blocked system call fail with EINTR. A signal
//! that comes just before the worker enters its call is lost, so [`Pool::interrupt`] sends one at
//! once and has a kernel timer repeat it every [`WORKER_SIGNAL_EVERY`] until the item is done. An
//! item must therefore treat EINTR as cancelled once cancellation was requested, and may see EINTR
//! more than once. No signal reaches the worker's next item: signals are sent, and their timer is
//! deleted, under the lock that the worker takes between two items.
//!
//! [`WORKER_SIGNAL_EVERY`]: softring_host::limits::WORKER_SIGNAL_EVERY
//!
//! # Locks
//! The pool's lock is the only one, and a leaf: neither a predicate nor `Work::key`, `hash_key`,
//! `unbound` may call into the pool or take another lock that is held around calls to it.
//! [`Work::run`] runs without the lock. A forked child may find the lock held by a thread that it
//! does not have: it leaves the pool untouched for ever, and makes a new one.
//!
//! Kernel counterpart: `io_uring/io-wq.c`. See io_uring_register(2),
//! IORING_REGISTER_IOWQ_MAX_WORKERS.

mod queue;
#[cfg_attr(loom, allow(dead_code))]
#[cfg(test)]
mod tests;
mod thread;

use crate::stats::PoolSlot;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use core::time::Duration;
use queue::{Queue, account};
use softring_host::limits::{
    CPU_MASK_BYTES, WORKER_IDLE, WORKER_STACK, WORKERS_MAX, WORKERS_PER_CPU,
};
use softring_host::sync::{Mutex, Parker, Repeated};
use softring_uapi::errno::{Errno, Result};

/// An item that a worker runs.
pub(crate) trait Work: Send + 'static {
    /// Description of an item that stays available while it runs; predicates check this.
    type Key: Copy + Send + 'static;

    /// Runs on a worker thread, may block; posts its own completion.
    fn run(self);

    /// Returns the account: false for work that ends in finite time (regular files), true for work
    /// that may not.
    fn unbound(&self) -> bool;

    /// Returns the hash key. Items with equal keys run one at a time, in order (buffered writes, by
    /// inode), and are always bounded work.
    fn hash_key(&self) -> Option<u64>;

    fn key(&self) -> Self::Key;
}

/// The two kinds of workers, numbered as `IORING_REGISTER_IOWQ_MAX_WORKERS` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    Bound = 0,
    Unbound = 1,
}

/// Numbers of workers and items of one account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) workers: u32,
    pub(crate) idle: u32,
    pub(crate) running: u32,
    /// Items that wait: ready ones and those behind their hash key.
    pub(crate) queued: u32,
    pub(crate) max: u32,
}

struct Acct {
    workers: u32,
    max: u32,
    /// Slots of parked workers; the last to park is woken first, so that the others time out and
    /// exit.
    idle: Vec<u32>,
}

/// One worker, seen from the pool.
struct Slot<K> {
    acct: Account,
    parker: Arc<Parker>,
    tid: i32,
    running: Option<K>,
    bucket: Option<u32>,
    signals: Repeated,
}

struct State<W: Work> {
    queue: Queue<W>,
    acct: [Acct; 2],
    slots: Vec<Option<Slot<W::Key>>>,
    affinity: Option<Box<[u8]>>,
    down: bool,
    counters: PoolSlot,
}

/// Idle worker that an item was queued for, if there was one. The worker leaves the idle list when
/// it is chosen, and so no other item wakes it: [`Self::run`] must.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Wake(Option<Arc<Parker>>);

impl Wake {
    pub(crate) fn is_nobody(&self) -> bool {
        self.0.is_none()
    }

    /// Wakes the worker: one futex wake.
    #[inline]
    pub(crate) fn run(self) {
        if let Some(parker) = self.0 {
            parker.unpark();
        }
    }
}

/// The workers of one process's rings (the kernel has one io-wq per task), and the items that wait
/// for them.
pub(crate) struct Pool<W: Work> {
    state: Mutex<State<W>>,
    name: String,
    idle: Duration,
    stack: usize,
    /// Workers of each account that stay even if idle.
    stay: AtomicU32,
}

/// Returns the kernel's default limits for a ring of `sq_entries` created by this thread: bounded
/// is four per CPU, but not more than entries; unbounded is RLIMIT_NPROC.
pub(crate) fn default_limits(sq_entries: u32) -> [u32; 2] {
    [sq_entries.min(WORKERS_PER_CPU * softring_host::substitute::processors()), nproc()]
}

fn nproc() -> u32 {
    let soft =
        softring_host::substitute::getrlimit(softring_host::os::process::Resource::Nproc).current;
    soft.map_or(u32::MAX, |n| n.min(u64::from(u32::MAX)) as u32)
}

impl<W: Work> Pool<W> {
    /// Creates an empty pool; its threads are named after `pid`, the task that created the ring.
    pub(crate) fn new(pid: u32, bounded_max: u32, unbounded_max: u32) -> Arc<Self> {
        Self::with(pid, [bounded_max, unbounded_max], WORKER_IDLE, WORKER_STACK)
    }

    /// Creates a pool with another idle time and stack size; see [`Self::new`].
    pub(crate) fn with(pid: u32, max: [u32; 2], idle: Duration, stack: usize) -> Arc<Self> {
        let acct = max.map(|max| Acct { workers: 0, max: max.max(1), idle: Vec::new() });
        let (queue, slots, counters) = (Queue::new(), Vec::new(), PoolSlot::default());
        let state = State { queue, acct, slots, affinity: None, down: false, counters };
        let name = format!("iou-wrk-{pid}");
        Arc::new(Self { state: Mutex::new(state), name, idle, stack, stay: AtomicU32::new(1) })
    }

    /// Creates a temporary pool with the same limits: all its workers exit when idle.
    pub(crate) fn another(&self) -> Arc<Self> {
        let s = self.state.lock();
        let acct = [0, 1].map(|a| Acct { workers: 0, max: s.acct[a].max, idle: Vec::new() });
        let (queue, slots, counters) = (Queue::new(), Vec::new(), PoolSlot::default());
        let affinity = s.affinity.clone();
        let state = State { queue, acct, slots, affinity, down: false, counters };
        let (name, idle, stack) = (self.name.clone(), self.idle, self.stack);
        Arc::new(Self { state: Mutex::new(state), name, idle, stack, stay: AtomicU32::new(0) })
    }

    /// Starts a bounded worker if there is none, and keeps one from now on.
    pub(crate) fn keep_one(self: &Arc<Self>) {
        self.stay.store(1, Relaxed);
        let mut s = self.state.lock();
        if s.down || s.acct[Account::Bound as usize].workers > 0 {
            return;
        }
        s.acct[Account::Bound as usize].workers += 1;
        drop(s);
        if !thread::spawn(self, Account::Bound) {
            self.state.lock().acct[Account::Bound as usize].workers -= 1;
        }
    }

    /// Sets the slot in which the pool's workers are counted.
    pub(crate) fn count_at(&self, counters: PoolSlot) {
        let mut s = self.state.lock();
        s.counters = counters;
        s.count();
    }

    /// Returns the slot of its counters, as a ring's statistics name it.
    pub(crate) fn counter_slot(&self) -> u64 {
        self.state.lock().counters.name()
    }

    /// Queues an item. Costs one futex wake if a worker is idle, a thread's creation if there is
    /// room for another, and nothing if all are busy or the item waits behind its hash key.
    ///
    /// # Errors
    /// The item, when no worker runs and none can be created (RLIMIT_NPROC, ENOMEM) or the pool was
    /// shut down: the caller runs it inline.
    pub(crate) fn queue(self: &Arc<Self>, w: W) -> core::result::Result<(), W> {
        self.queue_if(w, || true).map(Wake::run)
    }

    /// Queues an item, and creates a worker only if `may_make` allows it; see [`Self::queue`]. The
    /// caller wakes the idle worker that was chosen.
    ///
    /// # Errors
    /// Those of [`Self::queue`].
    pub(crate) fn queue_if(
        self: &Arc<Self>,
        w: W,
        may_make: impl FnOnce() -> bool,
    ) -> core::result::Result<Wake, W> {
        let a = account(&w);
        let mut s = self.state.lock();
        if s.down {
            return Err(w);
        }
        let acct = &mut s.acct[a as usize];
        let needs_worker = acct.idle.is_empty() && acct.workers < acct.max.min(WORKERS_MAX);
        if needs_worker && !s.queue.must_wait(&w) {
            s.acct[a as usize].workers += 1;
            // Not under the lock: creating a thread takes tens of microseconds, and workers want to
            // finish meanwhile.
            drop(s);
            let made = may_make() && thread::spawn(self, a);
            s = self.state.lock();
            if !made {
                s.acct[a as usize].workers -= 1;
            }
            if s.down || s.acct[a as usize].workers == 0 {
                return Err(w);
            }
        }
        let wake = if s.queue.must_wait(&w) { None } else { s.pop_idle(a) };
        s.queue.push(w);
        s.count();
        Ok(Wake(wake))
    }

    /// Returns whether an item may be queued or running whose hash key is `key`: others share its
    /// bucket.
    pub(crate) fn is_busy(&self, key: u64) -> bool {
        self.state.lock().queue.is_busy(key)
    }

    /// Removes queued items whose key matches: the first, or all. If none was removed, or with
    /// `all`, also counts the matching running items (at most one without `all`), and leaves them
    /// alone; see [`Self::interrupt`].
    pub(crate) fn cancel(
        &self,
        mut pred: impl FnMut(&W::Key) -> bool,
        all: bool,
    ) -> (Vec<W>, usize) {
        let mut s = self.state.lock();
        let removed = s.queue.remove(&mut pred, all);
        s.count();
        if !all && !removed.is_empty() {
            return (removed, 0);
        }
        let running =
            s.running().filter(|k| pred(k)).take(if all { usize::MAX } else { 1 }).count();
        (removed, running)
    }

    /// Removes queued items as [`Self::cancel`] does, and interrupts the matching running items.
    pub(crate) fn cancel_and_interrupt(
        &self,
        mut pred: impl FnMut(&W::Key) -> bool,
        all: bool,
    ) -> (Vec<W>, usize) {
        let (queued, running) = self.cancel(&mut pred, all);
        if running > 0 {
            self.interrupt(pred);
        }
        (queued, running)
    }

    /// Makes the system calls of running items whose key matches fail with EINTR, until the item is
    /// done; returns the number of matches. Uninterruptible calls (disk I/O) run to their end.
    pub(crate) fn interrupt(&self, mut pred: impl FnMut(&W::Key) -> bool) -> usize {
        let mut s = self.state.lock();
        let slots = s.slots.iter_mut().flatten();
        let matching: Vec<_> =
            slots.filter(|slot| slot.running.as_ref().is_some_and(&mut pred)).collect();
        let n = matching.len();
        matching.into_iter().for_each(|slot| slot.signals.start(slot.tid, n));
        n
    }

    /// Sets the limit of each account and returns the limits so far; 0 leaves a limit as it is. As
    /// in the kernel, RLIMIT_NPROC caps them. Workers beyond a lowered limit exit when idle.
    ///
    /// # Errors
    /// EINVAL for a number above `i32::MAX`.
    pub(crate) fn set_max(&self, max: [u32; 2]) -> Result<[u32; 2]> {
        if max.iter().any(|&n| n > i32::MAX as u32) {
            return Err(Errno::EINVAL);
        }
        let limit = nproc();
        let mut s = self.state.lock();
        let old = [s.acct[0].max, s.acct[1].max];
        for (acct, n) in s.acct.iter_mut().zip(max) {
            if n != 0 {
                acct.max = n.min(limit).max(1);
            }
        }
        s.count();
        Ok(old)
    }

    /// Confines the workers, present and future, to a CPU mask (bit per CPU); `None` lifts it. A
    /// mask without any CPU of this machine or cpuset changes nothing, as sched_setaffinity(2)
    /// refuses it.
    ///
    /// # Errors
    /// EINVAL for a mask longer than any kernel's.
    pub(crate) fn set_affinity(&self, mask: Option<&[u8]>) -> Result<()> {
        if mask.is_some_and(|m| m.len() > CPU_MASK_BYTES) {
            return Err(Errno::EINVAL);
        }
        let mut s = self.state.lock();
        s.affinity = mask.map(|m| {
            // sched_setaffinity needs whole longs on no kernel, but a padded mask is right on all.
            let mut m = m.to_vec();
            m.resize(m.len().next_multiple_of(8), 0);
            m.into_boxed_slice()
        });
        let every_cpu = [0xff; CPU_MASK_BYTES];
        let now = s.affinity.as_deref().unwrap_or(&every_cpu);
        for slot in s.slots.iter().flatten().filter(|slot| slot.tid != 0) {
            thread::confine(slot.tid, now);
        }
        Ok(())
    }

    /// Returns the numbers of workers and items, by [`Account`].
    pub(crate) fn counts(&self) -> [Counts; 2] {
        let s = self.state.lock();
        [Account::Bound, Account::Unbound].map(|a| {
            let acct = &s.acct[a as usize];
            let mine = s.slots.iter().flatten().filter(|slot| slot.acct == a);
            Counts {
                workers: acct.workers,
                idle: acct.idle.len() as u32,
                running: mine.filter(|slot| slot.running.is_some()).count() as u32,
                queued: s.queue.waiting(a),
                max: acct.max,
            }
        })
    }

    /// Ends the pool: returns the items that waited, and ends the idle workers; the others exit
    /// after their current item. From now on [`Self::queue`] returns every item.
    pub(crate) fn shutdown(&self) -> Vec<W> {
        let mut s = self.state.lock();
        s.down = true;
        let left = s.queue.remove(|_| true, true);
        for a in [Account::Bound, Account::Unbound] {
            while let Some(parker) = s.pop_idle(a) {
                parker.unpark();
            }
        }
        left
    }
}

impl<W: Work> State<W> {
    fn pop_idle(&mut self, a: Account) -> Option<Arc<Parker>> {
        let slot = self.acct[a as usize].idle.pop()?;
        self.slots[slot as usize].as_ref().map(|s| s.parker.clone())
    }

    /// Writes the counters of the statistics page.
    fn count(&self) {
        self.counters.set(|| {
            [Account::Bound, Account::Unbound].map(|a| {
                let acct = &self.acct[a as usize];
                let idle = acct.idle.len() as u64;
                let [workers, queued, max] = [acct.workers, self.queue.waiting(a), acct.max];
                [u64::from(workers), idle, u64::from(queued), u64::from(max)]
            })
        });
    }

    fn running(&self) -> impl Iterator<Item = &W::Key> {
        self.slots.iter().flatten().filter_map(|s| s.running.as_ref())
    }
}
