//! The end of a request, by its event or by a cancel. Each request has one final CQE, a cancelled
//! one has done nothing, and a signal that is meant for one call never reaches the next.
//!
//! The model runs the worker pool (`io::worker`), the table of requests (`ring::slab`), the steps
//! of a futex waiter (`io::futex_waiter::protocol`), and the steps under the uring lock
//! (`ring::cancel::protocol`), on loom's locks and words. A request ends here by `Slab::take` and
//! `Slab::release`, as in `Ctx::finish_quiet`.

mod futex;

use super::{explore, found};
use crate::io::token::ReqId;
use crate::io::worker::{Pool, Work};
use crate::ring::cancel::protocol::Punted;
use crate::ring::request::Req;
use crate::ring::slab::Slab;
use core::time::Duration;
use loom::sync::{Condvar, Mutex};
use loom::thread;
use softring_host::sync::{block_until_signal, is_signalled, signal_forever};
use softring_uapi::errno::Errno;
use std::sync::Arc;

const ECANCELED: i32 = Errno::ECANCELED.res();
const HAS_RUN: &str = "a cancelled call has run";

/// Fault to put in, to see that the model notices.
#[derive(Clone, Copy, Default, PartialEq)]
enum Fault {
    #[default]
    None,
    /// The cancel checks the queue in one critical section, and takes from it in the next.
    TwoChecks,
    /// The cancel also ends a running item.
    EndsRunning,
    /// The cancel checks running items in one critical section, and the queue in the next.
    RunningFirst,
    /// Signals go on when their item is done.
    KeepsSignal,
    /// A cancel ends a request that no worker has any more, and the ring's task has not seen yet.
    EndsDeferred,
    /// An event is believed without a check of the generation.
    StaleEvent,
    /// The futex waiter checks whether it is taken back before it says that it has ended.
    EarlyCheck,
    /// The store of one side and the load of the other have no total order.
    NoOrder,
    /// The thread that takes a futex waiter back does not ask whether it was woken before.
    NotAsked,
}

/// State that the uring lock guards: the requests, and the results of each in order.
#[derive(Default)]
struct Ctx {
    slab: Slab,
    cqes: [Vec<i32>; 2],
    /// Result that waits for the ring's task, with DEFER_TASKRUN.
    deferred: Option<(ReqId, i32)>,
    defers: bool,
    pool: Option<Arc<Pool<Item>>>,
    fault: Fault,
}

// SAFETY: as the ring's own; the requests here have nothing that belongs to a thread.
unsafe impl Send for Ctx {}

impl Ctx {
    /// Adds a request whose `user_data` is `number`.
    fn add(&mut self, number: u64) -> ReqId {
        self.slab.add(Req { user_data: number, ..Req::default() })
    }

    /// Ends a request, unless it has ended.
    fn finished(&mut self, id: ReqId, res: i32) {
        if let Some(req) = self.slab.take(id) {
            self.cqes[req.user_data as usize].push(res);
            self.slab.release(id);
            self.slab.leave(req);
        }
    }
}

impl Punted for Ctx {
    type Call = ();
    type Done = (ReqId, i32);

    fn posts_later(&self) -> bool {
        self.defers
    }

    fn is_deferred(&self, id: ReqId) -> bool {
        let kept = self.deferred.is_some_and(|(of, _)| of == id);
        kept && self.fault != Fault::EndsDeferred
    }

    fn defer(&mut self, done: (ReqId, i32)) {
        self.deferred = Some(done);
    }

    fn end(&mut self, (id, res): (ReqId, i32)) {
        self.finished(id, res);
    }

    fn take_off(&mut self, id: ReqId) -> Option<()> {
        let pool = self.pool.as_ref()?;
        let which = |k: &ReqId| *k == id;
        let (queued, running) = match self.fault {
            Fault::TwoChecks if pool.counts()[0].queued == 2 => {
                drop(pool.cancel(which, false));
                return Some(());
            }
            Fault::RunningFirst => {
                let running = pool.interrupt(which);
                (pool.cancel(which, false).0, running)
            }
            _ => pool.cancel_and_interrupt(which, false),
        };
        let too_much = match self.fault {
            Fault::EndsRunning => running > 0,
            Fault::EndsDeferred => pool.counts()[0].running == 0,
            _ => false,
        };
        (!queued.is_empty() || too_much).then_some(())
    }

    fn end_cancelled(&mut self, id: ReqId, (): ()) {
        self.finished(id, ECANCELED);
    }
}

/// A ring with one worker.
struct Workers {
    ctx: Mutex<Ctx>,
    ended: Condvar,
    ran: Mutex<[bool; 2]>,
}

