//! Threads that give up root's rights over files, and take them back.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use super::super::{Check, ensure};
use super::{Context, one, sys, wrong};
use crate::os;
use crate::sqe::{self, SqeExt};
use softring_uapi::*;

const NOBODY: u32 = 65534;

/// Checks that the ring of a thread without rights has none either.
pub fn run(p: &mut Context) -> Check<bool> {
    if !sys::is_root() {
        return Ok(false);
    }
    let path = p.file(100)?;
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).map_err(wrong)?;
    let name = CString::new(path.as_os_str().as_bytes()).map_err(wrong)?;
    let at = name.as_ptr().expose_provenance();
    let mut book = p.ring()?;
    let later = if p.rng.bool() { IOSQE_ASYNC } else { 0 };
    let how = (libc::O_RDWR | libc::O_TRUNC | libc::O_CLOEXEC).cast_unsigned();
    let open = sqe::rw(IORING_OP_OPENAT, libc::AT_FDCWD, at, 0, 0).op_flags(how).with(later);
    let unlink = sqe::rw(IORING_OP_UNLINKAT, libc::AT_FDCWD, at, 0, 0).with(later);
    // A worker is created with all rights, or without.
    if p.rng.bool() {
        drop(os::own(one(&mut book, open)?));
    }
    os::file_ids(NOBODY);
    let denied = (one(&mut book, open), one(&mut book, unlink));
    os::file_ids(0);
    let want = -libc::EACCES;
    ensure(denied == (Ok(want), Ok(want)), || format!("without rights: {denied:?}"))?;
    let fd = one(&mut book, open)?;
    ensure(fd >= 0, || format!("with rights again: {fd}"))?;
    drop(os::own(fd));
    let gone = one(&mut book, unlink)?;
    ensure(gone == 0, || format!("UNLINKAT with rights: {gone}"))?;
    p.close(book)?;
    Ok(true)
}
