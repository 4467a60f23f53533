//! The fast path of POLL_ADD: a plain one on a number of the program's is asked for straight from
//! its SQE. If its events are there, it never becomes a request. If they are not, and the number is
//! registered for good (`io::persistent`), the request begins to wait without the steps of other
//! requests (`submit::fast_wake` ends it). One poll(2) asks for all POLL_ADDs that follow each
//! other in a batch (`ring::asked`).

use crate::io::peers::Polled;
use crate::io::persistent::STICKY;
use crate::io::poll::EVENTS;
use crate::memory::sqe::Sqe;
use crate::ops::fast_recv;
use crate::ops::poll::{ONE_EDGE, UNMASK};
use crate::ops::table::OPS;
use crate::ring::batch::SubmitState;
use crate::ring::ctx::Ctx;
use crate::ring::req_box::ReqBox;
use crate::ring::request::{FileRef, Finding, OpState, Phase, Poll, Req, ReqFlags};
use softring_host::fd::numbers::{closes_all_reported, is_known_ring};
use softring_host::fd::{is_hidden, sets};
use softring_host::sys::nr::{EPOLLIN, EPOLLNVAL, EPOLLOUT};
use softring_uapi::IORING_OP_POLL_ADD;

/// Events that wake as they are reported, whatever the file is (`ops::poll`).
const PLAIN: u32 = EPOLLIN | EPOLLOUT;

/// Returns whether the opcode has this fast path.
#[inline(always)]
pub(crate) const fn is_for(opcode: u8) -> bool {
    opcode == IORING_OP_POLL_ADD
}

/// Returns whether a POLL_ADD may be one of several, or wait without the steps of other requests.
/// If not, and it waits, as most do, the fast path would ask for nothing.
#[inline(always)]
pub(crate) fn pays(submit: &SubmitState) -> bool {
    submit.left > 0 || closes_all_reported() || submit.asked.any()
}

/// Returns the events of a plain SQE, from its first words.
#[inline]
const fn plain_events([head, off, addr, tail]: [u64; 4]) -> Option<u32> {
    let (len, events) = (tail as u32, (tail >> 32) as u32);
    // The opcode, and the number, are not checked here.
    let flags = head as u32 & !0xff;
    if flags == 0 && asks_plainly(off, addr, len, events) { Some(events) } else { None }
}

/// Returns whether a poll is a single one, of nothing but events.
const fn asks_plainly(off: u64, addr: u64, len: u32, events: u32) -> bool {
    off == 0 && addr == 0 && len == 0 && events & !EVENTS == 0
}

/// Returns the number and the events that a plain SQE asks for.
fn asked(words: [u64; 4]) -> Option<(i32, u32)> {
    Some(((words[0] >> 32) as i32, plain_events(words)? | UNMASK))
}

/// Returns the result of a POLL_ADD whose events are there.
pub(crate) fn fast(ctx: &mut Ctx, sqe: &Sqe) -> Option<i32> {
    let (fd, events) = (sqe.fd, sqe.op_flags | UNMASK);
    let plain = sqe.flags == 0 && asks_plainly(sqe.off, sqe.addr, sqe.len, sqe.op_flags);
    if !plain || sqe.buf_index != 0 || !is_plain_number(fd) {
        return None;
    }
    if ctx.issue.is_elsewhere() {
        return None;
    }
    sets::share(fd);
    ctx.submit.polled = Polled::No;
    let left = ctx.submit.left;
    let revents = match ctx.submit.asked.answer(left, fd, events) {
        Some(revents) => revents,
        None => ctx.ask(left, fd, events),
    };
    if revents & EPOLLNVAL != 0 {
        return None;
    }
    let mask = revents & events & EVENTS;
    ctx.submit.absent = mask == 0;
    (mask != 0).then_some(mask.cast_signed())
}

/// Returns whether the number is the program's, and neither a ring nor an epoll set that rings are
/// to be shown in first.
#[inline]
fn is_plain_number(fd: i32) -> bool {
    fd >= 0 && !is_known_ring(fd) && !sets::is_quiet(fd) && !is_hidden(fd)
}

/// Returns the result of a POLL_ADD that waits, if neither it nor the events that wake it are
/// anything special; else `ops::poll` judges them.
#[inline]
pub(crate) fn wakes_plainly(req: &Req, poll: &Poll, seen: u32) -> Option<i32> {
    let mask = seen & poll.events & PLAIN;
    let plain = is_for(req.opcode())
        && req.flags == ReqFlags::ISSUED
        && seen & STICKY == 0
        && poll.events & EVENTS & !(PLAIN | UNMASK) == 0
        && poll.events & ONE_EDGE == ONE_EDGE
        && poll.waits;
    (plain && mask != 0).then_some(mask.cast_signed())
}

impl Ctx {
    /// Asks which events are ready, for the POLL_ADDs right behind as well.
    fn ask(&mut self, left: u32, fd: i32, events: u32) -> u32 {
        if left == 0 {
            return self.submit.asked.ask_one(fd, events);
        }
        let all = &mut self.submit.asked;
        all.begin(left, fd, events);
        self.mem.sq_peek(left, IORING_OP_POLL_ADD, |words| {
            asked(words).is_some_and(|(fd, events)| all.add(fd, events))
        });
        all.ask()
    }

    /// Lets a POLL_ADD wait whose events were just not there, or a RECV that finds nothing; gives
    /// it back if its number is not registered for them.
    #[inline(never)]
    pub(crate) fn arm_absent(&mut self, mut req: ReqBox) -> Option<ReqBox> {
        if fast_recv::is_for(req.call.sqe().opcode) {
            self.arm_recv(req);
            return None;
        }
        let (fd, events) = (req.call.sqe().fd, req.call.sqe().op_flags | UNMASK | ONE_EDGE);
        let transports = &mut self.drive.transports;
        let set = transports.poll.as_mut().filter(|_| closes_all_reported());
        let Some(set) = set.filter(|set| set.waits_for(fd, events) && !self.trace.on) else {
            return Some(req);
        };
        req.row = &OPS[usize::from(IORING_OP_POLL_ADD)];
        req.flags |= ReqFlags::ISSUED;
        req.call.file = FileRef::Plain(fd);
        req.call.found = Finding::Nothing;
        req.call.begin(OpState::Poll(events));
        let wait = Poll { at: fd, pass: transports.passes, ..Poll::new(events) };
        req.phase = Phase::Polling(Poll { persistent: true, waits: true, ..wait });
        let id = self.reqs.slab.insert(req);
        set.join(fd, id);
        self.reqs.nr_reqs += 1;
        self.stats.routes.queued.add(1);
        self.record_data_poll(id);
        None
    }
}
