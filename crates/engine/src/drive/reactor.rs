//! The reactor: one thread per process that drives the rings nobody waits on, so that completions
//! appear though the program never enters again. It starts when first needed and steps aside while
//! a waiter drives.
//!
//! Its epoll set holds each ring's poll set, one-shot: an event disarms the ring until the reactor
//! has dealt with it. A ring that a waiter drove recently is not watched at all. The reactor checks
//! such rings every [`TICK`], and takes over each ring that nobody drove since the last check. So a
//! program that stops entering sees its completions after two ticks at most, and one that keeps
//! entering pays nothing but the tick. Its poll set leaves the reactor's, too ([`nested`]).
//!
//! Once a second the reactor also checks whether the program has a thread left ([`super::last`]).
//! The reactor ends when there is no ring left. The layers above give it further work as
//! [`Duties`].
//!
//! The tick stops after it has found no ring for long. A ring that a thread leaves behind at that
//! moment is not forgotten: [`tick`] has the steps, and `verify::tick` has loom try every order of
//! them.

mod nested;
pub(crate) mod tick;

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize};
use core::time::Duration;
use softring_host::sync::real::{Mutex, MutexGuard, OnceLock};

use softring_host::os::fd::{AsFd, AsRawFd, BorrowedFd};

use self::tick::{Found, Listed, Ticks};
use super::of_process::PROCESS;
use super::sleep::{FOREVER, On, sleep};
use crate::io::poll::BATCH;
use crate::ring::ctx::{Ctx, Guard, Ring};
use crate::ring::turn::{Drives, Turn};
use crate::stats::trace::Step;
use softring_host::fd::InternalFd;
use softring_host::fork::{Child, keeps};
use softring_host::handlers;
use softring_host::sys;
use softring_host::time::Clock;
use softring_uapi::IORING_SETUP_TASKRUN_FLAG;
use softring_uapi::epoll_event;
use softring_uapi::errno::{Errno, Result};

