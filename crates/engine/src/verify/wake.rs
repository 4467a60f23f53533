//! Wake-up: `memory::lock::sequence` and `ring::waiters::Driver` themselves, on loom's words and
//! under loom's lock. Threads wait for CQEs of one ring: the first drives, the others sleep on the
//! sequence word. Events come to whoever drives, or are posted by a worker.
//!
//! The loop around these steps is repeated here (`drive::cqwait::{cqring_wait, drive, passive}`,
//! `Ctx::{wake, wake_waiters, wake_driver}` of `drive::driver`, `drive::leave`), as between them
//! are system calls, the rest of the ring, and the lock's guard. Change both together.

use super::{Bucket, explore, found};
use crate::memory::lock::sequence::{Ended, Sequence, Word};
use crate::ring::waiters::Driver;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{self, SeqCst};
use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
use loom::thread;

/// The poll set with the ring's wake eventfd: level-triggered, so nothing is missed between the
/// lock's release and the wait.
#[derive(Default)]
struct PollSet {
    ready: Mutex<(bool, u32)>,
    changed: Condvar,
}

impl PollSet {
    fn signal(&self) {
        self.ready.lock().unwrap().0 = true;
        self.changed.notify_all();
    }

    fn event(&self) {
        self.ready.lock().unwrap().1 += 1;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let mut ready = self.ready.lock().unwrap();
        while *ready == (false, 0) {
            ready = self.changed.wait(ready).unwrap();
        }
    }

    /// Reads the eventfd and takes the events, as `poll_events` does under the uring lock.
    fn take(&self) -> u32 {
        core::mem::take(&mut *self.ready.lock().unwrap()).1
    }
}

#[derive(Default)]
struct Ctx {
    cqes: u32,
    driver: Driver,
    /// What is to be done when the lock is given back (`Wakes`).
    wake_waiters: bool,
    wake_driver: bool,
}

/// A word of the control page.
#[derive(Default)]
struct Shared {
    word: AtomicU32,
    /// A fault: an addition of nothing is a mere load.
    plain: bool,
}

impl Word for Shared {
    fn load(&self, order: Ordering) -> u32 {
        self.word.load(order)
    }

    fn add(&self, n: u32, order: Ordering) -> u32 {
        if self.plain && n == 0 { self.word.load(order) } else { self.word.fetch_add(n, order) }
    }
}

#[derive(Default)]
struct Ring {
    ctx: Mutex<Ctx>,
    poll: PollSet,
    waiters: Shared,
    seq: Shared,
    bucket: Bucket,
    /// Passive waiters spin before they sleep.
    spins: bool,
}

impl Sequence for Ring {
    type Word = Shared;

    fn waiters(&self) -> &Shared {
        &self.waiters
    }

    fn seq(&self) -> &Shared {
        &self.seq
    }
}

/// What to leave out, to see that the model notices.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// A poster that wakes nobody.
    WakeDriver,
    /// A driver that goes to sleep again as one who has been woken already.
    Woken,
    /// A driver that leaves without telling the others.
    WakeWaiters,
    /// A waiter that reads the sequence word after it released the lock.
    LateSeq,
}

impl Ring {
    fn wake_waiters(&self, ctx: &mut Ctx) {
        if self.bump() {
            ctx.wake_waiters = true;
        }
    }

    /// The guard's end.
    fn unlock(&self, mut ctx: MutexGuard<'_, Ctx>) {
        let (waiters, driver) = (ctx.wake_waiters, ctx.wake_driver);
        (ctx.wake_waiters, ctx.wake_driver) = (false, false);
        drop(ctx);
        if driver {
            self.poll.signal();
        }
        if waiters {
            self.bucket.wake_all();
        }
    }

    /// `Ctx::commit` and `Ctx::wake`, under the lock.
    fn post(&self, ctx: &mut Ctx, n: u32, fault: Fault) {
        ctx.cqes += n;
        let cqes = ctx.cqes;
        if ctx.driver.has_enough(|| cqes) && fault != Fault::WakeDriver {
            ctx.wake_driver |= ctx.driver.wake();
        }
        self.wake_waiters(ctx);
    }