/// Item of the worker: the first item's call blocks until a signal ends it, the second one's ends
/// by itself.
struct Item {
    ring: Arc<Workers>,
    id: ReqId,
    number: u64,
    /// Flag, true if its call ends by itself.
    ends: bool,
}

impl Work for Item {
    type Key = ReqId;

    fn run(self) {
        if self.number == 1 {
            assert!(!is_signalled(), "a signal reaches the next call");
        } else if !self.ends {
            block_until_signal();
        }
        self.ring.ran.lock().unwrap()[self.number as usize] = true;
        self.ring.ctx.lock().unwrap().worker_ends((self.id, 1));
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
    fn new(defers: bool, fault: Fault) -> Arc<Self> {
        let ctx = Mutex::new(Ctx { defers, fault, ..Ctx::default() });
        Arc::new(Workers { ctx, ended: Condvar::new(), ran: Mutex::default() })
    }

    /// Makes a pool of one worker that has these items; they end by themselves if their ring's task
    /// is to post.
    fn queue(self: &Arc<Self>, items: u64) -> (Arc<Pool<Item>>, ReqId) {
        let pool = Pool::with(1, [1, 1], Duration::ZERO, 0);
        let ends = self.ctx.lock().unwrap().defers;
        let ids = (0..items).map(|number| {
            let (ring, id) = (self.clone(), self.ctx.lock().unwrap().add(number));
            assert!(pool.queue(Item { ring, id, number, ends }).is_ok());
            id
        });
        let first = ids.min_by_key(|id| id.slot).expect("there are some");
        self.ctx.lock().unwrap().pool = Some(pool.clone());
        (pool, first)
    }
}

/// Shuts the pool down, and waits until its workers have ended.
fn shut_down(pool: &Pool<Item>) {
    drop(pool.shutdown());
    while pool.counts()[0].workers > 0 {
        thread::yield_now();
    }
}

/// Runs a cancel against a worker that has two items.
fn worker(fault: Fault) {
    explore(move || {
        if fault == Fault::KeepsSignal {
            signal_forever();
        }
        let ring = Workers::new(false, fault);
        let (pool, first) = ring.queue(2);
        let mut ctx = ring.ctx.lock().unwrap();
        let _ = ctx.cancel_punted(first);
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

/// Runs a cancel with DEFER_TASKRUN: the worker leaves its result to the ring's task, which
/// cancels.
fn deferred(fault: Fault) {
    explore(move || {
        let ring = Workers::new(true, fault);
        let (pool, id) = ring.queue(1);
        let mut ctx = ring.ctx.lock().unwrap();
        let kept = ctx.deferred.is_some();
        let gone = ctx.cancel_punted(id) == Err(Errno::ENOENT);
        assert!(fault != Fault::None || gone == kept, "what has ended is said to run");
        drop(ctx);
        shut_down(&pool);
        // Stands for the next GETEVENTS.
        let mut ctx = ring.ctx.lock().unwrap();
        assert!(ctx.cqes[0] != [1], "a worker posts");
        if let Some((id, res)) = ctx.deferred.take() {
            ctx.finished(id, res);
        }
        assert!(ctx.cqes[0].len() == 1, "not one end each");
        assert!(ctx.cqes[0] != [ECANCELED] || !ring.ran.lock().unwrap()[0], "{HAS_RUN}");
    });
}

/// Runs a cancel against an event between epoll_wait and the uring lock; the slot is used again.
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

#[test]
fn a_worker_or_a_cancel_takes_an_item() {
    worker(Fault::None);
}

#[test]
fn two_checks_are_found() {
    found(two_checks_are_found, "deadlock", || worker(Fault::TwoChecks));
}

#[test]
fn an_end_of_a_running_item_is_found() {
    found(an_end_of_a_running_item_is_found, HAS_RUN, || worker(Fault::EndsRunning));
}

#[test]
fn an_unowned_item_is_found() {
    found(an_unowned_item_is_found, "deadlock", || worker(Fault::RunningFirst));
}

#[test]
fn a_signal_too_many_is_found() {
    found(a_signal_too_many_is_found, "reaches the next call", || worker(Fault::KeepsSignal));
}

#[test]
fn deferred_cancels_end_once() {
    deferred(Fault::None);
}

#[test]
fn an_early_end_of_a_deferred_cancel_is_found() {
    let test = an_early_end_of_a_deferred_cancel_is_found;
    found(test, HAS_RUN, || deferred(Fault::EndsDeferred));
}

#[test]
fn readiness_or_a_cancel_ends_a_poll() {
    readiness(Fault::None);
}

#[test]
fn a_stale_event_is_found() {
    found(a_stale_event_is_found, "another's event", || readiness(Fault::StaleEvent));
}