/// Interval at which the reactor checks the rings that waiters drive.
pub(crate) const TICK: Duration = Duration::from_millis(2);
/// Number of ticks without any ring to check before the reactor sleeps for good.
const IDLE_TICKS: u32 = 50;
/// Interval at which the reactor checks for closed rings, in ns. It sleeps no longer than this.
const SWEEP_NS: u64 = 1_000_000_000;
/// Interval once the program's first thread has ended, in ns: each thread may be the last.
const LAST_NS: u64 = 20_000_000;
/// Work of the reactor besides driving rings.
pub(crate) trait Duties {
    /// Serves what forked children may have asked for. What is to be waited for goes into the
    /// reactor's epoll set `set`, under numbers that no ring has as its id.
    fn serve(&mut self, set: BorrowedFd<'_>);
    /// Acts on an event of `set` with this number; true if the event was for these duties.
    fn event(&mut self, set: BorrowedFd<'_>, data: u64) -> bool;
    /// Checks, about once a second, for what has gone without a report.
    fn sweep(&mut self);
}

/// Constructor of the duties of a reactor that starts.
pub(crate) type MakeDuties = fn() -> Box<dyn Duties>;

/// Rings that the reactor knows.
type Rings = Vec<Weak<Ring>>;

#[derive(Debug)]
pub(crate) struct Reactor {
    epoll: InternalFd,
    wake: InternalFd,
    rings: Mutex<Rings>,
    /// Interval of the check for what has gone, in ns.
    sweep_ns: AtomicU64,
}

/// Process-wide state of the reactor.
#[derive(Debug)]
pub(super) struct OfProcess {
    current: Mutex<Option<Arc<Reactor>>>,
    duties: OnceLock<MakeDuties>,
    ticking: AtomicBool,
    running: AtomicBool,
    /// The reactor's thread, as [`sys::thread`] identifies it.
    thread: AtomicUsize,
    /// The process that forked this one, if it had a reactor; 0: none. That reactor's eventfd,
    /// `parent_wake`, stays open: the thread that also had it is the parent's.
    parent: AtomicU32,
    parent_wake: AtomicI32,
}

impl OfProcess {
    pub(super) const fn new() -> Self {
        OfProcess {
            current: Mutex::new(None),
            duties: OnceLock::new(),
            ticking: AtomicBool::new(false),
            running: AtomicBool::new(false),
            thread: AtomicUsize::new(0),
            parent: AtomicU32::new(0),
            parent_wake: AtomicI32::new(-1),
        }
    }

    pub(super) fn hold(&self) -> MutexGuard<'_, Option<Arc<Reactor>>> {
        self.current.lock()
    }

    /// Resets the state in a forked child, which has no such thread.
    pub(super) fn in_child(&self, child: &Child) {
        let Self { current, duties, ticking, running, thread, parent, parent_wake } = self;
        let gone = current.lock().take();
        keeps(duties, "of the code, not of the process");
        ticking.store(false, SeqCst);
        running.store(false, SeqCst);
        keeps(thread, "the next one says its own");
        parent.store(if gone.is_some() { child.parent } else { 0 }, SeqCst);
        parent_wake.store(gone.map_or(-1, |r| r.wake.first()), SeqCst);
    }
}

/// Sets the duties of reactors that start from now on; the first call counts.
pub(crate) fn has_duties(make: MakeDuties) {
    let _ = PROCESS.reactor.duties.set(make);
}

/// Returns the reactor, started now if need be.
fn get() -> Result<Arc<Reactor>> {
    let mut slot = PROCESS.reactor.hold();
    if let Some(r) = &*slot {
        return Ok(r.clone());
    }
    let set = softring_host::fd::make_internal(softring_host::substitute::epoll_create()?);
    let wake = softring_host::fd::make_internal(softring_host::substitute::eventfd()?);
    softring_host::substitute::epoll_add(&set, &wake, 0, sys::EPOLLIN)?;
    let r =
        Arc::new(Reactor { epoll: set, wake, rings: Mutex::default(), sweep_ns: SWEEP_NS.into() });
    let own = r.clone();
    softring_host::threads::spawn("rct", 256 << 10, move || own.run())
        .map_err(|_| Errno::EAGAIN)?;
    PROCESS.reactor.running.store(true, SeqCst);
    *slot = Some(r.clone());
    Ok(r)
}

/// Starts the reactor if none runs: it must notice if the rings are closed behind our back. Called
/// without any lock.
pub(crate) fn ensure() {
    if !PROCESS.reactor.running.load(Relaxed) {
        // If no thread can be made for it, the next setup notices.
        let _ = get();
    }
}

/// Returns whether the reactor issues a request of this ring at this moment.
pub(crate) fn issues(ctx: &Ctx) -> bool {
    ctx.issue.is_elsewhere() && ctx.issue.thread() == PROCESS.reactor.thread.load(Relaxed)
}

/// Makes the reactor read its rings' deadlines again.
pub(crate) fn wake() {
    if let Some(r) = &*PROCESS.reactor.current.lock() {
        r.wake();
    }
}

/// Has the reactor look after what a thread that leaves `enter` leaves in flight. Called without
/// the ring's lock.
pub(crate) fn guard(ring: &Arc<Ring>, immediate: bool) {
    tick::guard(ring, &PROCESS.reactor.ticking, immediate, || get().ok());
}

/// Does the same as [`guard`] for a ring whose descriptor is polled, perhaps in a signal handler;
/// false if a lock that this takes is in use, perhaps by the interrupted thread.
pub(crate) fn guard_soon(ring: &Arc<Ring>) -> bool {
    if ring.watched.load(Relaxed) {
        return true;
    }
    let known = briefly(&PROCESS.reactor.current).map(|slot| slot.clone());
    let r = match known {
        Some(Some(r)) => r,
        Some(None) => match get() {
            Ok(r) => r,
            Err(_) => return true,
        },
        None => return false,
    };
    if !ring.listed.load(Relaxed) {
        let Some(mut list) = briefly(&r.rings) else { return false };
        if !ring.listed.swap(true, Relaxed) {
            list_ring(&mut list, ring);
        }
    }
    ring.lock_soon().map(|ctx| r.watch_locked(ring, ctx)).is_some()
}

/// Appends a ring. The memory of rings that have ended is released before the list grows: a program
/// may make thousands between two passes of the reactor.
pub(crate) fn list_ring(list: &mut Rings, ring: &Arc<Ring>) {
    if list.len() == list.capacity() {
        list.retain(|ring| ring.strong_count() > 0);
    }
    list.push(Arc::downgrade(ring));
}

/// Takes a lock; none if it stays in use for some microseconds.
fn briefly<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    const TRIES: u32 = 100;
    (0..TRIES).find_map(|_| {
        let got = lock.try_lock();
        if got.is_none() {
            softring_host::threads::yield_now();
        }
        got
    })
}

/// Returns the process that forked this one, if it lives and its reactor can be woken.
pub(crate) fn parent() -> Option<u32> {
    let parent = PROCESS.reactor.parent.load(SeqCst);
    let now = softring_host::os::process::getppid().cast_unsigned();
    (parent != 0 && parent == now).then_some(parent)
}

/// Makes the parent's reactor check for requests from its children.
pub(crate) fn wake_parent() {
    if let Some(wake) =
        sys::borrow(softring_host::fd::now(PROCESS.reactor.parent_wake.load(SeqCst)))
    {
        let _ = softring_host::os::io::write(wake, &1u64.to_ne_bytes());
    }
}

