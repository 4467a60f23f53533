//! What a thread changes of itself while it polls, and puts back when it is through: it spins with
//! signals blocked, and naps with a timer that fires when it is set to.
//!
//! A signal whose handler ran between two looks would leave no trace, and the wait would go on as
//! if it had not come. So spinning blocks signals and asks for pending ones now and then; naps are
//! taken under the program's own mask, and end with EINTR. A pending signal is handled before the
//! wait answers EINTR: one that nobody handles ends no wait.
//!
//! A handler that runs inside a sleep may enter the same ring: it takes over what its thread sleeps
//! for ([`Ctx::supersede`](crate::ctx::Ctx::supersede)). One that runs while its thread is in the
//! middle of something, under a lock, cannot, and is answered EINTR. That happens to one call of a
//! program: those that follow block signals from beginning to end, but for their sleeps, which
//! costs two system calls each.

use core::cell::Cell;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use crate::errno::{Errno, Result};
use crate::sys;
use crate::transport::worker::signal::BlockAll;

/// A signal handler has entered a ring on top of its own thread's call.
static HANDLERS_ENTER: AtomicBool = AtomicBool::new(false);

std::thread_local! {
    /// Where on this thread's stack its call is; 0: it is not in one. Plus [`OPEN`].
    static CALL: Cell<usize> = const { Cell::new(0) };
}
/// The call sleeps, and holds nothing that a handler could want.
const OPEN: usize = 1;

/// How often a thread that spins asks for pending signals, in ns.
const ASK_EVERY: u64 = 100_000;
/// The default slack, 50 µs, is as long as many a nap.
const SLACK_NS: usize = 1;

/// See the module.
#[derive(Debug, Default)]
pub struct Vigil {
    /// The program's signal mask, while another is in force.
    blocked: Option<BlockAll>,
    /// The mask that the program asked to wait under.
    under: Option<u64>,
    /// Its timer slack, while another is in force.
    slack: Option<usize>,
    asked: u64,
    /// What [`CALL`] was before; none: this is not a call's.
    before: Option<usize>,
}

/// The thread sleeps for as long as this lives: handlers may enter.
#[derive(Debug)]
pub struct Open(());

/// The thread is about to sleep.
pub fn open() -> Open {
    CALL.set(CALL.get() | OPEN);
    Open(())
}

impl Drop for Open {
    fn drop(&mut self) {
        CALL.set(CALL.get() & !OPEN);
    }
}

impl Vigil {
    /// A call of the program's begins.
    ///
    /// # Errors
    /// EINTR in a handler that has interrupted another one where it cannot be.
    #[inline]
    pub fn new() -> Result<Vigil> {
        let (mut vigil, before) = (Vigil::default(), CALL.get());
        let here = (&raw const vigil).addr() & !OPEN;
        // A call that was left by siglongjmp(3) lies further down: it is none any more.
        if before > here {
            HANDLERS_ENTER.store(true, Relaxed);
            if before & OPEN == 0 {
                return Err(Errno::EINTR);
            }
        }
        if HANDLERS_ENTER.load(Relaxed) {
            vigil.blocks();
        }
        vigil.before = Some(before);
        CALL.set(here);
        Ok(vigil)
    }

    fn blocks(&mut self) {
        self.blocked.get_or_insert_with(BlockAll::new);
    }

    /// The program wants to wait under a mask of its own.
    pub fn wait_under(&mut self, mask: Option<u64>) {
        self.under = mask;
    }

    /// The thread goes on spinning.
    ///
    /// # Errors
    /// EINTR if a signal waits for it.
    pub fn spins(&mut self, now: u64) -> Result<()> {
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
    pub fn heeds(&self) -> Result<()> {
        let Some(mask) = self.mask() else { return Ok(()) };
        if sys::pending_signals() & !mask == 0 { Ok(()) } else { Err(Errno::EINTR) }
    }

    /// Has the signals handled that are kept back. Those that are ignored end no wait.
    ///
    /// # Errors
    /// EINTR if a handler ran.
    pub fn handle_signals(&self) -> Result<()> {
        let Some(mask) = self.mask() else { return Ok(()) };
        let _open = open();
        sys::handle_signals(mask)
    }

    /// The thread goes to sleep, and is to wake in time. Signals come through in the sleep itself
    /// only: then what the sleep has brought is all there when a handler runs.
    pub fn naps(&mut self) {
        self.blocks();
        if self.slack.is_none() {
            self.slack = Some(sys::timer_slack());
            sys::set_timer_slack(SLACK_NS);
        }
    }

    /// The mask to sleep under, if that is not the one in force.
    pub fn mask(&self) -> Option<u64> {
        self.under.or(self.blocked.as_ref().map(BlockAll::before))
    }
}

impl Drop for Vigil {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            CALL.set(before);
        }
        if let Some(slack) = self.slack {
            sys::set_timer_slack(slack);
        }
    }
}
