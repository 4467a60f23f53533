//! What a thread changes of itself while it polls, and puts back when it is through: it spins with
//! signals blocked, and naps with a timer that fires when it is set to.
//!
//! A signal whose handler ran between two looks would leave no trace, and the wait would go on as
//! if it had not come. So spinning blocks signals and asks for pending ones now and then; naps are
//! taken under the program's own mask, and end with EINTR.

use crate::errno::{Errno, Result};
use crate::sys;

/// How often a thread that spins asks for pending signals, in ns.
const ASK_EVERY: u64 = 100_000;
/// The default slack, 50 µs, is as long as many a nap.
const SLACK_NS: usize = 1;

/// See the module.
#[derive(Debug, Default)]
pub struct Vigil {
    /// The program's signal mask, while another is in force.
    mask: Option<u64>,
    /// The mask that the program asked to wait under.
    under: Option<u64>,
    /// Its timer slack, while another is in force.
    slack: Option<usize>,
    asked: u64,
}

impl Vigil {
    /// The program wants to wait under a mask of its own.
    pub fn wait_under(&mut self, mask: Option<u64>) {
        self.under = mask;
    }

    /// The thread goes on spinning.
    ///
    /// # Errors
    /// EINTR if a signal waits for it.
    pub fn spins(&mut self, now: u64) -> Result<()> {
        let Some(mask) = self.mask else {
            self.mask = Some(sys::set_sigmask(sys::ALL_SIGNALS));
            self.asked = now;
            return Ok(());
        };
        if now.saturating_sub(self.asked) < ASK_EVERY {
            return Ok(());
        }
        self.asked = now;
        let heeded = !self.under.unwrap_or(mask);
        if sys::pending_signals() & heeded == 0 { Ok(()) } else { Err(Errno::EINTR) }
    }

    /// The thread goes to sleep.
    pub fn naps(&mut self) {
        if self.slack.is_none() {
            self.slack = Some(sys::timer_slack());
            sys::set_timer_slack(SLACK_NS);
        }
    }

    /// The mask to sleep under, if that is not the one in force.
    pub fn mask(&self) -> Option<u64> {
        self.under.or(self.mask)
    }
}

impl Drop for Vigil {
    fn drop(&mut self) {
        if let Some(slack) = self.slack {
            sys::set_timer_slack(slack);
        }
        if let Some(mask) = self.mask {
            sys::set_sigmask(mask);
        }
    }
}
