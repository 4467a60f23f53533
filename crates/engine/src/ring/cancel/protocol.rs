//! The steps by which a cancellation, and whoever executes a request elsewhere, find which of them
//! ends it: a worker, or a futex waiter. On whatever requests there are: a ring's, or those of
//! `verify::cancel`. All of them are made under the uring lock.

use crate::io::token::ReqId;
use softring_uapi::errno::{Errno, Result};

/// Requests whose calls are with workers.
pub(crate) trait Punted {
    /// What a worker has of a request.
    type Call;
    /// What it brings.
    type Done;

    /// May only the ring's task post what workers bring (DEFER_TASKRUN)?
    fn posts_later(&self) -> bool;
    /// Has a worker ended a request, and its completion waits for the ring's task?
    fn is_kept(&self, id: ReqId) -> bool;
    /// Keeps what a worker has brought for the ring's task.
    fn keep(&mut self, done: Self::Done);
    /// Ends the request that a worker is through with, unless it has ended.
    fn end(&mut self, done: Self::Done);
    /// Takes a call off the queue of workers, or else interrupts it if one runs it; both in one
    /// critical section of the queue's.
    fn take_off(&mut self, id: ReqId) -> Option<Self::Call>;
    /// The request ends cancelled, with the call that was taken off.
    fn end_cancelled(&mut self, id: ReqId, call: Self::Call);

    /// A worker is through: its request ends, or waits for the ring's task.
    fn worker_ends(&mut self, done: Self::Done) {
        if self.posts_later() { self.keep(done) } else { self.end(done) }
    }

    /// Cancels a request that is with a worker.
    ///
    /// # Errors
    /// `ENOENT` if a worker has ended it; `EALREADY` if one runs it, which is told to stop.
    fn cancel_punted(&mut self, id: ReqId) -> Result<()> {
        if self.is_kept(id) {
            return Err(Errno::ENOENT);
        }
        let call = self.take_off(id).ok_or(Errno::EALREADY)?;
        self.end_cancelled(id, call);
        Ok(())
    }
}

/// Requests in whose name a futex waiter sleeps.
pub(crate) trait Sleeping {
    type Waiter;

    /// The waiter that sleeps in the name of a request.
    fn waiter(&self, id: ReqId) -> Option<Self::Waiter>;
    /// Is it that one?
    fn sleeps(&self, by: &Self::Waiter, id: ReqId) -> bool;
    /// Ends a waiter's sleep; false if it was woken before, and is about to say so.
    fn take_back(&mut self, waiter: &Self::Waiter) -> bool;
    /// The request ends cancelled; it has no waiter any more.
    fn end_asleep(&mut self, id: ReqId);
    /// The event has come: the request ends with `res`, and has no waiter any more. False if it
    /// was for somebody else, and the waiter sleeps on.
    fn end_woken(&mut self, id: ReqId, res: i32) -> bool;

    /// Takes a request back from its waiter; it ends with the next task work.
    ///
    /// # Errors
    /// `ENOENT` if none sleeps in its name, or it was woken before.
    fn cancel_futex_wait(&mut self, id: ReqId) -> Result<()> {
        let waiter = self.waiter(id).ok_or(Errno::ENOENT)?;
        if !self.take_back(&waiter) {
            return Err(Errno::ENOENT);
        }
        self.end_asleep(id);
        Ok(())
    }

    /// A waiter was woken: its request ends, unless it has none any more. False if it has to wait
    /// on. Called by the waiter.
    fn futex_waiter_done(&mut self, by: &Self::Waiter, id: ReqId, res: i32) -> bool {
        !self.sleeps(by, id) || self.end_woken(id, res)
    }
}
