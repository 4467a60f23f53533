//! A policy at work: [`Hybrid`] with clocks, devices and the machine's load. Per process: the cost
//! of a timer, and a policy that the user forces.

use alloc::boxed::Box;
use core::sync::atomic::Ordering::Relaxed;

use softring_host::os::fs::{FileType, Mode, OFlags};

use super::of_process::PROCESS;
use super::signal_scope::SignalScope;
use crate::policy::hybrid::{Hybrid, IdleSleep, Key, Load, Policy, Ticket, Timer, WaitAction};
use softring_host::sys;
use softring_host::time::{Clock, cpu_time};
use softring_uapi::aio::{IOCB_CMD_PREADV, IOCB_CMD_PWRITE, IOCB_CMD_PWRITEV, iocb};
use softring_uapi::errno::Result;

/// Sleeps measured before the first ring of its kind is used, and the length of each, in ns.
const TRIALS: usize = 6;
const TRIAL_NS: u64 = 20_000;
/// Polls in a row between two readings of the clock.
pub(crate) const POLLS: u32 = 64;
/// One sleep in this many has its processor time measured.
const COST_EVERY: u32 = 16;

/// Forces the policy on every ring, polled or not.
pub fn force(policy: Policy) {
    PROCESS.flags.forced.store(policy as u8 + 1, Relaxed);
}

/// Returns the policy that is forced on all rings.
pub(crate) fn forced() -> Option<Policy> {
    Policy::ALL.into_iter().find(|p| *p as u8 + 1 == PROCESS.flags.forced.load(Relaxed))
}

/// Sleeps `ns` once; returns the lateness of its end and the processor time it took, in ns.
pub(crate) fn trial(ns: u64) -> (u64, u64) {
    let spent = cpu_time();
    let until = Clock::Monotonic.now() + ns;
    sys::sleep_until(until);
    let late = Clock::Monotonic.now().saturating_sub(until);
    (late, cpu_time().saturating_sub(spent))
}

/// Measures the cost of sleeps of `ns` on the calling thread by a few trials: about a tenth of a
/// millisecond.
pub(crate) fn try_timer(ns: u64) -> Timer {
    let tried: [(u64, u64); TRIALS] = core::array::from_fn(|_| trial(ns));
    let mut cpu = tried.map(|t| t.1);
    cpu.sort_unstable();
    // Drop the first sleep: its code and data are not cached.
    Timer::measured(&tried.map(|t| t.0)[1..], cpu[TRIALS / 2])
}

/// Measures the cost of sleeps with the timer slack of a [`SignalScope`].
pub fn try_idle_sleep(ns: u64) -> Timer {
    let mut signals = SignalScope::default();
    signals.idle_sleeps();
    try_timer(ns)
}

/// Returns the cost of a sleep, measured once per process.
fn timer() -> Timer {
    *PROCESS.kernel.timer.get_or_init(|| try_idle_sleep(TRIAL_NS))
}

