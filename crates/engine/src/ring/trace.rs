//! Trace steps of a request's life, as `softring trace` and `softring strace` show them
//! (`stats::trace`). With the trace off, each function only reads a byte.

use alloc::ffi::CString;

use crate::io::token::ReqId;
use crate::ring::ctx::Ctx;
use crate::ring::opdef::{self, OpDef};
use crate::ring::request::{Connect, OpState, Req};
use crate::stats::trace::{Event, NO_CQE, Span, Step, ticks_between};
use crate::stats::trace::{TEXT_FIRST, TEXT_SECOND, TEXT_STRUCTURE};
use softring_faults::Fault;
use softring_uapi::*;

impl Ctx {
    /// Records an SQE that was taken, of the table `rows`; returns the request's number in the
    /// trace.
    #[inline]
    pub(crate) fn trace_submit(&mut self, rows: &[OpDef], sqe: &io_uring_sqe) -> u32 {
        let number = self.trace.number();
        if number != 0 {
            self.trace_taken(rows, sqe, number);
        }
        number
    }

    #[cold]
    fn trace_taken(&mut self, rows: &[OpDef], sqe: &io_uring_sqe, number: u32) {
        // The SQE was taken when the one before was done: no clock is read.
        let time = self.trace.last();
        self.trace_sqe(rows, Step::Submit, time, sqe, number, sqe.fd);
    }

    /// Records an SQE that was taken, tried and done.
    #[inline]
    pub(crate) fn trace_inline(&mut self, rows: &[OpDef], sqe: &io_uring_sqe, res: i32) {
        if self.trace.on {
            self.trace_done_at_once(rows, sqe, res);
        }
    }

    #[cold]
    fn trace_done_at_once(&mut self, rows: &[OpDef], sqe: &io_uring_sqe, res: i32) {
        if !self.trace.put_bare(sqe, res) {
            self.trace_done_with_words(rows, sqe, res);
        }
    }

    #[inline(never)]
    fn trace_done_with_words(&mut self, rows: &[OpDef], sqe: &io_uring_sqe, res: i32) {
        let before = self.trace.last();
        let now = self.trace.stamp();
        let took = ticks_between(before, now);
        self.trace_sqe(rows, Step::Inline, now, sqe, took, res);
    }

    /// Records the next step of a request.
    #[inline]
    pub(crate) fn trace(&mut self, step: Step, req: &Req) {
        if self.trace.on {
            self.trace_step(step, Name::of(req), req.trace, req.res);
        }
    }

    /// Records a CQE of a request that stays where it is.
    #[inline]
    pub(crate) fn trace_more(&mut self, id: ReqId, res: i32) {
        if self.trace.on
            && let Some((name, number)) = self.reqs.slab.get(id).map(|r| (Name::of(r), r.trace))
        {
            self.trace_cqe(Step::More, name, number, res, IORING_CQE_F_MORE, [0; 2]);
        }
    }

    /// Records a CQE of a request that goes on, with its result and its flags.
    #[inline]
    pub(crate) fn trace_shot(&mut self, req: &Req) {
        if self.trace.on {
            let flags = req.call.cflags | IORING_CQE_F_MORE;
            self.trace_cqe(Step::More, Name::of(req), req.trace, req.res, flags, req.big);
        }
    }

    /// Records the end of a request: with a CQE of these flags, or without.
    #[inline]
    pub(crate) fn trace_done(&mut self, req: &Req, cqe_flags: Option<u32>) {
        if self.trace.on {
            let flags = cqe_flags.unwrap_or(u32::from(NO_CQE));
            self.trace_cqe(Step::Done, Name::of(req), req.trace, req.res, flags, req.big);
        }
    }

    #[cold]
    fn trace_cqe(
        &mut self,
        step: Step,
        name: Name,
        number: u32,
        value: i32,
        flags: u32,
        big: [u64; 2],
    ) {
        if number == 0 || !self.trace.on {
            return;
        }
        let mut event = event(step, self.trace.stamp(), name, number, value);
        event.flags = flags as u8;
        let more = [[u64::from(flags), big[0], big[1], 0]];
        let has_more = flags > 0xff || big != [0; 2];
        self.trace.put(&event, if has_more { &more } else { &[] });
    }

    /// Records a step of an SQE that is no request but has a trace number.
    #[cold]
    pub(crate) fn trace_step(&mut self, step: Step, name: Name, number: u32, res: i32) {
        if number != 0 && self.trace.on {
            let now = self.trace.stamp();
            self.trace.put(&event(step, now, name, number, res), &[]);
        }
    }

