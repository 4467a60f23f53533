//! The end of a request, by one of two: what it waits for, or a cancel. Each request has one final
//! CQE, a cancelled one has done nothing, and a signal that is meant for one call never reaches the
//! next.
//!
//! What runs here is the worker pool (`io::worker`), the table of requests (`ring::slab`) and the
//! steps of a futex waiter (`io::futex_waiter::protocol`), on loom's locks and words. What holds
//! them together under the uring lock is written once more, as it is spread over the whole of
//! `ring::ctx::Ctx`: `Ctx::cancel_one` with what it calls, `Ctx::finished`, `Ctx::worker_done`,
//! `Ctx::poll_events`.

use super::word::{Total, WaiterWord};
use super::{explore, found};
use crate::io::futex_waiter::protocol::{BUSY, PLACED, Steps, Word};
use crate::io::token::ReqId;
use crate::io::worker::{Pool, Work};
use crate::ring::request::Req;
use crate::ring::slab::Slab;
use core::time::Duration;
use loom::sync::atomic::Ordering::SeqCst;
use loom::sync::{Condvar, Mutex};
use loom::thread;
use softring_host::sync::{block_until_signal, is_signalled, signal_forever};
use softring_uapi::errno::{Errno, Result};
use std::sync::Arc;

const ECANCELED: i32 = Errno::ECANCELED.res();
const HAS_RUN: &str = "a cancelled call has run";

/// What to do wrong, to see that the model notices.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The cancel checks the queue in one critical section, and takes from it in the next.
    TwoChecks,
    /// The cancel also ends what already runs.
    EndsRunning,
    /// The cancel checks what runs in one critical section, and the queue in the next.
    RunningFirst,
    /// Signals go on when their item is done.
    KeepsSignal,
    /// A cancel ends what no worker has any more, and the ring's task has not seen yet.
    EndsDeferred,
    /// An event is believed without a check of the generation.
    StaleEvent,
    /// The futex waiter checks whether it is taken back before it says that it has ended.
    EarlyCheck,
    /// What the one stores and the other loads has no total order.
    NoOrder,
    /// The one that takes a futex waiter back does not ask whether it was woken before.
    NotAsked,
}

/// What the uring lock guards: the requests, and the results of each in the order of their coming.
#[derive(Default)]
struct Ctx {
    slab: Slab,
    cqes: [Vec<i32>; 2],
    /// `Ctx::deferred`
    deferred: Option<(ReqId, i32)>,
}

// SAFETY: as the ring's own; the requests here have nothing that belongs to a thread.
unsafe impl Send for Ctx {}

impl Ctx {
    /// A request of the number that its `user_data` is.
    fn add(&mut self, number: u64) -> ReqId {
        self.slab.add(Req { user_data: number, ..Req::default() })
    }

    /// `Ctx::finished`, `Ctx::end_soon`: ends a request, unless that has ended.
    fn finished(&mut self, id: ReqId, res: i32) {
        if let Some(req) = self.slab.take(id) {
            self.cqes[req.user_data as usize].push(res);
            self.slab.release(id);
            self.slab.leave(req);
        }
    }
}

/// A ring with one worker.
#[derive(Default)]
struct Workers {
    ctx: Mutex<Ctx>,
    ended: Condvar,
    ran: Mutex<[bool; 2]>,
}

/// What the worker runs: the first item's call blocks until a signal ends it, the second one's ends
/// by itself.
struct Item {
    ring: Arc<Workers>,
    id: ReqId,
    number: u64,
    /// As with DEFER_TASKRUN: it ends by itself, and the ring's task is to post.
    defers: bool,
}

impl Work for Item {
    type Key = ReqId;

    fn run(self) {
        if self.number == 1 {
            assert!(!is_signalled(), "a signal reaches the next call");
        } else if !self.defers {
            block_until_signal();
        }
        self.ring.ran.lock().unwrap()[self.number as usize] = true;
        let mut ctx = self.ring.ctx.lock().unwrap();
        if self.defers {
            ctx.deferred = Some((self.id, 1));
        } else {
            ctx.finished(self.id, 1);
        }
        drop(ctx);
        self.ring.ended.notify_all();
    }

    fn unbound(&self) -> bool {
        false
    }

    fn hash_key(&self) -> Option<u64> {
        None
    }

    fn key(&self) -> ReqId {
        self.id
    }
}

impl Workers {
    /// A pool of one worker, that has these items.
    fn queue(self: &Arc<Self>, items: u64, defers: bool) -> (Arc<Pool<Item>>, ReqId) {
        let pool = Pool::with(1, [1, 1], Duration::ZERO, 0);
        let ids = (0..items).map(|number| {
            let (ring, id) = (self.clone(), self.ctx.lock().unwrap().add(number));
            assert!(pool.queue(Item { ring, id, number, defers }).is_ok());
            id
        });
        let first = ids.min_by_key(|id| id.slot).expect("there are some");
        (pool, first)
    }
}

