//! Short buffered writes on file systems that refuse every buffered write that must not wait.
//!
//! The kernel's ring gives such a write to a worker, and so does this one: the way there and back
//! takes longer than a write of a few pages to the page cache (3 µs). Once workers hardly ever had
//! to wait in the file system's short writes ([`Record::trusts_writes`]), the submitter makes them
//! itself. If it has to wait in a second one of some 256, trust is gone, and has to be earned again
//! by twice as many writes of workers. So a submitter waits for the disk at most in one of 128
//! writes, and seldom in so many.
//!
//! A write that fails goes to a worker, to fail there as ever. So does each one while a limit may
//! forbid it (RLIMIT_FSIZE), since the signal of that would come to the submitter.

use crate::ops::rw::{finish, transfer, writes};
use crate::ring::ctx::Ctx;
use crate::ring::op_state::CURRENT;
use crate::ring::opdef::Outcome;
use crate::ring::request::{Call, FileRef, Req, ReqFlags};
use softring_host::creds::am_ours;
use softring_host::fd::file_systems::{Record, WrittenOn};
use softring_host::fd::history::History;
use softring_host::fd::kind::Kind;
use softring_host::substitute::limits_file_size;

/// Most bytes of a write that counts as short.
const SHORT: u64 = 32 << 10;

impl Ctx {
    /// Finds out the file system of a buffered write, and whether the calling thread may make the
    /// write itself: it is the submitter, nobody can tell, and no earlier write to the same file is
    /// with a worker.
    pub(crate) fn find_file_system(&mut self, req: &mut Req) {
        let FileRef::Plain(fd) = req.call.file else { return };
        if !req.row.writes() {
            return;
        }
        let Some(on) = req.call.file.history().map(History::file_system) else { return };
        // A worker's links run there.
        let told = req.linked()
            || req.flags.intersects(ReqFlags::ON_WORKER | ReqFlags::FORCE_ASYNC)
            || req.names_personality()
            || self.eventfd_tells_workers();
        let key = u64::from(fd.cast_unsigned());
        let may_wait = on.record().is_some_and(Record::trusts_writes)
            && self.submit.open
            && !told
            && !self.drive.pool.as_ref().is_some_and(|workers| workers.is_busy(key));
        req.call.written_on = if may_wait { on.with_waits() } else { on };
    }

    /// Returns whether the eventfd tells a worker's completion from a submitter's: it is for
    /// workers' only, or is signalled for each by itself (`Completion::worker_ends`), as task work.
    pub(crate) fn eventfd_tells_workers(&self) -> bool {
        self.completion.eventfd.as_ref().is_some_and(|e| e.only_async || self.defers())
    }
}

/// Returns whether a call is a short write on a file system with a record.
#[inline]
pub(crate) fn is_known(call: &Call) -> bool {
    call.written_on != WrittenOn::default() && writes(call.opcode) && is_short(call)
}

fn is_short(call: &Call) -> bool {
    let io = call.io();
    io.flags == 0 && io.off != CURRENT && (1..=SHORT).contains(&call.total())
}

/// Returns whether the submitter makes the write itself. A thread of ours takes no signals.
pub(crate) fn is_to_try(call: &Call) -> bool {
    call.written_on.may_wait() && (am_ours() || !limits_file_size())
}

/// Writes on the submitter's thread, which may have to wait.
pub(crate) fn write(call: &mut Call, kind: Kind) -> Outcome {
    let written = match call.written_on.record() {
        Some(record) => record.writes().spend(|| transfer(call, kind, 0)),
        None => transfer(call, kind, 0),
    };
    match written {
        Ok(n) => {
            call.add_done(n as u64);
            let total = call.total();
            finish(call, total)
        }
        Err(_) => Outcome::Retry,
    }
}

/// Makes a worker's write, and counts it as long as the file system is not trusted.
pub(crate) fn by_worker(call: &mut Call, write: impl FnOnce(&mut Call) -> Outcome) -> Outcome {
    match call.written_on.record().filter(|record| !record.trusts_writes()) {
        Some(record) => {
            let succeeds = |outcome: &Outcome| matches!(outcome, Outcome::Done(1..));
            record.writes().earn(|| write(call), succeeds)
        }
        None => write(call),
    }
}
