//! What a restricted ring may do. Kernel counterpart: `struct io_restriction`.

use crate::abi::{IORING_OP_LAST, IORING_REGISTER_LAST};

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
}
