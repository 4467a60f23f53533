//! What a thread changes of itself while it polls, and puts back when it is through: it spins with
//! signals blocked, and sleeps with a timer that fires when it is set to.
//!
//! A signal whose handler ran between two polls would leave no trace, and the wait would go on as
//! if it had not come. So spinning blocks signals and asks for pending ones now and then; sleeps
//! are taken under the program's own mask, and end with EINTR. A pending signal is handled before
//! the wait answers EINTR: one that nobody handles ends no wait.
//!
//! Handlers that run between calls only ([`handlers`](softring_host::handlers)) are no concern of
//! the rest. Another one that runs inside a sleep may enter the same ring: it takes over what its
//! thread sleeps for ([`Ctx::supersede`](crate::ring::ctx::Ctx::supersede)). One that runs while
//! its thread is in the middle of something, under a lock, cannot, and is answered EINTR. That
//! happens to one call of a program: those that follow block signals from beginning to end, but for
//! their sleeps, which costs two system calls each.

use core::sync::atomic::Ordering::Relaxed;

use super::of_process::PROCESS;
use softring_host::handlers::{self, Call};
use softring_host::signal::BlockAll;
use softring_host::{sys, user};
use softring_uapi::errno::{Errno, Result};

/// How often a thread that spins asks for pending signals, in ns.
const ASK_EVERY: u64 = 100_000;
/// The default slack, 50 µs, is as long as many a sleep.
const SLACK_NS: usize = 1;

/// Where the program has the signal mask of a wait.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sigset {
    /// 0: it asks for none.
    pub(crate) at: u64,
    pub(crate) size: usize,
}

impl Sigset {
    /// The mask (`set_user_sigmask`).
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

/// See the module.
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
    /// A call of the program's begins.
    ///
    /// # Errors
    /// EINTR in a handler that has interrupted another one where it cannot be.
    #[inline]
    pub(crate) fn new(call: &Call) -> Result<SignalScope> {
        let mut signals = SignalScope::default();
        if call.is_on_top() {
            PROCESS.flags.handlers_enter.store(true, Relaxed);
            if call.is_in_the_way() {
                return Err(Errno::EINTR);
            }
        }
        if PROCESS.flags.handlers_enter.load(Relaxed) {
            signals.blocks();
        }
        Ok(signals)
    }

    fn blocks(&mut self) {
        self.blocked.get_or_insert_with(BlockAll::begin);
    }

    /// The program wants to wait under a mask of its own ([`handlers::waits_under`]).
    pub(crate) fn wait_under(&mut self, mask: Option<u64>) {
        self.under = mask;
    }

    /// The thread goes on spinning.
    ///
    /// # Errors
    /// EINTR if a signal waits for it.
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

    /// Has a signal come that may end the wait, and is kept back? Then the caller lets go of its
    /// locks, and has it handled ([`Self::handle_signals`]).
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

    /// Has the signals handled that are kept back. Those that are ignored end no wait.
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

    /// The thread goes to sleep, and is to wake in time. Signals come through in the sleep itself
    /// only: then what the sleep has brought is all there when a handler runs.
    pub(crate) fn idle_sleeps(&mut self) {
        self.blocks();
        if self.slack.is_none() {
            self.slack = Some(sys::timer_slack());
            sys::set_timer_slack(SLACK_NS);
        }
    }

    /// The mask to sleep under, if that is not the one in force.
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
