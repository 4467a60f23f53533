//! Futex waiters: threads that sleep in a futex call, or in waitid(2), each in the name of one
//! request.
//!
//! Runs on: threads of its own, named `iou-slp-PID`, with all signals blocked but the one that
//! interrupts workers. A futex waiter blocks in one system call at a time; the submitter waits only
//! until the futex waiter is asleep.
//!
//! # A request waits before its submission returns
//! A program may wake a futex right after it has submitted a FUTEX_WAIT, and that wake must count.
//! So a futex waiter does not go to the program's futex by itself. An idle futex waiter sleeps on a
//! word of its own, and `FUTEX_CMP_REQUEUE` moves it from there to the program's futex in one step.
//!
//! ```text
//! waiter                          submitter (holds the uring lock)
//! FUTEX_WAIT(word, IDLE)
//!   asleep                          *futex == val? if not: EAGAIN
//!                                   requeue(word -> futex), until it has moved one waiter
//!                                   word = MOVED; requeue(word -> futex)
//!                                   *futex == val? if not: take it back, EAGAIN
//!   woken by the program
//! ```
//!
//! gVisor's requeue does not report that it has moved a waiter. There the submitter gives the futex
//! waiter time enough to fall asleep; a waiter that is still awake goes to the futex by itself
//! ([`super::requeue`]).
//!
//! The last check is for a wake between the first check and the move, which found no waiter. The
//! second requeue is for a thread that is woken by something else: the kernel restarts the futex
//! waiter's system call, so the waiter is back on its own word. Once that word is MOVED, the waiter
//! goes to the program's futex by itself. Something else may be a stop of the process, or a wake of
//! an earlier futex, such as the uring lock, on which the thread did not sleep yet: the kernel
//! takes the thread off the futex's queue first, and wakes it some time later. For a moment the
//! waiter is then at no futex. A FUTEX_WAKE of the ring waits for it (`ops::futex`).
//!
//! # Taking back
//! A signal ends the futex waiter's system call. Only the futex waiter knows whether it was woken
//! before the signal, so the caller of `take_back` waits for the waiter's `state`.
//!
//! The steps are in [`protocol`]; `verify::futex_moves` and `verify::cancel` have loom try every
//! order.
//!
//! # Locks
//! The uring lock guards the list of idle waiters and the job of each waiter. A woken futex waiter
//! stores its state first, and only then takes the lock.

pub(crate) mod protocol;

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{self, Acquire, Release, SeqCst};
use core::sync::atomic::{AtomicI32, AtomicU32};
use softring_host::sync::real::{Mutex, MutexGuard};

use self::protocol::{ASKED, BUSY, IDLE, MOVED, Steps, Word, Words};
use super::futex_each::Each;
use super::futex_owner::{Owner, WakeResult};
use super::requeue;
use crate::io::token::ReqId;
use softring_host::calls::futex::{self, Waiter};
use softring_host::calls::{ReadPtr, process};
use softring_host::limits::{IDLE_FUTEX_WAITERS, WORKER_SIGNAL_EVERY, WORKER_STACK};
use softring_host::signal;
use softring_host::sys;
use softring_uapi::errno::{Errno, Result};

/// `FUTEX_BITSET_MATCH_ANY`
pub(crate) const ANY: u32 = u32::MAX;

/// A futex of the program's, as a request names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Futex {
    pub(crate) addr: u64,
    pub(crate) val: u32,
    pub(crate) private: bool,
}

/// A child, or several, as waitid(2) names them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Child {
    pub(crate) which: u32,
    pub(crate) id: i32,
    pub(crate) options: u32,
}

/// The event that a request waits for.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    Futex(Futex, u32),
    AnyOf(Box<[Futex]>),
    /// One of several futexes of a request, by its number ([`super::futex_each`]).
    OneOf(Arc<Each>, usize),
    Child(Child),
}

/// Form of a futex waiter's sleep, the same while idle and at the program's futex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    One { private: bool, mask: u32 },
    Many(Box<[bool]>),
}

