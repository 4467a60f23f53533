//! SEND_ZC and SENDMSG_ZC. softring copies what is sent, as the kernel does where it must; the
//! notification says so to a program that asks. Kernel counterpart: `io_uring/net.c`,
//! `io_uring/notif.c`.

use crate::io::iov::MAX_RW_COUNT;
use crate::io::socket::{MSG_NOSIGNAL, check_zero_copy};
use crate::ops::net::{common_prep, send_setup};
use crate::ops::{net, net_msg, zero};
use crate::ring::ctx::Ctx;
use crate::ring::notif::SEND_ZC_FLAGS;
use crate::ring::opdef::{Outcome, Try};
use crate::ring::request::{Call, Req, ReqFlags, Transfer};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::version::{Change, has};
use softring_uapi::*;

const MSG_ZEROCOPY: u32 = 0x400_0000;

/// Checks a SEND_ZC or SENDMSG_ZC (`io_send_zc_prep`).
pub(crate) fn prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    zero(&[req.call.sqe().pad2])?;
    if !has(Change::NotifData) {
        zero(&[req.call.sqe().addr3])?;
    }
    if req.flags.contains(ReqFlags::CQE_SKIP) {
        return Err(Errno::EINVAL);
    }
    // From here on a notification follows, whatever comes of the request. It counts as a request of
    // its own, for which a barrier waits: a request that is drained itself waits for ever, as on
    // the kernel.
    req.flags |= ReqFlags::NOTIF;
    ctx.reqs.nr_reqs += 1;
    // A length that is too long is cut.
    let mut io = Transfer::of(req.call.sqe());
    io.len = io.len.min(MAX_RW_COUNT);
    io.flags = io.flags & !MSG_ZEROCOPY | MSG_NOSIGNAL;
    common_prep(req, SEND_ZC_FLAGS, io)?;
    match req.opcode() {
        IORING_OP_SEND_ZC => send_setup(ctx, req),
        _ => net_msg::send_setup(ctx, req),
    }
}

/// Sends.
pub(crate) fn send(call: &mut Call, how: Try) -> Outcome {
    if let Err(e) = check_zero_copy(call.file.fd()) {
        return Outcome::Done(e.res());
    }
    let done = match call.opcode {
        IORING_OP_SEND_ZC => net::send(call, how),
        _ => net_msg::send(call, how),
    };
    // By then the kernel has found some of the memory, and copied nothing.
    call.short |= done == Outcome::Done(Errno::EFAULT.res());
    done
}
