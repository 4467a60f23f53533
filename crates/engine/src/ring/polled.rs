//! The policy by which threads wait for a ring's completions (IOPOLL).

use crate::io::polling::{self, Polling};
use crate::policy::hybrid::Policy;
use crate::ring::ctx::{Ctx, Setup};
use softring_uapi::*;

impl Ctx {
    /// Applies the ring's policy to threads that wait for up to `room` requests.
    pub(crate) fn start_polling(&mut self, room: u32) {
        let mut polling = self.setup.policy().map(|p| Polling::new(p, room));
        // A thread that waits for any event is woken by the first completion.
        if let Some(polling) = polling.as_mut().filter(|_| !self.setup.polls()) {
            polling.hybrid.wakes_at_once();
        }
        self.drive.transports.polling = polling;
    }
}

impl Setup {
    /// Returns whether completions are polled for.
    pub(crate) fn polls(&self) -> bool {
        self.flags & IORING_SETUP_IOPOLL != 0
    }

    /// Returns whether the entering thread polls for completions, rather than an SQ thread.
    pub(crate) fn polls_by_enter(&self) -> bool {
        self.flags & (IORING_SETUP_IOPOLL | IORING_SETUP_SQPOLL) == IORING_SETUP_IOPOLL
    }

    /// Returns the policy by which this ring waits, if it is not the usual one: a polled ring
    /// spins, any other blocks.
    pub(crate) fn policy(&self) -> Option<Policy> {
        let own = match self.polls() {
            true if self.flags & IORING_SETUP_HYBRID_IOPOLL != 0 => Policy::Hybrid,
            true => Policy::Spin,
            false => Policy::Block,
        };
        let usual = if self.polls() { Policy::Spin } else { Policy::Block };
        Some(polling::forced().unwrap_or(own)).filter(|p| *p != usual)
    }
}
