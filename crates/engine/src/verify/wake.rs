//! Wake-up: `ring::wakeup`, `memory::lock::sequence` and `ring::waiters::Driver` themselves, on
//! loom's words and under loom's lock. Threads wait for CQEs of one ring: the first drives, the
//! others sleep on the sequence word. Events come to the driver, or are posted by a worker.

use super::{Bucket, explore, found};
use crate::memory::lock::sequence::{Sequence, Word};
use crate::ring::waiters::Driver;
use crate::ring::wakeup::{Lock, Waits, drive_once};
use core::ops::{Deref, DerefMut};
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{self, SeqCst};
use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
use loom::thread;

/// Poll set with the ring's wake eventfd: level-triggered, so nothing is missed between the lock's
/// release and the wait.
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

/// One of the control words.
#[derive(Default)]
struct Shared {
    word: AtomicU32,
    /// Fault: an addition of nothing is a mere load.
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

/// The control words.
#[derive(Default)]
struct Words {
    waiters: Shared,
    seq: Shared,
}

impl Sequence for Words {
    type Word = Shared;

    fn waiters(&self) -> &Shared {
        &self.waiters
    }

    fn seq(&self) -> &Shared {
        &self.seq
    }
}

/// State that the lock guards.
struct Ctx {
    words: Arc<Words>,
    cqes: u32,
    driver: Driver,
    /// Work for when the lock is released (`Wakes`).
    wake_waiters: bool,
    wake_driver: bool,
    fault: Fault,
    /// Flag, true while CQEs are being posted.
    posts: bool,
    /// Flag, true if the driver was woken before it took the role again.
    was_woken: bool,
}

impl Waits for Ctx {
    type Sequence = Words;

    fn sequence(&self) -> &Words {
        &self.words
    }

    fn driver(&self) -> &Driver {
        &self.driver
    }

    fn driver_mut(&mut self) -> &mut Driver {
        &mut self.driver
    }

    fn ready(&self) -> u32 {
        self.cqes
    }

    fn signal_driver(&mut self) {
        if self.fault != Fault::WakeDriver {
            self.wake_driver |= self.driver.wake();
        }
    }

    fn signal_waiters(&mut self) {
        self.wake_waiters |= self.posts || self.fault != Fault::WakeWaiters;
    }
}

impl Ctx {
    fn post(&mut self, n: u32) {
        self.cqes += n;
        self.posts = true;
        self.published();
        self.posts = false;
    }
}

struct Ring {
    ctx: Mutex<Ctx>,
    words: Arc<Words>,
    poll: PollSet,
    bucket: Bucket,
    /// Flag, true if passive waiters spin before they sleep.
    spins: bool,
    fault: Fault,
}

/// Guard of the lock.
struct Guard<'a> {
    ring: &'a Ring,
    /// Lock, or none once it is released.
    ctx: Option<MutexGuard<'a, Ctx>>,
}

impl Deref for Guard<'_> {
    type Target = Ctx;

    fn deref(&self) -> &Ctx {
        self.ctx.as_ref().expect("held")
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut Ctx {
        self.ctx.as_mut().expect("held")
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let waiters = core::mem::take(&mut self.wake_waiters);
        let driver = core::mem::take(&mut self.wake_driver);
        self.driver.woken |= core::mem::take(&mut self.was_woken);
        self.ctx = None;
        if driver {
            self.ring.poll.signal();
        }
        if waiters {
            self.ring.bucket.wake_all();
        }
    }
}

impl Lock for Ring {
    type Guard<'a> = Guard<'a>;

    fn lock_now(&self) -> Guard<'_> {
        Guard { ring: self, ctx: Some(self.ctx.lock().unwrap()) }
    }
}

/// Step to leave out, to see that the model notices.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// A poster wakes nobody.
    WakeDriver,
    /// A driver sleeps again although it has been woken already.
    Woken,
    /// A driver leaves without telling the others.
    WakeWaiters,
    /// A waiter reads the sequence word after it has released the lock.
    LateSeq,
}

