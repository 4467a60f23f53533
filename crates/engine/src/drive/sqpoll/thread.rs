//! The SQ thread: its passes over rings, and its sleeps. Kernel counterpart: `io_sq_thread`.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::protocol::Page;
use super::stall::Vain;
use super::{wakes_by, word};
use crate::drive::iopoll::sleep_unlocked;
use crate::drive::of_process::PROCESS;
use crate::drive::sleep::{FOREVER, On, sleep};
use crate::io::aio::AioCtx;
use crate::io::poll::{BATCH, PollSet};
use crate::io::polling::{Polling, trial, try_timer};
use crate::io::signal_scope::SignalScope;
use crate::policy::hybrid::IdleSleep;
use crate::policy::idle_sleep::{IDLE_SLEEP_MAX, IdleSleeps, SqAction};
use crate::ring::ctx::{Ctx, Driving, Ring};
use crate::ring::sq_thread::{SqData, SqPoll};
use crate::ring::turn::{Drives, Turn};
use crate::stats::meter::{Kind, Meter};
use crate::stats::trace;
use softring_host::sys;
use softring_host::time::{Clock, coarse_ms};
use softring_uapi::epoll_event;
use softring_uapi::errno::Errno;

/// Number of SQEs per turn of one of several rings (kernel: `IORING_SQPOLL_CAP_ENTRIES_VALUE`).
const CAP: u32 = 8;
/// Passes per one that asks the kernel about readiness, while the thread spins.
const ASK_EVERY: u32 = 16;
/// Interval of sleeps that measure the cost of a timer, and their length, in ns. The cost may
/// change, so the thread measures it while it takes no other sleeps.
const TRIAL_EVERY: u64 = 100_000_000;
const TRIAL: u64 = 2_000;
/// Number of poll sets that a sleeping thread listens to; with more in flight, it spins.
const LISTENS: usize = 8;

/// State of an SQ thread.
pub(super) struct Thread {
    pub(super) data: Arc<SqData>,
    pub(super) rings: Vec<Arc<Ring>>,
    /// Work meter; none if no statistics are kept.
    meter: Option<Meter>,
    turn: u32,
    idle_sleeps: Option<IdleSleeps>,
    /// Time of the last measurement of the timer's cost.
    tried: u64,
    signals: SignalScope,
    pub(super) vain: Vain,
}

/// Outcome of a pass.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    work: bool,
    sqes: u32,
}

impl Thread {
    /// Makes the state of the calling thread.
    pub(super) fn new(data: Arc<SqData>) -> Thread {
        let name = softring_host::threads::name("sqp");
        let meter = crate::stats::enabled().then(|| Meter::of(Kind::SqThread, &name));
        let idle_sleeps = PROCESS.sq_idle_sleeps.load(Relaxed).then(|| {
            sys::exact_timers();
            IdleSleeps::new(try_timer(TRIAL))
        });
        let (tried, signals) = (Clock::Monotonic.now(), SignalScope::default());
        let (rings, vain) = (Vec::new(), Vain::default());
        Thread { data, rings, meter, turn: 0, idle_sleeps, tried, signals, vain }
    }

    pub(super) fn run(mut self) {
        let mut until = None;
        loop {
            // A new list may have another idle time.
            if self.take_list() {
                until = None;
            }
            if self.passes() {
                self.vain.end();
                until = None;
                continue;
            }
            if let Some(meter) = &mut self.meter {
                meter.end();
            }
            let now = coarse_ms();
            let idle = u64::from(self.data.idle.load(Relaxed));
            if now < *until.get_or_insert(now + idle) {
                self.sleep_between();
                continue;
            }
            if self.may_end() {
                return;
            }
            let polling = |sq: &SqPoll| sq.polls && sq.drives.load(Relaxed);
            if self.rings.iter().any(|r| r.sq.get().is_some_and(polling)) {
                self.wait_for_devices();
                continue;
            }
            self.sleep_until_woken();
            until = None;
        }
    }

