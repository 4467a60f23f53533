//! What comes before [`crate::softring`]. Rust's own start-up ends the process if a policy refuses
//! poll(2) or rt_sigaction(2), which `softring run` can do without: so the C library starts this
//! program, and what Rust's does is done here, as far as it goes.
#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

/// Puts /dev/null where a standard stream is closed, so that no file that is opened later gets its
/// number.
fn open_standard_streams() {
    loop {
        // SAFETY: the path is a C string; the descriptor, if there is one, stays open for good.
        let fd = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
        if fd > libc::STDERR_FILENO {
            // SAFETY: it was just opened, and nobody else knows it.
            unsafe { libc::close(fd) };
        }
        if !(0..libc::STDERR_FILENO).contains(&fd) {
            return;
        }
    }
}

/// The C library calls this first. std::env::args() would know the arguments with glibc only.
// SAFETY: it has main's name and signature, and is called once.
#[unsafe(no_mangle)]
extern "C" fn main(argc: c_int, argv: *const *const c_char) -> c_int {
    open_standard_streams();
    // SAFETY: no pointers. Where it is refused a reader that leaves early ends this process.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let args = (0..usize::try_from(argc).unwrap_or(0)).map(|i| {
        // SAFETY: main's argv holds argc C strings, which live as long as the process.
        let arg = unsafe { CStr::from_ptr(*argv.add(i)) };
        OsStr::from_bytes(arg.to_bytes()).to_owned()
    });
    // Not a return to the C library, which would leave standard output unflushed.
    std::process::exit(crate::softring(args.collect()).into())
}
