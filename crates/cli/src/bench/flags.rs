//! Set-up flags that the client of the measurements can serve, and that go together. They are
//! checked before a ring is made, as io_uring_setup(2) only answers EINVAL.

use super::job::Job;
use crate::cli::{Op, name_of};
use crate::fail;
use softring_uapi::*;

const TASKRUN: u32 = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_DEFER_TASKRUN;

/// Flags that no ring of a measurement can have, with the reason.
const NEVER: [(u32, &str); 5] = [
    (
        IORING_SETUP_CQSIZE,
        "the measurement chooses the size of the queues; set it by --depth and --batch",
    ),
    (IORING_SETUP_ATTACH_WQ, "there is no other ring to share workers with; leave this flag out"),
    (IORING_SETUP_R_DISABLED, "the measurement enables no disabled rings; leave this flag out"),
    (IORING_SETUP_NO_MMAP, "the client maps memory that the ring provides; leave this flag out"),
    (IORING_SETUP_REGISTERED_FD_ONLY, "the client uses a plain descriptor; leave this flag out"),
];

/// Pairs of a flag and the flags of which it needs at least one.
const NEEDS: [(u32, u32); 4] = [
    (IORING_SETUP_SQ_AFF, IORING_SETUP_SQPOLL),
    (IORING_SETUP_HYBRID_IOPOLL, IORING_SETUP_IOPOLL),
    (IORING_SETUP_DEFER_TASKRUN, IORING_SETUP_SINGLE_ISSUER),
    (IORING_SETUP_TASKRUN_FLAG, TASKRUN),
];

/// Pairs of a flag and the flags that exclude it.
const EXCLUDES: [(u32, u32); 2] = [
    (IORING_SETUP_SQPOLL, TASKRUN | IORING_SETUP_TASKRUN_FLAG),
    (IORING_SETUP_CQE32, IORING_SETUP_CQE_MIXED),
];

/// Returns the kernel's names of these flags, joined by `between`.
fn names(flags: u32, between: &str) -> String {
    names_of(flags, &SETUP_NAMES).collect::<Vec<_>>().join(between)
}

/// Checks that the job's rings can have the flags that it asks for.
///
/// # Errors
/// Usage, with what to ask for instead.
pub fn check(job: &Job) -> anyhow::Result<()> {
    let flags = job.setup_flags;
    let refuse = |what: String, hint: String| Err(fail::usage(what, hint));
    if let Some((flag, why)) = NEVER.iter().find(|(flag, _)| flags & flag != 0) {
        let what = format!("softring bench cannot use rings with {}", names(*flag, ""));
        return refuse(what, (*why).into());
    }
    if let Some((flag, of)) = NEEDS.iter().find(|(f, of)| flags & f != 0 && flags & of == 0) {
        let (name, add) = (names(*flag, ""), names(*of, " or "));
        return refuse(format!("{name} needs {add}"), format!("add {add}"));
    }
    if let Some((flag, not)) = EXCLUDES.iter().find(|(f, not)| flags & f != 0 && flags & not != 0) {
        let (name, other) = (names(*flag, ""), names(flags & not, ", "));
        return refuse(format!("{name} excludes {other}"), "leave one of them out".into());
    }
    polled(job)
}

/// Checks a job with IOPOLL: it does reads and writes past the page cache, NOPs, set-up or nothing.
fn polled(job: &Job) -> anyhow::Result<()> {
    if job.setup_flags & IORING_SETUP_IOPOLL == 0 {
        return Ok(());
    }
    match job.op {
        Op::Nop | Op::Setup | Op::Idle => Ok(()),
        Op::Rw if job.direct => Ok(()),
        Op::Rw => Err(fail::usage("IOPOLL needs I/O past the page cache", "add --direct")),
        op => {
            let what = format!("a ring with IOPOLL cannot do --op {}", name_of(op));
            Err(fail::usage(what, "leave IOPOLL out, or use --op rw --direct"))
        }
    }
}
