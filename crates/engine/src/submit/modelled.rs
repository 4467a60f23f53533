//! Requests with modelled devices: transferred, delayed until they are due, posted.

use crate::memory::sqe::Sqe;
use crate::ring::batch::SubmitState;
use crate::ring::turn::Drives;
use alloc::sync::Arc;

use crate::io::completions::Completion;
use crate::io::model::device::{Due, Io};
use crate::io::model::files::{self, File, Found, Transfer};
use crate::io::model::queue::Queue;
use crate::io::model::{any, device};
use crate::io::token::ReqId;
use crate::memory::cq::Cqe;
use crate::ops::table::OPS;
use crate::ops::{rw, rw_cached};
use crate::policy::hybrid::{Key, Ticket};
use crate::ring::ctx::{Ctx, Driving, Setup};
use crate::ring::opdef::{Outcome, Try};
use crate::ring::req_box::ReqBox;
use crate::ring::request::{Call, FileRef, Phase, Req};
use crate::ring::token_table::ModelledSqe;
use crate::ring::trace::Name;
use crate::stats::trace::{Step, ns_until};
use softring_host::fd::kind::Kind;
use softring_host::fd::remembered;
use softring_host::time::Clock;
use softring_host::user::in_user;
use softring_uapi::*;

/// Flags of preadv2(2) with which the page cache may replace the device.
const PLAIN: u32 = 0x2 | 0x4;

impl Ctx {
    /// Queues a plain READ or WRITE of a modelled file, which never becomes a request (fast path).
    /// False if it must take the slow path.
    pub(crate) fn queue_modelled(&mut self, sqe: &Sqe) -> bool {
        let fixed = rw_cached::is_simple_fixed(sqe.opcode);
        // Only a request can be followed in a trace.
        if self.trace.on || !fixed && !rw_cached::is_simple(sqe.opcode) {
            return false;
        }
        let len = u64::from(sqe.len);
        let plain = sqe.op_flags == 0 && sqe.pad2 == 0 && sqe.off.cast_signed() >= 0 && len > 0;
        if !plain || in_user(sqe.addr, len).is_err() {
            return false;
        }
        let buffer = || self.resources.buffers.peek(sqe.buf_index)?.check(sqe.addr, len).ok();
        if fixed && buffer().is_none() {
            return false;
        }
        let (own, file) = if sqe.flags & IOSQE_FIXED_FILE == 0 {
            (sqe.fd, self.submit.modelled_number(sqe.fd))
        } else {
            let node = self.resources.files.peek(sqe.fd.cast_unsigned());
            (node.map_or(-1, |n| n.fd()), node.and_then(|n| n.model.clone()))
        };
        let Some(file) = file.filter(|f| f.direct || !self.setup.polls()) else { return false };
        let Some(dev) = device(file.device).filter(|_| file.fits(sqe.addr, sqe.off, len)) else {
            return false;
        };
        let (now, write) = (Clock::Monotonic.now(), rw::writes(sqe.opcode));
        let res = if dev.spec.empty {
            Some(file.pretend(write, sqe.off, len)).filter(|&n| n > 0)
        } else {
            let (addr, len, offset) = (sqe.addr(), sqe.len, sqe.off);
            file.transfer(own, Transfer { addr, len, offset, writes: write })
        };
        let Some(res) = res else { return false };
        let io = Io { write, offset: sqe.off, bytes: res.cast_unsigned().into() };
        let due = self.setup.visible(dev.due(now, self.drive.model_behind(now), io), &file);
        self.reqs.nr_reqs += 1;
        self.stats.routes.model.add(1);
        let start = if self.reqs.slab.timed { now } else { 0 };
        let (user_data, opcode) = (sqe.user_data, sqe.opcode);
        let ticket = self.model_issued(&file, io, now);
        let token = self.reqs.modelled.put(ModelledSqe { user_data, opcode, start });
        self.model_push(due, token, res, ticket);
        true
    }

    /// Queues a request: its data move now, or on a worker.
    pub(crate) fn model_queue(&mut self, mut req: ReqBox) {
        let Some(file) = self.submit.modelled(&req.call.file) else { return self.punt(req) };
        let Some(dev) = device(file.device) else { return self.punt(req) };
        let now = Clock::Monotonic.now();
        let outcome =
            if dev.spec.empty { pretend(&mut req.call, &file) } else { move_data(&mut req, &file) };
        let bytes = match outcome {
            Outcome::Done(res) if res > 0 => u64::from(res.cast_unsigned()),
            Outcome::Retry | Outcome::Punt => req.call.total(),
            // The request failed, or transferred nothing: the device is not involved.
            _ => return self.outcome(req, outcome),
        };
        let io = Io { write: req.row.writes(), offset: req.call.io().off, bytes };
        let due = self.setup.visible(dev.due(now, self.drive.model_behind(now), io), &file);
        self.stats.routes.model.add(1);
        if let Outcome::Done(res) = outcome {
            let ticket = self.model_issued(&file, io, now);
            return self.model_enqueue(req, due, res, ticket);
        }
        // The request is not counted as a worker's.
        req.arms = req.arms.max(1);
        self.punt_for(req, Some(due.shown));
    }

