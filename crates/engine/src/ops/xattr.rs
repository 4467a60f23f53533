//! FSETXATTR, SETXATTR, FGETXATTR, GETXATTR: extended attributes, on a worker.
//! Kernel counterpart: `io_uring/xattr.c`.

use alloc::boxed::Box;
use alloc::ffi::CString;
use alloc::vec;
use alloc::vec::Vec;

use crate::ops::{answer, no_fixed_file, path};
use crate::ring::ctx::Ctx;
use crate::ring::opdef::{Outcome, Try};
use crate::ring::request::{Attribute, Call, OpState, Req};
use softring_host::calls::{ReadPtr, paths};
use softring_uapi::errno::{Errno, Result};

/// `XATTR_NAME_MAX`, with the NUL.
const NAME_MAX: usize = 256;
/// `XATTR_SIZE_MAX`.
const SIZE_MAX: u32 = 65_536;
/// `XATTR_CREATE | XATTR_REPLACE`.
const SET_FLAGS: u32 = 3;

/// Checks an FGETXATTR (`io_fgetxattr_prep`).
pub(crate) fn fget_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let name = ctx.unlocked(|| get_name(req))?;
    keep(req, name, CString::default(), Vec::new());
    Ok(())
}

/// Checks a GETXATTR (`io_getxattr_prep`).
pub(crate) fn get_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    no_fixed_file(req)?;
    let (name, file) = ctx.unlocked(|| Ok::<_, Errno>((get_name(req)?, file_path(req)?)))?;
    keep(req, name, file, Vec::new());
    Ok(())
}

/// Checks an FSETXATTR (`io_fsetxattr_prep`).
pub(crate) fn fset_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    let (name, value) = ctx.unlocked(|| set_name_and_value(req))?;
    keep(req, name, CString::default(), value);
    Ok(())
}

/// Checks a SETXATTR (`io_setxattr_prep`).
pub(crate) fn set_prep(ctx: &mut Ctx, req: &mut Req) -> Result<()> {
    no_fixed_file(req)?;
    let (name, value) = ctx.unlocked(|| set_name_and_value(req))?;
    let file = ctx.unlocked(|| file_path(req))?;
    keep(req, name, file, value);
    Ok(())
}

/// Reads an attribute of an open file.
pub(crate) fn fget(call: &mut Call, _: Try) -> Outcome {
    let (s, [name, ..]) = (call.sqe(), addresses(call));
    answer(paths::fgetxattr(call.file.fd(), name, s.addr2(), s.len))
}

/// Reads an attribute by path.
pub(crate) fn get(call: &mut Call, _: Try) -> Outcome {
    let (s, [name, file, _]) = (call.sqe(), addresses(call));
    answer(paths::getxattr(file, name, s.addr2(), s.len))
}

/// Sets an attribute of an open file.
pub(crate) fn fset(call: &mut Call, _: Try) -> Outcome {
    let (s, [name, _, value]) = (call.sqe(), addresses(call));
    answer(paths::fsetxattr(call.file.fd(), name, value, s.len, s.op_flags))
}

/// Sets an attribute by path.
pub(crate) fn set(call: &mut Call, _: Try) -> Outcome {
    let (s, [name, file, value]) = (call.sqe(), addresses(call));
    answer(paths::setxattr(file, name, value, s.len, s.op_flags))
}

fn keep(req: &mut Req, name: CString, path: CString, value: Vec<u8>) {
    req.call.state = OpState::Attribute(Box::new(Attribute { name, path, value }));
}

/// Returns the addresses of the name, the path and the value that prep has copied.
fn addresses(call: &Call) -> [ReadPtr; 3] {
    let OpState::Attribute(a) = &call.state else { return [ReadPtr::NULL; 3] };
    let [name, path] = [&a.name, &a.path].map(|text| ReadPtr::of(text.as_c_str()));
    [name, path, ReadPtr::of(a.value.as_slice())]
}

/// Copies the attribute's name in; both a too long and an empty name are out of range.
fn name(req: &Req) -> Result<CString> {
    let name = match softring_host::user::read_cstr(req.call.sqe().addr, NAME_MAX) {
        Ok(name) if name.is_empty() => return Err(Errno::ERANGE),
        Err(Errno::ENAMETOOLONG) => return Err(Errno::ERANGE),
        other => other?,
    };
    CString::new(name).map_err(|_| Errno::EINVAL)
}

fn get_name(req: &Req) -> Result<CString> {
    if req.call.sqe().op_flags != 0 {
        return Err(Errno::EINVAL);
    }
    name(req)
}

fn set_name_and_value(req: &Req) -> Result<(CString, Vec<u8>)> {
    if req.call.sqe().op_flags & !SET_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let name = name(req)?;
    let sqe = req.call.sqe();
    if sqe.len > SIZE_MAX {
        return Err(Errno::E2BIG);
    }
    let mut value = vec![0u8; sqe.len as usize];
    softring_host::user::read_slice(sqe.off, &mut value)?;
    Ok((name, value))
}

fn file_path(req: &Req) -> Result<CString> {
    path(req.call.sqe().addr3, false)
}
