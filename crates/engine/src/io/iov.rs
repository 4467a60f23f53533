//! The program's I/O vectors. Kernel counterpart: `lib/iov_iter.c`.
#![allow(unsafe_code)]

use alloc::vec;
use alloc::vec::Vec;
use softring_host::calls::{Part, Parts, UserPtr, files};
use softring_host::user::{self, TASK_SIZE};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::{RWF_NOWAIT, iovec};

/// `UIO_MAXIOV`.
pub(crate) const MAX_IOV: u32 = 1024;
/// Bytes that one call transfers at most.
pub(crate) const MAX_RW_COUNT: u32 = 0x7fff_f000;

/// Copies a vector of `n` parts in (`import_iovec`).
///
/// # Errors
/// `EFAULT`, `EINVAL` for a length that is negative or too many parts.
pub(crate) fn import_iov(list: UserPtr, n: u32) -> Result<Vec<Part>> {
    if n > MAX_IOV {
        return Err(Errno::EINVAL);
    }
    if n == 0 {
        // The kernel does not read a vector of no parts, wherever it lies.
        return Ok(Vec::new());
    }
    let mut iov = vec![iovec::default(); n as usize];
    user::read_slice(list.addr(), &mut iov)?;
    check(&iov)?;
    // SAFETY: the program's vector names them.
    Ok(iov.into_iter().map(|v| unsafe { Part::of_program(v) }).collect())
}

/// Copies a vector of one part in; see [`import_iov`].
pub(crate) fn import_one(list: UserPtr) -> Result<Part> {
    one_part(user::read(list.addr())?)
}

/// Checks a vector of one part that is copied already, as [`import_one`] does.
pub(crate) fn one_part(vector: iovec) -> Result<Part> {
    check(&[vector])?;
    // SAFETY: the program's vector names it.
    Ok(unsafe { Part::of_program(vector) })
}

/// Reads, without waiting, by the program's own vector of one part, which the kernel checks.
/// Returns the result if it is final: the part is full, or the data that were read say what the
/// vector said, so it tells nothing any more.
pub(crate) fn read_by_vector(fd: i32, list: UserPtr, off: u64) -> Option<i32> {
    let read = files::preadv2(fd, Parts::of_program(list, 1), off, RWF_NOWAIT).ok()?;
    // SAFETY: preadv2(2) has read it there, and has not failed.
    let vector: iovec = unsafe { user::read_again(list.addr()) };
    let last = read > 0 && (read as u64 == vector.len || check(&[vector]).is_err());
    last.then_some(read as i32)
}

fn check(iov: &[iovec]) -> Result<()> {
    if iov.iter().any(|v| v.len.cast_signed() < 0) {
        return Err(Errno::EINVAL);
    }
    let beyond = |v: &iovec| v.base.saturating_add(v.len) > TASK_SIZE;
    if iov.iter().any(beyond) { Err(Errno::EFAULT) } else { Ok(()) }
}

/// Returns the vector without its first `done` bytes.
pub(crate) fn skip(iov: &[Part], mut done: u64) -> Vec<Part> {
    let mut out = Vec::with_capacity(iov.len());
    for v in iov {
        let cut = done.min(v.len);
        done -= cut;
        if v.len > cut {
            out.push(v.skip(cut));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipping_cuts_inside_and_between() {
        // SAFETY: nobody uses these parts.
        let v = |base, len| unsafe { Part::of_program(iovec { base, len }) };
        let iov = [v(100, 10), v(200, 0), v(300, 5)];
        assert_eq!(skip(&iov, 0), [v(100, 10), v(300, 5)]);
        assert_eq!(skip(&iov, 4), [v(104, 6), v(300, 5)]);
        assert_eq!(skip(&iov, 10), [v(300, 5)]);
        assert_eq!(skip(&iov, 15), []);
    }
}
