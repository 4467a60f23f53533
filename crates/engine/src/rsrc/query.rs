//! What this io_uring knows, without a ring. Kernel counterpart: `io_uring/query.c`.

use crate::abi::*;
use crate::errno::{Errno, Result};
use crate::limits::QUERIES_MAX;
use crate::syscall::setup;
use crate::user;

/// `IORING_REGISTER_QUERY`: answers a chain of queries.
///
/// # Errors
/// `EINVAL` for a count, `EFAULT`, `ERANGE` for a chain that is too long. What one query came to is
/// in its `result`.
pub fn query(addr: u64, nr: u32) -> Result<usize> {
    if nr != 0 {
        return Err(Errno::EINVAL);
    }
    let (mut at, mut n) = (addr, 0);
    while at != 0 {
        at = answer_one(at)?;
        n += 1;
        if n >= QUERIES_MAX {
            return Err(Errno::ERANGE);
        }
    }
    Ok(0)
}

/// Answers one entry; tells where the next lies.
fn answer_one(at: u64) -> Result<u64> {
    let mut hdr: io_uring_query_hdr = user::read(at)?;
    let room = hdr.size as usize;
    let mut data = [0u8; size_of::<io_uring_query_opcode>()];
    let outcome = if hdr.query_op != IO_URING_QUERY_OPCODES {
        Err(Errno::EOPNOTSUPP)
    } else if hdr.resv != [0; 3] || hdr.result != 0 || room == 0 {
        Err(Errno::EINVAL)
    } else {
        user::read_slice(
            hdr.query_data,
            &mut data[..room.min(size_of::<io_uring_query_opcode>())],
        )?;
        data = opcodes();
        Ok(data.len())
    };
    let n = outcome.unwrap_or(0).min(room);
    hdr.result = outcome.map_or_else(Errno::res, |_| 0);
    hdr.size = n as u32;
    user::write_slice(hdr.query_data, &data[..n])?;
    clear(hdr.query_data + n as u64, room - n)?;
    user::write(at, &hdr)?;
    Ok(hdr.next_entry)
}

/// Zeroes the rest of the program's room.
fn clear(mut at: u64, mut len: usize) -> Result<()> {
    let zeroes = [0u8; 4096];
    while len > 0 {
        let n = len.min(zeroes.len());
        user::write_slice(at, &zeroes[..n])?;
        at += n as u64;
        len -= n;
    }
    Ok(())
}

/// `struct io_uring_query_opcode`, byte by byte.
fn opcodes() -> [u8; size_of::<io_uring_query_opcode>()] {
    let words = [
        u64::from(IORING_OP_LAST) | u64::from(IORING_REGISTER_LAST) << 32,
        u64::from(setup::FEATURES),
        u64::from(setup::FLAGS),
        u64::from(IORING_ENTER_ALL),
        u64::from(IOSQE_ALL),
        1,
    ];
    let mut out = [0u8; size_of::<io_uring_query_opcode>()];
    for (to, word) in out.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    out
}
