//! A FUTEX_WAITV where futex_waitv(2) is missing (Linux before 5.16) or refused: a futex waiter at
//! each of its futexes.
//!
//! Runs on: who submits or cancels it, and its futex waiters; all under the uring lock.
//!
//! # Who answers
//! The first that was woken and has the lock ends the request, and takes the others back. One that
//! was woken meanwhile comes too late; so that its wake is not lost, it wakes another waiter of its
//! futex. (The kernel counts such a wake, and does nothing: `io_futexv_claim`. There the time in
//! between is shorter.)
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

/// The futexes of a request, and who sleeps there.
#[derive(Debug)]
pub(crate) struct Each {
    all: Box<[Futex]>,
    /// The waiters, until the request is over.
    waiters: Mutex<Vec<Arc<FutexWaiter>>>,
    /// The waiter in whose name the request waits: the first.
    leader: OnceLock<Weak<FutexWaiter>>,
    /// The futex whose wake has ended the request.
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

    /// In whose name the request waits.
    pub(crate) fn leader(&self) -> Option<Arc<FutexWaiter>> {
        self.leader.get().and_then(Weak::upgrade)
    }

    /// The wake at a futex comes when the request is over.
    pub(crate) fn too_late(&self, index: usize) {
        if self.claimed.get().is_none_or(|&other| !self.same(other, index)) {
            self.all[index].wake();
        }
    }

    /// The wake at a futex ends the request; answers with which result.
    pub(crate) fn claim(
        &self,
        waiters: &mut FutexWaiters,
        by: &Arc<FutexWaiter>,
        index: usize,
    ) -> i32 {
        let woken = waiters.dissolve(self, Some(by));
        // Of those at one word the first is woken first.
        let first = woken.into_iter().filter(|&i| self.same(i, index)).fold(index, usize::min);
        let _ = self.claimed.set(first);
        first as i32
    }

    /// The ring ends.
    pub(crate) fn abandon(&self) {
        self.take().iter().for_each(|w| w.end());
    }
}

impl FutexWaiters {
    /// As [`ask`](Self::ask), with a thread for each futex.
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
                w.place(core::slice::from_ref(f))
            });
            if asked.is_err() {
                break;
            }
        }
        let leader = each.leader();
        match (asked, leader) {
            (Ok(()), Some(leader)) => Ok(leader),
            // One was woken meanwhile: its own thread will tell.
            (Err(_), Some(leader)) if !self.dissolve(&each, None).is_empty() => Ok(leader),
            (asked, _) => Err(asked.err().unwrap_or(Errno::EINVAL)),
        }
    }

    /// Takes all futex waiters back but one; answers which were woken before, and will tell.
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