    /// Takes the list of rings if it has changed; true if so.
    fn take_list(&mut self) -> bool {
        let (data, rings) = (&*self.data, &mut self.rings);
        data.take_list(|| *rings = data.rings().iter().filter_map(Weak::upgrade).collect())
    }

    /// Ends the thread if it has no ring any more; true if so.
    fn may_end(&self) -> bool {
        let list = self.data.rings();
        let ends = list.iter().all(|w| w.strong_count() == 0);
        if ends {
            self.data.end();
        }
        ends
    }

    /// Makes a pass over all rings; true if there was work.
    fn passes(&mut self) -> bool {
        self.turn = self.turn.wrapping_add(1);
        let ask = self.turn.is_multiple_of(ASK_EVERY);
        let most = if self.rings.len() > 1 { CAP } else { u32::MAX };
        let mut all = Found::default();
        for ring in &self.rings {
            let found = pass(ring, most, ask, &mut self.meter);
            all = Found { work: all.work | found.work, sqes: all.sqes + found.sqes };
        }
        if all.sqes > 0
            && let Some(idle_sleeps) = &mut self.idle_sleeps
        {
            idle_sleeps.found(all.sqes, Clock::Monotonic.now());
        }
        all.work
    }

    /// Spins or sleeps between two passes.
    fn sleep_between(&mut self) {
        core::hint::spin_loop();
        if self.sleep_for_completions() || self.pause() {
            return;
        }
        if self.idle_sleeps.is_none() || self.rings.is_empty() {
            return;
        }
        let Some(listen) = self.listen() else { return };
        let Some(idle_sleeps) = &mut self.idle_sleeps else { return };
        let now = Clock::Monotonic.now();
        let SqAction::IdleSleep(until) = idle_sleeps.next(now) else {
            if now.saturating_sub(self.tried) > TRIAL_EVERY {
                self.tried = now;
                let (late, cpu) = trial(TRIAL);
                idle_sleeps.timer.woke_late(late);
                idle_sleeps.timer.cost(cpu);
            }
            return;
        };
        self.tried = now;
        // The last pass has dealt with a deadline that is past.
        let deadline = if listen.deadline > now { listen.deadline } else { u64::MAX };
        let timer = self.sleep(&listen, until.min(deadline)) && until <= deadline;
        let Some(idle_sleeps) = &mut self.idle_sleeps else { return };
        idle_sleeps.woke(Clock::Monotonic.now(), timer);
        if let Some(meter) = &self.meter {
            let t = idle_sleeps.tally;
            meter.idle_sleeps(t.idle_sleeps, t.over, t.slept);
        }
    }

    /// Sleeps as the policies of rings say until the next completion on one of them. False if no
    /// ring with a policy has something in flight: only submissions are to come, and what
    /// [`Self::listen`] knows.
    fn sleep_for_completions(&mut self) -> bool {
        let rings = &self.rings;
        if !busy(rings).any(|(_, sq)| sq.policy.load(Relaxed)) {
            return false;
        }
        // Events for rings without a policy would not end the sleep.
        if !busy(rings).all(|(_, sq)| sq.policy.load(Relaxed)) {
            return self.pause();
        }
        let mut early = false;
        busy(rings).for_each(|(ring, _)| polling(ring, |polling| early |= polling.too_early()));
        if early {
            return true;
        }
        let mut slept = None;
        if let Some((ring, idle_sleep)) = first_idle_sleep(rings, &mut self.signals) {
            let (mut ctx, rested) =
                sleep_unlocked(ring, ring.lock(), idle_sleep, self.signals.mask());
            slept = (rested != Ok(false)).then_some(ring.id);
            ctx.count_idle_sleeps();
        }
        let others = busy(rings).filter(|(ring, _)| slept != Some(ring.id));
        others.for_each(|(ring, _)| polling(ring, |polling| polling.cancel(slept.is_some())));
        true
    }

