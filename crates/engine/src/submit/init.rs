//! Submission: fetch, init, prep, link, queue. Kernel counterpart: `io_submit_sqes`,
//! `io_submit_sqe`, `io_init_req`.

use crate::io::model::Found;
use crate::io::peers::Polled;
use crate::io::token::ReqId;
use crate::ops::table::{OPS, stands_for_unknown};
use crate::resources::filters::DATA;
use crate::ring::clat::Timed;
use crate::ring::ctx::Ctx;
use crate::ring::opdef;
use crate::ring::req_box::ReqBox;
use crate::ring::request::{Req, ReqFlags};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::version::played;
use softring_uapi::*;

impl Ctx {
    /// Submits up to `want` SQEs; returns how many were consumed as submitted.
    ///
    /// # Errors
    /// `EAGAIN` if there is no memory for the first; later ones are left in the queue.
    pub(crate) fn submit_sqes(&mut self, want: u32) -> Result<u32> {
        let n = want.min(self.mem.sq_ready());
        self.mem.sq_begin();
        let mut done = 0;
        // Runs of one opcode are counted as one, so that most batches cost one addition.
        let (mut opcode, mut counted) = (0, 0);
        if self.stats.waits {
            self.stats.attach();
            self.reqs.slab.timed = self.stats.seen();
            self.show_pool();
        }
        let (mut due, mut timed) = (self.samples_begin(), Timed::default());
        self.trace.begin_submission();
        self.submit.stamp.set(0);
        (self.submit.polled, self.submit.tried) = (Polled::No, None);
        self.submit.asked.clear();
        // Code that ran since the last batch may have set these.
        (self.submit.direct, self.submit.model) = (None, Found::default());
        self.reqs.timeouts.specs.clear();
        (self.submit.open, self.submit.collects) = (true, true);
        // All SQEs that take the fast path share one box.
        let (mut place, mut room) = (None, true);
        let mut open = self.fast_path_open();
        while done < n {
            if place.is_none() {
                place = self.reqs.slab.try_box();
            }
            let Some(req) = &mut place else {
                room = false;
                break;
            };
            if !req.fetch(|sqe| self.mem.sq_fetch(sqe)) {
                break;
            }
            if req.call.sqe().opcode != opcode {
                self.stats.count_ops(opcode, done - counted);
                (opcode, counted) = (req.call.sqe().opcode, done);
            }
            done += 1;
            self.submit.left = n - done;
            if done == due {
                timed = self.reqs.sample_start();
            }
            if open && self.submit_fast(req.call.sqe()) {
                // The next SQE takes the box.
            } else if let Some(mut req) = place.take_if(|_| self.reqs.slab.has_room()) {
                req.reset();
                let stop = self.submit_sqe(req).is_err();
                (self.submit.tried, self.submit.absent) = (None, false);
                done = n - self.submit.left;
                open = self.fast_path_open();
                if stop && self.setup.flags & IORING_SETUP_SUBMIT_ALL == 0 {
                    break;
                }
            } else {
                self.mem.sq_unfetch();
                self.submit.absent = false;
                (done, room) = (done - 1, false);
                break;
            }
            if done == due {
                due += self.sample_end(opcode, timed);
            }
        }
        if let Some(unused) = place {
            self.reqs.slab.leave(unused);
        }
        self.submit.samples_end(due, done);
        self.stats.count_ops(opcode, done - counted);
        self.stats.enters.add(1);
        self.end_batch();
        if done == 0 && !room { Err(Errno::EAGAIN) } else { Ok(done) }
    }

    /// Ends a batch after its last SQE: queues its open chain and followers, and drops its caches.
    fn end_batch(&mut self) {
        self.trace.settle();
        if let Some(head) = self.submit.head.take() {
            self.submit.last = None;
            self.queue_fallback(head);
        }
        self.queue_followers();
        // Later callers may be other threads.
        (self.submit.open, self.submit.caller, self.submit.alike) = (false, None, false);
        // Later requests may find another file under the number.
        (self.submit.direct, self.submit.model) = (None, Found::default());
        self.mem.sq_commit();
        self.free_ended();
    }

    /// Submits one SQE. Returns the error of a failed init, whose CQE is on its way.
    fn submit_sqe(&mut self, mut req: ReqBox) -> Result<()> {
        if self.submit.absent {
            match self.arm_absent(req) {
                Some(back) => req = back,
                None => return Ok(()),
            }
        }
        self.reqs.nr_reqs += 1;
        req.trace = self.trace_submit(&OPS, req.call.sqe());
        self.faults_begin(&mut req);
        let init = self.init_req(&mut req);
        self.trace_texts(&req);
        if let Err(e) = init {
            return self.fail_init(req, e);
        }
        if let Some(head) = self.submit.head {
            let more = req.linked();
            self.chain(req);
            if more {
                return Ok(());
            }
            self.submit.head = None;
            self.submit.last = None;
            let slow = ReqFlags::FORCE_ASYNC | ReqFlags::FAIL;
            if self.reqs.slab.get(head).is_some_and(|r| r.flags.intersects(slow)) {
                self.queue_fallback(head);
            } else if let Some(req) = self.reqs.slab.take(head) {
                self.queue_sqe(req);
            }
        } else if req.linked() {
            self.chain(req);
        } else if req.flags.contains(ReqFlags::FORCE_ASYNC) {
            let id = self.reqs.slab.insert(req);
            self.queue_fallback(id);
        } else {
            self.queue_sqe(req);
        }
        Ok(())
    }

