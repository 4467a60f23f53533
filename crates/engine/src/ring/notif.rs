//! Notifications of sends without a copy. Kernel counterpart: `io_uring/notif.c`.

use crate::io::token::ReqId;
use crate::ring::ctx::Requests;
use crate::ring::request::{Req, ReqFlags};
use softring_uapi::errno::Errno;
use softring_uapi::*;

/// Bits of `ioprio` that such a send knows.
pub(crate) const SEND_ZC_FLAGS: u16 = IORING_RECVSEND_POLL_FIRST
    | IORING_RECVSEND_FIXED_BUF
    | IORING_SEND_ZC_REPORT_USAGE
    | IORING_SEND_VECTORIZED;

impl Requests {
    /// Makes the notification that gives the buffer back to the program. It comes behind the
    /// request's own CQE, with the next task work (`io_notif_flush`).
    #[cold]
    pub(crate) fn notification(&mut self, req: &Req) -> ReqId {
        let user_data = match req.call.sqe().addr3 {
            0 => req.user_data,
            own => own,
        };
        let mut notif = Req { user_data, ..Req::default() };
        notif.call.cflags = IORING_CQE_F_NOTIF;
        notif.trace = req.trace;
        let ioprio = req.call.sqe().ioprio;
        let begun = req.res == Errno::EFAULT.res() && req.call.short;
        if ioprio & !SEND_ZC_FLAGS == 0 && ioprio & IORING_SEND_ZC_REPORT_USAGE != 0 && !begun {
            notif.res = IORING_NOTIF_USAGE_ZC_COPIED.cast_signed();
        }
        notif.flags |= ReqFlags::ENDED | req.flags & ReqFlags::FAULTED;
        notif.fault = req.fault;
        self.slab.add(notif)
    }
}
