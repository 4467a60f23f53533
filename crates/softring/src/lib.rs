//! io_uring for a program that brings it along: where the kernel denies io_uring, the program gets
//! rings that softring makes in user space. No library is preloaded, and nothing is set in the
//! environment.
//!
//! ```no_run
//! fn main() {
//!     // First of all: before other threads, before a ring, before the environment is changed.
//!     if let Err(e) = softring::install() {
//!         eprintln!("{e}");
//!     }
//!     // Rings as before, by whatever crate makes them.
//! }
//! ```
//!
//! With the feature `before-main` this happens before `main`, and a program only has to name the
//! crate: `use softring as _;`.
//!
//! Where the kernel gives rings, the program gets those. A program that runs under `softring run`,
//! or with `libsoftring.so` preloaded, is served by that library, and [`install`] changes nothing.
//!
//! The crate links `libsoftring.a`, which is built from the sources around it, or found in the
//! directory that `SOFTRING_LIB_DIR` names, or by pkg-config. It serves static and dynamic programs
//! on Linux on x86_64, of glibc and of musl.
//!
//! # What is stable
//!
//! [`install`], [`Options`] with its functions, [`version`] and the feature `before-main` stay as
//! they are in all releases 0.x. [`Error`] may come to have other texts. What rings do is
//! io_uring's own ABI; `docs/LIMITATIONS.md` lists where softring differs from the kernel.
#![no_std]

use core::ffi::{CStr, c_char, c_int, c_uint};
use core::fmt;

unsafe extern "C" {
    safe fn softring_install(flags: c_uint) -> c_int;
    safe fn softring_version() -> *const c_char;
}

/// `SOFTRING_OBEY_ENVIRONMENT` of softring.h.
const OBEY_ENVIRONMENT: c_uint = 1;
/// `SOFTRING_QUIET`.
const QUIET: c_uint = 2;

/// Gives this program rings of softring's where the kernel denies them. A second call does nothing.
///
/// When softring makes the program's first ring, a line on stderr says so. No environment variable
/// has an effect. [`Options`] changes both.
///
/// # Errors
/// The call came too late: see [`Error`]. The program's io_uring stays as it is.
pub fn install() -> Result<(), Error> {
    Options::new().install()
}

/// Choices for [`Options::install`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "nothing happens before `install` is called"]
pub struct Options {
    flags: c_uint,
}

impl Options {
    /// Returns what [`install`] uses: no environment variable has an effect.
    pub const fn new() -> Options {
        Options { flags: 0 }
    }

    /// Has `SOFTRING_ENGINE` and the other variables of `docs/INTERCEPTION.md` obeyed.
    pub const fn obey_environment(self) -> Options {
        Options { flags: self.flags | OBEY_ENVIRONMENT }
    }

    /// Prints nothing on stderr.
    pub const fn quiet(self) -> Options {
        Options { flags: self.flags | QUIET }
    }

    /// Does what [`install`] does, with these choices.
    ///
    /// # Errors
    /// As [`install`].
    pub fn install(self) -> Result<(), Error> {
        if softring_install(self.flags) == 0 { Ok(()) } else { Err(Error(())) }
    }
}

/// The program's first stack was not found: by now, somebody has changed the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error(());

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "softring is not installed, and io_uring stays as it is, because the environment was \
             changed before: call softring::install() first in main()",
        )
    }
}

impl core::error::Error for Error {}

/// Returns the version of softring that the program is linked with, such as `0.1.0`.
pub fn version() -> &'static str {
    // SAFETY: a string that is there for good.
    unsafe { CStr::from_ptr(softring_version()) }.to_str().unwrap_or_default()
}

/// The call of the feature `before-main`.
#[cfg(feature = "before-main")]
mod before_main {
    extern "C" fn begin() {
        // A failure has printed a line.
        let _ = crate::install();
    }

    // SAFETY: the C library calls each function of the list once, before `main`.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static BEGIN: extern "C" fn() = begin;
}
