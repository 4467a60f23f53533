//! Messages from other rings: a CQE, or a registered file. Kernel counterpart:
//! `io_msg_ring_data`, `io_msg_install_complete`, `io_msg_tw_complete`.

use softring_host::os::fd::AsRawFd;

use crate::ring::ctx::Ctx;
use crate::ring::request::{Req, ReqFlags};
use crate::ring::turn::{Drives, Turn};
use crate::ring::work::{Msg, SentFile};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::version::{Change, has};
use softring_uapi::*;

impl Ctx {
    /// Accepts a message; returns the sender's result.
    pub(crate) fn accept(&mut self, msg: &Msg) -> Result<i32> {
        if self.setup.disabled {
            return Err(Errno::EBADFD);
        }
        let mut cqe = msg.cqe;
        let wide = IORING_SETUP_CQE32 | IORING_SETUP_CQE_MIXED;
        if cqe.flags & IORING_CQE_F_32 != 0
            && self.setup.flags & wide == 0
            && has(Change::CheckedFields)
        {
            return Err(Errno::EINVAL);
        }
        if let Some(file) = &msg.file {
            let installed = self.install(file);
            // Post the tag of the file that was replaced.
            self.post_tags();
            cqe.res = installed?;
            if file.quiet {
                return Ok(cqe.res);
            }
        }
        if self.defers() {
            // Only the ring's own task may post: a request that has its result already posts as
            // task work.
            let mut req = Req { user_data: cqe.user_data, ..Req::default() };
            (req.res, req.call.cflags, req.flags) = (cqe.res, cqe.flags, ReqFlags::ENDED);
            let id = self.reqs.slab.add(req);
            self.reqs.nr_reqs += 1;
            self.work.queue(id);
        } else {
            // Each CQE is flushed by itself (`io_post_aux_cqe`).
            if let Some(e) =
                self.completion.eventfd.as_mut().filter(|e| msg.by_worker || !e.only_async)
            {
                e.worker_posts(false);
            }
            self.post(cqe);
        }
        Ok(if msg.file.is_some() { cqe.res } else { 0 })
    }

    /// Accepts a message and wakes the ring's threads; returns the sender's result.
    pub(crate) fn accept_and_wake(&mut self, msg: &Msg) -> Result<i32> {
        let res = self.accept(msg)?;
        if self.defers() {
            self.turn(Turn::Publish);
            self.set_taskrun_by(msg.by_worker);
            self.drive.wake_driver();
            self.wake_waiters();
        } else {
            self.commit_from_elsewhere();
        }
        Ok(res)
    }

    /// Puts the file into a slot (`__io_fixed_fd_install`); returns the slot if we chose it.
    fn install(&mut self, file: &SentFile) -> Result<i32> {
        let dup = softring_host::fd::dup_internal(file.fd.as_ref().map_err(|e| *e)?.as_raw_fd())?;
        self.resources.files.fetch_if_away();
        let slot = self.resources.files.install(file.index, dup, &self.resources.tags)?;
        Ok(if file.index == IORING_FILE_INDEX_ALLOC { slot.cast_signed() } else { 0 })
    }
}
