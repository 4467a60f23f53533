//! Waiting for completions inside `enter`. Kernel counterpart: `io_cqring_wait`.

use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;

use crate::drive::sleep::sleep as sleep_now;
use crate::drive::sleep::{FOREVER, On, Woke, sleep_on_sequence};
use crate::drive::task_work;
use crate::io::poll::Events;
use crate::io::signal_scope::{SignalScope, Sigset};
use crate::policy::hybrid::{IdleSleep, WaitAction};
use crate::ring::ctx::{Ctx, Guard, Ring};
use crate::ring::turn::{Drives, Turn};
use crate::ring::wakeup::drive_once;
use crate::stats::trace::Step;
use softring_host::handlers::waits_under;
use softring_host::sys;
use softring_host::time::Clock;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::{IORING_SETUP_TASKRUN_FLAG, IORING_SQ_TASKRUN};

/// Arguments of a wait for completions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitArgs {
    /// CQEs wanted.
    pub(crate) min: u32,
    /// Deadline of the wait, absolute in ns on the ring's clock.
    pub(crate) deadline: Option<u64>,
    /// Minimum-wait deadline, after which one CQE suffices, absolute in ns on the ring's clock.
    pub(crate) min_deadline: Option<u64>,
    /// Signal mask while waiting.
    pub(crate) sigset: Sigset,
    /// Mask read from `sigset`.
    pub(crate) sigmask: Option<u64>,
}

/// Interval at which a passive waiter wakes up to poll if it must watch something else, too.
const SLICE_NS: u64 = 5_000_000;
/// Longest futex sleep. Futex sleeps are bounded so that a handler installed with SA_RESTART still
/// ends them with EINTR.
const FOREVER_NS: u64 = 3_600_000_000_000;

/// Longest wait that counts as one without a sleep. Giving the processor up and getting it back
/// takes ten microseconds and more; polling a batch of events takes one, on a busy machine two or
/// three.
const PROMPT_NS: u64 = 5_000;

/// Outcome of one sleep.
enum Slept {
    Woken,
    Signal,
}

/// Events and outcome of a sleep, for the turn that follows.
#[derive(Default)]
struct Found {
    /// Events of the poll set; the first `count` are valid.
    events: Option<Events>,
    count: usize,
    /// Flag, set if a policy gave the sleep's length; true if the sleep ended earlier.
    early: Option<bool>,
}

impl Found {
    fn turn(&self) -> Turn<'_> {
        let events = self.events.as_ref().map_or(&[][..], |events| &events[..self.count]);
        Turn::Events { events, early: self.early }
    }
}

/// Takes completions that are ready without waiting; `min` CQEs are wanted.
fn take_what_is_ready(ctx: &mut Ctx, min: u32) {
    if ctx.setup.flags & IORING_SETUP_TASKRUN_FLAG != 0 {
        ctx.mem.sq_flag(IORING_SQ_TASKRUN, false);
    }
    if ctx.work.begin_turn() {
        ctx.turn(Turn::Work);
    }
    ctx.turn(if min == 0 || ctx.defers() { Turn::All } else { Turn::Memory });
    // The loop ends when the buffers are used up, at the latest.
    while ctx.work.may_go_on() && ctx.work.begin_turn() {
        ctx.turn(Turn::Work);
    }
    if !ctx.completion.overflow.is_empty() {
        ctx.flush_overflow();
        if ctx.mem.cq_ready() < min {
            ctx.turn(Turn::Work);
        }
    }
    if min > 0 && !ctx.defers() && ctx.mem.cq_ready() >= min && ctx.drive.transports.unseen_long() {
        ctx.post_ready();
    }
}

/// Calls `f` without the lock, also while another thread is in the middle of an issue.
pub(crate) fn unlocked<'r, R>(
    ring: &'r Ring,
    ctx: Guard<'r>,
    f: impl FnOnce() -> R,
) -> (Guard<'r>, R) {
    drop(ctx);
    let answer = f();
    (ring.lock_now(), answer)
}

