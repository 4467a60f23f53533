//! Numbers that are closed while a request waits on them, and reused for another file.

use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::super::{Check, ensure};
use super::{Context, finish, sys, wrong};
use crate::sqe;
use softring_uapi::*;

/// Checks that a request on the old file gets the old file's data, and a later request the new
/// one's.
pub fn run(p: &mut Context) -> Check<bool> {
    let pair = || {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(wrong)
    };
    let number = p.numbers + p.rng.i32(0..super::NUMBERS.1);
    let mut book = p.ring()?;
    let (mut first, mut second) = ([0u8; 4], [0u8; 4]);
    let (old, old_peer) = pair()?;
    let (new, new_peer) = pair()?;
    sys::replace(p.rng.usize(..2), old.as_raw_fd(), number)?;
    drop(old);
    let recv = |buf: &mut [u8; 4]| {
        let at = buf.as_mut_ptr().expose_provenance();
        sqe::rw(IORING_OP_RECV, number, at, 4, 0)
    };
    let poll = sqe::poll_add(number, libc::POLLIN);
    if p.rng.bool() {
        book.push(&[(poll, 2)])?;
    }
    book.push(&[(recv(&mut first), 0)])?;
    book.submit(0, std::time::Duration::ZERO)?;
    let way = p.rng.usize(..=sys::CLOSES);
    if way < sys::CLOSES {
        sys::close_by(way, number);
    }
    sys::replace(p.rng.usize(..2), new.as_raw_fd(), number)?;
    drop(new);
    book.push(&[(recv(&mut second), 1)])?;
    book.submit(0, std::time::Duration::ZERO)?;
    rustix::io::write(&new_peer, b"new!").map_err(wrong)?;
    rustix::io::write(&old_peer, b"old!").map_err(wrong)?;
    let ends = finish(&mut book).map_err(|e| format!("closed by way {way}: {e}"))?;
    let came = (ends[0].cqe.res, &first, ends[1].cqe.res, &second);
    ensure(came == (4, b"old!", 4, b"new!"), || format!("closed by way {way}: {came:?}"))?;
    sys::close_by(p.rng.usize(..sys::CLOSES), number);
    p.close(book)?;
    Ok(true)
}
