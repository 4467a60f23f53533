//! Rule that one copy of this library works in a process. Two installations may be nested, or both
//! named in LD_PRELOAD. The first copy in the order of symbols gets the program's calls; only this
//! copy patches, sets handlers and makes rings. Any other copy passes every call to the next
//! library, as if it were not loaded.
use crate::dynamic;
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Name by which copies find each other; each release exports it (`softring.h`).
const NAME: &CStr = c"softring_version";

/// Flag, true if this copy does nothing. The constructor sets it before anything else.
static STANDS_BACK: AtomicBool = AtomicBool::new(false);

/// Returns whether this copy must do nothing.
pub fn stands_back() -> bool {
    STANDS_BACK.load(Relaxed)
}

/// Makes this copy do nothing, as another serves the program already.
pub fn stand_back() {
    STANDS_BACK.store(true, Relaxed);
}

/// Finds out whether a copy precedes this one. The addresses of exported functions do not tell:
/// inside this library, too, these names resolve to the first copy.
pub fn find_out() -> bool {
    let first = dynamic::first(NAME);
    // If a program has opened this library for itself alone, no copy is first.
    let other = !first.is_null() && base(first) != base(find_out as fn() -> bool as *const c_void);
    STANDS_BACK.store(other, Relaxed);
    other
}

/// Returns the address at which the object that holds `at` is loaded.
fn base(at: *const c_void) -> usize {
    dynamic::object_of(at).map_or(0, |object| object.base)
}
