//! Who ends a request: what it waits for, or a cancel. `ring::cancel`'s `cancel_one`,
//! `submit::glue`'s `Job::run` and `worker_cancel`, `worker::Pool::{queue, cancel, interrupt,
//! next}`, `ring::complete::finished`, the driver's `poll_events`. A sleeper is not repeated, but
//! runs its own steps (`io::sleeper::protocol`). Each request has one final CQE, a cancelled one
//! has done nothing, and a signal that is meant for one call never reaches the next.

use super::word::{SleeperWord, Total};
use super::{explore, found};
use crate::io::sleeper::protocol::{BUSY, PLACED, Steps, Word};
use loom::sync::atomic::Ordering::SeqCst;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use softring_uapi::errno::{Errno, Result};

const ECANCELED: i32 = -125;

/// What to do wrong, to see that the model notices.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The cancel looks at the queue in one critical section, and takes from it in the next.
    TwoLooks,
    /// The cancel also ends what already runs.
    EndsRunning,
    /// The worker takes an item in one critical section, and says that it runs in the next.
    LateRunning,
    /// Signals go on when their item is done.
    KeepsSignal,
    /// A cancel ends what no worker has any more, and the ring's task has not seen yet.
    EndsDeferred,
    /// An event is believed without a look at the generation.
    StaleEvent,
    /// The sleeper looks whether it is taken back before it says that it has ended.
    EarlyLook,
    /// What the one stores and the other loads has no total order.
    NoOrder,
    /// Who takes a sleeper back does not ask whether it was woken before.
    NotAsked,
}

/// What the uring lock guards: a slot for requests, and the CQEs of each.
#[derive(Default)]
struct Ctx {
    generation: usize,
    armed: bool,
    present: bool,
    cqes: [Vec<i32>; 2],
    /// `Ctx::deferred`
    deferred: Option<(usize, i32)>,
}

impl Ctx {
    /// `Slab::remove` and `finish`; what is not there any more has ended.
    fn end(&mut self, generation: usize, res: i32) {
        self.cqes[generation].push(res);
        if self.generation == generation {
            self.present = false;
        }
    }

    /// `Ctx::finished`
    fn finished(&mut self, generation: usize, res: i32) {
        if self.present && self.generation == generation {
            self.end(generation, res);
        }
    }
}

/// What the pool's lock guards.
#[derive(Default)]
struct Pool {
    queue: Vec<usize>,
    running: Option<usize>,
    signalled: bool,
}

#[derive(Default)]
struct Workers {
    ctx: Mutex<Ctx>,
    pool: Mutex<Pool>,
    signal: Condvar,
    ran: Mutex<[bool; 2]>,
}

impl Workers {
    /// A worker's life, until the queue is empty. The first item's call blocks until a signal ends
    /// it; the second one's ends by itself.
    fn work(&self, fault: Fault, defers: bool) {
        loop {
            let mut pool = self.pool.lock().unwrap();
            // `State::finish`, in the section that takes the next item.
            pool.running = None;
            if fault != Fault::KeepsSignal {
                pool.signalled = false;
            }
            if pool.queue.is_empty() {
                return;
            }
            let item = pool.queue.remove(0);
            if fault == Fault::LateRunning {
                drop(pool);
                pool = self.pool.lock().unwrap();
            }
            pool.running = Some(item);
            assert!(item == 0 || !pool.signalled, "a signal reaches the next call");
            while item == 0 && !defers && !pool.signalled {
                pool = self.signal.wait(pool).unwrap();
            }
            drop(pool);
            self.ran.lock().unwrap()[item] = true;
            let mut ctx = self.ctx.lock().unwrap();
            if defers {
                ctx.deferred = Some((item, 1));
            } else {
                ctx.cqes[item].push(1);
            }
        }
    }

    /// `Ctx::cancel_punted` of the first item, under the uring lock: `worker_cancel` looks at the
    /// queue, then at what runs.
    fn cancel(&self, ctx: &mut Ctx, fault: Fault) {
        let mut pool = self.pool.lock().unwrap();
        let at = pool.queue.iter().position(|&i| i == 0);
        if fault == Fault::TwoLooks && at.is_some() {
            drop(pool);
            pool = self.pool.lock().unwrap();
            pool.queue.retain(|&i| i != 0);
            return ctx.cqes[0].push(ECANCELED);
        }
        if let Some(at) = at {
            pool.queue.remove(at);
            return ctx.cqes[0].push(ECANCELED);
        }
        if pool.running == Some(0) {
            pool.signalled = true;
            self.signal.notify_all();
            if fault == Fault::EndsRunning {
                ctx.cqes[0].push(ECANCELED);
            }
        }
    }
}

/// A cancel meets a worker that has two items.
fn worker(fault: Fault) {
    explore(move || {
        let ring = Arc::new(Workers::default());
        ring.pool.lock().unwrap().queue = vec![0, 1];
        let worker = {
            let ring = ring.clone();
            thread::spawn(move || ring.work(fault, false))
        };
        ring.cancel(&mut ring.ctx.lock().unwrap(), fault);
        worker.join().unwrap();
        let (ctx, ran) = (ring.ctx.lock().unwrap(), ring.ran.lock().unwrap());
        assert!(ctx.cqes.iter().all(|c| c.len() == 1), "not one end each");
        assert!(ctx.cqes[0] != [ECANCELED] || !ran[0], "a cancelled call has run");
    });
}

