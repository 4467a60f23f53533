//! Features that softring supports, by the engine's own tables: each row has at least one case, and
//! the probe case asks for each operation.

use softring_engine::OPS;
use softring_engine::syscall::REGISTERS;
use softring_uapi::{IORING_OP_LAST, IORING_REGISTER_LAST};

/// Returns the opcodes that softring supports.
pub fn ops() -> impl Iterator<Item = u8> {
    (0..IORING_OP_LAST).filter(|op| OPS[usize::from(*op)].supported())
}

/// Returns the register opcodes that softring supports.
pub fn registers() -> impl Iterator<Item = u32> {
    (0..IORING_REGISTER_LAST).filter(|op| REGISTERS[*op as usize].supported())
}
