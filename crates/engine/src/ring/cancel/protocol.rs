//! Steps by which a cancellation and the thread that executes a request elsewhere (a worker or a
//! futex waiter) decide which of them ends it. The requests are a ring's, or those of
//! `verify::cancel`. All steps run under the uring lock.

use crate::io::token::ReqId;
use softring_uapi::errno::{Errno, Result};

/// Requests whose calls are with workers.
pub(crate) trait Punted {
    /// A worker's part of a request.
    type Call;
    /// A worker's result.
    type Done;

    /// Returns whether only the ring's task may post the results of workers (DEFER_TASKRUN).
    fn posts_later(&self) -> bool;
    /// Returns whether a worker has ended the request and its completion waits for the ring's task.
    fn is_deferred(&self, id: ReqId) -> bool;
    /// Queues a worker's result for the ring's task.
    fn defer(&mut self, done: Self::Done);
    /// Ends the request that a worker has finished, unless it has ended.
    fn end(&mut self, done: Self::Done);
    /// Takes a call off the workers' queue, or interrupts the call if a worker runs it. Both happen
    /// in one critical section of the queue.
    fn take_off(&mut self, id: ReqId) -> Option<Self::Call>;
    /// Ends the request as cancelled, with the call that was taken off.
    fn end_cancelled(&mut self, id: ReqId, call: Self::Call);

    /// Takes a worker's result: ends its request, or queues the result for the ring's task.
    fn worker_ends(&mut self, done: Self::Done) {
        if self.posts_later() { self.defer(done) } else { self.end(done) }
    }

    /// Cancels a request that is with a worker.
    ///
    /// # Errors
    /// `ENOENT` if a worker has ended it; `EALREADY` if one runs it, which is told to stop.
    fn cancel_punted(&mut self, id: ReqId) -> Result<()> {
        if self.is_deferred(id) {
            return Err(Errno::ENOENT);
        }
        let call = self.take_off(id).ok_or(Errno::EALREADY)?;
        self.end_cancelled(id, call);
        Ok(())
    }
}

/// Requests on whose behalf a futex waiter sleeps.
pub(crate) trait Sleeping {
    type Waiter;

    /// Returns the waiter that sleeps on behalf of a request.
    fn waiter(&self, id: ReqId) -> Option<Self::Waiter>;
    /// Returns whether `by` sleeps on behalf of the request.
    fn sleeps(&self, by: &Self::Waiter, id: ReqId) -> bool;
    /// Ends a waiter's sleep; false if it was woken before and is about to report.
    fn take_back(&mut self, waiter: &Self::Waiter) -> bool;
    /// Ends the request as cancelled; it has no waiter any more.
    fn end_asleep(&mut self, id: ReqId);
    /// Ends the request with `res` after its event; it has no waiter any more. False if the event
    /// was for another request, and the waiter sleeps on.
    fn end_woken(&mut self, id: ReqId, res: i32) -> bool;

    /// Takes a request back from its waiter; it ends with the next task work.
    ///
    /// # Errors
    /// `ENOENT` if no waiter sleeps on its behalf, or it was woken before.
    fn cancel_futex_wait(&mut self, id: ReqId) -> Result<()> {
        let waiter = self.waiter(id).ok_or(Errno::ENOENT)?;
        if !self.take_back(&waiter) {
            return Err(Errno::ENOENT);
        }
        self.end_asleep(id);
        Ok(())
    }

    /// Ends the request of a woken waiter, unless the request has ended. False if the waiter has to
    /// wait on. Called by the waiter.
    fn futex_waiter_done(&mut self, by: &Self::Waiter, id: ReqId, res: i32) -> bool {
        !self.sleeps(by, id) || self.end_woken(id, res)
    }
}