    /// Returns the events that a sleep must not miss; none if there are too many, or if only the
    /// thread finds completions (IOPOLL).
    fn listen(&self) -> Option<Listen> {
        let mut listen = Listen::default();
        for (ring, sq) in busy(&self.rings) {
            listen.deadline = listen.deadline.min(ring.next_deadline.load(Relaxed));
            let fd = sq.poll_fd.load(Relaxed);
            if sq.polls || listen.count == LISTENS {
                return None;
            }
            if fd >= 0 {
                listen.fds[listen.count] = fd;
                listen.count += 1;
            }
        }
        Some(listen)
    }

    /// Sleeps; true if nothing woke the thread before.
    pub(super) fn sleep(&self, listen: &Listen, until: u64) -> bool {
        let idle_sleeps = self.data.page.word(word::IDLE_SLEEPS);
        let says = || idle_sleeps.store(wakes_by::WORD, SeqCst);
        let slept = self.data.sleep_if(
            says,
            || self.is_idle(),
            |seq, seen| {
                let left = until.saturating_sub(Clock::Monotonic.now());
                let on = match listen.count {
                    0 => On::Word(seq, seen),
                    n => On::AnyReadable(&listen.fds[..n]),
                };
                left > 0 && sleep(on, left, None) == Err(Errno::ETIMEDOUT)
            },
        );
        idle_sleeps.store(0, SeqCst);
        slept == Some(true)
    }

    /// Returns whether no ring has SQEs that wait.
    pub(super) fn is_idle(&self) -> bool {
        let empty = |(ring, sq): (&Arc<Ring>, &SqPoll)| {
            ring.dead.load(Relaxed) || sq.ready(&ring.control) == 0
        };
        served(&self.rings).all(empty)
    }

    /// Sleeps until somebody wakes the thread, unless a queue has filled up.
    fn sleep_until_woken(&self) {
        let asleep = self.data.page.word(word::ASLEEP);
        let each = || served(&self.rings);
        let says = || {
            asleep.store(1, SeqCst);
            each().for_each(|(_, sq)| sq.need_wakeup(true));
        };
        let idle = || {
            let idle = each().all(|(ring, sq)| sq.ready(&ring.control) == 0);
            if idle {
                self.rings.iter().for_each(|r| crate::drive::leave::leave(r, r.lock()));
            }
            idle
        };
        self.data.sleep_if(says, idle, |seq, seen| sleep(On::Word(seq, seen), FOREVER, None));
        asleep.store(0, SeqCst);
        for (_, sq) in each().filter(|(ring, _)| !ring.dead.load(Relaxed)) {
            sq.need_wakeup(false);
            sq.drives.store(true, Relaxed);
        }
    }
}

/// Events that end a sleep early.
#[derive(Debug)]
pub(super) struct Listen {
    fds: [i32; LISTENS],
    count: usize,
    deadline: u64,
}

impl Default for Listen {
    fn default() -> Self {
        Listen { fds: [-1; LISTENS], count: 0, deadline: u64::MAX }
    }
}

/// Iterates over rings that have an SQ thread, with their part in it.
pub(super) fn served(rings: &[Arc<Ring>]) -> impl Iterator<Item = (&Arc<Ring>, &SqPoll)> {
    rings.iter().filter_map(|r| Some((r, r.sq.get()?)))
}

/// Iterates over the rings that the thread polls for completions.
pub(super) fn busy(rings: &[Arc<Ring>]) -> impl Iterator<Item = (&Arc<Ring>, &SqPoll)> {
    served(rings).filter(|(_, sq)| sq.drives.load(Relaxed))
}

fn polling(ring: &Arc<Ring>, f: impl FnOnce(&mut Polling)) {
    ring.lock().drive.transports.polling.as_deref_mut().map(f);
}