/// DEFER_TASKRUN: the worker leaves what it brings to the ring's task, which cancels meanwhile.
fn deferred(fault: Fault) {
    explore(move || {
        let ring = Arc::new(Workers::default());
        ring.pool.lock().unwrap().queue = vec![0];
        ring.ctx.lock().unwrap().present = true;
        let worker = {
            let ring = ring.clone();
            thread::spawn(move || ring.work(fault, true))
        };
        let mut ctx = ring.ctx.lock().unwrap();
        let before = ctx.cqes[0].len();
        ring.cancel(&mut ctx, fault);
        ctx.present = ctx.cqes[0].len() == before;
        let idle = ring.pool.lock().unwrap().running.is_none();
        if fault == Fault::EndsDeferred && ctx.present && idle {
            ctx.cqes[0].push(ECANCELED);
        }
        drop(ctx);
        worker.join().unwrap();
        // The next GETEVENTS.
        let mut ctx = ring.ctx.lock().unwrap();
        if let Some((item, res)) = ctx.deferred.take() {
            ctx.finished(item, res);
        }
        assert!(ctx.cqes[0].len() == 1, "not one end each");
    });
}

/// A cancel meets an event on its way from epoll_wait to the uring lock; the slot is used again.
fn readiness(fault: Fault) {
    explore(move || {
        let ring = Arc::new(Mutex::new(Ctx { armed: true, present: true, ..Ctx::default() }));
        let driver = {
            let ring = ring.clone();
            thread::spawn(move || {
                // The event was for the first request.
                let mut ctx = ring.lock().unwrap();
                let now = ctx.generation;
                let whose = if fault == Fault::StaleEvent { now } else { 0 };
                if ctx.present && ctx.armed && whose == now {
                    ctx.armed = false;
                    ctx.end(whose, 1);
                }
            })
        };
        let mut ctx = ring.lock().unwrap();
        if ctx.present && ctx.armed {
            ctx.armed = false;
            ctx.end(0, ECANCELED);
        }
        *ctx = Ctx { generation: 1, armed: true, present: true, ..core::mem::take(&mut *ctx) };
        drop(ctx);
        driver.join().unwrap();
        let ctx = ring.lock().unwrap();
        assert!(ctx.cqes[0].len() == 1, "not one end each");
        assert!(ctx.cqes[1].is_empty(), "another's event");
    });
}

/// A sleeper at the program's futex, where a wake or a signal ends its sleep.
struct Sleeper {
    words: [SleeperWord; 1],
    state: SleeperWord,
    stop: SleeperWord,
    leave: SleeperWord,
    /// Woken, signalled.
    futex: Mutex<(bool, bool)>,
    ends: Condvar,
    /// The CQEs of its request; `keep` says that it is still the sleeper's.
    ctx: Mutex<(bool, u32)>,
    fault: Fault,
}

impl Steps for Sleeper {
    type Word = SleeperWord;
    type There = ();

    fn words(&self) -> &[SleeperWord] {
        &self.words
    }

    fn state(&self) -> &SleeperWord {
        &self.state
    }

    fn stop(&self) -> &SleeperWord {
        &self.stop
    }

    fn leave(&self) -> &SleeperWord {
        &self.leave
    }

    fn requeue(&self, _: &SleeperWord, _: u32, (): &()) -> Result<usize> {
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
        if self.fault == Fault::EarlyLook {
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

impl Sleeper {
    fn new(fault: Fault) -> Self {
        let total = Total::default();
        let word = |value| SleeperWord::new(value, (fault != Fault::NoOrder).then_some(&total));
        Sleeper {
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

    /// `Sleeper::live`, once.
    fn live(&self) {
        let (woken, _) = self.sleep_once();
        let mut ctx = self.ctx.lock().unwrap();
        if woken.is_some() && ctx.0 {
            *ctx = (false, ctx.1 + 1);
        }
    }

    /// `Ctx::cancel_parked`, under the uring lock.
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
fn sleeper(fault: Fault) {
    explore(move || {
        let s = Arc::new(Sleeper::new(fault));
        let [one, two] = [s.clone(), s.clone()];
        let sleeper = thread::spawn(move || one.live());
        let program = thread::spawn(move || {
            two.futex.lock().unwrap().0 = true;
            two.ends.notify_all();
        });
        s.cancel();
        sleeper.join().unwrap();
        program.join().unwrap();
        assert!(s.ctx.lock().unwrap().1 == 1, "not one end each");
    });
}

#[test]
fn a_worker_or_a_cancel() {
    worker(Fault::None);
}

#[test]
fn two_looks_are_found() {
    found(two_looks_are_found, "deadlock", || worker(Fault::TwoLooks));
}

#[test]
fn an_end_of_what_runs_is_found() {
    found(an_end_of_what_runs_is_found, "not one end each", || worker(Fault::EndsRunning));
}

#[test]
fn an_item_that_nobody_has_is_found() {
    found(an_item_that_nobody_has_is_found, "deadlock", || worker(Fault::LateRunning));
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
    found(test, "not one end each", || deferred(Fault::EndsDeferred));
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
    sleeper(Fault::None);
}

#[test]
fn an_early_look_is_found() {
    found(an_early_look_is_found, "deadlock", || sleeper(Fault::EarlyLook));
}

#[test]
fn a_missing_order_is_found() {
    found(a_missing_order_is_found, "deadlock", || sleeper(Fault::NoOrder));
}

#[test]
fn a_sleeper_not_asked_is_found() {
    found(a_sleeper_not_asked_is_found, "not one end each", || sleeper(Fault::NotAsked));
}
