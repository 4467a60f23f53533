//! Injected faults (`softring run --faults`): the plan of the process, and each ring's decisions.
//!
//! ```text
//! SQE taken:     the request gets its ordinal, and an entry here   (submit::init)
//! first issue:   the plan decides; an error ends the request, a short count shortens its transfer
//!                (submit::faults, ops::faults)
//! end:           its completion is held back, as if a device or task work had been late
//!                (ring::faults)
//! ```
//!
//! Without a plan no ring has this state, no request has `ReqFlags::FAULTED`, and the fast path is
//! open. With a plan every SQE becomes a request.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use softring_faults::log::Line;
use softring_faults::{Decision, Fault, Plan, RingFaults, Subject};
use softring_host::fd::InternalFd;
use softring_host::fd::owned::make_internal_opened;
use softring_host::os::fd::OwnedFd;
use softring_host::sync::real::OnceLock;
use softring_host::time::Clock;
use softring_uapi::errno::Errno;

use super::of_process::PROCESS;

/// Source of the decisions, and the file of the log.
#[derive(Debug)]
struct Injector {
    plan: Plan,
    log: Option<InternalFd>,
}

/// State of this module that exists once per process.
#[derive(Debug)]
pub(super) struct OfProcess {
    injector: OnceLock<Injector>,
    /// Number of rings made so far.
    rings: AtomicU32,
}

impl OfProcess {
    pub(super) const fn new() -> OfProcess {
        OfProcess { injector: OnceLock::new(), rings: AtomicU32::new(0) }
    }
}

/// Sets the plan of this process, for good, and the file to which injected faults are appended.
/// Called before the first ring is created.
pub fn set(plan: Plan, log: Option<OwnedFd>) {
    let log = log.map(make_internal_opened);
    let _ = PROCESS.faults.injector.set(Injector { plan, log });
}

/// Faults that were decided for one request and have not happened yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pending {
    /// Ordinal of the request in its ring.
    pub(crate) ordinal: u64,
    /// Flag, set once the plan has decided.
    pub(crate) decided: bool,
    /// Flag, true if the transfer was shortened.
    pub(crate) short: bool,
    /// Results after which a multishot request ends; 0: no such end.
    pub(crate) shots: u32,
    /// Time for which the completion is held back, in ns.
    pub(crate) hold: u64,
    /// Time for which the notification is held back, in ns.
    pub(crate) notif: u64,
}

/// State of one ring's faults.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Ordinal of the ring in its process.
    ring: u32,
    /// Number of SQEs taken so far.
    requests: u64,
    /// Number of SQEs taken, plus one, when it was last decided whether a submission, and a wait,
    /// fails.
    enters: [u64; 2],
    decisions: RingFaults,
    pending: Vec<Pending>,
    free: Vec<u32>,
    /// End of the current burst: until then all completions are held back, in ns of
    /// CLOCK_MONOTONIC.
    pub(crate) burst: u64,
    /// Time until which the SQ thread takes no SQE, in ns of CLOCK_MONOTONIC.
    sq_due: u64,
    /// Number of SQEs taken, plus one, when it was last decided whether the SQ thread is late.
    sq_decided: u64,
    /// Time for which the completions of what the current request cancels are held back, in ns.
    pub(crate) late: u64,
    /// Flag, true in a forked child. It holds nothing back: a completion would end with the child.
    pub(crate) forked: bool,
}

/// Returns the state of a new ring, if there is a plan.
pub(crate) fn of_new_ring() -> Option<Box<Faults>> {
    PROCESS.faults.injector.get()?;
    let ring = PROCESS.faults.rings.fetch_add(1, Relaxed);
    Some(Box::new(Faults { ring, ..Faults::default() }))
}

impl Faults {
    /// Gives a request its ordinal; returns the index of its entry.
    pub(crate) fn begin(&mut self) -> u32 {
        let pending = Pending { ordinal: self.requests, ..Pending::default() };
        self.requests += 1;
        self.add(pending)
    }

