//! The workers of a ring, grouped by the credentials that they were created with.
//!
//! A thread inherits its creator's credentials, seccomp filters, Landlock domain and file-system
//! state (umask, working directory). So a request that needs its submitter's state goes to a worker
//! that a thread with the same state created; if there is none, a worker is created. Nearly all
//! programs need one pool, created with the first request that needs a worker. Other pools come
//! with threads that have dropped or regained rights; their workers exit when idle.
//!
//! If the calling thread is not the submitter (a chain continues in the reactor), it cannot create
//! such a worker. Then any worker takes on the request's credentials, as far as it may
//! (`host::creds::under`).

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::worker::{Pool, Wake, Work};
use softring_host::creds::{self, Creds};
use softring_host::sync::Mutex;
use softring_uapi::errno::Result;

/// Maximum number of pools beside the first; without a pool, the submitter runs the request.
const MOST: usize = 64;

/// Work whose credentials choose its worker.
pub(crate) trait HasCreds: Work {
    /// Returns the credentials to run under; `None` if any will do.
    fn creds(&self) -> Option<&Arc<Creds>>;
}

/// The workers of a ring, or of several that share them (ATTACH_WQ); they exit with the last ring.
pub(crate) struct Workers<W: HasCreds> {
    pool: Arc<Pool<W>>,
    born: Mutex<Born<W>>,
}

/// Credentials that the workers were created with.
struct Born<W: HasCreds> {
    /// Credentials of the first pool. Updated when the C library changes the credentials of all
    /// threads.
    first: Arc<Creds>,
    epoch: u64,
    others: Vec<Other<W>>,
}

/// A further pool.
struct Other<W: HasCreds> {
    creds: Arc<Creds>,
    epoch: u64,
    pool: Arc<Pool<W>>,
}

/// A pool, and the credentials of its workers.
type Chosen<W> = (Arc<Pool<W>>, Arc<Creds>);

impl<W: HasCreds> core::fmt::Debug for Workers<W> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Workers").field("counts", &self.pool.counts()).finish()
    }
}

impl<W: HasCreds> Drop for Workers<W> {
    fn drop(&mut self) {
        for pool in self.all() {
            drop(pool.shutdown());
        }
    }
}

impl<W: HasCreds> Workers<W> {
    /// Wraps a pool whose workers the calling thread creates.
    pub(crate) fn new(pool: Arc<Pool<W>>) -> Self {
        let (first, epoch) = (creds::mine(), creds::epoch());
        Workers { pool, born: Mutex::new(Born { first, epoch, others: Vec::new() }) }
    }

    /// Queues a job. The caller wakes the worker that was chosen for it.
    ///
    /// # Errors
    /// The job, if there is no worker: the caller runs it.
    pub(crate) fn queue(&self, job: W) -> core::result::Result<Wake, W> {
        let (pool, born) = self.choose(job.creds());
        let job = match pool.queue_if(job, || *creds::mine() == *born) {
            Ok(wake) => return Ok(wake),
            Err(job) => job,
        };
        let mine = creds::mine();
        if *mine == *born {
            return Err(job);
        }
        // No worker with these credentials, and this thread cannot create one: one with its own
        // tries.
        let (pool, _) = self.choose(Some(&mine));
        pool.queue_if(job, || true)
    }

    /// Returns whether an item may be queued or running whose hash key is `key`.
    pub(crate) fn is_busy(&self, key: u64) -> bool {
        self.pool.is_busy(key) || self.born.lock().others.iter().any(|o| o.pool.is_busy(key))
    }

    /// Returns the effective capabilities of the first pool's workers; `None` if they may have
    /// changed.
    pub(crate) fn capabilities(&self) -> Option<u64> {
        let born = self.born.lock();
        (born.epoch == creds::epoch()).then_some(born.first.caps)
    }

    /// Keeps a worker with these credentials, which are the calling thread's, until the ring ends.
    pub(crate) fn keep_one(&self, creds: &Arc<Creds>) {
        self.choose(Some(creds)).0.keep_one();
    }

