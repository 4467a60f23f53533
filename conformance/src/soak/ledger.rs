//! A ring with a book of due requests: each request gets a number of its own, and exactly one final
//! CQE under it. An unexpected CQE is a fault, and so is a missing one.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::{Check, ensure};
use crate::entry::EntryPoint;
use crate::ring::{Cqe, Ring};
use softring_uapi::*;

/// Longest time until a cancelled request has its CQE, on a busy machine.
pub const END_LIMIT: Duration = Duration::from_secs(30);
/// Bit in the user_data of the ledger's own requests.
const OWN: u64 = 1 << 63;

/// Totals of a ring's book.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub requests: u64,
    pub finals: u64,
    pub more: u64,
    pub cancelled: u64,
    /// CONNECTs among the requests.
    pub connections: u64,
    /// TIMEOUTs and LINK_TIMEOUTs among them.
    pub timeouts: u64,
}

impl Totals {
    fn count(&mut self, opcode: u8) {
        self.requests += 1;
        match opcode {
            IORING_OP_CONNECT => self.connections += 1,
            IORING_OP_TIMEOUT | IORING_OP_LINK_TIMEOUT => self.timeouts += 1,
            _ => {}
        }
    }
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, o: Totals) {
        self.requests += o.requests;
        self.finals += o.finals;
        self.more += o.more;
        self.cancelled += o.cancelled;
        self.connections += o.connections;
        self.timeouts += o.timeouts;
    }
}

/// A completion, its token, and whether it is that request's last.
#[derive(Clone, Copy, Debug)]
pub struct End<T> {
    pub token: T,
    pub cqe: Cqe,
    pub last: bool,
}

/// A ring and its book. `T` tells the owner which request a completion belongs to.
pub struct Ledger<T> {
    pub ring: Ring,
    due: HashMap<u64, T>,
    next: u64,
    pub totals: Totals,
}

impl<T: Copy + std::fmt::Debug> Ledger<T> {
    pub fn new(entry: EntryPoint, entries: u32, params: io_uring_params) -> Check<Self> {
        let ring = Ring::with(entry, entries, params);
        let ring = ring.map_err(|e| format!("setup with {:#x}: errno {e}", params.flags))?;
        Ok(Ledger { ring, due: HashMap::new(), next: 1, totals: Totals::default() })
    }

    /// Returns the number of requests without a final CQE, the ledger's own not counted.
    pub fn open(&self) -> usize {
        self.due.len()
    }

    /// Queues a request, or a chain of them, and returns its first number; the others follow.
    pub fn push(&mut self, chain: &[(io_uring_sqe, T)]) -> Check<u64> {
        let room = |r: &Ring| (r.sq_entries() - r.sq_ready()) as usize;
        let began = Instant::now();
        while room(&self.ring) < chain.len() {
            self.submit(0, Duration::ZERO)?;
            ensure(began.elapsed() < END_LIMIT, || "the submission queue stays full".into())?;
        }
        let first = self.next;
        for (sqe, token) in chain {
            self.due.insert(self.next, *token);
            // An SQ thread must see the whole chain or nothing of it.
            self.ring.try_push_hidden(io_uring_sqe { user_data: self.next, ..*sqe });
            self.next += 1;
            self.totals.count(sqe.opcode);
        }
        self.ring.show();
        Ok(first)
    }

    /// Books a completion that another ring's message will bring; returns its number.
    pub fn expect(&mut self, token: T) -> u64 {
        let number = self.next;
        self.next += 1;
        self.due.insert(number, token);
        self.totals.requests += 1;
        number
    }

    /// Queues a cancel whose own completion nobody checks.
    pub fn cancel(&mut self, sqe: io_uring_sqe) {
        let number = OWN | self.next;
        self.next += 1;
        let _ = self.ring.try_push(io_uring_sqe { user_data: number, ..sqe });
    }

    /// Submits the queue, and waits for `min` completions, at most for `limit`.
    pub fn submit(&mut self, min: u32, limit: Duration) -> Check {
        let ts = kernel_timespec {
            tv_sec: limit.as_secs().cast_signed(),
            tv_nsec: limit.subsec_nanos().into(),
        };
        let arg = io_uring_getevents_arg {
            ts: std::ptr::from_ref(&ts).expose_provenance() as u64,
            ..Default::default()
        };
        let ready = self.ring.sq_ready();
        let mut flags = IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG;
        if self.ring.has(IORING_SETUP_SQPOLL) {
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            let asleep = self.ring.sq_flags() & IORING_SQ_NEED_WAKEUP != 0;
            flags |= if asleep { IORING_ENTER_SQ_WAKEUP } else { 0 };
        }
        let at = std::ptr::from_ref(&arg).expose_provenance();
        let got = self.ring.enter_raw(ready, min, flags, at, size_of_val(&arg));
        match -got as i32 {
            _ if got >= 0 => Ok(()),
            libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY => Ok(()),
            e => Err(format!("enter of {ready}, {min}: errno {e}")),
        }
    }

    /// Takes the posted completions.
    pub fn reap(&mut self) -> Check<Vec<End<T>>> {
        let mut ends = Vec::new();
        while let Some(cqe) = self.ring.pop() {
            let last = cqe.flags & IORING_CQE_F_MORE == 0;
            if cqe.user_data & OWN != 0 {
                continue;
            }
            let Some(&token) = self.due.get(&cqe.user_data) else {
                return Err(format!("a completion that nobody waits for: {cqe:?}"));
            };
            if last {
                self.due.remove(&cqe.user_data);
                self.totals.finals += 1;
                self.totals.cancelled += u64::from(cqe.res == -libc::ECANCELED);
            } else {
                self.totals.more += 1;
            }
            ends.push(End { token, cqe, last });
        }
        Ok(ends)
    }

    /// Cancels until nothing is due any more; completions meanwhile go to `take`.
    pub fn cancel_all(&mut self, mut take: impl FnMut(End<T>)) -> Check {
        let began = Instant::now();
        while self.open() > 0 {
            let all = IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL;
            self.cancel(crate::sqe::cancel(0, all));
            self.submit(1, Duration::from_millis(20))?;
            self.reap()?.into_iter().for_each(&mut take);
            ensure(began.elapsed() < END_LIMIT, || format!("without an end: {:?}", self.due))?;
        }
        self.quiet()
    }

    /// Checks that no completion comes when nothing is due.
    pub fn quiet(&mut self) -> Check {
        self.submit(0, Duration::ZERO)?;
        let late = self.reap()?;
        ensure(late.is_empty(), || format!("more than one end: {late:?}"))?;
        let lost = self.ring.sq_dropped();
        ensure(lost == 0, || format!("{lost} SQEs dropped"))
    }
}