    fn add(&mut self, pending: Pending) -> u32 {
        if let Some(index) = self.free.pop() {
            self.pending[index as usize] = pending;
            return index;
        }
        self.pending.push(pending);
        (self.pending.len() - 1) as u32
    }

    pub(crate) fn pending(&mut self, index: u32) -> &mut Pending {
        &mut self.pending[index as usize]
    }

    /// Ends an entry.
    pub(crate) fn end(&mut self, index: u32) {
        self.free.push(index);
    }

    /// Returns a call of `io_uring_enter(2)` as filters know it: by the next request.
    fn enter(&self) -> Subject<'static> {
        self.subject(self.requests, softring_faults::ENTER_OP)
    }

    /// Decides whether a call of `io_uring_enter(2)` fails: its submission, or its wait. That is
    /// decided once for each next request, as the number of calls depends on time.
    pub(crate) fn refuses(&mut self, fault: Fault) -> Option<Errno> {
        let decided = &mut self.enters[usize::from(fault == Fault::Eintr)];
        if core::mem::replace(decided, self.requests + 1) == self.requests + 1 {
            return None;
        }
        let subject = self.enter();
        self.decide(fault, &subject)?;
        let errno = fault.errno()?;
        log(fault, &subject, errno.0.unsigned_abs().into());
        Some(errno)
    }

    /// Returns whether the SQ thread leaves the SQEs that are there for now.
    pub(crate) fn sq_is_late(&mut self) -> bool {
        /// Bounds of the time, in ns.
        const LATE: (u64, u64) = (200_000, 2_000_000);
        let now = Clock::Monotonic.now();
        if self.sq_decided != self.requests + 1 {
            self.sq_decided = self.requests + 1;
            let subject = self.enter();
            let late = self.decide(Fault::SqLate, &subject);
            if let Some(ns) = late.and_then(|late| late.between(LATE.0, LATE.1)) {
                self.sq_due = now.saturating_add(ns);
                log(Fault::SqLate, &subject, ns);
            }
        }
        now < self.sq_due
    }

    /// Returns a request as filters know it, but for its file.
    pub(crate) fn subject(&self, ordinal: u64, op: u8) -> Subject<'static> {
        Subject { ring: self.ring, request: ordinal, op, kind: None, path: None }
    }

    /// Decides whether a fault that can happen to a request does; see [`Plan::decide`].
    pub(crate) fn decide(&mut self, fault: Fault, subject: &Subject<'_>) -> Option<Decision> {
        injector()?.plan.decide(&mut self.decisions, fault, subject)
    }
}

fn injector() -> Option<&'static Injector> {
    PROCESS.faults.injector.get()
}

/// Returns whether the plan or the log wants the paths of files.
pub(crate) fn wants_paths() -> bool {
    injector().is_some_and(|i| i.log.is_some() || i.plan.names_paths())
}

/// Returns whether the plan has a fault.
pub(crate) fn has(fault: Fault) -> bool {
    injector().is_some_and(|i| i.plan.injects(fault))
}

/// Appends an injected fault to the log.
pub(crate) fn log(fault: Fault, subject: &Subject<'_>, value: u64) {
    let Some(log) = injector().and_then(|i| i.log.as_ref()) else { return };
    let named = subject.path.filter(|path| path.starts_with(b"/"));
    let line = Line {
        ring: subject.ring,
        request: subject.request,
        op: softring_faults::op_name(subject.op).into(),
        fault: fault.name().into(),
        value,
        pid: softring_host::fork::pid(),
        path: named.map(|path| alloc::string::String::from_utf8_lossy(path).into_owned()),
    };
    write(log, &line);
}

/// Writes a line by one call, so that lines of several processes do not mix.
fn write(log: &InternalFd, line: &Line) {
    let mut text = line.to_string();
    text.push('\n');
    let _ = softring_host::os::io::write(log, text.as_bytes());
}
