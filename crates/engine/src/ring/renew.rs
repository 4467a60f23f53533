//! Adoption of an inherited ring by a forked child.

use alloc::boxed::Box;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::ring::ctx::{Ctx, Ring};
use crate::ring::inherited::Inherited;
use crate::ring::token_table::{DirectSqes, ModelledSqes};
use crate::ring::waiters::{Driver, Wakes};

impl Ctx {
    /// Resets the ring in a forked child: requests in flight belong to the parent; their transports
    /// are gone or belong to it.
    pub(super) fn fork_child(&mut self, ring: &Ring) {
        self.forget_in_flight();
        self.setup.inherited = Inherited::new();
        self.resources.files.fork_child();
        // The driver and the waiters are threads of the parent.
        (self.drive.entered, self.drive.driver, self.drive.wakes) =
            (0, Driver::default(), Wakes::default());
        // No thread of the child is in the middle of an issue.
        self.issue.fork_child();
        ring.control.fork_child();
        if let Some(pool) = self.drive.pool.take() {
            // The pool's threads are gone, and one of them may hold its lock: the pool is never
            // used again.
            Box::leak(Box::new(pool));
        }
        let transports = core::mem::take(&mut self.drive.transports);
        transports.forget();
        self.reqs.direct = DirectSqes::default();
        self.reqs.modelled = ModelledSqes::default();
        self.stats.fork_child();
        self.trace.fork_child();
        if let Some(faults) = &mut self.faults {
            faults.forked = true;
        }
        self.reqs.slab.timed = false;
        self.completion.signalled = None;
        self.completion.counted_tail = self.mem.control.cq_tail().load(Relaxed);
        ring.watched.store(false, SeqCst);
        ring.listed.store(false, SeqCst);
        ring.driven.store(false, SeqCst);
        ring.polled.store(false, SeqCst);
        let signalled = ring.forked.load(SeqCst) && ring.stand_in.load(SeqCst) >= 0;
        ring.unsignalled.store(!signalled, SeqCst);
        ring.followed.store(false, SeqCst);
    }
}
