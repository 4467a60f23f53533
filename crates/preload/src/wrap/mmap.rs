//! mmap(2) of a ring: the CQ ring has a mapping offset of its own, but lies in the SQ ring's
//! memory.
#![allow(unsafe_code)]

use super::visible;
use crate::gate::watched;
use crate::raw::raw;
use core::ffi::{c_int, c_void};
use softring_engine::fds;

/// Returns the offset in the file for a mapping of `fd` at `off`; only a ring's differs from `off`.
pub fn offset(fd: c_int, off: i64) -> i64 {
    if fd >= 0 && off != 0 && watched() {
        fds::mmap_offset(fd, off.cast_unsigned()).cast_signed()
    } else {
        off
    }
}

/// `mmap(2)` under one of its names: all offsets have 64 bits here.
macro_rules! mmap {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            addr: *mut c_void,
            len: usize,
            prot: c_int,
            flags: c_int,
            fd: c_int,
            off: i64,
        ) -> *mut c_void {
            let (a, fd, off) = (addr.expose_provenance(), visible(fd), offset(fd, off));
            // SAFETY: the program's own call. Raw, because programs map before dlsym is safe to
            // call.
            let ret = unsafe { raw!(libc::SYS_mmap, a, len, prot, flags, fd, off) };
            core::ptr::with_exposed_provenance_mut(crate::raw::libc_answer(ret) as usize)
        }
    };
}

mmap! {
    /// `mmap(2)`: map files or devices into memory.
    mmap
}
mmap! {
    /// `mmap(2)`, under the name that programs with 64-bit offsets use.
    mmap64
}
