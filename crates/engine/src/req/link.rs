//! Chains: what follows a request when it ends, and linked timeouts.
//! Kernel counterpart: `io_req_find_next`, `io_disarm_next`, `io_fail_links`.

use crate::abi::IORING_OP_LINK_TIMEOUT;
use crate::ctx::Ctx;
use crate::errno::Errno;
use crate::req::request::{Req, ReqFlags};
use crate::req::slab::ReqId;

impl Ctx {
    /// A request has ended: disarm its linked timeout, fail or queue what follows.
    pub fn queue_next(&mut self, req: &mut Req) {
        self.disarm_next(req);
        if let Some(next) = req.link.take() {
            self.run.push_back(next);
        }
    }

    fn disarm_next(&mut self, req: &mut Req) {
        if req.flags.intersects(ReqFlags::ARM_LTIMEOUT | ReqFlags::LINK_TIMEOUT) {
            req.flags.remove(ReqFlags::ARM_LTIMEOUT | ReqFlags::LINK_TIMEOUT);
            let is_timeout = |r: &Req| r.opcode() == IORING_OP_LINK_TIMEOUT;
            if let Some(id) = req.link
                && self.slab.get(id).is_some_and(is_timeout)
            {
                self.timeouts_disarm(id);
                if let Some(mut timeout) = self.slab.remove(id) {
                    req.link = timeout.link.take();
                    timeout.res = Errno::ECANCELED.res();
                    timeout.set_fail();
                    // Its own link went to the head: it ends alone.
                    timeout.flags.remove(ReqFlags::LINKS);
                    self.finish(timeout);
                }
            }
        }
        if req.flags.contains(ReqFlags::FAIL) && !req.flags.contains(ReqFlags::HARDLINK) {
            self.fail_links(req);
        }
    }

    /// Cancels all that hangs on a failed request.
    fn fail_links(&mut self, req: &mut Req) {
        let skip = req.flags.contains(ReqFlags::SKIP_LINK_CQES);
        let mut next = req.link.take();
        while let Some(id) = next {
            let Some(mut link) = self.slab.remove(id) else { break };
            next = link.link.take();
            if !link.flags.contains(ReqFlags::FAIL) {
                link.res = Errno::ECANCELED.res();
            }
            link.call.cflags = 0;
            link.flags |= ReqFlags::FAIL;
            link.flags.set(ReqFlags::CQE_SKIP, skip);
            link.flags.remove(ReqFlags::LINKS | ReqFlags::ARM_LTIMEOUT | ReqFlags::LINK_TIMEOUT);
            self.finish_quiet(link, skip);
        }
    }

    /// Arms the LINK_TIMEOUT behind a request that now waits.
    pub fn arm_linked_timeout(&mut self, id: ReqId) {
        let Some(req) = self.slab.get_mut(id) else { return };
        if !req.flags.contains(ReqFlags::ARM_LTIMEOUT) {
            return;
        }
        req.flags.remove(ReqFlags::ARM_LTIMEOUT);
        let Some(timeout) = req.link else { return };
        req.flags |= ReqFlags::LINK_TIMEOUT;
        self.timeouts_arm_linked(timeout, id);
    }
}