/// Reads the signal mask, unless enough CQEs are ready: then the kernel does not read the mask.
///
/// # Errors
/// `EINVAL`, `EFAULT`.
fn read_mask<'r>(ring: &'r Ring, ctx: Guard<'r>, a: &WaitArgs) -> (Guard<'r>, Result<Option<u64>>) {
    if a.sigset.at == 0 || ctx.mem.cq_ready() >= a.min {
        return (ctx, Ok(None));
    }
    let (mut ctx, mask) = unlocked(ring, ctx, || a.sigset.read());
    if mask.is_err() {
        // The kernel has already posted what is ready by now.
        ctx.post_ready();
        if ctx.mem.cq_ready() >= a.min {
            return (ctx, Ok(None));
        }
    }
    (ctx, mask)
}

/// Waits until `a.min` CQEs are ready. The lock is held on entry and on return, not while asleep.
///
/// # Errors
/// `ETIME` if the deadline passed and no CQE is there; `EINTR` if a signal came and no CQE is
/// there.
pub(crate) fn cqring_wait<'r>(
    ring: &'r Ring,
    mut ctx: Guard<'r>,
    mut a: WaitArgs,
    signals: &mut SignalScope,
) -> (Guard<'r>, Result<usize>) {
    a.min = a.min.min(ctx.mem.geo.cq_entries);
    ctx = task_work::without_reactor(ring, ctx);
    take_what_is_ready(&mut ctx, a.min);
    // A timeout that ends while we wait ends the wait too, however few CQEs there are
    // (`io_should_wake`).
    let timeouts = ctx.reqs.timeouts.own;
    let (mut result, mut polled) = (Ok(0), false);
    let mask;
    (ctx, mask) = read_mask(ring, ctx, &a);
    match mask {
        Ok(mask) => a.sigmask = mask,
        Err(e) => return (ctx, Err(e)),
    }
    let _under = a.sigmask.map(waits_under);
    signals.wait_under(a.sigmask);
    a.sigmask = signals.mask();
    if let Some(polling) = &mut ctx.drive.transports.polling {
        polling.begin();
    }
    if let Some(e) = ctx.faults_wait(a.min) {
        result = Err(e);
    }
    loop {
        if !ctx.completion.overflow.is_empty() {
            ctx.flush_overflow();
        }
        let timed_out = ctx.reqs.timeouts.own != timeouts;
        if ctx.mem.cq_ready() >= a.min || timed_out || result.is_err() {
            break;
        }
        if ring.dead.load(Relaxed) {
            result = Err(Errno::EBADF);
            break;
        }
        if ctx.work.begin_turn() {
            ctx.turn(Turn::Work);
            continue;
        }
        let (slept, mut found);
        found = Found::default();
        (ctx, slept) = match time_left(&mut a, &ctx) {
            Some(left) => sleep(ring, ctx, &mut a, left, signals, &mut found),
            None if !polled => {
                polled = true;
                ctx.post_ready();
                continue;
            }
            None => {
                result = Err(Errno::ETIME);
                let_in(ring, ctx, signals)
            }
        };
        if let Slept::Signal = slept {
            result = Err(Errno::EINTR);
        }
        ctx.turn(found.turn());
        if let Some((set, events)) = ctx.drive.transports.poll.as_mut().zip(found.events) {
            set.give_buffer(events);
        }
    }
    ctx.count_idle_sleeps();
    ring.driven.store(true, Relaxed);
    let any = ctx.mem.cq_ready() > 0;
    (ctx, if any { Ok(0) } else { result })
}

/// Returns the time to the caller's next deadline; `None` if it has passed. Passing the
/// minimum-wait deadline lowers the number wanted to one. A deadline before the minimum-wait
/// deadline waits for it; without a deadline, the minimum-wait deadline is the last
/// (`io_cqring_min_timer_wakeup`).
fn time_left(a: &mut WaitArgs, ctx: &Guard<'_>) -> Option<u64> {
    if a.deadline.is_none() && a.min_deadline.is_none() {
        return Some(u64::MAX);
    }
    let now = ctx.setup.clock.now();
    if let Some(at) = a.min_deadline {
        if at > now {
            return Some(at - now);
        }
        a.min_deadline = None;
        a.min = a.min.min(1);
        if ctx.mem.cq_ready() >= a.min {
            return Some(0);
        }
        a.deadline.get_or_insert(at);
    }
    a.deadline.filter(|&at| at > now).map(|at| at - now)
}

