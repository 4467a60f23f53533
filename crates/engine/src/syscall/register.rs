//! `io_uring_register(2)`: the table of register opcodes. Kernel counterpart: `__io_uring_register`.

use crate::abi::*;
use crate::errno::{Errno, Result};

/// See [`super::register`].
///
/// # Errors
/// As io_uring_register(2).
pub fn register(fd: i32, opcode: u32, _arg: u64, _nr: u32) -> Result<usize> {
    let registered = opcode & IORING_REGISTER_USE_REGISTERED_RING != 0;
    let opcode = opcode & !IORING_REGISTER_USE_REGISTERED_RING;
    if opcode >= IORING_REGISTER_LAST {
        return Err(Errno::EINVAL);
    }
    let _ring = if registered { crate::rsrc::ring_fds::get(fd)? } else { crate::fds::ring(fd)? };
    Err(Errno::EINVAL)
}