    fn choose(&self, creds: Option<&Arc<Creds>>) -> Chosen<W> {
        let mut born = self.born.lock();
        let now = creds::epoch();
        if born.epoch != now {
            // The workers still have what they cannot drop.
            born.first = Arc::new(creds::mine().within(&born.first));
            born.epoch = now;
        }
        let first = (self.pool.clone(), born.first.clone());
        let Some(creds) = creds.filter(|c| **c != born.first) else { return first };
        let known = |creds: &Arc<Creds>| {
            let other = born.others.iter().find(|o| o.epoch == now && o.creds == *creds)?;
            Some((other.pool.clone(), creds.clone()))
        };
        if let Some(chosen) = known(creds) {
            return chosen;
        }
        let mine = creds::mine();
        // A worker may take on rights, but no limits: choose one that has the limits, or can be
        // created with them.
        let creds = match () {
            () if mine == *creds => creds,
            () if born.first.limited_as(creds) => return first,
            () if mine.limited_as(creds) => &mine,
            () => return first,
        };
        if let Some(chosen) = known(creds) {
            return chosen;
        }
        born.others.retain(|other| !is_empty(&other.pool));
        let pool = self.pool.another();
        if born.others.len() < MOST {
            born.others.push(Other { creds: creds.clone(), epoch: now, pool: pool.clone() });
        } else {
            // A pool that is shut down returns every job.
            drop(pool.shutdown());
        }
        (pool, creds.clone())
    }

    fn all(&self) -> Vec<Arc<Pool<W>>> {
        let born = self.born.lock();
        let others = born.others.iter().map(|other| other.pool.clone());
        core::iter::once(self.pool.clone()).chain(others).collect()
    }

    /// Removes a job from the queue; a running one is interrupted and stays.
    pub(crate) fn cancel(&self, mut which: impl FnMut(&W::Key) -> bool) -> Option<W> {
        let mut pools = self.all().into_iter();
        pools.find_map(|pool| pool.cancel_and_interrupt(&mut which, false).0.pop())
    }

    /// Removes all matching jobs from the queue, and interrupts the running ones: for a ring that
    /// ends while others share its workers (`io_uring_try_cancel_iowq`).
    pub(crate) fn cancel_all(&self, mut which: impl FnMut(&W::Key) -> bool) -> Vec<W> {
        let pools = self.all().into_iter();
        pools.flat_map(|pool| pool.cancel_and_interrupt(&mut which, true).0).collect()
    }

    /// Interrupts a job if a worker runs it; a queued job stays queued.
    pub(crate) fn interrupt(&self, mut which: impl FnMut(&W::Key) -> bool) {
        for pool in self.all() {
            pool.interrupt(&mut which);
        }
    }

    /// Sets the limits of all pools: see [`Pool::set_max`].
    ///
    /// # Errors
    /// Those of [`Pool::set_max`].
    pub(crate) fn set_max(&self, max: [u32; 2]) -> Result<[u32; 2]> {
        let old = self.pool.set_max(max)?;
        for pool in &self.all()[1..] {
            pool.set_max(max)?;
        }
        Ok(old)
    }

    /// Confines the workers of all pools: see [`Pool::set_affinity`].
    ///
    /// # Errors
    /// Those of [`Pool::set_affinity`].
    pub(crate) fn set_affinity(&self, mask: Option<&[u8]>) -> Result<()> {
        self.all().iter().try_for_each(|pool| pool.set_affinity(mask))
    }

    /// Returns the counter slot of the first pool, as a ring's statistics name it.
    pub(crate) fn counter_slot(&self) -> u64 {
        self.pool.counter_slot()
    }
}

/// Returns whether a pool has neither workers nor queued items.
fn is_empty<W: HasCreds>(pool: &Pool<W>) -> bool {
    pool.counts().iter().all(|c| c.workers == 0 && c.queued == 0)
}
