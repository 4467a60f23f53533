//! Requests that wait for a worker on the kernel: all workers are in the middle of chains, or none
//! has begun.

use super::program::{Cell, Slot, Sqe, Step, Val};
use super::seen::{Seen, is_cached, reads, res, sends, writes};
use super::transcript::Transcript;
use softring_uapi::*;

/// Returns whether chains that wait for streams hold all of the kernel's bounded workers, which are
/// as many as the task's first ring has entries (`io_init_wq_offload`). Requests behind them then
/// have no CQE, or a later one if a CQ had more when idle.
pub fn all_wait(seen: &Seen) -> bool {
    let own = seen.request().map(|(_, own)| own.ud);
    let (kernel, softring) = seen.results();
    let only_softring = own.is_some() && kernel.is_empty() && !softring.is_empty();
    if !only_softring && !seen.when_idle() {
        return false;
    }
    let worked = |i: usize| seen.kernel.recs.iter().any(|rec| rec.step == i && rec.ret == 0);
    let (mut workers, mut waiting, mut linked) = (None, 0, [false; 2]);
    let steps = seen.program.steps.iter().enumerate().filter(|(i, _)| worked(*i));
    let mut there = false;
    for (at, step) in steps {
        match step {
            _ if own.is_none() && at >= seen.what.step => break,
            Step::Setup(s) if workers.is_none() => workers = s.entries.checked_next_power_of_two(),
            Step::Sqe { ring, sqe, .. } => {
                there |= Some(sqe.ud) == own;
                let follows = &mut linked[usize::from(ring & 1)];
                let ended = has_cqe(seen.kernel, sqe.ud) || has_cqe(seen.softring, sqe.ud);
                let ended = ended && own.is_some();
                waiting += u32::from(*follows && !ended && blocks(sqe.op));
                *follows = sqe.flags & (IOSQE_IO_LINK | IOSQE_IO_HARDLINK) != 0;
            }
            // Any request of one batch may reach its worker first.
            _ if there => break,
            _ => {}
        }
    }
    workers.is_some_and(|n| waiting >= n)
}

/// Returns whether a cancel finds, on the kernel only, a request that no worker has begun.
pub fn not_begun(seen: &Seen) -> bool {
    let Some((ring, own)) = seen.request() else { return false };
    let cancelled = [res(libc::ECANCELED)];
    let found = |sqe: &Sqe| {
        // The request is IOSQE_ASYNC, or at the open end of a chain.
        let flags = IOSQE_ASYNC | IOSQE_IO_LINK | IOSQE_IO_HARDLINK;
        let opens = [IORING_OP_OPENAT, IORING_OP_OPENAT2].contains(&sqe.op);
        let quick = [IORING_OP_POLL_ADD, IORING_OP_FIXED_FD_INSTALL].contains(&sqe.op);
        let for_worker = opens || sqe.flags & flags != 0 && (quick || writes(sqe.op));
        for_worker
            && seen.kernel.results_of(sqe.ud).eq(cancelled)
            && !seen.softring.results_of(sqe.ud).eq(cancelled)
    };
    let (kernel, softring) = seen.results();
    let counts = matches!((&kernel[..], &softring[..]), ([k], [s]) if *k == s + 1 || *s < 0);
    found(own)
        || own.op == IORING_OP_ASYNC_CANCEL
            && counts
            && seen.sqes().any(|(of, sqe)| of == ring && found(sqe))
}

/// Returns whether a cancel finds, on softring only, a request that a worker runs of a chain that
/// its batch left open.
pub fn still_there(seen: &Seen) -> bool {
    let Some((ring, own)) = seen.request() else { return false };
    let cancelled = [res(libc::ECANCELED)];
    let found = |sqe: &Sqe| {
        let links = sqe.flags & (IOSQE_IO_LINK | IOSQE_IO_HARDLINK) != 0;
        links
            && (writes(sqe.op) || sends(sqe.op))
            && !seen.kernel.results_of(sqe.ud).eq(cancelled)
            && seen.softring.results_of(sqe.ud).eq(cancelled)
    };
    let cancels = |(of, sqe): (u8, &Sqe)| of == ring && sqe.op == IORING_OP_ASYNC_CANCEL;
    found(own) && seen.sqes().any(cancels)
        || own.op == IORING_OP_ASYNC_CANCEL && seen.sqes().any(|(of, sqe)| of == ring && found(sqe))
}

