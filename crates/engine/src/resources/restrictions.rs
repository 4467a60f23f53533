//! Restrictions of a ring. Kernel counterpart: `struct io_restriction`, `io_register_restrictions`.

use alloc::vec;
use core::fmt;
use core::str::FromStr;

use softring_host::user;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::version::{Change, has, played};
use softring_uapi::*;

/// Restrictions of a ring, in force once it is enabled, or of a task, for the rings that it
/// creates.
#[derive(Clone, Debug, Default)]
pub(crate) struct Restrictions {
    /// Flag, set once restrictions exist: no others may be added.
    pub(crate) registered: bool,
    /// Restricted kinds: SQEs, and register calls.
    restrict: [bool; 2],
    /// Kinds for which restrictions are in force: SQEs, and register calls.
    active: [bool; 2],
    register_ops: u64,
    sqe_ops: u128,
    sqe_flags_allowed: u8,
    sqe_flags_required: u8,
}

const _: () = assert!(IORING_OP_LAST <= 128 && IORING_REGISTER_LAST <= 64);
const SQES: usize = 0;
const CALLS: usize = 1;

impl Restrictions {
    /// Returns whether only some SQEs may be submitted.
    pub(crate) fn restricts_sqes(&self) -> bool {
        self.active[SQES]
    }

    /// Returns whether an SQE with this opcode and these flags may be submitted.
    pub(crate) fn allows_sqe(&self, opcode: u8, flags: u8) -> bool {
        if !self.active[SQES] {
            return true;
        }
        self.sqe_ops >> opcode & 1 == 1
            && flags & self.sqe_flags_required == self.sqe_flags_required
            && flags & !(self.sqe_flags_allowed | self.sqe_flags_required) == 0
    }

    /// Returns whether this register opcode may be called.
    pub(crate) fn allows_register(&self, opcode: u32) -> bool {
        !self.active[CALLS] || self.register_ops >> opcode & 1 == 1
    }

    /// Puts the restrictions in force.
    pub(crate) fn activate(&mut self) {
        if self.registered {
            self.active = self.restrict;
        }
    }

    /// Copies and checks rows (`io_parse_restrictions`).
    ///
    /// # Errors
    /// `EINVAL` for too many rows, and for a row of an unknown kind or opcode; `EFAULT`.
    pub(crate) fn read(addr: u64, nr: u32) -> Result<Restrictions> {
        if nr > most_rows() {
            return Err(Errno::EINVAL);
        }
        let mut rows = vec![io_uring_restriction::default(); nr as usize];
        user::read_slice(addr, &mut rows)?;
        let mut r = Restrictions { registered: true, ..Restrictions::default() };
        rows.iter().try_for_each(|row| r.add(row))?;
        if rows.is_empty() || !has(Change::SeparateRestrictions) {
            r.restrict = [true; 2];
        }
        Ok(r)
    }

    fn add(&mut self, row: &io_uring_restriction) -> Result<()> {
        let what = match row.opcode {
            IORING_RESTRICTION_REGISTER_OP if u32::from(row.arg) < played().registers => {
                self.register_ops |= 1 << row.arg;
                CALLS
            }
            IORING_RESTRICTION_SQE_OP if row.arg < played().ops => {
                self.sqe_ops |= 1 << row.arg;
                SQES
            }
            IORING_RESTRICTION_SQE_FLAGS_ALLOWED => {
                self.sqe_flags_allowed = row.arg;
                SQES
            }
            IORING_RESTRICTION_SQE_FLAGS_REQUIRED => {
                self.sqe_flags_required = row.arg;
                SQES
            }
            _ => return Err(Errno::EINVAL),
        };
        self.restrict[what] = true;
        Ok(())
    }
}

/// Text form: the fields in order, as hexadecimal numbers with points between them.
impl fmt::Display for Restrictions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags =
            [self.registered, self.restrict[0], self.restrict[1], self.active[0], self.active[1]];
        flags.into_iter().try_for_each(|flag| write!(f, "{}.", u8::from(flag)))?;
        let (allowed, required) = (self.sqe_flags_allowed, self.sqe_flags_required);
        write!(f, "{:x}.{:x}.{allowed:x}.{required:x}", self.register_ops, self.sqe_ops)
    }
}

impl FromStr for Restrictions {
    type Err = Errno;

    fn from_str(text: &str) -> Result<Restrictions> {
        let mut numbers = text.split('.').map(|n| u128::from_str_radix(n, 16).ok());
        let mut next = || numbers.next().flatten().ok_or(Errno::EINVAL);
        let mut flag = || next().map(|n| n != 0);
        let registered = flag()?;
        let (restrict, active) = ([flag()?, flag()?], [flag()?, flag()?]);
        Ok(Restrictions {
            registered,
            restrict,
            active,
            register_ops: next()? as u64,
            sqe_ops: next()?,
            sqe_flags_allowed: next()? as u8,
            sqe_flags_required: next()? as u8,
        })
    }
}

/// Returns the maximum number of rows of one call (`IORING_MAX_RESTRICTIONS`).
fn most_rows() -> u32 {
    u32::from(IORING_RESTRICTION_LAST) + played().registers + u32::from(played().ops)
}