impl Reactor {
    fn watch_locked(&self, ring: &Arc<Ring>, mut ctx: Guard<'_>) {
        ring.watched.store(true, SeqCst);
        if ctx.drive.transports.poll_set().is_err() {
            drop(ctx);
            return self.poll_now_and_then(ring);
        }
        nested::arm(self.epoll.as_raw_fd(), ring.id, ctx);
        if ring.next_deadline.load(Relaxed) != u64::MAX {
            self.wake();
        }
    }

    /// Polls the ring every tick until a descriptor is free for its poll set.
    fn poll_now_and_then(&self, ring: &Ring) {
        ring.watched.store(false, SeqCst);
        self.start();
    }

    fn run(self: Arc<Self>) {
        PROCESS.reactor.thread.store(sys::thread(), Relaxed);
        let mut buf = [epoll_event::default(); BATCH];
        let mut idle = 0;
        let mut swept = Clock::Monotonic.now();
        let mut duties = PROCESS.reactor.duties.get().map(|make| make());
        loop {
            let timeout = self.timeout();
            let on = On::Events(self.epoll.as_raw_fd(), &mut buf);
            let slept = sleep(on, timeout.unwrap_or(FOREVER), None);
            if slept == Err(Errno::EINTR) {
                tell_of_stop();
            }
            let n = slept.unwrap_or(0);
            let mut scratch = [0u8; 8];
            let rings = self.rings();
            softring_host::fd::check_now_and_then();
            for ev in &buf[..n] {
                let id = ev.data;
                if id == 0 {
                    let _ = softring_host::os::io::read(&self.wake, &mut scratch);
                    duties.iter_mut().for_each(|d| d.serve(self.epoll.as_fd()));
                } else if !duties.iter_mut().any(|d| d.event(self.epoll.as_fd(), id))
                    && let Some(ring) = rings.iter().find(|r| r.id == id)
                {
                    self.drive(ring);
                }
            }
            let now = Clock::Monotonic.now();
            if now - swept >= self.sweep_ns.load(Relaxed) {
                swept = now;
                duties.iter_mut().for_each(|d| d.sweep());
                rings.iter().for_each(check_registrations);
                let sends_wait = |ring: &Ring| ring.sends_wait.load(Relaxed);
                crate::ring::table::some(sends_wait).iter().for_each(wake_shut_senders);
                if let Some(code) = super::last::first_ended() {
                    // The exit code is the last thread's, which by now is another one: the C
                    // library's 0.
                    let before = self.sweep_ns.swap(LAST_NS, Relaxed) == LAST_NS;
                    super::last::end_with(if before { 0 } else { code });
                }
                duties.iter_mut().for_each(|d| d.serve(self.epoll.as_fd()));
                if self.may_end() {
                    return;
                }
            }
            for ring in rings.iter().filter(|r| r.watched.load(Relaxed)) {
                if ring.next_deadline.load(Relaxed) <= now {
                    self.drive(ring);
                }
            }
            if PROCESS.reactor.ticking.load(SeqCst) {
                rings.iter().for_each(|ring| ring.note_regular());
                idle = if self.tick(&rings) { 0 } else { idle + 1 };
                if idle > IDLE_TICKS {
                    idle = 0;
                    self.stop();
                }
            }
        }
    }

    /// Ends the reactor, unless somebody is about to hand a ring over.
    fn may_end(self: &Arc<Self>) -> bool {
        let mut slot = PROCESS.reactor.hold();
        // One reference is the slot's and one our own: under the slot's lock nobody takes another.
        // (A fork takes this lock with the table held, so the table is not waited for.)
        if Arc::strong_count(self) > 2 || !crate::ring::table::surely_no_ring() {
            return false;
        }
        *slot = None;
        PROCESS.reactor.running.store(false, SeqCst);
        PROCESS.reactor.ticking.store(false, SeqCst);
        true
    }

    fn timeout(&self) -> Option<u64> {
        let now = Clock::Monotonic.now();
        let list = self.rings.lock();
        let deadline = list
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|r| r.watched.load(Relaxed))
            .map(|r| r.next_deadline.load(Relaxed))
            .filter(|&d| d != u64::MAX)
            .map(|d| d.saturating_sub(now))
            .min();
        let tick = PROCESS.reactor.ticking.load(SeqCst).then_some(TICK.as_nanos() as u64);
        deadline.into_iter().chain(tick).chain([self.sweep_ns.load(Relaxed)]).min()
    }
}

impl Ticks for Reactor {
    type Ring = Arc<Ring>;

    fn ticking(&self) -> &AtomicBool {
        &PROCESS.reactor.ticking
    }

    fn add(&self, ring: &Arc<Ring>) {
        list_ring(&mut self.rings.lock(), ring);
    }