/// Returns whether a timeout counts completions only from when the kernel's worker arms it, so that
/// completions of the next call may come before.
pub fn counts_late(seen: &Seen) -> bool {
    let Some((ring, own)) = seen.request() else { return false };
    let (kernel, softring) = seen.results();
    let counts = own.op == IORING_OP_TIMEOUT
        && own.flags & IOSQE_ASYNC != 0
        && matches!(own.off, Val::Num(1..));
    let steps = seen.program.steps.iter();
    let behind = steps.skip_while(
        |step| !matches!(step, Step::Sqe { ring: of, sqe, .. } if *of == ring && sqe.ud == own.ud),
    );
    let soon = behind.take_while(|step| !matches!(step, Step::AwaitIdle));
    let enters = soon.filter(|step| matches!(step, Step::Enter(e) if e.ring == ring)).count();
    counts && enters > 1 && kernel.is_empty() && softring == [0]
}

/// Returns whether a cancel finds, on the kernel only, a cached read that its worker has not begun.
pub fn read_at_once(seen: &Seen) -> bool {
    let Some((ring, own)) = seen.request().filter(|_| seen.program.tmpfs) else { return false };
    let cancelled = res(libc::ECANCELED);
    let found = |sqe: &Sqe| {
        reads(sqe.op)
            && seen.file(ring, sqe).is_some_and(|slot| is_cached(seen, slot))
            && seen.kernel.results_of(sqe.ud).eq([cancelled])
            && !seen.softring.results_of(sqe.ud).any(|answer| answer == cancelled)
    };
    let (kernel, softring) = seen.results();
    let finds = || (&kernel[..], &softring[..]) == (&[0], &[res(libc::ENOENT)]);
    found(own)
        || own.op == IORING_OP_ASYNC_CANCEL
            && finds()
            && seen.sqes().any(|(of, sqe)| of == ring && found(sqe))
}

/// Returns whether the end of its ring woke a worker that receives a message of no bytes. The
/// program may read the header before the worker writes it.
pub fn message_of_nothing(seen: &Seen) -> bool {
    let Some((ring, own)) = seen.request() else { return false };
    let flags = IOSQE_ASYNC | IOSQE_IO_LINK | IOSQE_IO_HARDLINK;
    let nothing = |cells: &[Cell]| matches!(cells.get(4), Some(Cell::U64(Val::Num(0))));
    let empty = matches!(&own.addr, Val::Mem(cells) if nothing(cells));
    let tcp = matches!(seen.file(ring, own), Some(Slot::TcpA | Slot::TcpB));
    own.op == IORING_OP_RECVMSG
        && own.flags & flags != 0
        && empty
        && tcp
        && seen.what.step == seen.program.steps.len() + 3
        && seen.what.text.ends_with(&format!("ud{} memory [6]=0x0", own.ud))
        && !has_cqe(seen.kernel, own.ud)
        && !has_cqe(seen.softring, own.ud)
}

/// Returns whether a worker's message with MSG_WAITALL has received a part.
pub fn message_part_received(seen: &Seen) -> bool {
    let Some((ring, own)) = seen.request() else { return false };
    let flags = IOSQE_ASYNC | IOSQE_IO_LINK | IOSQE_IO_HARDLINK;
    own.op == IORING_OP_RECVMSG
        && own.flags & flags != 0
        && own.op_flags & libc::MSG_WAITALL as u32 != 0
        && seen.file(ring, own).is_some()
        && seen.what.text.contains(&format!("ud{} memory ", own.ud))
        && !has_cqe(seen.kernel, own.ud)
        && !has_cqe(seen.softring, own.ud)
}

/// Returns whether a batch follows another one whose barrier the kernel's worker had not passed
/// yet. A new request then waits behind the barrier, with all that depends on it; or does not, if
/// the event came first. Or the program ends meanwhile.
pub fn behind_barrier(seen: &Seen) -> bool {
    let late = |(ring, own): (u8, &Sqe)| {
        let (kernel, softring) = (has_cqe(seen.kernel, own.ud), has_cqe(seen.softring, own.ud));
        let ended =
            !kernel && seen.what.step >= seen.program.steps.len() && barrier(seen, ring, own);
        kernel != softring && (ended || one_behind_other(seen, ring))
    };
    // A call that waits for completions finds none.
    if seen.when_idle() || seen.what.about == "enter" {
        return seen.sqes().any(late);
    }
    // The CQE may also come in the same call on softring only, and later on the kernel.
    let later = |(ring, own): (u8, &Sqe)| {
        let same = seen.kernel.results_of(own.ud).eq(seen.softring.results_of(own.ud));
        same && seen.what.kernel.is_empty() && barrier(seen, ring, own)
    };
    seen.request().is_some_and(|of| late(of) || later(of) || passed_by(seen, of))
}

/// Returns whether a request is a barrier, or follows one.
fn barrier(seen: &Seen, ring: u8, own: &Sqe) -> bool {
    let before = seen.sqes().filter(|(of, _)| *of == ring).take_while(|(_, sqe)| sqe.ud != own.ud);
    own.flags & IOSQE_IO_DRAIN != 0
        || before.into_iter().any(|(_, sqe)| sqe.flags & IOSQE_IO_DRAIN != 0)
}

