//! POSIX locks of the process on a file that its rings use.

use std::ffi::CString;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use super::super::{Check, ensure};
use super::{Book, Context, content, one, sys, wrong};
use crate::sqe::{self, SqeExt};
use softring_uapi::*;

const LEN: usize = 16384;

/// Takes the lock, runs a few requests, and asks another process for the lock's holder.
pub fn run(p: &mut Context) -> Check<bool> {
    let path = p.file(LEN)?;
    let name = CString::new(path.as_os_str().as_bytes()).map_err(wrong)?;
    let file = std::fs::File::options().read(true).write(true).open(&path).map_err(wrong)?;
    sys::lock(file.as_raw_fd())?;
    let mut book = p.ring()?;
    let mut done = Vec::new();
    for _ in 0..p.rng.usize(1..5) {
        done.push(act(p, &mut book, file.as_raw_fd())?);
    }
    if p.rng.bool() {
        p.close(book)?;
        done.push("close of the ring");
    } else {
        p.totals += book.totals;
    }
    let holder = sys::holder(&name)?;
    ensure(holder.cast_unsigned() == std::process::id(), || {
        format!("after {done:?} the lock is held by {holder}")
    })?;
    std::fs::remove_file(&path).map_err(wrong)?;
    Ok(true)
}

fn act(p: &mut Context, book: &mut Book, fd: RawFd) -> Check<&'static str> {
    let (mut buf, data) = (vec![0u8; LEN], content(LEN));
    let later = if p.rng.bool() { IOSQE_ASYNC } else { 0 };
    let (what, sqe, want) = match p.rng.u32(..6) {
        0 => ("FSYNC", sqe::op(IORING_OP_FSYNC, fd), 0),
        1 => ("WRITE", sqe::write(fd, &data, 0), LEN as i32),
        2 => ("READ", sqe::read(fd, &mut buf, 0), LEN as i32),
        3 => ("POLL_ADD", sqe::poll_add(fd, libc::POLLIN), i32::from(libc::POLLIN)),
        4 => {
            ensure(book.ring.register_slice(IORING_REGISTER_FILES, &[fd]) == 0, || "FILES".into())?;
            let got = one(book, sqe::read(0, &mut buf, 0).fixed())?;
            ensure(got == LEN as i32, || format!("READ of a registered file: {got}"))?;
            let gone = book.ring.register(IORING_UNREGISTER_FILES, 0, 0);
            ensure(gone == 0, || format!("UNREGISTER_FILES: {gone}"))?;
            return Ok("registered and unregistered");
        }
        _ => {
            ensure(book.ring.register_slice(IORING_REGISTER_FILES, &[fd]) == 0, || "FILES".into())?;
            let none = -1i32;
            let at = std::ptr::from_ref(&none).expose_provenance();
            let got = one(book, sqe::rw(IORING_OP_FILES_UPDATE, -1, at, 1, 0))?;
            ensure(got == 1, || format!("FILES_UPDATE: {got}"))?;
            book.ring.register(IORING_UNREGISTER_FILES, 0, 0);
            return Ok("slot updated");
        }
    };
    let got = one(book, sqe.with(later))?;
    ensure(got == want, || format!("{what}: {got}"))?;
    ensure(what != "READ" || buf == data, || "READ brought other bytes".into())?;
    Ok(what)
}
