//! A FUTEX_WAITV where futex_waitv(2) is missing (Linux before 5.16) or refused: one futex waiter
//! for each of its futexes.
//!
//! Runs on: the thread that submits or cancels the request, and its futex waiters; all under the
//! uring lock.
//!
//! # Who completes the request
//! The first woken waiter that gets the lock completes the request and takes the other waiters
//! back. A waiter that was woken meanwhile is too late; it passes its wake on to another waiter of
//! the same futex, so that the wake is not lost. (The kernel counts such a wake, and does nothing:
//! `io_futexv_claim`. Its window is shorter.)
//!
//! ```text
//! waiter at A                     waiter at B
//!   woken, state = WOKEN            woken, state = WOKEN
//!   takes the lock                  waits for the lock
//!   the request is A's
//!   takes B back: too late
//!   gives the lock back             takes the lock
//!                                   the request is over: wakes one at B
//! ```

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use softring_host::sync::real::{Mutex, OnceLock};

use super::futex_owner::Owner;
use super::futex_waiter::protocol::Steps;
use super::futex_waiter::{ANY, Futex, FutexWaiter, FutexWaiters, Job, Shape};
use crate::io::token::ReqId;
use softring_uapi::errno::{Errno, Result};

/// Futexes of a request, and their waiters.
#[derive(Debug)]
pub(crate) struct Each {
    all: Box<[Futex]>,
    /// The waiters, until the request is over.
    waiters: Mutex<Vec<Arc<FutexWaiter>>>,
    /// The first waiter, in whose name the request waits.
    leader: OnceLock<Weak<FutexWaiter>>,
    /// Index of the futex whose wake has completed the request.
    claimed: OnceLock<usize>,
}

impl Each {
    fn take(&self) -> Vec<Arc<FutexWaiter>> {
        core::mem::take(&mut *self.waiters.lock())
    }

    fn add(&self, w: &Arc<FutexWaiter>) {
        self.leader.get_or_init(|| Arc::downgrade(w));
        self.waiters.lock().push(w.clone());
    }

    pub(crate) fn futex(&self, index: usize) -> Futex {
        self.all[index]
    }

    fn same(&self, one: usize, other: usize) -> bool {
        let key = |i: usize| (self.all[i].addr, self.all[i].private);
        key(one) == key(other)
    }

    /// Returns the waiter in whose name the request waits.
    pub(crate) fn leader(&self) -> Option<Arc<FutexWaiter>> {
        self.leader.get().and_then(Weak::upgrade)
    }

    /// Passes on the wake of a futex that came after the request was over.
    pub(crate) fn too_late(&self, index: usize) {
        if self.claimed.get().is_none_or(|&other| !self.same(other, index)) {
            self.all[index].wake();
        }
    }

    /// Completes the request by the wake of a futex; returns the result.
    pub(crate) fn claim(
        &self,
        waiters: &mut FutexWaiters,
        by: &Arc<FutexWaiter>,
        index: usize,
    ) -> i32 {
        let woken = waiters.dissolve(self, Some(by));
        // Of the futexes at one word the first is woken first.
        let first = woken.into_iter().filter(|&i| self.same(i, index)).fold(index, usize::min);
        let _ = self.claimed.set(first);
        first as i32
    }

    /// Ends all waiters, because the ring ends.
    pub(crate) fn abandon(&self) {
        self.take().iter().for_each(|w| w.end());
    }
}

impl FutexWaiters {
    /// Gives each futex to a thread of its own; see [`ask`](Self::ask).
    pub(super) fn ask_each(
        &mut self,
        owner: &Weak<dyn Owner>,
        id: ReqId,
        all: Box<[Futex]>,
    ) -> Result<Arc<FutexWaiter>> {
        let (leader, claimed) = (OnceLock::new(), OnceLock::new());
        let each = Arc::new(Each { all, waiters: Mutex::default(), leader, claimed });
        let mut asked = Ok(());
        for (i, f) in each.all.iter().enumerate() {
            let shape = Shape::One { private: f.private, mask: ANY };
            asked = self.one_for(owner, shape).and_then(|w| {
                each.add(&w);
                w.give(id, Job::OneOf(each.clone(), i));
                w.move_all(core::slice::from_ref(f))
            });
            if asked.is_err() {
                break;
            }
        }
        let leader = each.leader();
        match (asked, leader) {
            (Ok(()), Some(leader)) => Ok(leader),
            // A waiter was woken meanwhile: its own thread completes the request.
            (Err(_), Some(leader)) if !self.dissolve(&each, None).is_empty() => Ok(leader),
            (asked, _) => Err(asked.err().unwrap_or(Errno::EINVAL)),
        }
    }

    /// Takes all futex waiters but `but` back; returns the indices of those woken before, which
    /// will report it themselves.
    pub(super) fn dissolve(&mut self, each: &Each, but: Option<&Arc<FutexWaiter>>) -> Vec<usize> {
        let mut woken = Vec::new();
        for (i, w) in each.take().into_iter().enumerate() {
            match () {
                () if but.is_some_and(|but| Arc::ptr_eq(but, &w)) => {}
                () if w.take_back() => self.idle(w),
                () => woken.push(i),
            }
        }
        woken
    }
}