/// Returns the sleep to take if all rings would sleep, and the ring whose completions are to end
/// it, which must have some to sleep for. The sleep ends at the earliest time that any of the rings
/// would sleep until; then the thread polls for the completions of the others.
fn first_idle_sleep<'a>(
    rings: &'a [Arc<Ring>],
    signals: &mut SignalScope,
) -> Option<(&'a Arc<Ring>, IdleSleep)> {
    let (mut first, mut until, mut all) = (None::<(&Arc<Ring>, IdleSleep)>, u64::MAX, true);
    for (ring, _) in busy(rings) {
        let mut ctx = ring.lock();
        let sleeps = ctx.drive.polls_memory();
        let Some(polling) = ctx.drive.transports.polling.as_deref_mut() else { continue };
        let Ok(Some(idle_sleep)) = polling.next_sleep(signals) else {
            all = false;
            continue;
        };
        until = until.min(idle_sleep.until);
        if sleeps && first.as_ref().is_none_or(|(_, f)| idle_sleep.until < f.until) {
            first = Some((ring, idle_sleep));
        }
    }
    let (ring, idle_sleep) = first.filter(|_| all)?;
    Some((
        ring,
        IdleSleep { until: until.min(Clock::Monotonic.now() + IDLE_SLEEP_MAX), ..idle_sleep },
    ))
}

/// Makes a pass over one ring (`__io_sq_thread`).
fn pass(ring: &Arc<Ring>, most: u32, ask: bool, meter: &mut Option<Meter>) -> Found {
    let none = Found::default();
    let Some(sq) = ring.sq.get() else { return none };
    // The ring's memory may be the program's (NO_MMAP), and about to go.
    if ring.dead.load(Relaxed) {
        return none;
    }
    let ready = sq.ready(&ring.control);
    if ready == 0 && !sq.drives.load(Relaxed) {
        return none;
    }
    let mut ctx = ring.lock();
    if ring.dead.load(Relaxed) {
        return none;
    }
    let mut events = [epoll_event::default(); BATCH];
    let n = if ask { ctx.drive.ask_readiness(&mut events) } else { 0 };
    let submits = ready > 0 && !ctx.setup.disabled && !ctx.faults_sq_late();
    if !submits && n == 0 && !ctx.memory_has_news(ask) {
        sq.drives.store(ctx.needs_driver(), Relaxed);
        return none;
    }
    if let Some(meter) = meter {
        meter.begin();
    }
    ctx.trace.check_wanted();
    let span = ctx.trace.begin();
    let before = ctx.completions();
    if submits {
        let _ = ctx.submit_sqes(ready.min(most));
        // An SQ thread polls for older requests at other times.
        ctx.after_submit(false, false);
        let polling = ctx.drive.transports.polling.as_mut().filter(|_| sq.polls);
        sq.policy.store(polling.is_some(), Relaxed);
        if let Some(polling) = polling {
            polling.begin();
        }
    }
    ctx.turn(Turn::Events { events: &events[..n], early: None });
    // Wakes whoever waits for room in the submission queue.
    ctx.wake_waiters();
    let posted = ctx.completions() != before;
    sq.drives.store(ctx.needs_driver(), Relaxed);
    sq.poll_fd.store(ctx.drive.transports.epoll_fd().unwrap_or(-1), Relaxed);
    ctx.trace.end(span, trace::Step::Pass, if submits { ready.min(most) } else { 0 });
    let pending = ctx.work.any_pending();
    drop(ctx);
    if pending {
        crate::drive::pending::flush(ring);
    }
    Found { work: submits || posted, sqes: if submits { ready.min(most) } else { 0 } }
}

impl Ctx {
    /// Returns whether a turn in memory has something to do.
    fn memory_has_news(&self, ask: bool) -> bool {
        // If the aio ring is not mapped, the kernel has to be asked.
        let unseen = |a: &AioCtx| ask && a.in_flight() > 0 && !a.user_mapped();
        !self.drive.transports.stash.is_empty()
            || self.drive.transports.aio.as_ref().is_some_and(|a| a.ready() || unseen(a))
            || self.next_event_in() == Some(0)
    }
}

impl Driving {
    /// Takes events that wait in the poll set, unless a waiter takes them.
    fn ask_readiness(&self, buf: &mut [epoll_event; BATCH]) -> usize {
        let tells = self.transports.poll.as_ref().is_some_and(PollSet::tells);
        if !tells || self.driver.active {
            return 0;
        }
        self.transports.ready_events(buf)
    }
}
