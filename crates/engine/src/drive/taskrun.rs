//! Rings with DEFER_TASKRUN whose program does not enter: it learns of task work by poll(2), too
//! (`ring::taskrun`).

use core::sync::atomic::Ordering::Relaxed;

use super::of_process::PROCESS;
use crate::ring::ctx::Ctx;
use softring_uapi::{IORING_SETUP_DEFER_TASKRUN, IORING_SETUP_TASKRUN_FLAG};

/// Records that a ring was made with these setup flags.
pub(crate) fn made_ring(flags: u32) {
    if tells(flags) {
        PROCESS.flagging.store(true, Relaxed);
    }
}

fn tells(flags: u32) -> bool {
    let both = IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
    flags & both == both
}

/// Sets the flag of rings that wait for a file which the program has just found ready by poll(2).
/// The kernel has set the flag by then; the reactor may be on its way.
pub fn flag_ready_rings() {
    if !PROCESS.flagging.load(Relaxed) {
        return;
    }
    // poll(2) may be called in signal handlers: allocate no memory, and wait for no lock without
    // end.
    for ring in (0..).map_while(crate::ring::table::nth) {
        if let Some(mut ctx) = ring.lock_soon()
            && tells(ctx.setup.flags)
            && !ctx.drive.driver.active
            && !ctx.issue.leaves_work()
            && ctx.has_work()
        {
            ctx.set_taskrun();
        }
    }
}

impl Ctx {
    /// Returns whether a ring with DEFER_TASKRUN has task work, which only an enter does
    /// (`io_local_work_pending`).
    pub(crate) fn owes_task_work(&mut self) -> bool {
        self.defers() && !self.drive.driver.active && self.has_work()
    }
}
