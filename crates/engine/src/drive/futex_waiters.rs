//! The return of futex waiters' requests to the ring (`io::futex_waiter`).

use alloc::sync::Arc;
use core::sync::atomic::Ordering::SeqCst;

use super::leave::leave;
use crate::io::futex_owner::{Owner, WakeResult};
use crate::io::futex_waiter::protocol::Steps;
use crate::io::futex_waiter::{FutexWaiter, Job};
use crate::io::token::ReqId;
use crate::ring::cancel::protocol::Sleeping;
use crate::ring::ctx::Ring;

impl Owner for Ring {
    fn woken(self: Arc<Self>, by: &Arc<FutexWaiter>, id: ReqId, job: &Job, res: i32) -> WakeResult {
        let mut ctx = self.lock_now();
        if self.dead.load(SeqCst) {
            return WakeResult::Ended;
        }
        let done = match job {
            Job::OneOf(each, i) => {
                ctx.one_done(by, id, each, *i);
                true
            }
            _ => ctx.futex_waiter_done(by, id, res),
        };
        if !done {
            by.wait_on();
            return WakeResult::WaitsOn;
        }
        leave(&self, ctx);
        WakeResult::Done
    }

    fn take_in(&self, by: &Arc<FutexWaiter>) -> bool {
        let mut ctx = self.lock_now();
        by.reset();
        ctx.drive.transports.futex_waiters.idle(by.clone());
        !self.dead.load(SeqCst)
    }
}