    /// Queues a request that is due at `due`, after a worker has moved its data.
    pub(crate) fn model_moved(&mut self, req: ReqBox, due: u64, res: i32) {
        self.model_enqueue(req, Due { done: due, shown: due }, res, Ticket::NONE);
    }

    fn model_enqueue(&mut self, mut req: ReqBox, due: Due, res: i32, ticket: Ticket) {
        if self.trace.on {
            self.trace_step(Step::Model, Name::of(&req), req.trace, ns_until(due.shown));
        }
        req.phase = Phase::Modelled;
        let id = self.reqs.slab.insert(req);
        self.model_push(due, id.to_u64(), res, ticket);
        self.arm_linked_timeout(id);
    }

    /// Reports a request to the wait policy of this ring: its device and length, but not its due
    /// time, which the policy must find out.
    fn model_issued(&mut self, file: &File, io: Io, now: u64) -> Ticket {
        if self.drive.transports.model.is_none() {
            let room = self.mem.geo.cq_entries;
            self.drive.transports.model = Some(Queue::with_capacity(room as usize).into());
            if self.drive.transports.polling.is_none() {
                self.start_polling(room);
            }
        }
        // This number differs from those of real devices.
        let device = u64::MAX - u64::from(file.device);
        let Some(polling) = &mut self.drive.transports.polling else { return Ticket::NONE };
        polling.hybrid.issued(Key::new(device, io.write, io.bytes), now)
    }

    fn model_push(&mut self, due: Due, token: u64, res: i32, ticket: Ticket) {
        let queue = self.drive.transports.model.get_or_insert_default();
        if queue.push(due, token, res, ticket) {
            self.deadline_moved();
        }
    }

    /// Posts the requests that are due.
    #[inline]
    pub(crate) fn model_reap(&mut self) {
        if self.drive.transports.model.as_ref().is_some_and(|q| !q.is_empty()) {
            self.model_reap_at(Clock::Monotonic.now());
        }
    }

    fn model_reap_at(&mut self, now: u64) {
        let mut at = Some(now);
        let before = self.drive.lateness();
        let mut done = core::mem::take(&mut self.drive.transports.completions);
        if let Some(queue) = &mut self.drive.transports.model {
            queue.reap(now, &mut done);
        }
        for &Completion { token, res, ticket } in &done {
            let res = res as i32;
            if let Some(polling) = &mut self.drive.transports.polling {
                polling.seen(ticket, &mut at);
            }
            match self.reqs.modelled.take(token) {
                Some(kept) => self.modelled_done(kept, res),
                None => self.complete(ReqId::from_u64(token), res),
            }
        }
        done.clear();
        self.drive.transports.completions = done;
        self.count_lateness(before);
    }

    /// Completes a fast path's SQE.
    fn modelled_done(&mut self, kept: ModelledSqe, res: i32) {
        let ModelledSqe { user_data, opcode, start } = kept;
        self.count_bytes(&OPS[opcode as usize], res);
        if start != 0 {
            self.count_waited(opcode, start);
        }
        self.post(Cqe { user_data, res, ..Cqe::default() });
        self.reqs.nr_ended += 1;
    }

    /// Adds the lateness of the completions since `before` to the statistics.
    fn count_lateness(&mut self, before: (u64, u64)) {
        let (seen, ns) = self.drive.lateness();
        let (new, words) = (seen.wrapping_sub(before.0), &self.stats.late);
        if new == 0 {
            return;
        }
        words.seen.add(new);
        words.ns.add(ns.wrapping_sub(before.1));
        // Quantiles are taken at the first completions, and then seldom: one takes a pass over all
        // buckets.
        if seen / LATE_EVERY != before.0 / LATE_EVERY || seen < LATE_FEW {
            let Some(queue) = &self.drive.transports.model else { return };
            words.p50_ns.set(queue.late.quantile(0.5));
            words.p99_ns.set(queue.late.quantile(0.99));
        }
    }
}

