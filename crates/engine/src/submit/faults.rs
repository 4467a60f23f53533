//! Decisions about a request that is about to be issued first: its file is known, and nothing of it
//! has happened.

use crate::io::faults::{self, Faults, Pending};
use crate::ops::faults as ops;
use crate::ring::ctx::Ctx;
use crate::ring::opdef;
use crate::ring::request::{FileRef, Req};
use softring_faults::{Decision, Fault, Subject, Time};
use softring_host::calls::sockets::shutdown;

/// Faults that end a request instead of its first attempt, in the order in which they are asked.
const ERRORS: [Fault; 8] = [
    Fault::DropConnection,
    Fault::Econnreset,
    Fault::Enomem,
    Fault::Eio,
    Fault::Enospc,
    Fault::Edquot,
    Fault::Eagain,
    Fault::Eintr,
];

/// Bounds of the times for which completions are held back, in ns.
const REORDER: (u64, u64) = (20_000, 500_000);
const BURST: (u64, u64) = (1_000_000, 4_000_000);
const LATE: (u64, u64) = (500_000, 5_000_000);
/// Time of a delay whose entry has none: that of a replay, which has a value of its own.
const DELAY: Time = Time::Fixed(1_000_000);
/// Largest number of results of a multishot request that ends.
const SHOTS: u64 = 8;
/// Largest number of bytes in a piece of a stream whose buffers run out.
const PIECE: u64 = 16;
/// Both directions of a connection (`SHUT_RDWR`).
const BOTH: u32 = 2;

impl Ctx {
    /// Decides the faults of a request, once. Returns the result that it ends with, if an error is
    /// injected.
    #[cold]
    #[inline(never)]
    pub(crate) fn inject(&mut self, req: &mut Req) -> Option<i32> {
        let mut faults = self.faults.take()?;
        let result = self.inject_by(&mut faults, req);
        self.faults = Some(faults);
        result
    }

    fn inject_by(&mut self, faults: &mut Faults, req: &mut Req) -> Option<i32> {
        let Pending { ordinal, decided, .. } = *faults.pending(req.fault);
        faults.late = 0;
        if decided {
            return None;
        }
        faults.pending(req.fault).decided = true;
        let kind = ops::file_kind(req);
        let path = if faults::wants_paths() { path(req) } else { None };
        let subject = Subject {
            kind,
            path: path.as_deref(),
            ..faults.subject(ordinal, req.call.sqe().opcode)
        };
        if let Some(result) = self.inject_error(faults, req, &subject) {
            return result;
        }
        self.inject_short(faults, req, &subject);
        self.inject_late(faults, req, &subject);
        None
    }

    /// Injects at most one error. Returns whether there was one, and the result that the request
    /// ends with.
    fn inject_error(
        &mut self,
        faults: &mut Faults,
        req: &Req,
        subject: &Subject<'_>,
    ) -> Option<Option<i32>> {
        for fault in ERRORS {
            let Some(_) = decide(faults, fault, req, subject) else { continue };
            let errno = fault.errno()?;
            self.injected(fault, req, subject, errno.0.unsigned_abs().into());
            let reset = matches!(fault, Fault::Econnreset | Fault::DropConnection);
            if reset {
                let _ = shutdown(req.call.file.fd(), BOTH);
            }
            // A connection that is only gone tells the request so itself.
            return Some((fault != Fault::DropConnection).then_some(errno.res()));
        }
        None
    }

    /// Shortens a transfer, and the life of a multishot request.
    fn inject_short(&mut self, faults: &mut Faults, req: &mut Req, subject: &Subject<'_>) {
        for fault in [Fault::ShortRead, Fault::ShortWrite] {
            if let Some(decision) = decide(faults, fault, req, subject)
                && let Some(bytes) = ops::shorten(req, subject.kind, decision)
            {
                faults.pending(req.fault).short = true;
                self.injected(fault, req, subject, bytes);
            }
        }
        if let Some(piece) = drawn(faults, Fault::BuffersOut, req, subject, (1, PIECE)) {
            ops::limit(req, piece);
            self.injected(Fault::BuffersOut, req, subject, piece);
        }
        if let Some(shots) = drawn(faults, Fault::MultishotEnd, req, subject, (1, SHOTS)) {
            faults.pending(req.fault).shots = shots as u32;
            self.injected(Fault::MultishotEnd, req, subject, shots);
        }
    }

    /// Makes completions late.
    fn inject_late(&mut self, faults: &mut Faults, req: &Req, subject: &Subject<'_>) {
        let mut hold = 0;
        if let Some(decision) = decide(faults, Fault::Delay, req, subject) {
            hold = decision.ns(DELAY);
            self.injected(Fault::Delay, req, subject, hold);
        }
        if let Some(ns) = drawn(faults, Fault::Reorder, req, subject, REORDER) {
            hold += ns;
            self.injected(Fault::Reorder, req, subject, ns);
        }
        faults.pending(req.fault).hold = hold;
        if let Some(ns) = drawn(faults, Fault::Overflow, req, subject, BURST) {
            let now = softring_host::time::Clock::Monotonic.now();
            faults.burst = faults.burst.max(now + ns);
            self.injected(Fault::Overflow, req, subject, ns);
        }
        if self.faults_may_wake()
            && decide(faults, Fault::SpuriousWake, req, subject).is_some()
            && let Some(eventfd) = &self.completion.eventfd
        {
            eventfd.signal(1);
            self.injected(Fault::SpuriousWake, req, subject, 1);
        }
        if let Some(ns) = drawn(faults, Fault::CancelLate, req, subject, LATE) {
            faults.late = ns;
            self.injected(Fault::CancelLate, req, subject, ns);
        }
        if let Some(ns) = drawn(faults, Fault::NotifLate, req, subject, LATE) {
            faults.pending(req.fault).notif = ns;
            self.injected(Fault::NotifLate, req, subject, ns);
        }
    }

    /// Records an injected fault in the log and the trace.
    fn injected(&mut self, fault: Fault, req: &Req, subject: &Subject<'_>, value: u64) {
        faults::log(fault, subject, value);
        self.trace_fault(req, fault);
    }
}

/// Decides a fault, if the plan has it and it can happen.
fn decide(faults: &mut Faults, fault: Fault, req: &Req, subject: &Subject<'_>) -> Option<Decision> {
    let possible = faults::has(fault) && ops::can_happen(fault, req, subject.kind);
    if possible { faults.decide(fault, subject) } else { None }
}

/// Decides a fault with a value between two bounds.
fn drawn(
    faults: &mut Faults,
    fault: Fault,
    req: &Req,
    subject: &Subject<'_>,
    (least, most): (u64, u64),
) -> Option<u64> {
    decide(faults, fault, req, subject)?.between(least, most)
}

/// Returns the path of a request's file.
fn path(req: &Req) -> Option<alloc::vec::Vec<u8>> {
    if !req.row.has(opdef::FILE) || matches!(req.call.file, FileRef::None) {
        return None;
    }
    softring_host::files::path_of(req.call.file.fd())
}