/// `Ctx::cancel_punted`, under the uring lock, of what `Pool::cancel_and_interrupt` finds.
fn cancel(ctx: &mut Ctx, pool: &Pool<Item>, id: ReqId, fault: Fault) {
    let which = |k: &ReqId| *k == id;
    if fault == Fault::TwoChecks && pool.counts()[0].queued == 2 {
        drop(pool.cancel(which, false));
        return ctx.finished(id, ECANCELED);
    }
    let (queued, running) = match fault {
        Fault::RunningFirst => {
            let running = pool.interrupt(which);
            (pool.cancel(which, false).0, running)
        }
        _ => pool.cancel_and_interrupt(which, false),
    };
    if !queued.is_empty() || (fault == Fault::EndsRunning && running > 0) {
        ctx.finished(id, ECANCELED);
    }
}

/// Until the workers have gone home.
fn shut_down(pool: &Pool<Item>) {
    drop(pool.shutdown());
    while pool.counts()[0].workers > 0 {
        thread::yield_now();
    }
}

/// A cancel meets a worker that has two items.
fn worker(fault: Fault) {
    explore(move || {
        if fault == Fault::KeepsSignal {
            signal_forever();
        }
        let ring = Arc::new(Workers::default());
        let (pool, first) = ring.queue(2, false);
        let mut ctx = ring.ctx.lock().unwrap();
        cancel(&mut ctx, &pool, first, fault);
        while ctx.cqes.iter().any(Vec::is_empty) {
            ctx = ring.ended.wait(ctx).unwrap();
        }
        drop(ctx);
        shut_down(&pool);
        let ctx = ring.ctx.lock().unwrap();
        assert!(ctx.cqes.iter().all(|c| c.len() == 1), "not one end each");
        assert!(ctx.cqes[0] != [ECANCELED] || !ring.ran.lock().unwrap()[0], "{HAS_RUN}");
    });
}

/// DEFER_TASKRUN: the worker leaves what it brings to the ring's task, which cancels meanwhile.
fn deferred(fault: Fault) {
    explore(move || {
        let ring = Arc::new(Workers::default());
        let (pool, id) = ring.queue(1, true);
        let mut ctx = ring.ctx.lock().unwrap();
        cancel(&mut ctx, &pool, id, fault);
        let with_nobody = pool.counts()[0].running == 0;
        if fault == Fault::EndsDeferred && ctx.slab.get(id).is_some() && with_nobody {
            ctx.finished(id, ECANCELED);
        }
        drop(ctx);
        shut_down(&pool);
        // The next GETEVENTS.
        let mut ctx = ring.ctx.lock().unwrap();
        if let Some((id, res)) = ctx.deferred.take() {
            ctx.finished(id, res);
        }
        assert!(ctx.cqes[0].len() == 1, "not one end each");
        assert!(ctx.cqes[0] != [ECANCELED] || !ring.ran.lock().unwrap()[0], "{HAS_RUN}");
    });
}

/// A cancel meets an event on its way from epoll_wait to the uring lock; the slot is used again.
fn readiness(fault: Fault) {
    explore(move || {
        let ring = Arc::new(Mutex::new(Ctx::default()));
        let first = ring.lock().unwrap().add(0);
        let driver = {
            let ring = ring.clone();
            thread::spawn(move || {
                // The event was for the first request.
                let mut ctx = ring.lock().unwrap();
                let of_slot = ctx.slab.iter().map(|(id, _)| id).find(|id| id.slot == first.slot);
                let whose = if fault == Fault::StaleEvent { of_slot } else { Some(first) };
                whose.into_iter().for_each(|id| ctx.finished(id, 1));
            })
        };
        let mut ctx = ring.lock().unwrap();
        ctx.finished(first, ECANCELED);
        let second = ctx.add(1);
        assert_eq!(second.slot, first.slot);
        drop(ctx);
        driver.join().unwrap();
        let ctx = ring.lock().unwrap();
        assert!(ctx.cqes[0].len() == 1, "not one end each");
        assert!(ctx.cqes[1].is_empty(), "another's event");
    });
}

/// A futex waiter at the program's futex, where a wake or a signal ends its sleep.
struct FutexWaiter {
    words: [WaiterWord; 1],
    state: WaiterWord,
    stop: WaiterWord,
    leave: WaiterWord,
    /// Woken, signalled.
    futex: Mutex<(bool, bool)>,
    ends: Condvar,
    /// The CQEs of its request; `keep` says that it is still the futex waiter's.
    ctx: Mutex<(bool, u32)>,
    fault: Fault,
}

impl Steps for FutexWaiter {
    type Word = WaiterWord;
    type There = ();

    fn words(&self) -> &[WaiterWord] {
        &self.words
    }

    fn state(&self) -> &WaiterWord {
        &self.state
    }

    fn stop(&self) -> &WaiterWord {
        &self.stop
    }

