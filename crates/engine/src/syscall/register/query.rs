//! Queries without a ring. Kernel counterpart: `io_uring/query.c`.
#![allow(unsafe_code)]

use crate::syscall::setup;
use softring_host::user::{self, UserPtr};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::limits::QUERIES_MAX;
use softring_uapi::version::{Change, has, played};
use softring_uapi::*;

/// Length of the longest answer.
const LONGEST: usize = size_of::<io_uring_query_opcode>();
/// Most room that a query may give its answer: a page.
const ROOM_MAX: usize = 4096;

/// `IORING_REGISTER_QUERY`: answers a chain of queries.
///
/// # Errors
/// `EINVAL` for a count, `EFAULT`, `ERANGE` for a chain that is too long, `E2BIG` for one with too
/// much room. The result of each query is in its `result`.
pub(super) fn query(addr: UserPtr, nr: u32) -> Result<usize> {
    if nr != 0 {
        return Err(Errno::EINVAL);
    }
    let (mut at, mut n) = (addr, 0);
    while !at.is_null() {
        at = answer_one(at)?;
        n += 1;
        if n >= QUERIES_MAX {
            return Err(Errno::ERANGE);
        }
    }
    Ok(0)
}

/// Answers one entry; returns the address of the next.
fn answer_one(at: UserPtr) -> Result<UserPtr> {
    let mut hdr: io_uring_query_hdr = user::read(at.addr())?;
    let room = hdr.size as usize;
    if room > ROOM_MAX && has(Change::Queries) {
        return Err(Errno::E2BIG);
    }
    let mut data = [0u8; LONGEST];
    let outcome = match asked(hdr.query_op) {
        None => Err(Errno::EOPNOTSUPP),
        Some(_) if hdr.resv != [0; 3] || hdr.result != 0 || room == 0 => Err(Errno::EINVAL),
        Some((answer, len)) => {
            user::read_slice(hdr.query_data, &mut data[..room.min(len)])?;
            data = answer;
            Ok(len)
        }
    };
    let n = outcome.unwrap_or(0).min(room);
    hdr.result = outcome.map_or_else(Errno::res, |_| 0);
    hdr.size = n as u32;
    // SAFETY: the program's header names both.
    let [room_at, next] =
        [hdr.query_data, hdr.next_entry].map(|at| unsafe { UserPtr::of_program(at) });
    user::write_slice(room_at, &data[..n])?;
    clear(room_at.add(n as u64), room - n)?;
    user::write(at, &hdr)?;
    Ok(next)
}

/// Zeroes the rest of the program's room.
fn clear(mut at: UserPtr, mut len: usize) -> Result<()> {
    let zeroes = [0u8; 4096];
    while len > 0 {
        let n = len.min(zeroes.len());
        user::write_slice(at, &zeroes[..n])?;
        at = at.add(n as u64);
        len -= n;
    }
    Ok(())
}

/// Returns the answer to a query, and its length; `None` if the emulated kernel does not know the
/// query.
fn asked(op: u32) -> Option<([u8; LONGEST], usize)> {
    if op >= played().queries {
        return None;
    }
    Some(match op {
        IO_URING_QUERY_OPCODES => words(&opcodes()),
        // Registering a queue is refused all the same, as by a kernel built without it. The words:
        // flags to register, flags of areas, operations and features, the part before the entries.
        IO_URING_QUERY_ZCRX => words(&[3, 1, 3 | 3 << 32, 8 | 64 << 32, 0]),
        // The part before the CQEs, and its alignment.
        IO_URING_QUERY_SCQ => words(&[64, 64]),
        // Events; size and alignment of the counts.
        IO_URING_QUERY_ZCRX_EVENT => words(&[3 | 16 << 32, 8, 0, 0, 0, 0]),
        _ => return None,
    })
}

/// Returns a `struct io_uring_query_opcode`.
fn opcodes() -> [u64; 6] {
    let played = played();
    [
        u64::from(played.ops) | u64::from(played.registers) << 32,
        u64::from(setup::FEATURES),
        u64::from(played.setup_flags),
        u64::from(IORING_ENTER_ALL),
        u64::from(IOSQE_ALL),
        u64::from(played.queries),
    ]
}

/// Returns the bytes of words.
fn words(words: &[u64]) -> ([u8; LONGEST], usize) {
    let mut out = [0u8; LONGEST];
    for (to, word) in out.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    (out, words.len() * 8)
}