    fn drive<'a>(
        &'a self,
        mut ctx: MutexGuard<'a, Ctx>,
        (me, want): (usize, u32),
        fault: Fault,
    ) -> MutexGuard<'a, Ctx> {
        let woken = ctx.driver.woken && fault == Fault::Woken;
        ctx.driver.begin(me, want, u64::MAX);
        ctx.driver.woken |= woken;
        self.unlock(ctx);
        self.poll.wait();
        let mut ctx = self.ctx.lock().unwrap();
        ctx.driver.end(me);
        if fault != Fault::WakeWaiters {
            self.wake_waiters(&mut ctx);
        }
        let n = self.poll.take();
        if n > 0 {
            self.post(&mut ctx, n, fault);
        }
        ctx
    }

    fn passive<'a>(&'a self, ctx: MutexGuard<'a, Ctx>, fault: Fault) -> MutexGuard<'a, Ctx> {
        let goes = || {
            self.unlock(ctx);
            true
        };
        let ended = self.wait(
            self.spins,
            goes,
            |seq, seen| seq.load(SeqCst) != seen,
            |seq, seen| {
                let seen = if fault == Fault::LateSeq { seq.load(SeqCst) } else { seen };
                self.bucket.wait(&seq.word, seen);
            },
        );
        assert_ne!(ended, Ended::Soon);
        self.ctx.lock().unwrap()
    }

    /// `enter` with GETEVENTS. `gives_up`: as a signal would, the end of a drive ends the wait.
    fn enter(&self, me: usize, want: u32, gives_up: bool, fault: Fault) {
        let mut ctx = self.ctx.lock().unwrap();
        let mut drove = false;
        while ctx.cqes < want && !(gives_up && drove) {
            drove = !ctx.driver.active;
            ctx = match drove {
                false => self.passive(ctx, fault),
                true => self.drive(ctx, (me, want), fault),
            };
        }
        self.unlock(ctx);
        // leave: somebody else may have to take the role over
        let mut ctx = self.ctx.lock().unwrap();
        if !ctx.driver.active && fault != Fault::WakeWaiters {
            self.wake_waiters(&mut ctx);
        }
        self.unlock(ctx);
    }
}

/// One thread waits for one CQE and then for two, which a worker posts one by one.
fn posted(fault: Fault) {
    explore(move || {
        let ring = Arc::new(Ring::default());
        let worker = {
            let ring = ring.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    let mut ctx = ring.ctx.lock().unwrap();
                    ring.post(&mut ctx, 1, fault);
                    ring.unlock(ctx);
                }
            })
        };
        [1, 2].into_iter().for_each(|want| ring.enter(1, want, false, fault));
        worker.join().unwrap();
    });
}

/// Two threads wait, for one CQE and for two; a signal may end the first one's wait. The role of
/// the driver goes from one to the other.
fn handed_over(fault: Fault, spins: bool) {
    handed_over_on(fault, spins, false);
}

fn handed_over_on(fault: Fault, spins: bool, plain: bool) {
    explore(move || {
        let waiters = Shared { plain, ..Shared::default() };
        let ring = Arc::new(Ring { waiters, spins, ..Ring::default() });
        let second = {
            let ring = ring.clone();
            thread::spawn(move || ring.enter(2, 2, false, fault))
        };
        let device = {
            let ring = ring.clone();
            thread::spawn(move || {
                ring.poll.signal();
                (0..2).for_each(|_| ring.poll.event());
            })
        };
        ring.enter(1, 1, true, fault);
        second.join().unwrap();
        device.join().unwrap();
    });
}

#[test]
fn a_worker_wakes_the_driver() {
    posted(Fault::None);
}

#[test]
fn a_missing_wake_of_the_driver_is_found() {
    found(a_missing_wake_of_the_driver_is_found, "deadlock", || posted(Fault::WakeDriver));
}

#[test]
fn a_wake_that_is_taken_for_done_is_found() {
    let test = a_wake_that_is_taken_for_done_is_found;
    found(test, "deadlock", || posted(Fault::Woken));
}

#[test]
fn the_role_is_handed_over() {
    handed_over(Fault::None, false);
}

#[test]
fn who_checks_before_sleeping_is_not_lost() {
    handed_over(Fault::None, true);
}

#[test]
fn a_missing_wake_of_waiters_is_found() {
    found(a_missing_wake_of_waiters_is_found, "deadlock", || {
        handed_over(Fault::WakeWaiters, false)
    });
}

#[test]
fn a_sequence_read_too_late_is_found() {
    found(a_sequence_read_too_late_is_found, "deadlock", || handed_over(Fault::LateSeq, false));
}

#[test]
fn a_waiter_found_by_a_load_is_found() {
    let test = a_waiter_found_by_a_load_is_found;
    found(test, "deadlock", || handed_over_on(Fault::None, true, true));
}