    /// Appends to the chain under construction, or starts one.
    fn chain(&mut self, req: ReqBox) {
        let id = self.reqs.slab.insert(req);
        match self.submit.last.and_then(|last| self.reqs.slab.get_mut(last)) {
            Some(last) => last.link = Some(id),
            None => self.submit.head = Some(id),
        }
        self.submit.last = Some(id);
    }

    /// Fails the chain of a request whose init failed, but goes on assembling it
    /// (`io_submit_fail_init`).
    fn fail_init(&mut self, mut req: ReqBox, e: Errno) -> Result<()> {
        req.fail(e);
        if let Some(head) = self.submit.head.and_then(|id| self.reqs.slab.get_mut(id))
            && !head.flags.contains(ReqFlags::FAIL)
        {
            head.fail(Errno::ECANCELED);
        }
        if req.linked() {
            self.chain(req);
            return Ok(());
        }
        let id = match self.submit.head {
            Some(head) => {
                self.chain(req);
                self.submit.head = None;
                self.submit.last = None;
                head
            }
            None => self.reqs.slab.insert(req),
        };
        self.queue_fallback(id);
        Err(e)
    }

    /// Checks the fields common to all opcodes, then runs the opcode's own prep.
    fn init_req(&mut self, req: &mut Req) -> Result<()> {
        let sqe = *req.call.sqe();
        if sqe.opcode >= played().ops {
            stands_for_unknown(req);
            return Err(Errno::EINVAL);
        }
        let def = &OPS[sqe.opcode as usize];
        req.row = def;
        if def.has(opdef::DOUBLE) {
            self.init_double()?;
        }
        self.init_flags(req, def)?;
        if !def.has(opdef::IOPRIO) && sqe.ioprio != 0 {
            return Err(Errno::EINVAL);
        }
        if !def.has(opdef::IOPOLL) && self.setup.flags & IORING_SETUP_IOPOLL != 0 {
            return Err(Errno::EINVAL);
        }
        if sqe.personality != 0 {
            req.call.creds =
                Some(self.resources.personalities.get(sqe.personality).ok_or(Errno::EINVAL)?);
        }
        (def.prep)(self, req)?;
        if self.setup.filters.any() && !self.setup.filters.allow(req.opcode(), || filter_data(req))
        {
            return Err(Errno::EACCES);
        }
        Ok(())
    }

    /// Takes the second entry of an SQE of 128 bytes on a mixed ring; both are of this submission.
    fn init_double(&mut self) -> Result<()> {
        if self.setup.flags & IORING_SETUP_SQE128 != 0 {
            return Ok(());
        }
        let mixed = self.setup.flags & IORING_SETUP_SQE_MIXED != 0;
        if !mixed || self.submit.left == 0 || !self.mem.sq_take_second() {
            return Err(Errno::EINVAL);
        }
        self.submit.left -= 1;
        Ok(())
    }

    fn init_flags(&mut self, req: &mut Req, def: &opdef::OpDef) -> Result<()> {
        let sqe = *req.call.sqe();
        if sqe.flags & !IOSQE_ALL != 0 {
            return Err(Errno::EINVAL);
        }
        if sqe.flags & IOSQE_BUFFER_SELECT != 0 && !def.has(opdef::BUFSEL) {
            return Err(Errno::EOPNOTSUPP);
        }
        if sqe.flags & IOSQE_CQE_SKIP_SUCCESS != 0 {
            self.reqs.drain.disabled = true;
        }
        if sqe.flags & IOSQE_IO_DRAIN != 0 {
            if self.reqs.drain.disabled {
                return Err(Errno::EOPNOTSUPP);
            }
            self.init_drain();
        }
        if !self.setup.restrictions.allows_sqe(sqe.opcode, sqe.flags) {
            return Err(Errno::EACCES);
        }
        if self.reqs.drain.active {
            req.flags |= ReqFlags::FORCE_ASYNC;
        }
        if self.reqs.drain.next && self.submit.head.is_none() {
            self.reqs.drain.next = false;
            self.reqs.drain.active = true;
            req.flags |= ReqFlags::IO_DRAIN | ReqFlags::FORCE_ASYNC;
        }
        Ok(())
    }

    /// Queues a request on a slow path: a failed chain, a drained request, or one for a worker.
    pub(crate) fn queue_fallback(&mut self, id: ReqId) {
        let Some(req) = self.reqs.slab.get_mut(id) else { return };
        if req.flags.contains(ReqFlags::FAIL) {
            req.flags.remove(ReqFlags::HARDLINK);
            req.flags |= ReqFlags::LINK;
            if let Some(req) = self.reqs.slab.take(id) {
                self.finish(req);
            }
        } else if self.reqs.drain.active {
            self.drain_req(id);
        } else {
            self.queue_iowq(id);
        }
    }
}

/// Returns the fields of a request that a filter may load (`struct io_uring_bpf_ctx`).
fn filter_data(req: &Req) -> [u8; DATA] {
    const OWN: usize = 16;
    let s = req.call.sqe();
    let mut data = [0; DATA];
    data[..8].copy_from_slice(&s.user_data.to_ne_bytes());
    // A request that is a worker's from the start has the flag IOSQE_ASYNC.
    let worker = req.flags.contains(ReqFlags::FORCE_ASYNC);
    let flags = s.flags | if worker { IOSQE_ASYNC } else { 0 };
    let own = req.row.filtered;
    data[8..11].copy_from_slice(&[req.opcode(), flags, own.map_or(0, |own| own.len)]);
    if let Some(own) = own {
        (own.fill)(req, &mut data[OWN..]);
    }
    data
}