/// Returns whether one batch follows another without a wait, behind a barrier.
fn one_behind_other(seen: &Seen, ring: u8) -> bool {
    let (mut drains, mut entered) = (false, false);
    seen.program.steps.iter().any(|step| match step {
        Step::Sqe { ring: of, sqe, .. } if *of == ring => {
            drains |= sqe.flags & IOSQE_IO_DRAIN != 0;
            false
        }
        Step::Enter(e) if e.ring == ring => core::mem::replace(&mut entered, drains),
        Step::AwaitIdle => {
            entered = false;
            false
        }
        _ => false,
    })
}

/// Returns whether a worker runs the request, and a write that the barrier held as well is done
/// before.
fn passed_by(seen: &Seen, (ring, own): (u8, &Sqe)) -> bool {
    let moves = [IORING_OP_SPLICE, IORING_OP_TEE].contains(&own.op);
    let fills = |(of, sqe): (u8, &Sqe)| of == ring && writes(sqe.op);
    moves && barrier(seen, ring, own) && seen.sqes().any(fills)
}

/// Returns whether a request has a CQE.
fn has_cqe(t: &Transcript, ud: u64) -> bool {
    t.results_of(ud).next().is_some()
}

/// Returns whether a worker that comes to this opcode by a chain waits in its call.
fn blocks(op: u8) -> bool {
    let sockets =
        [IORING_OP_SEND, IORING_OP_SENDMSG, IORING_OP_RECV, IORING_OP_RECVMSG, IORING_OP_ACCEPT];
    reads(op) || writes(op) || sockets.contains(&op)
}

/// Returns whether one of two ACCEPTs of one listener goes to a worker by a chain, with one
/// connection.
pub fn accepts_in_worker(seen: &Seen) -> bool {
    let Some((ring, own)) = seen.request().filter(|(_, s)| s.op == IORING_OP_ACCEPT) else {
        return false;
    };
    let links = |sqe: &Sqe| sqe.flags & (IOSQE_IO_LINK | IOSQE_IO_HARDLINK) != 0;
    let chained = |ud: u64| {
        let is = |(before, sqe): (Option<&Sqe>, &Sqe)| {
            sqe.ud == ud && (links(sqe) || before.is_some_and(links))
        };
        seen.pairs(ring).any(is)
    };
    let other = |(of, sqe): (u8, &Sqe)| {
        sqe.op == IORING_OP_ACCEPT
            && sqe.ud != own.ud
            && seen.file(of, sqe) == seen.file(ring, own)
            && (chained(sqe.ud) || chained(own.ud))
    };
    let (kernel, softring) = seen.results();
    kernel.is_empty() != softring.is_empty() && seen.sqes().any(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::compare::compare;
    use crate::fuzz::known::reason;
    use crate::fuzz::program::{Fd, Program, Setup};
    use crate::fuzz::transcript::{Cqe, End, Rec};

    /// Returns whether a difference is explained: a read of a pipe behind a worker's request, then
    /// another worker's request, whose CQE only softring has.
    fn is_explained(entries: u32, flags: u8) -> bool {
        let sqe = |ud, op, fd, flags| {
            let sqe = Sqe { ud, op, fd, flags, ..Sqe::default() };
            Step::Sqe { ring: 0, sqe, bad_index: false }
        };
        let steps = vec![
            Step::Setup(Setup { entries, ..Setup::default() }),
            sqe(1, IORING_OP_FTRUNCATE, Fd::Slot(Slot::TightB), flags),
            sqe(2, IORING_OP_READ, Fd::Slot(Slot::PipeR), 0),
            sqe(3, IORING_OP_FSYNC, Fd::Slot(Slot::A), 0),
            Step::Reap { ring: 0, max: None },
        ];
        let program = Program { steps, ..Program::default() };
        let run = |uds: &[u64]| {
            let cqe = |&ud: &u64| Cqe { ud, res: 0, flags: 0, big: None };
            let cqes = |step| if step == 4 { uds.iter().map(cqe).collect() } else { Vec::new() };
            let recs = (0..5).map(|step| Rec { step, cqes: cqes(step), ..Rec::default() });
            Transcript { recs: recs.collect(), end: End::Exit }
        };
        let (kernel, softring) = (run(&[1]), run(&[1, 3]));
        let what = compare(&program, &kernel, &softring).expect("they differ");
        let seen = Seen { program: &program, what: &what, kernel: &kernel, softring: &softring };
        reason(&seen).is_some()
    }

    #[test]
    fn a_chain_in_the_only_worker_is_documented() {
        assert!(is_explained(1, IOSQE_IO_LINK));
        assert!(!is_explained(2, IOSQE_IO_LINK));
        assert!(!is_explained(1, 0));
    }
}
