//! One copy of this library in a process. Two installations may be nested, or both named in
//! LD_PRELOAD. The copy that comes first in the order of symbols has the program's calls; only it
//! patches, sets handlers and makes rings. Another passes every call on to the next library, as if
//! it were not there.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The name by which copies find each other: of `softring.h`, so each release has it.
const NAME: &CStr = c"softring_version";

/// Set by the constructor, before anything else is.
static STANDS_BACK: AtomicBool = AtomicBool::new(false);

/// Is this copy to do nothing?
pub fn stands_back() -> bool {
    STANDS_BACK.load(Relaxed)
}

/// Finds out whether there is a copy before this one. The addresses of exported functions do not
/// tell: in this library, too, their names mean the first copy's.
pub fn find_out() -> bool {
    // SAFETY: a NUL-terminated name.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, NAME.as_ptr()) };
    // A program may have opened this library for itself alone: nobody is first then.
    let other = !first.is_null() && base(first) != base(find_out as fn() -> bool as *const c_void);
    STANDS_BACK.store(other, Relaxed);
    other
}

/// Where the object that holds `at` is loaded.
fn base(at: *const c_void) -> usize {
    // SAFETY: an all-zero Dl_info is a valid one, and is filled in for an address in an object.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        libc::dladdr(at, &raw mut info);
        info.dli_fbase.addr()
    }
}
