//! Start-up before [`crate::softring`]. Rust's own start-up ends the process if a policy refuses
//! poll(2) or rt_sigaction(2), which `softring run` can do without. So the C library starts this
//! program.
#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

/// Runs first, called by the C library. std::env::args() would know the arguments with glibc only.
// SAFETY: it has main's name and signature, and is called once.
#[unsafe(no_mangle)]
extern "C" fn main(argc: c_int, argv: *const *const c_char) -> c_int {
    let args = (0..usize::try_from(argc).unwrap_or(0)).map(|i| {
        // SAFETY: main's argv holds argc C strings, which live as long as the process.
        let arg = unsafe { CStr::from_ptr(*argv.add(i)) };
        OsStr::from_bytes(arg.to_bytes()).to_owned()
    });
    // A return to the C library would leave standard output unflushed.
    std::process::exit(crate::softring(args.collect()).into())
}