impl Shape {
    fn of(job: &Job) -> Shape {
        match job {
            Job::Futex(f, mask) => Shape::One { private: f.private, mask: *mask },
            Job::AnyOf(all) => Shape::Many(all.iter().map(|f| f.private).collect()),
            Job::OneOf(each, i) => Shape::One { private: each.futex(*i).private, mask: ANY },
            Job::Child(_) => Shape::One { private: true, mask: ANY },
        }
    }

    /// Returns whether later requests are likely to sleep in this form.
    fn is_common(&self) -> bool {
        matches!(self, Shape::One { mask: ANY, .. })
    }
}

impl Futex {
    /// Checks that the futex has its value, by a requeue that moves no waiter. So errors of the
    /// address come from the kernel.
    ///
    /// # Errors
    /// `EAGAIN` if it has another value, `EINVAL` for a misaligned address, `EFAULT`.
    pub(crate) fn check(&self) -> Result<()> {
        futex::requeue(self.at(), self.val, 0, self.at(), self.private).map(|_| ())
    }

    /// Waits for a wake, if the futex has its value.
    pub(crate) fn sleep(&self, mask: u32) -> Result<usize> {
        futex::wait(self.at(), self.private, self.val, mask)
    }

    /// Moves one waiter from this futex to another, if this one has its value.
    pub(crate) fn requeue(&self, to: &Futex) -> Result<usize> {
        futex::requeue(self.at(), self.val, 1, to.at(), to.private)
    }

    /// Wakes one waiter; returns the number woken.
    pub(crate) fn wake(&self) -> usize {
        futex::wake(self.at(), self.private, 1).unwrap_or(0)
    }

    /// Returns whether a wake of the other finds this one's waiters.
    fn is_at(&self, other: &Futex) -> bool {
        (self.addr, self.private) == (other.addr, other.private)
    }

    const fn at(&self) -> ReadPtr {
        ReadPtr(self.addr)
    }

    const fn entry(&self) -> Waiter {
        Waiter::new(self.at(), self.val, self.private)
    }
}

/// One waiting thread.
#[derive(Debug)]
pub(crate) struct FutexWaiter {
    shape: Shape,
    words: Words<AtomicU32>,
    tid: AtomicI32,
    job: Mutex<Option<(ReqId, Job)>>,
}

/// Idle futex waiters of one ring.
#[derive(Debug, Default)]
pub(crate) struct FutexWaiters(Vec<Arc<FutexWaiter>>);

impl FutexWaiters {
    pub(crate) fn any(&self) -> bool {
        !self.0.is_empty()
    }
}

impl Drop for FutexWaiters {
    fn drop(&mut self) {
        for w in &self.0 {
            w.send_home();
        }
    }
}

impl FutexWaiters {
    /// Gives a job to a thread, which waits by the time this returns.
    ///
    /// # Errors
    /// `EAGAIN` if a futex has changed, `ENOMEM` if no thread can be started; those of futex(2).
    pub(crate) fn ask(
        &mut self,
        owner: &Weak<dyn Owner>,
        id: ReqId,
        job: Job,
    ) -> Result<Arc<FutexWaiter>> {
        let job = match job {
            Job::AnyOf(all) if !futex::has_waitv() => return self.ask_each(owner, id, all),
            job => job,
        };
        let w = self.one_for(owner, Shape::of(&job))?;
        w.give(id, job.clone());
        let placed = match &job {
            Job::Child(_) | Job::OneOf(..) => {
                w.rouse();
                return Ok(w);
            }
            Job::Futex(f, _) => w.move_all(core::slice::from_ref(f)),
            Job::AnyOf(all) => w.move_all(all),
        };
        match placed {
            Ok(()) => Ok(w),
            // Woken meanwhile: its own thread will report it.
            Err(_) if !w.take_back() => Ok(w),
            Err(e) => {
                self.idle(w);
                Err(e)
            }
        }
    }

    /// Takes an idle futex waiter, or starts one.
    pub(super) fn one_for(
        &mut self,
        owner: &Weak<dyn Owner>,
        shape: Shape,
    ) -> Result<Arc<FutexWaiter>> {
        match self.0.iter().rposition(|w| w.shape == shape) {
            Some(at) => Ok(self.0.remove(at)),
            None => FutexWaiter::start(owner, shape),
        }
    }

