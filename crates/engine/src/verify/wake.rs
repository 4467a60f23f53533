//! Wake-up: `drive::cqwait::{cqring_wait, drive, passive}`, `drive::driver::{wake, wake_waiters,
//! wake_driver}`, `drive::sleep` and `drive::leave`. Threads wait for CQEs of one ring: the first
//! drives, the others sleep on the sequence word. Events come to whoever drives, or are posted by a
//! worker.

use super::{Bucket, explore, found};
use crate::memory::lock::SPINNER;
use loom::sync::atomic::{AtomicU32, Ordering::SeqCst};
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
    active: bool,
    sleeping: bool,
    woken: bool,
    want: u32,
    /// What is to be done when the lock is given back (`Wakes`).
    waiters: bool,
    driver: bool,
}

#[derive(Default)]
struct Ring {
    ctx: Mutex<Ctx>,
    poll: PollSet,
    waiters: AtomicU32,
    seq: AtomicU32,
    bucket: Bucket,
    /// Passive waiters look before they sleep.
    spins: bool,
    /// A fault: the poster looks for sleepers by a mere load.
    plain: bool,
}

/// What to leave out, to see that the model notices.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// A poster that wakes nobody.
    WakeDriver,
    /// A driver that leaves without telling the others.
    WakeWaiters,
    /// A sleeper that reads the sequence word after it released the lock.
    LateSeq,
}

impl Ring {
    fn wake_waiters(&self, ctx: &mut Ctx) {
        if self.waiters.load(SeqCst) > 0 {
            self.seq.fetch_add(1, SeqCst);
            let asleep = match self.plain {
                true => self.waiters.load(SeqCst),
                false => self.waiters.fetch_add(0, SeqCst),
            };
            ctx.waiters |= !asleep.is_multiple_of(SPINNER);
        }
    }

    /// The guard's end.
    fn unlock(&self, mut ctx: MutexGuard<'_, Ctx>) {
        let (waiters, driver) = (ctx.waiters, ctx.driver);
        (ctx.waiters, ctx.driver) = (false, false);
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
        if ctx.sleeping && ctx.cqes >= ctx.want && !ctx.woken && fault != Fault::WakeDriver {
            ctx.woken = true;
            ctx.driver = true;
        }
        self.wake_waiters(ctx);
    }

    fn drive<'a>(
        &'a self,
        mut ctx: MutexGuard<'a, Ctx>,
        want: u32,
        fault: Fault,
    ) -> MutexGuard<'a, Ctx> {
        *ctx = Ctx { active: true, sleeping: true, woken: false, want, ..*ctx };
        self.unlock(ctx);
        self.poll.wait();
        let mut ctx = self.ctx.lock().unwrap();
        ctx.active = false;
        ctx.sleeping = false;
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
        self.waiters.fetch_add(if self.spins { SPINNER } else { 1 }, SeqCst);
        let mut seen = self.seq.load(SeqCst);
        self.unlock(ctx);
        if fault == Fault::LateSeq {
            seen = self.seq.load(SeqCst);
        }
        if self.spins {
            let moved = self.seq.load(SeqCst) != seen;
            let sleeps = u32::from(!moved);
            self.waiters.fetch_add(sleeps.wrapping_sub(SPINNER), SeqCst);
            if moved {
                return self.ctx.lock().unwrap();
            }
        }
        self.bucket.wait(&self.seq, seen);
        self.waiters.fetch_sub(1, SeqCst);
        self.ctx.lock().unwrap()
    }

    /// `enter` with GETEVENTS. `gives_up`: as a signal would, the end of a drive ends the wait.
    fn enter(&self, want: u32, gives_up: bool, fault: Fault) {
        let mut ctx = self.ctx.lock().unwrap();
        let mut drove = false;
        while ctx.cqes < want && !(gives_up && drove) {
            drove = !ctx.active;
            ctx = if ctx.active { self.passive(ctx, fault) } else { self.drive(ctx, want, fault) };
        }
        self.unlock(ctx);
        // leave: somebody else may have to take the role over
        let mut ctx = self.ctx.lock().unwrap();
        if !ctx.active && fault != Fault::WakeWaiters {
            self.wake_waiters(&mut ctx);
        }
        self.unlock(ctx);
    }
}

/// One thread waits for two CQEs that a worker posts one by one.
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
        ring.enter(2, false, fault);
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
        let ring = Arc::new(Ring { spins, plain, ..Ring::default() });
        let second = {
            let ring = ring.clone();
            thread::spawn(move || ring.enter(2, false, fault))
        };
        let device = {
            let ring = ring.clone();
            thread::spawn(move || {
                ring.poll.signal();
                (0..2).for_each(|_| ring.poll.event());
            })
        };
        ring.enter(1, true, fault);
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
fn the_role_is_handed_over() {
    handed_over(Fault::None, false);
}

#[test]
fn who_looks_before_sleeping_is_not_lost() {
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
fn a_sleeper_looked_for_by_a_load_is_found() {
    let test = a_sleeper_looked_for_by_a_load_is_found;
    found(test, "deadlock", || handed_over_on(Fault::None, true, true));
}
