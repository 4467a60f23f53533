//! The ops, one file per family, as in the kernel's `io_uring/`: `prep` checks the SQE, `issue` tries it.

use crate::ctx::Ctx;
use crate::errno::{Errno, Result};
use crate::opdef::Outcome;
use crate::req::request::Req;

pub mod msg_ring;
pub mod nop;
pub mod poll;
pub mod rw;
pub mod timeout;

/// `prep` of an opcode that is not there: as a kernel that does not know it.
pub fn refuse(_: &mut Ctx, _: &mut Req) -> Result<()> {
    Err(Errno::EINVAL)
}

/// `issue` of an opcode that is not there; prep has already refused it.
pub fn refused(_: &mut Ctx, _: &mut Req) -> Outcome {
    Outcome::Done(Errno::EINVAL.res())
}
