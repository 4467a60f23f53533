//! The workers of a ring, by the credentials that they were born with.
//!
//! A thread inherits its maker's credentials, seccomp filters, Landlock domain and file-system
//! state (umask, working directory). So a request that asks for its submitter's goes to a worker
//! born of a thread with the same, and one is made if there is none: nothing has to be taken on.
//! Nearly all programs need one pool, made with the first request that needs a worker; others come
//! with threads that have given up rights or got them back, and their workers leave when idle.
//!
//! Where the calling thread is not the submitter (a chain goes on in the reactor), it can make no
//! such worker; then any takes on what the request asks for, as far as it may
//! (`host::creds::under`).

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::worker::{Pool, Work};
use softring_host::creds::{self, Creds};
use softring_host::sync::Mutex;
use softring_uapi::errno::Result;

/// Pools beside the first, at most; what finds none has its submitter run it.
const MOST: usize = 64;

/// What workers are chosen for by its credentials.
pub(crate) trait HasCreds: Work {
    /// The credentials that it runs under; none where it does not ask for any.
    fn creds(&self) -> Option<&Arc<Creds>>;
}

/// The workers of a ring, or of several that share them (ATTACH_WQ); they go home with the last
/// ring.
pub(crate) struct Workers<W: HasCreds> {
    pool: Arc<Pool<W>>,
    born: Mutex<Born<W>>,
}

/// The rights that the workers were born with.
struct Born<W: HasCreds> {
    /// Credentials of the first pool. When the C library changes the credentials of all threads,
    /// they follow.
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

/// A pool, and what its workers are born with.
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
    /// Workers that the calling thread makes.
    pub(crate) fn new(pool: Arc<Pool<W>>) -> Self {
        let (first, epoch) = (creds::mine(), creds::epoch());
        Workers { pool, born: Mutex::new(Born { first, epoch, others: Vec::new() }) }
    }

    /// Hands a job over.
    ///
    /// # Errors
    /// The job, if no worker can be had: the caller runs it.
    pub(crate) fn queue(&self, job: W) -> core::result::Result<(), W> {
        let (pool, born) = self.choose(job.creds());
        let Err(job) = pool.queue_if(job, || *creds::mine() == *born) else { return Ok(()) };
        let mine = creds::mine();
        if *mine == *born {
            return Err(job);
        }
        // No worker was born so, and this thread can make none: one of its own tries.
        let (pool, _) = self.choose(Some(&mine));
        pool.queue(job)
    }

    /// The effective capabilities of the first pool's workers; none if they may have changed.
    pub(crate) fn capabilities(&self) -> Option<u64> {
        let born = self.born.lock();
        (born.epoch == creds::epoch()).then_some(born.first.caps)
    }

    /// Makes sure that a worker with these credentials, which are the calling thread's, is there
    /// until the ring ends.
    pub(crate) fn keep_one(&self, creds: &Arc<Creds>) {
        self.choose(Some(creds)).0.keep_one();
    }

    fn choose(&self, creds: Option<&Arc<Creds>>) -> Chosen<W> {
        let mut born = self.born.lock();
        let now = creds::epoch();
        if born.epoch != now {
            // What they cannot lay down they have still.
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
        // A worker may take on rights, but no limits: one that has those, or can be made with them.
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
            // Hands every job back.
            drop(pool.shutdown());
        }
        (pool, creds.clone())
    }

    fn all(&self) -> Vec<Arc<Pool<W>>> {
        let born = self.born.lock();
        let others = born.others.iter().map(|other| other.pool.clone());
        core::iter::once(self.pool.clone()).chain(others).collect()
    }

    /// Takes a job out of the queue; one that runs is interrupted and stays.
    pub(crate) fn cancel(&self, mut which: impl FnMut(&W::Key) -> bool) -> Option<W> {
        let mut pools = self.all().into_iter();
        pools.find_map(|pool| pool.cancel_and_interrupt(&mut which, false).0.pop())
    }

    /// Takes out of the queue all jobs that match, and interrupts those that run: a ring ends
    /// whose workers others share (`io_uring_try_cancel_iowq`).
    pub(crate) fn cancel_all(&self, mut which: impl FnMut(&W::Key) -> bool) -> Vec<W> {
        let pools = self.all().into_iter();
        pools.flat_map(|pool| pool.cancel_and_interrupt(&mut which, true).0).collect()
    }

    /// Interrupts a job if a worker runs it; one that waits for a worker goes on waiting.
    pub(crate) fn interrupt(&self, mut which: impl FnMut(&W::Key) -> bool) {
        for pool in self.all() {
            pool.interrupt(&mut which);
        }
    }

    /// See [`Pool::set_max`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn set_max(&self, max: [u32; 2]) -> Result<[u32; 2]> {
        let old = self.pool.set_max(max)?;
        for pool in &self.all()[1..] {
            pool.set_max(max)?;
        }
        Ok(old)
    }

    /// See [`Pool::set_affinity`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn set_affinity(&self, mask: Option<&[u8]>) -> Result<()> {
        self.all().iter().try_for_each(|pool| pool.set_affinity(mask))
    }

    /// Where the first pool is counted, as a ring's statistics name it.
    pub(crate) fn counter_slot(&self) -> u64 {
        self.pool.counter_slot()
    }
}

/// Has it neither workers nor anything for them?
fn is_empty<W: HasCreds>(pool: &Pool<W>) -> bool {
    pool.counts().iter().all(|c| c.workers == 0 && c.queued == 0)
}