/// Number of completions up to which quantiles are taken each time; then once in [`LATE_EVERY`].
const LATE_FEW: u64 = 64;
const LATE_EVERY: u64 = 4096;

/// Returns whether O_DIRECT would take all parts of a request.
fn fits(call: &Call, file: &File) -> bool {
    let io = call.io();
    match call.state.vector() {
        Some(vector) => vector.iter().all(|v| file.fits(v.base, io.off, v.len)),
        None => file.fits(io.addr.addr(), io.off, u64::from(io.len)),
    }
}

/// Returns the outcome of a request on a device that moves no data.
fn pretend(call: &mut Call, file: &File) -> Outcome {
    let total = call.total();
    let res = file.pretend(rw::writes(call.opcode), call.io().off, total);
    let done = u64::from(res.cast_unsigned());
    call.set_done(done);
    call.short = done != total;
    Outcome::Done(res)
}

/// Moves a request's data without waiting for a disk read; `Retry` sends it to a worker.
fn move_data(req: &mut Req, file: &File) -> Outcome {
    let io = *req.call.io();
    let odd = io.flags & !(PLAIN | RWF_HIPRI | RWF_NOWAIT) != 0;
    let stands_in = file.direct && file.kind != Kind::Direct;
    let at_position = io.off == u64::MAX;
    // At the file's own position a worker's read differs from a submitter's.
    let own_way =
        at_position && (req.call.sqe().flags & IOSQE_ASYNC != 0 || req.follows_in_worker());
    let call = &mut req.call;
    if call.creds.is_some() || file.kind == Kind::Direct || own_way {
        return Outcome::Retry;
    }
    if stands_in && (odd || at_position || !fits(call, file)) {
        return Outcome::Retry;
    }
    let waits = rw::writes(call.opcode) || file.kind == Kind::Memory;
    let Some(twin) = &file.twin else {
        let asked = io.flags & RWF_NOWAIT == 0;
        return rw::issue(call, if waits && asked { Try::Block } else { Try::Nonblock });
    };
    let how = if waits { Try::Block } else { Try::Nonblock };
    // A device's queue has room, so a request that must not wait need not wait.
    call.set_flags(io.flags & !RWF_NOWAIT);
    let own = core::mem::replace(&mut call.file, FileRef::Shared(twin.clone(), Kind::Buffered));
    let outcome = rw::issue(call, how);
    let by_worker = matches!(outcome, Outcome::Retry | Outcome::Punt);
    if !by_worker {
        call.set_flags(io.flags);
    }
    // A worker continues with the twin, except for a registered file, whose references are counted.
    if !by_worker || !matches!(own, FileRef::Plain(_)) {
        call.file = own;
    }
    outcome
}

impl Driving {
    /// Returns the delay of a request at `now` that is due to a completion seen late.
    fn model_behind(&self, now: u64) -> u64 {
        self.transports.model.as_ref().map_or(0, |q| q.behind(now))
    }

    /// Returns the number of completions seen, and the sum of their lateness.
    fn lateness(&self) -> (u64, u64) {
        self.transports.model.as_ref().map_or((0, 0), |q| (q.late.count(), q.late.sum()))
    }
}

impl SubmitState {
    fn modelled_number(&mut self, fd: i32) -> Option<Arc<File>> {
        let generation = remembered::generation();
        let known = &self.model;
        if known.file.is_some() && (known.fd, known.generation) == (fd, generation) {
            return known.file.clone();
        }
        let file = files::find(fd)?;
        self.model = Found { fd, generation: remembered::generation(), file: Some(file.clone()) };
        Some(file)
    }
}

impl Setup {
    /// Returns the due times as a polling waiter sees them: on a device without poll queues, after
    /// the interrupt. A sleeping waiter is woken by a timer, whose interrupt is real.
    fn visible(&self, due: Due, file: &File) -> Due {
        let spec = device(file.device).map(|d| &d.spec);
        let late = spec.filter(|s| self.polls() && !s.pollqueues).map_or(0, |s| s.interrupt);
        Due { done: due.done.saturating_add(late), shown: due.shown.saturating_add(late) }
    }
}

impl SubmitState {
    /// Returns the modelled file of a request, if its file is one. The kernel is asked about a
    /// number once in a batch.
    pub(crate) fn modelled(&mut self, file: &FileRef) -> Option<Arc<File>> {
        if !any() {
            return None;
        }
        match file {
            FileRef::Plain(fd) => self.modelled_number(*fd),
            FileRef::Fixed(node) | FileRef::FixedDup(node, _) => node.model.clone(),
            _ => None,
        }
    }
}