    /// Makes a futex waiter idle again, with all others of the same request. Returns false if one
    /// of them was woken before, and will report it.
    pub(crate) fn take_back(&mut self, w: &Arc<FutexWaiter>) -> bool {
        if let Some(each) = w.each() {
            return self.dissolve(&each, None).is_empty();
        }
        let back = w.take_back();
        if back {
            self.idle(w.clone());
        }
        back
    }

    /// Puts a futex waiter back among the idle ones, or ends it if there are enough.
    pub(crate) fn idle(&mut self, w: Arc<FutexWaiter>) {
        if !w.shape.is_common() {
            return;
        }
        *w.job() = None;
        if self.0.len() < IDLE_FUTEX_WAITERS && w.words.leave.load(SeqCst) == 0 {
            self.0.push(w);
        } else {
            w.send_home();
        }
    }
}

impl FutexWaiter {
    fn start(owner: &Weak<dyn Owner>, shape: Shape) -> Result<Arc<FutexWaiter>> {
        let n = if let Shape::Many(all) = &shape { all.len() } else { 1 };
        let w = Arc::new(FutexWaiter {
            shape,
            words: Words::new(n, IDLE, AtomicU32::new),
            tid: AtomicI32::new(0),
            job: Mutex::new(None),
        });
        let (me, owner) = (w.clone(), owner.clone());
        let _blocked = signal::BlockAll::begin();
        let name = format!("iou-slp-{}", softring_host::fork::pid());
        softring_host::threads::start(&name, WORKER_STACK, move || me.live(&owner))
            .map_err(|_| Errno::ENOMEM)?;
        Ok(w)
    }

    fn job(&self) -> MutexGuard<'_, Option<(ReqId, Job)>> {
        self.job.lock()
    }

    /// Returns the waiters of the same request.
    fn each(&self) -> Option<Arc<Each>> {
        match &*self.job() {
            Some((_, Job::OneOf(each, _))) => Some(each.clone()),
            _ => None,
        }
    }

    // On the side of the submitter, under the uring lock.

    pub(super) fn give(&self, id: ReqId, job: Job) {
        *self.job() = Some((id, job));
        self.begin();
    }

    /// Ends the futex waiter's sleep on its own word, so that it reads its job or `leave`.
    fn rouse(&self) {
        let word = self.flag();
        word.store(ASKED, SeqCst);
        for private in [false, true] {
            on(word, ASKED, private).wake();
        }
    }

    fn send_home(&self) {
        self.words.leave.store(1, SeqCst);
        self.rouse();
    }

    /// Ends the thread wherever it sleeps, because the ring ends.
    pub(crate) fn abandon(&self) {
        if let Some(each) = self.each() {
            return each.abandon();
        }
        self.end()
    }

    pub(super) fn end(&self) {
        self.words.leave.store(1, SeqCst);
        self.take_back();
    }

    /// Returns whether it waits at a futex for a wake with one of these bits, and has nothing to
    /// report yet.
    pub(crate) fn waits_at(&self, at: &Futex, mask: u32) -> bool {
        self.words.state.load(SeqCst) == BUSY
            && match &*self.job() {
                Some((_, Job::Futex(f, bits))) => f.is_at(at) && bits & mask != 0,
                Some((_, Job::AnyOf(all))) => all.iter().any(|f| f.is_at(at)),
                _ => false,
            }
    }

    // On its own thread.

    fn live(self: Arc<Self>, owner: &Weak<dyn Owner>) {
        self.tid.store(process::gettid(), Release);
        signal::unblock();
        loop {
            let (woken, leave) = self.sleep_once();
            let leave = leave || !self.shape.is_common();
            match woken {
                Some(res) if !self.report(owner, res) => return,
                _ if leave => return,
                _ => {}
            }
        }
    }

    /// Reports to the owner; returns false if the owner has ended.
    fn report(self: &Arc<Self>, owner: &Weak<dyn Owner>, res: i32) -> bool {
        let Some(owner) = owner.upgrade() else { return false };
        let Some((id, job)) = self.job().clone() else { return false };
        let res = job.first_woken(res);
        match owner.clone().woken(self, id, &job, res) {
            WakeResult::Ended => false,
            WakeResult::WaitsOn => {
                debug_assert!(matches!(job, Job::Child(_)));
                true
            }
            // Not earlier: the submitter holds the lock until this waiter sleeps.
            WakeResult::Done => owner.take_in(self),
        }
    }

    /// Continues waiting: the child's event was another waiter's. Called under the owner's lock.
    pub(crate) fn wait_on(&self) {
        self.begin();
    }
}