impl Ring {
    fn new(fault: Fault, spins: bool, plain: bool) -> Self {
        let waiters = Shared { plain, ..Shared::default() };
        let words = Arc::new(Words { waiters, ..Words::default() });
        let ctx = Ctx {
            words: words.clone(),
            cqes: 0,
            driver: Driver::default(),
            wake_waiters: false,
            wake_driver: false,
            fault,
            posts: false,
            was_woken: false,
        };
        let (poll, bucket) = (PollSet::default(), Bucket::default());
        Ring { ctx: Mutex::new(ctx), words, poll, bucket, spins, fault }
    }

    fn drive<'a>(&'a self, mut ctx: Guard<'a>, (me, want): (usize, u32)) -> Guard<'a> {
        ctx.was_woken = ctx.driver.woken && self.fault == Fault::Woken;
        let (mut ctx, ()) = drive_once(self, ctx, me, (want, u64::MAX), || self.poll.wait());
        let n = self.poll.take();
        if n > 0 {
            ctx.post(n);
        }
        ctx
    }

    fn passive<'a>(&'a self, ctx: Guard<'a>) -> Guard<'a> {
        let goes = || {
            drop(ctx);
            true
        };
        self.words.wait(
            self.spins,
            goes,
            |seq, seen| seq.load(SeqCst) != seen,
            |seq, seen| {
                let late = self.fault == Fault::LateSeq;
                let seen = if late { seq.load(SeqCst) } else { seen };
                self.bucket.wait(&seq.word, seen);
            },
        );
        self.lock_now()
    }

    /// Enters with GETEVENTS. `gives_up`: the end of a drive ends the wait, as a signal would.
    fn enter(&self, me: usize, want: u32, gives_up: bool) {
        let mut ctx = self.lock_now();
        let mut drove = false;
        while ctx.cqes < want && !(gives_up && drove) {
            drove = !ctx.driver.active;
            ctx = match drove {
                false => self.passive(ctx),
                true => self.drive(ctx, (me, want)),
            };
        }
        drop(ctx);
        // Stands for `drive::leave`.
        self.lock_now().pass_role();
    }
}

/// Runs a thread that waits for one CQE and then for two, which a worker posts one by one.
fn posted(fault: Fault) {
    explore(move || {
        let ring = Arc::new(Ring::new(fault, false, false));
        let worker = {
            let ring = ring.clone();
            thread::spawn(move || {
                (0..2).for_each(|_| ring.lock_now().post(1));
            })
        };
        [1, 2].into_iter().for_each(|want| ring.enter(1, want, false));
        worker.join().unwrap();
    });
}

/// Runs two threads that wait, for one CQE and for two; a signal may end the first one's wait. The
/// driver's role goes from one to the other.
fn role_passed(fault: Fault, spins: bool) {
    role_passed_on(fault, spins, false);
}

fn role_passed_on(fault: Fault, spins: bool, plain: bool) {
    explore(move || {
        let ring = Arc::new(Ring::new(fault, spins, plain));
        let second = {
            let ring = ring.clone();
            thread::spawn(move || ring.enter(2, 2, false))
        };
        let device = {
            let ring = ring.clone();
            thread::spawn(move || {
                ring.poll.signal();
                (0..2).for_each(|_| ring.poll.event());
            })
        };
        ring.enter(1, 1, true);
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
fn the_driver_role_is_passed_on() {
    role_passed(Fault::None, false);
}

#[test]
fn a_check_before_sleeping_loses_no_wake() {
    role_passed(Fault::None, true);
}

#[test]
fn a_missing_wake_of_waiters_is_found() {
    found(a_missing_wake_of_waiters_is_found, "deadlock", || {
        role_passed(Fault::WakeWaiters, false)
    });
}

#[test]
fn a_sequence_read_too_late_is_found() {
    found(a_sequence_read_too_late_is_found, "deadlock", || role_passed(Fault::LateSeq, false));
}

#[test]
fn a_waiter_found_by_a_load_is_found() {
    let test = a_waiter_found_by_a_load_is_found;
    found(test, "deadlock", || role_passed_on(Fault::None, true, true));
}
