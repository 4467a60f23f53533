//! A futex waiter against a cancel.

use super::{ECANCELED, Fault, explore, found};
use crate::io::futex_waiter::protocol::{BUSY, MOVED, Steps, Word, Words};
use crate::io::token::ReqId;
use crate::ring::cancel::protocol::Sleeping;
use crate::verify::word::{Total, WaiterWord};
use loom::sync::atomic::Ordering::SeqCst;
use loom::sync::{Condvar, Mutex, MutexGuard};
use loom::thread;
use softring_uapi::errno::{Errno, Result};
use std::sync::Arc;

/// State that the uring lock guards of a request that a futex waiter has.
struct Sleeper {
    /// Flag, true while the request is the futex waiter's.
    asleep: bool,
    cqes: Vec<i32>,
}

/// Request whose lock is held.
struct Held<'a> {
    ctx: MutexGuard<'a, Sleeper>,
    waiter: &'a FutexWaiter,
}

/// Id of the one request.
const ID: ReqId = ReqId::from_u64(1 << 32);

impl Sleeping for Held<'_> {
    type Waiter = ();

    fn waiter(&self, _: ReqId) -> Option<()> {
        self.ctx.asleep.then_some(())
    }

    fn sleeps(&self, (): &(), _: ReqId) -> bool {
        self.ctx.asleep
    }

    fn take_back(&mut self, (): &()) -> bool {
        let back = self.waiter.take_back();
        // The request would still be the waiter's, which ends it as well.
        if self.waiter.fault == Fault::NotAsked && !back {
            self.ctx.cqes.push(ECANCELED);
        }
        back
    }

    fn end_asleep(&mut self, _: ReqId) {
        self.ctx.asleep = false;
        self.ctx.cqes.push(ECANCELED);
    }

    fn end_woken(&mut self, _: ReqId, res: i32) -> bool {
        self.ctx.asleep = false;
        self.ctx.cqes.push(res);
        true
    }
}

/// Futex waiter at the program's futex, where a wake or a signal ends its sleep.
struct FutexWaiter {
    words: Words<WaiterWord>,
    /// Two flags: woken, signalled.
    futex: Mutex<(bool, bool)>,
    /// Flag, true if this waiter has taken the wake.
    took: Mutex<bool>,
    ends: Condvar,
    ctx: Mutex<Sleeper>,
    fault: Fault,
}

impl Steps for FutexWaiter {
    type Word = WaiterWord;
    type There = ();

    fn words(&self) -> &Words<WaiterWord> {
        &self.words
    }

    fn requeue(&self, _: &WaiterWord, _: u32, (): &()) -> Result<usize> {
        unreachable!("it is placed")
    }

    fn check(&self, (): &()) -> Result<()> {
        unreachable!("it is placed")
    }

    fn reports_moved(&self) -> bool {
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

    /// Sleeps at the program's futex, like futex(2).
    fn sleep_there(&self) -> Result<usize> {
        let mut futex = self.futex.lock().unwrap();
        while *futex == (false, false) {
            futex = self.ends.wait(futex).unwrap();
        }
        let (woken, _) = core::mem::take(&mut *futex);
        drop(futex);
        *self.took.lock().unwrap() |= woken;
        if self.fault == Fault::EarlyCheck {
            self.words.stop.stick(Some(self.words.stop.load(SeqCst)));
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
            words: Words::new(1, MOVED, word),
            futex: Mutex::default(),
            took: Mutex::default(),
            ends: Condvar::new(),
            ctx: Mutex::new(Sleeper { asleep: true, cqes: vec![] }),
            fault,
        }
    }

    fn lock(&self) -> Held<'_> {
        Held { ctx: self.ctx.lock().unwrap(), waiter: self }
    }

    /// Runs `FutexWaiter::live` once.
    fn live(&self) {
        let (woken, _) = self.sleep_once();
        if woken.is_some() {
            self.lock().futex_waiter_done(&(), ID, 0);
        }
    }
}

/// Runs a cancel against a wake of a futex.
fn futex_waiter(fault: Fault) {
    explore(move || {
        let s = Arc::new(FutexWaiter::new(fault));
        let [one, two] = [s.clone(), s.clone()];
        let waiter = thread::spawn(move || one.live());
        let program = thread::spawn(move || {
            two.futex.lock().unwrap().0 = true;
            two.ends.notify_all();
        });
        let _ = s.lock().cancel_futex_wait(ID);
        waiter.join().unwrap();
        program.join().unwrap();
        let cqes = &s.ctx.lock().unwrap().cqes;
        assert!(cqes.len() == 1, "not one end each");
        let took = *s.took.lock().unwrap();
        assert!(!took || *cqes == [0], "a wake is lost");
    });
}

#[test]
fn a_wake_or_a_cancel_ends_a_wait() {
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