    /// Records the first event of a request.
    #[inline(always)]
    fn trace_sqe(
        &mut self,
        rows: &[OpDef],
        step: Step,
        time: u64,
        sqe: &io_uring_sqe,
        req: u32,
        value: i32,
    ) {
        if self.trace.names_wanted() {
            self.trace_name(rows, time, sqe);
        }
        self.trace.put_sqe(&event(step, time, Name::from(sqe), req, value), sqe);
    }

    /// Records the file of the SQE's descriptor, if it was not recorded yet.
    #[cold]
    #[inline(never)]
    fn trace_name(&mut self, rows: &[OpDef], time: u64, sqe: &io_uring_sqe) {
        if sqe.fd < 0 || !names_file(rows, sqe) {
            return;
        }
        if sqe.flags & IOSQE_FIXED_FILE == 0 {
            self.trace.name_file(time, sqe.fd, sqe.fd, false);
        } else if let Some(fd) = self.resources.files.peek(sqe.fd as u32).map(|node| node.fd()) {
            self.trace.name_file(time, sqe.fd, fd, true);
        }
    }

    /// Records prep's copies of the data that the SQE points to: paths, a socket's address, a time.
    #[inline]
    pub(crate) fn trace_texts(&mut self, req: &Req) {
        if self.trace.on && req.trace != 0 {
            self.trace_copies(req);
        }
    }

    #[cold]
    fn trace_copies(&mut self, req: &Req) {
        let structure = req.row.has(opdef::STRUCTURE);
        let period;
        let texts: [(i32, &[u8]); 2] = match &req.call.state {
            OpState::Path(path) => [(TEXT_FIRST, path.as_bytes()), (TEXT_SECOND, &[])],
            OpState::Paths(paths) => both(&paths[0], &paths[1]),
            OpState::Attribute(a) => both(&a.name, &a.path),
            OpState::Open(kept) => {
                let how: &[u8] = if structure { &kept.1 } else { &[] };
                [(TEXT_FIRST, kept.0.as_bytes()), (TEXT_STRUCTURE, how)]
            }
            OpState::Bind(addr) | OpState::Connect(Connect { addr, .. }) => {
                [(TEXT_STRUCTURE, addr), (TEXT_SECOND, &[])]
            }
            OpState::Timeout(timer) => {
                period = timer.period.to_ne_bytes();
                [(TEXT_STRUCTURE, &period), (TEXT_SECOND, &[])]
            }
            _ => return,
        };
        let time = self.trace.last();
        for (which, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            let mut event = event(Step::Text, time, Name::of(req), req.trace, which);
            self.trace.put_bytes(&mut event, text);
        }
    }

    /// Records that a fault is injected into a request.
    pub(crate) fn trace_fault(&mut self, req: &Req, fault: Fault) {
        if self.trace.on {
            self.trace_step(Step::Fault, Name::of(req), req.trace, i32::from(fault as u8));
        }
    }

    /// Records that a worker has run a request since `began`.
    pub(crate) fn trace_work(&mut self, began: Span, opcode: u8, number: u32) {
        if let Some(began) = began.filter(|_| number != 0 && self.trace.on) {
            self.trace.span(Step::Work, began, number, opcode, 0);
        }
    }
}

/// Identity of a request in an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name {
    data: u64,
    opcode: u8,
}

impl Name {
    pub(crate) fn of(req: &Req) -> Self {
        Name { data: req.user_data, opcode: req.opcode() }
    }
}

impl From<&io_uring_sqe> for Name {
    fn from(sqe: &io_uring_sqe) -> Self {
        Name { data: sqe.user_data, opcode: sqe.opcode }
    }
}

fn event(step: Step, time: u64, name: Name, req: u32, value: i32) -> Event {
    let Name { data, opcode } = name;
    Event { time, data, req, tid: 0, step, opcode, flags: 0, value }
}

fn both<'a>(one: &'a CString, two: &'a CString) -> [(i32, &'a [u8]); 2] {
    [(TEXT_FIRST, one.as_bytes()), (TEXT_SECOND, two.as_bytes())]
}

/// Returns whether `fd` of an SQE is a file, or a directory, and no other number.
fn names_file(rows: &[OpDef], sqe: &io_uring_sqe) -> bool {
    let Some(row) = rows.get(usize::from(sqe.opcode)) else { return false };
    !row.has(opdef::NO_FD)
        // A CLOSE may close a slot.
        && (!row.has(opdef::CLOSES) || sqe.file_index == 0)
        // A cancellation may search by file.
        && (!row.has(opdef::SEARCHES) || sqe.op_flags & IORING_ASYNC_CANCEL_FD != 0)
}
