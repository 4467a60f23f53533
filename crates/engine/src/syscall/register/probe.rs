//! The ring's supported opcodes. Kernel counterpart: `io_probe`.

use crate::ops::table::OPS;
use crate::ring::ctx::Ctx;
use alloc::vec;
use softring_host::user::{self, UserPtr};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::version::played;
use softring_uapi::*;

const HEAD: u64 = size_of::<io_uring_probe>() as u64;

/// `IORING_REGISTER_PROBE`: returns for each of the first `nr` opcodes whether it is supported.
///
/// # Errors
/// `EFAULT`; `EINVAL` if the program's memory is not zeroed.
pub(super) fn probe(ctx: &mut Ctx, addr: UserPtr, nr: u32) -> Result<usize> {
    let known = played().ops;
    let nr = nr.min(known.into()) as usize;
    let mut ops = vec![io_uring_probe_op::default(); nr];
    let head: io_uring_probe = ctx.unlocked(|| {
        let head = user::read(addr.addr())?;
        user::read_slice(addr.add(HEAD).addr(), &mut ops).map(|()| head)
    })?;
    let clean = |o: &io_uring_probe_op| (o.op, o.resv, o.flags, o.resv2) == (0, 0, 0, 0);
    let clean_head = (head.last_op, head.ops_len, head.resv, head.resv2) == (0, 0, 0, [0; 3]);
    if !clean_head || !ops.iter().all(clean) {
        return Err(Errno::EINVAL);
    }
    for (i, op) in ops.iter_mut().enumerate() {
        op.op = i as u8;
        op.flags = if OPS[i].supported() { IO_URING_OP_SUPPORTED } else { 0 };
    }
    let head = io_uring_probe { last_op: known - 1, ops_len: nr as u8, ..head };
    ctx.unlocked(|| {
        user::write(addr, &head).and_then(|()| user::write_slice(addr.add(HEAD), &ops))
    })?;
    Ok(0)
}