impl Word for AtomicU32 {
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }

    fn sleep(&self, seen: u32) {
        sys::futex_wait(self, seen, Some(WORKER_SIGNAL_EVERY));
    }

    fn wake(&self) {
        sys::futex_wake(self, 1);
    }
}

impl Steps for FutexWaiter {
    type Word = AtomicU32;
    type There = Futex;

    fn words(&self) -> &Words<AtomicU32> {
        &self.words
    }

    fn requeue(&self, word: &AtomicU32, val: u32, there: &Futex) -> Result<usize> {
        on(word, val, there.private).requeue(there)
    }

    fn check(&self, there: &Futex) -> Result<()> {
        there.check()
    }

    fn reports_moved(&self) -> bool {
        requeue::reports_moved()
    }

    fn pause(&self) {
        softring_host::threads::yield_now();
    }

    fn interrupt(&self) -> bool {
        signal::interrupt(self.tid.load(Acquire))
    }

    fn sleep_idle(&self) -> Result<usize> {
        let own = |i: usize, private| on(&self.words.futexes[i], IDLE, private);
        match &self.shape {
            Shape::One { private, mask } => own(0, *private).sleep(*mask),
            Shape::Many(all) => {
                let job = self.job();
                let there = match &*job {
                    Some((_, Job::AnyOf(there))) => &**there,
                    _ => &[],
                };
                let entry = |(i, private): (usize, &bool)| match there.get(i) {
                    Some(f) if self.words.futexes[i].load(SeqCst) == MOVED => f.entry(),
                    _ => own(i, *private).entry(),
                };
                let entries: Vec<Waiter> = all.iter().enumerate().map(entry).collect();
                drop(job);
                futex::wait_any(&entries)
            }
        }
    }

    fn sleep_there(&self) -> Result<usize> {
        let job = self.job().clone();
        match job {
            Some((_, Job::Futex(f, mask))) => f.sleep(mask),
            Some((_, Job::OneOf(each, i))) => each.futex(i).sleep(ANY),
            Some((_, Job::AnyOf(all))) => {
                futex::wait_any(&all.iter().map(Futex::entry).collect::<Vec<_>>())
            }
            _ => Err(Errno::EINVAL),
        }
    }

    fn changed(&self) -> Option<i32> {
        let Some((_, Job::AnyOf(all))) = &*self.job() else { return None };
        let mut there = self.words.futexes.iter().zip(all);
        let changed = |(w, f): (&AtomicU32, &Futex)| {
            w.load(SeqCst) == MOVED && f.check() == Err(Errno::EAGAIN)
        };
        there.position(changed).map(|i| i as i32)
    }

    fn watch_children(&self) -> Result<usize> {
        const WNOWAIT: u32 = 0x0100_0000;
        let Some((_, Job::Child(c))) = *self.job() else { return Err(Errno::EINVAL) };
        process::waitid(c.which, c.id, None, c.options | WNOWAIT)
    }

    fn has_job(&self) -> bool {
        self.job().is_some()
    }
}

impl Job {
    /// Returns the index that the kernel's FUTEX_WAITV reports (`io_futexv_claim`). futex_waitv(2)
    /// returns the futex woken last, but of the futexes at one word the first is woken first.
    fn first_woken(&self, res: i32) -> i32 {
        let Job::AnyOf(all) = self else { return res };
        let woken = usize::try_from(res).ok().and_then(|n| all.get(n));
        let same = |w: &Futex| all.iter().position(|f| f.is_at(w));
        woken.and_then(same).map_or(res, |n| n as i32)
    }
}

/// Returns a word of our own as a futex.
pub(crate) fn on(word: &AtomicU32, val: u32, private: bool) -> Futex {
    Futex { addr: word.as_ptr().expose_provenance() as u64, val, private }
}
