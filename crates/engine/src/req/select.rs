//! IOSQE_BUFFER_SELECT: a request picks its buffer when it is tried, gives it back if it has to
//! wait for readiness, and names it in its CQE. Kernel counterpart: `io_buffer_select`,
//! `io_put_kbuf`, `io_kbuf_recycle`.

use crate::abi::*;
use crate::ctx::Ctx;
use crate::errno::Result;
use crate::ops::net_bundle;
use crate::req::request::{Call, Req, ReqFlags};
use crate::rsrc::kbuf::Pick;

impl Ctx {
    /// Before an attempt: picks a buffer, unless the request has one.
    ///
    /// # Errors
    /// `ENOBUFS`.
    #[inline]
    pub fn select_buffer(&mut self, req: &mut Req) -> Result<()> {
        if !req.flags.contains(ReqFlags::BUFFER_SELECT) || req.call.pick.is_some() {
            return Ok(());
        }
        if net_bundle::selects(req) {
            return self.select_many(req);
        }
        let call = &mut req.call;
        let pick = self.kbuf_pick(call.bgid)?;
        call.place(pick.buf.addr, pick.buf.len);
        call.pick = Some(pick);
        Ok(())
    }

    /// The request has to wait for readiness: somebody else may use the buffer meanwhile. (A READ
    /// keeps what it took from a list, as the kernel's does.)
    pub fn recycle_buffer(&mut self, req: &mut Req) {
        if req.flags.contains(ReqFlags::SENDRECV) && req.call.done > 0 {
            return self.keep_buffer(req);
        }
        let reads = req.reads_once();
        let free = |pick: &mut Pick| if pick.in_ring { !pick.committed } else { !reads };
        if let Some(pick) = req.call.pick.take_if(free) {
            self.kbuf_recycle(req.call.bgid, pick);
        }
    }

    /// The request goes where nobody holds the ring's lock: its buffer is its own from here.
    pub fn keep_buffer(&mut self, req: &mut Req) {
        let Call { bgid, sqe, pick, .. } = &mut req.call;
        if let Some(pick) = pick {
            self.kbuf_commit(*bgid, pick, sqe.len);
        }
    }

    /// The request has its result: its CQE names the buffer if that was used.
    #[inline]
    pub fn put_buffer(&mut self, req: &mut Req, res: i32) {
        let Some(pick) = req.call.pick else { return };
        // The end of a stream uses no buffer; the end of a file does, and a READ that fails has
        // lost what it took from a list. A SEND always uses what it took.
        let used = res > 0
            || req.opcode() == IORING_OP_SEND
            || (req.reads_once() && (res == 0 || !pick.in_ring));
        if !used {
            return self.recycle_buffer(req);
        }
        if let Some(pick) = req.call.pick.take() {
            let flags = self.kbuf_put(req.call.bgid, pick, res.unsigned_abs());
            req.call.cflags |= flags;
            if pick.count > 1 {
                self.kbuf_drop_second(req.call.bgid, pick);
            }
        }
    }
}

impl Req {
    fn reads_once(&self) -> bool {
        self.opcode() == IORING_OP_READ
    }
}

impl Call {
    /// Aims at the buffer picked: all of it, or as much as was asked for.
    fn place(&mut self, addr: u64, len: u32) {
        self.sqe.addr = addr;
        self.sqe.len = if self.want == 0 { len } else { len.min(self.want) };
    }
}