/// Returns the number of runnable threads of the machine: the fourth field of proc_loadavg(5).
fn runnable() -> Option<u32> {
    let fd = PROCESS.loadavg.get()?.as_ref()?;
    let mut buf = [0u8; 64];
    let n = softring_host::os::io::pread(fd, &mut buf, 0).ok()?;
    let text = core::str::from_utf8(&buf[..n]).ok()?;
    text.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

fn load() -> Load {
    let cpus = *PROCESS.kernel.cpus.get_or_init(softring_host::substitute::processors);
    Load { runnable: runnable().unwrap_or(0), cpus }
}

/// Devices of descriptors' files, by number. An entry can be of a file closed meanwhile: then one
/// estimate is off for a while, and nothing else.
#[derive(Debug, Default)]
struct Devices {
    entries: [(i32, u32, u64); 16],
}

impl Devices {
    /// Uses after which an entry is looked up anew.
    const USES: u32 = 1024;

    fn of(&mut self, fd: i32) -> u64 {
        let entry = &mut self.entries[fd as usize % 16];
        if entry.0 != fd || entry.1 == 0 {
            *entry = (fd, Self::USES, device(fd));
        }
        entry.1 -= 1;
        entry.2
    }
}

fn device(fd: i32) -> u64 {
    let stat = sys::borrow(fd).and_then(|fd| softring_host::substitute::fstat(fd).ok());
    stat.map_or(0, |s| match FileType::from_raw_mode(s.st_mode) {
        FileType::BlockDevice => s.st_rdev,
        _ => s.st_dev,
    })
}

/// The estimator of one ring or context, at work.
#[derive(Debug)]
pub(crate) struct Polling {
    pub(crate) hybrid: Hybrid,
    devices: Devices,
    /// Polls to make before the clock is read again.
    polls_left: u32,
    idle_sleeps: u32,
    /// The thread's processor time at the begin of a sleep that is measured.
    spent: Option<u64>,
}

impl Polling {
    /// Creates an estimator for `room` requests in flight.
    pub(crate) fn new(policy: Policy, room: u32) -> Box<Polling> {
        if policy == Policy::Adaptive {
            PROCESS.loadavg.get_or_init(|| {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                let fd = softring_host::os::fs::open(c"/proc/loadavg", flags, Mode::empty());
                fd.ok().map(softring_host::fd::make_internal)
            });
        }
        let hybrid = Hybrid::new(policy, room, timer());
        Box::new(Polling {
            hybrid,
            devices: Devices::default(),
            polls_left: 0,
            idle_sleeps: 0,
            spent: None,
        })
    }

    /// Registers an iocb that the kernel's aio has taken.
    pub(crate) fn issued(&mut self, cb: &iocb, now: u64) -> Ticket {
        let op = cb.aio_lio_opcode;
        let vector = matches!(op, IOCB_CMD_PREADV | IOCB_CMD_PWRITEV);
        // Of a vector only the number of parts is known here.
        let bytes = if vector { cb.aio_nbytes.saturating_mul(4096) } else { cb.aio_nbytes };
        let device = self.devices.of(cb.aio_fildes.cast_signed());
        let write = matches!(op, IOCB_CMD_PWRITE | IOCB_CMD_PWRITEV);
        self.hybrid.issued(Key::new(device, write, bytes), now)
    }

    /// Begins a wait.
    pub(crate) fn begin(&mut self) {
        self.hybrid.begin();
        self.polls_left = 0;
    }

    /// Returns whether it is too early to read the clock again, and counts the polls until then.
    pub(crate) fn too_early(&mut self) -> bool {
        let early = self.polls_left > 0;
        self.polls_left -= u32::from(early);
        early
    }

    /// Cancels the sleep that [`Self::next_sleep`] returned: it was not taken, or another sleep
    /// ended sooner (`slept`).
    pub(crate) fn cancel(&mut self, slept: bool) {
        self.spent = None;
        self.hybrid.cancel(slept, Clock::Monotonic.now());
    }

    /// Returns the sleep to take after a poll that found too little, or [`IdleSleep::BLOCK`];
    /// `None`: poll again.
    ///
    /// # Errors
    /// EINTR if a signal is pending for the thread.
    pub(crate) fn next_sleep(&mut self, signals: &mut SignalScope) -> Result<Option<IdleSleep>> {
        if self.too_early() {
            return Ok(None);
        }
        let now = Clock::Monotonic.now();
        if self.hybrid.wants_load(now) {
            self.hybrid.set_load(load(), now);
        }
        match self.hybrid.next(now) {
            WaitAction::Poll => {
                self.polls_left = POLLS;
                signals.spins(now)?;
                Ok(None)
            }
            WaitAction::Block => {
                signals.idle_sleeps();
                Ok(Some(IdleSleep::BLOCK))
            }
            WaitAction::IdleSleep(idle_sleep) => {
                signals.idle_sleeps();
                self.spent = self.idle_sleeps.is_multiple_of(COST_EVERY).then(cpu_time);
                self.idle_sleeps = self.idle_sleeps.wrapping_add(1);
                Ok(Some(idle_sleep))
            }
        }
    }

    /// Ends a sleep.
    pub(crate) fn woke(&mut self, early: bool) {
        if let Some(before) = self.spent.take() {
            self.hybrid.timer.cost(cpu_time().saturating_sub(before));
        }
        self.hybrid.woke(Clock::Monotonic.now(), early);
    }
}

impl Polling {
    /// Registers an event that was found; all events of one poll have the same time.
    pub(crate) fn seen(&mut self, ticket: Ticket, now: &mut Option<u64>) {
        if ticket != Ticket::NONE {
            let now = *now.get_or_insert_with(|| Clock::Monotonic.now());
            self.hybrid.done(ticket, now);
        }
    }
}