    fn leave(&self) -> &WaiterWord {
        &self.leave
    }

    fn requeue(&self, _: &WaiterWord, _: u32, (): &()) -> Result<usize> {
        unreachable!("it is placed")
    }

    fn check(&self, (): &()) -> Result<()> {
        unreachable!("it is placed")
    }

    fn is_told(&self) -> bool {
        true
    }

    fn pause(&self) {
        thread::yield_now();
    }

    fn interrupt(&self) -> bool {
        self.futex.lock().unwrap().1 = true;
        self.ends.notify_all();
        true
    }

    fn sleep_idle(&self) -> Result<usize> {
        unreachable!("it is placed")
    }

    /// futex(2).
    fn sleep_there(&self) -> Result<usize> {
        let mut futex = self.futex.lock().unwrap();
        while *futex == (false, false) {
            futex = self.ends.wait(futex).unwrap();
        }
        let (woken, _) = core::mem::take(&mut *futex);
        drop(futex);
        if self.fault == Fault::EarlyCheck {
            self.stop.stick(Some(self.stop.load(SeqCst)));
        }
        if woken { Ok(0) } else { Err(Errno::EINTR) }
    }

    fn watch_children(&self) -> Result<usize> {
        unreachable!("it waits for a futex")
    }

    fn changed(&self) -> Option<i32> {
        None
    }

    fn has_job(&self) -> bool {
        true
    }
}

impl FutexWaiter {
    fn new(fault: Fault) -> Self {
        let total = Total::default();
        let word = |value| WaiterWord::new(value, (fault != Fault::NoOrder).then_some(&total));
        FutexWaiter {
            words: [word(PLACED)],
            state: word(BUSY),
            stop: word(0),
            leave: word(0),
            futex: Mutex::default(),
            ends: Condvar::new(),
            ctx: Mutex::new((true, 0)),
            fault,
        }
    }

    /// `FutexWaiter::live`, once.
    fn live(&self) {
        let (woken, _) = self.sleep_once();
        let mut ctx = self.ctx.lock().unwrap();
        if woken.is_some() && ctx.0 {
            *ctx = (false, ctx.1 + 1);
        }
    }

    /// `Ctx::cancel_futex_wait`, under the uring lock.
    fn cancel(&self) {
        let mut ctx = self.ctx.lock().unwrap();
        if !ctx.0 {
            return;
        }
        let back = self.take_back();
        if back || self.fault == Fault::NotAsked {
            ctx.1 += 1;
            ctx.0 = !back;
        }
    }
}

/// A cancel meets a wake of a futex.
fn futex_waiter(fault: Fault) {
    explore(move || {
        let s = Arc::new(FutexWaiter::new(fault));
        let [one, two] = [s.clone(), s.clone()];
        let waiter = thread::spawn(move || one.live());
        let program = thread::spawn(move || {
            two.futex.lock().unwrap().0 = true;
            two.ends.notify_all();
        });
        s.cancel();
        waiter.join().unwrap();
        program.join().unwrap();
        assert!(s.ctx.lock().unwrap().1 == 1, "not one end each");
    });
}

#[test]
fn a_worker_or_a_cancel() {
    worker(Fault::None);
}

#[test]
fn two_checks_are_found() {
    found(two_checks_are_found, "deadlock", || worker(Fault::TwoChecks));
}

#[test]
fn an_end_of_what_runs_is_found() {
    found(an_end_of_what_runs_is_found, HAS_RUN, || worker(Fault::EndsRunning));
}

#[test]
fn an_item_that_nobody_has_is_found() {
    found(an_item_that_nobody_has_is_found, "deadlock", || worker(Fault::RunningFirst));
}

#[test]
fn a_signal_too_many_is_found() {
    found(a_signal_too_many_is_found, "reaches the next call", || worker(Fault::KeepsSignal));
}

#[test]
fn what_is_deferred_ends_once() {
    deferred(Fault::None);
}

#[test]
fn an_end_of_what_is_deferred_is_found() {
    let test = an_end_of_what_is_deferred_is_found;
    found(test, HAS_RUN, || deferred(Fault::EndsDeferred));
}

#[test]
fn readiness_or_a_cancel() {
    readiness(Fault::None);
}

#[test]
fn a_stale_event_is_found() {
    found(a_stale_event_is_found, "another's event", || readiness(Fault::StaleEvent));
}

#[test]
fn a_wake_or_a_cancel() {
    futex_waiter(Fault::None);
}

#[test]
fn an_early_check_is_found() {
    found(an_early_check_is_found, "deadlock", || futex_waiter(Fault::EarlyCheck));
}

#[test]
fn a_missing_order_is_found() {
    found(a_missing_order_is_found, "deadlock", || futex_waiter(Fault::NoOrder));
}

#[test]
fn a_futex_waiter_not_asked_is_found() {
    found(a_futex_waiter_not_asked_is_found, "not one end each", || futex_waiter(Fault::NotAsked));
}
