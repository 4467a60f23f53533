//! Futex waiters bring their requests back to the ring (`io::sleeper`).

use core::sync::atomic::Ordering::SeqCst;
use std::sync::Arc;

use super::leave::leave;
use crate::io::sleeper::protocol::Steps;
use crate::io::sleeper::{Job, Sleeper};
use crate::io::sleeper_owner::{Owner, Told};
use crate::io::token::ReqId;
use crate::ring::ctx::Ring;

impl Owner for Ring {
    fn woken(self: Arc<Self>, by: &Arc<Sleeper>, id: ReqId, job: &Job, res: i32) -> Told {
        let mut ctx = self.lock_now();
        if self.dead.load(SeqCst) {
            return Told::Ended;
        }
        let done = match job {
            Job::OneOf(each, i) => {
                ctx.one_done(by, id, each, *i);
                true
            }
            _ => ctx.sleeper_done(by, id, res),
        };
        if !done {
            by.wait_on();
            return Told::WaitsOn;
        }
        leave(&self, ctx);
        Told::Done
    }

    fn take_in(&self, by: &Arc<Sleeper>) -> bool {
        let mut ctx = self.lock_now();
        by.reset();
        ctx.transports.sleepers.idle(by.clone());
        !self.dead.load(SeqCst)
    }
}
