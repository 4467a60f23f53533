//! Changes that a thread makes to itself while it polls, and undoes when it is through: it spins
//! with signals blocked, and sleeps with the least timer slack.
//!
//! A signal whose handler ran between two polls would leave no trace, and the wait would go on as
//! if the signal had not come. So spinning blocks signals and checks for pending ones now and then;
//! sleeps run under the program's own mask, and end with EINTR. A pending signal is handled before
//! the wait fails with EINTR: an ignored signal ends no wait.
//!
//! Handlers that run only between calls ([`softring_host::handlers`]) are not affected by
//! any of this. Another handler that runs inside a sleep may enter the same ring: it takes over the
//! events that its thread sleeps for ([`Ctx::supersede`](crate::ring::ctx::Ctx::supersede)). A
//! handler that interrupts its thread elsewhere, under a lock, cannot enter, and gets EINTR. That
//! happens to one call of a program: later calls block signals from beginning to end except in
//! their sleeps, which costs two system calls each.

use core::sync::atomic::Ordering::Relaxed;

use super::of_process::PROCESS;
use softring_host::handlers::{self, Call};
use softring_host::signal::BlockAll;
use softring_host::{sys, user};
use softring_uapi::errno::{Errno, Result};

/// Interval at which a spinning thread checks for pending signals, in ns.
const ASK_EVERY: u64 = 100_000;
/// Timer slack of sleeps, in ns. The default slack, 50 µs, is as long as many a sleep.
const SLACK_NS: usize = 1;

/// Location of the signal mask that a wait gives.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sigset {
    /// Address; 0: no mask.
    pub(crate) at: u64,
    pub(crate) size: usize,
}

impl Sigset {
    /// Reads the mask (`set_user_sigmask`).
    ///
    /// # Errors
    /// `EINVAL`, `EFAULT`.
    pub(crate) fn read(self) -> Result<Option<u64>> {
        match self {
            Sigset { at: 0, .. } => Ok(None),
            Sigset { at, size: 8 } => user::read(at).map(Some),
            Sigset { .. } => Err(Errno::EINVAL),
        }
    }
}

/// State of a signal scope; see the module.
#[derive(Debug, Default)]
pub(crate) struct SignalScope {
    /// The program's signal mask, while another is in force.
    blocked: Option<BlockAll>,
    /// The mask that the program asked to wait under.
    under: Option<u64>,
    /// The thread's timer slack, while another is in force.
    slack: Option<usize>,
    asked: u64,
}

impl SignalScope {
    /// Begins a call of the program's. The scope is filled in place: a copy of it would have to
    /// wait for the stores just made.
    ///
    /// # Errors
    /// EINTR in a handler that has interrupted another call where it cannot enter.
    #[inline]
    pub(crate) fn begin(&mut self, call: &Call) -> Result<()> {
        if call.is_on_top() {
            PROCESS.flags.handlers_enter.store(true, Relaxed);
            if call.holds_locks() {
                return Err(Errno::EINTR);
            }
        }
        if PROCESS.flags.handlers_enter.load(Relaxed) {
            self.blocks();
        }
        Ok(())
    }

    fn blocks(&mut self) {
        self.blocked.get_or_insert_with(BlockAll::begin);
    }

    /// Sets the mask that the program wants to wait under ([`handlers::waits_under`]).
    pub(crate) fn wait_under(&mut self, mask: Option<u64>) {
        self.under = mask;
    }

    /// Continues spinning.
    ///
    /// # Errors
    /// EINTR if a signal is pending for the thread.
    pub(crate) fn spins(&mut self, now: u64) -> Result<()> {
        if self.blocked.is_none() {
            self.blocks();
            self.asked = now;
        }
        if now.saturating_sub(self.asked) < ASK_EVERY {
            return Ok(());
        }
        self.asked = now;
        self.heeds()
    }

    /// Checks for a blocked signal that may end the wait. On EINTR the caller releases its locks,
    /// and has the signal handled ([`Self::handle_signals`]).
    ///
    /// # Errors
    /// EINTR.
    pub(crate) fn heeds(&self) -> Result<()> {
        if handlers::is_deferred() {
            return Err(Errno::EINTR);
        }
        let Some(mask) = self.mask() else { return Ok(()) };
        if sys::pending_signals() & !mask == 0 { Ok(()) } else { Err(Errno::EINTR) }
    }

    /// Has the blocked signals handled. Ignored signals end no wait.
    ///
    /// # Errors
    /// EINTR if a handler ran.
    pub(crate) fn handle_signals(&self) -> Result<()> {
        if handlers::is_deferred() {
            return Err(Errno::EINTR);
        }
        let Some(mask) = self.mask() else { return Ok(()) };
        let _asleep = handlers::asleep();
        sys::handle_signals(mask)
    }

    /// Prepares for sleep with the least timer slack. Signals come through only in the sleep
    /// itself: all events of the sleep are there when a handler runs.
    pub(crate) fn idle_sleeps(&mut self) {
        self.blocks();
        if self.slack.is_none() {
            self.slack = Some(sys::timer_slack());
            sys::set_timer_slack(SLACK_NS);
        }
    }

    /// Returns the mask to sleep under, if that is not the one in force.
    pub(crate) fn mask(&self) -> Option<u64> {
        self.under.or(self.blocked.as_ref().map(BlockAll::before))
    }
}

impl Drop for SignalScope {
    fn drop(&mut self) {
        if let Some(slack) = self.slack {
            sys::set_timer_slack(slack);
        }
    }
}