    fn rings(&self) -> Vec<Arc<Ring>> {
        let mut list = self.rings.lock();
        list.retain(|w| w.strong_count() > 0);
        list.iter().filter_map(Weak::upgrade).collect()
    }

    /// Arms a ring: its next poll set event, or its next deadline, comes to the reactor.
    fn watch(&self, ring: &Arc<Ring>) {
        ring.watched.store(true, SeqCst);
        self.watch_locked(ring, ring.lock_now());
    }

    fn is_driven(&self, ring: &Arc<Ring>) {
        if let Some(ctx) = unless_busy(ring) {
            nested::is_driven(self.epoll.as_raw_fd(), ring, ctx);
        }
    }

    /// Does a ring's pending work, if nobody else does.
    fn drive(&self, ring: &Arc<Ring>) {
        ring.watched.store(false, SeqCst);
        let mut again = false;
        {
            let mut ctx = ring.lock_now();
            if ring.dead.load(Relaxed) || ctx.drive.driver.active {
                return;
            }
            if ctx.issue.leaves_work() {
                drop(ctx);
                return self.poll_now_and_then(ring);
            }
            if !ctx.defers() {
                let span = ctx.trace.begin_now();
                ctx.turn(Turn::All);
                ctx.trace.end(span, Step::Drive, 0);
                ctx.publish_deadline();
                again |= ctx.in_flight();
            } else if ctx.has_work() {
                return ctx.set_taskrun();
            } else {
                // The program has entered meanwhile and taken what was there.
                ctx.publish_deadline();
                again |= ctx.in_flight();
            }
        }
        super::pending::flush(ring);
        if again && ring.is_polled() {
            // The thread that polls the ring is back soon; else the tick finds the ring.
            self.start();
        } else if again {
            self.watch(ring);
        }
    }

    fn wake(&self) {
        let _ = softring_host::os::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl Listed for Arc<Ring> {
    type Flag = AtomicBool;

    #[inline]
    fn watched(&self) -> &AtomicBool {
        &self.watched
    }

    #[inline]
    fn driven(&self) -> &AtomicBool {
        &self.driven
    }

    #[inline]
    fn listed(&self) -> &AtomicBool {
        &self.listed
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Relaxed)
    }

    fn probe(&self) -> Found {
        let mut ctx = self.lock_now();
        if ctx.issue.leaves_work() {
            return Found::Busy;
        }
        if !ctx.in_flight() || ctx.drive.driver.active || !ctx.wants_reactor() {
            return Found::Nothing;
        }
        if self.awaits_processor(TICK) {
            return Found::Busy;
        }
        self.mark_left();
        Found::Work
    }
}

/// Wakes passive waiters after the process was stopped and goes on, which ends the kernel's waits.
/// epoll_wait(2) of this thread, which blocks all signals, reports the stop; futex(2) of a passive
/// waiter does not.
fn tell_of_stop() {
    handlers::stopped();
    let sleeps = |ring: &Ring| ring.control.waiters().load(SeqCst) > 0;
    crate::ring::table::some(sleeps).iter().for_each(|ring| ring.lock_now().wake_waiters());
}

/// Checks for numbers whose close was not reported. A busy ring is checked later.
fn check_registrations(ring: &Arc<Ring>) {
    if let Some(mut ctx) = unless_busy(ring) {
        ctx.check_registrations();
    }
}

/// Wakes requests that wait on a socket that was shut for sending. A busy ring is asked later.
fn wake_shut_senders(ring: &Arc<Ring>) {
    if let Some(mut ctx) = unless_busy(ring) {
        ctx.wake_shut_senders();
    }
}

/// Locks a ring that lives, unless a thread is busy with it.
fn unless_busy(ring: &Arc<Ring>) -> Option<Guard<'_>> {
    let idle = |ctx: &Guard<'_>| !ring.dead.load(Relaxed) && !ctx.issue.is_elsewhere();
    ring.try_lock_now().filter(idle)
}

impl Ctx {
    /// Returns whether completions may appear without the program entering.
    pub(crate) fn wants_reactor(&self) -> bool {
        if self.setup.polls() {
            return false;
        }
        !self.defers()
            || self.completion.eventfd.is_some()
            || self.completion.poll_fd.is_some()
            || self.setup.flags & IORING_SETUP_TASKRUN_FLAG != 0
    }

    /// Publishes the earliest deadline for the reactor.
    pub(crate) fn publish_deadline(&mut self) {
        let at = match self.next_event_in() {
            Some(left) => Clock::Monotonic.now().saturating_add(left),
            None => u64::MAX,
        };
        if let Some(ring) = self.ring.upgrade() {
            ring.next_deadline.store(at, Relaxed);
        }
    }
}
