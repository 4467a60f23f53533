//! What a restricted ring may do. Kernel counterpart: `struct io_restriction`,
//! `io_register_restrictions`.

use crate::abi::*;
use crate::ctx::Ctx;
use crate::errno::{Errno, Result};
use crate::limits::RESTRICTIONS_MAX;
use crate::user;

/// Restrictions, in force once the ring is enabled.
#[derive(Debug, Default)]
pub struct Restrictions {
    /// `IORING_REGISTER_RESTRICTIONS` was called.
    pub registered: bool,
    /// The ring is enabled and restricted.
    pub active: bool,
    pub register_ops: u64,
    pub sqe_ops: u64,
    pub sqe_flags_allowed: u8,
    pub sqe_flags_required: u8,
}

const _: () = assert!(IORING_OP_LAST <= 64 && IORING_REGISTER_LAST <= 64);

impl Restrictions {
    /// May an SQE with this opcode and these flags be submitted?
    pub fn allows_sqe(&self, opcode: u8, flags: u8) -> bool {
        if !self.active {
            return true;
        }
        self.sqe_ops >> opcode & 1 == 1
            && flags & self.sqe_flags_required == self.sqe_flags_required
            && flags & !(self.sqe_flags_allowed | self.sqe_flags_required) == 0
    }

    /// May this register opcode be called?
    pub fn allows_register(&self, opcode: u32) -> bool {
        !self.active || self.register_ops >> opcode & 1 == 1
    }

    /// # Errors
    /// `EINVAL` for a row of an unknown kind or opcode.
    fn add(&mut self, row: &io_uring_restriction) -> Result<()> {
        match row.opcode {
            IORING_RESTRICTION_REGISTER_OP if u32::from(row.arg) < IORING_REGISTER_LAST => {
                self.register_ops |= 1 << row.arg;
            }
            IORING_RESTRICTION_SQE_OP if row.arg < IORING_OP_LAST => self.sqe_ops |= 1 << row.arg,
            IORING_RESTRICTION_SQE_FLAGS_ALLOWED => self.sqe_flags_allowed = row.arg,
            IORING_RESTRICTION_SQE_FLAGS_REQUIRED => self.sqe_flags_required = row.arg,
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }
}

/// `IORING_REGISTER_RESTRICTIONS`: what a disabled ring may do once it is enabled.
///
/// # Errors
/// `EBADFD` if the ring is not disabled, `EBUSY` for a second call; `EINVAL`, `EFAULT`.
pub fn register(ctx: &mut Ctx, addr: u64, nr: u32) -> Result<usize> {
    if !ctx.disabled {
        return Err(Errno::EBADFD);
    }
    if ctx.restrictions.registered {
        return Err(Errno::EBUSY);
    }
    if addr == 0 || nr > RESTRICTIONS_MAX {
        return Err(Errno::EINVAL);
    }
    let mut rows = vec![io_uring_restriction::default(); nr as usize];
    ctx.unlocked(|| user::read_slice(addr, &mut rows))?;
    let mut r = Restrictions { registered: true, ..Restrictions::default() };
    rows.iter().try_for_each(|row| r.add(row))?;
    ctx.restrictions = r;
    Ok(0)
}