/// Sleeps once: as the ring's driver if there is something to drive and nobody does, else
/// passively.
fn sleep<'r>(
    ring: &'r Ring,
    mut ctx: Guard<'r>,
    a: &mut WaitArgs,
    left: u64,
    signals: &mut SignalScope,
    found: &mut Found,
) -> (Guard<'r>, Slept) {
    if left == 0 {
        return let_in(ring, ctx, signals);
    }
    if ctx.issue.leaves_work() {
        // The issuing thread takes the events, and wakes the sleeper here when it posts.
        return passive(ring, ctx, a, left);
    }
    if !ctx.drive.transports.stash.is_empty() {
        return (ctx, Slept::Woken);
    }
    // The mask and the sleep must be one system call, which only the poll set's wait is. The poll
    // set also reports steps of the clock.
    let jumps = left != u64::MAX && ctx.setup.clock.jumps();
    if jumps {
        ctx.drive.transports.watch_clock();
    }
    let drives = (ctx.in_flight() || a.sigmask.is_some() || jumps) && !ctx.drive.driver.active;
    let action = if drives { ctx.wait_for_aio(signals) } else { Ok(WaitAction::Block) };
    a.sigmask = signals.mask();
    match action {
        Ok(WaitAction::Poll) => {
            // Other threads get the lock in between.
            drop(ctx);
            core::hint::spin_loop();
            return (ring.lock_now(), Slept::Woken);
        }
        Ok(WaitAction::IdleSleep(idle_sleep)) if idle_sleep != IdleSleep::BLOCK => {
            return take_idle_sleep(ring, ctx, a, left, idle_sleep, found);
        }
        Err(_) => return handle_signals(ring, ctx, signals),
        Ok(WaitAction::Block | WaitAction::IdleSleep(_)) => {}
    }
    let span = ctx.trace.begin_now();
    let (mut ctx, slept) =
        if drives { drive(ring, ctx, a, left, found) } else { passive(ring, ctx, a, left) };
    ctx.trace.end(span, Step::Sleep, 0);
    (ctx, slept)
}

/// Handles the signals that the mask lets in when a time is over, perhaps before the thread has
/// slept: each pass of the kernel's wait does so, too.
fn let_in<'r>(ring: &'r Ring, ctx: Guard<'r>, signals: &SignalScope) -> (Guard<'r>, Slept) {
    match signals.mask() {
        None => (ctx, Slept::Woken),
        Some(_) => handle_signals(ring, ctx, signals),
    }
}

/// Handles, without the lock, the signals that were held back while the thread polled.
fn handle_signals<'r>(ring: &'r Ring, ctx: Guard<'r>, signals: &SignalScope) -> (Guard<'r>, Slept) {
    drop(ctx);
    let handled = signals.handle_signals();
    let slept = if handled.is_err() { Slept::Signal } else { Slept::Woken };
    (ring.lock_now(), slept)
}

/// Same as `handle_signals`, with the outcome as a result.
///
/// # Errors
/// `EINTR` when a handler ran.
pub(crate) fn end_by_signals<'r>(
    ring: &'r Ring,
    ctx: Guard<'r>,
    signals: &SignalScope,
) -> (Guard<'r>, Result<usize>) {
    match handle_signals(ring, ctx, signals) {
        (ctx, Slept::Signal) => (ctx, Err(Errno::EINTR)),
        (ctx, Slept::Woken) => (ctx, Ok(0)),
    }
}

impl Ctx {
    /// Asks the policy, if there is one, how to wait for completions of kernel aio or of a modelled
    /// disk.
    ///
    /// # Errors
    /// `EINTR` when a signal came.
    fn wait_for_aio(&mut self, signals: &mut SignalScope) -> Result<WaitAction> {
        let aio = self.drive.transports.aio.as_ref().is_some_and(|a| a.in_flight() > 0);
        let comes = aio || self.drive.transports.with_models();
        // On a polled ring an SQ thread polls.
        let polls = comes && !self.setup.polls();
        let Some(polling) = self.drive.transports.polling.as_mut().filter(|_| polls) else {
            return Ok(WaitAction::Block);
        };
        let sleep = polling.next_sleep(signals)?;
        Ok(sleep.map_or(WaitAction::Poll, WaitAction::IdleSleep))
    }
}

/// Drives until it is time to poll for completions of aio.
fn take_idle_sleep<'r>(
    ring: &'r Ring,
    mut ctx: Guard<'r>,
    a: &WaitArgs,
    left: u64,
    idle_sleep: IdleSleep,
    found: &mut Found,
) -> (Guard<'r>, Slept) {
    let idle_sleeping = ctx.trace.begin_idle_sleep(idle_sleep.until, idle_sleep.many);
    let acts = ctx.reap_marks();
    let time = idle_sleep.until.saturating_sub(Clock::Monotonic.now());
    let (mut ctx, slept) = match acts || time == 0 {
        true => (ctx, Slept::Woken),
        false => drive(ring, ctx, a, left.min(time), found),
    };
    found.early = Some(Clock::Monotonic.now() < idle_sleep.until);
    ctx.trace.end_idle_sleep(&idle_sleeping);
    (ctx, slept)
}

fn drive<'r>(
    ring: &'r Ring,
    mut ctx: Guard<'r>,
    a: &WaitArgs,
    left: u64,
    found: &mut Found,
) -> (Guard<'r>, Slept) {
    let Ok(set) = ctx.drive.transports.poll_set() else {
        return passive(ring, ctx, a, left.min(SLICE_NS));
    };
    let events = found.events.insert(set.take_buffer());
    let left = left.min(ctx.next_event_in().unwrap_or(FOREVER));
    if ctx.drive.transports.with_models() {
        sys::exact_timers();
    }
    let epoll = ctx.drive.transports.epoll_fd().unwrap_or(-1);
    // A wait without end needs no clock, unless it is timed.
    let any_new = ctx.drive.transports.new_polls > 0;
    let start = if any_new || left != FOREVER { Clock::Monotonic.now() } else { 0 };
    let until = if left == FOREVER { FOREVER } else { start.saturating_add(left) };
    let (mut ctx, (taken, prompt)) = drive_once(ring, ctx, sys::thread(), (a.min, until), || {
        // The reactor checks the requests that wait on numbers whose close was not reported.
        super::reactor::ensure();
        let taken = sleep_now(On::Events(epoll, events), left, a.sigmask);
        (taken, any_new && Clock::Monotonic.now() - start < PROMPT_NS)
    });
    ctx.begin_pass(prompt);
    found.count = taken.unwrap_or(0);
    (ctx, if taken == Err(Errno::EINTR) { Slept::Signal } else { Slept::Woken })
}

/// Sleeps on the sequence word of the control words, which every poster in any process bumps.
fn passive<'r>(ring: &'r Ring, mut ctx: Guard<'r>, a: &WaitArgs, left: u64) -> (Guard<'r>, Slept) {
    let beside = ctx.issue.is_elsewhere();
    let slices = beside || a.sigmask.is_some() || ctx.in_flight();
    let slice = if slices { SLICE_NS } else { FOREVER_NS };
    let spins = a.sigmask.is_none() && ctx.drive.spin.try_now();
    let woke = sleep_on_sequence(&ring.control, spins, left.min(slice), a.sigmask, || {
        drop(ctx);
        if !slices {
            // The reactor reports that the process was stopped.
            super::reactor::ensure();
        }
        true
    });
    let mut ctx = ring.lock_now();
    match woke {
        Woke::Spinning => ctx.drive.spin.was_short(),
        Woke::Soon if spins => ctx.drive.spin.put_off(),
        Woke::Soon | Woke::Asleep | Woke::Signal => {}
    }
    if woke != Woke::Spinning && ctx.issue.is_elsewhere() {
        // The issuing process may be gone.
        ctx.end_issue_of_dead();
    }
    (ctx, if woke == Woke::Signal { Slept::Signal } else { Slept::Woken })
}

/// Sleeps until somebody posts, for `slice` at most.
///
/// # Errors
/// `EINTR` when a signal came.
pub(crate) fn sleep_passively<'r>(
    ring: &'r Ring,
    ctx: Guard<'r>,
    slice: Duration,
) -> (Guard<'r>, Result<usize>) {
    let (ctx, slept) = passive(ring, ctx, &WaitArgs::default(), slice.as_nanos() as u64);
    match slept {
        Slept::Signal => (ctx, Err(Errno::EINTR)),
        Slept::Woken => (ctx, Ok(0)),
    }
}
