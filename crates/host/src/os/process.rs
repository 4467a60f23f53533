//! Processes, their users and their limits.
#![allow(unsafe_code)]

use super::kernel;
use crate::raw::nr;
use alloc::vec;
use alloc::vec::Vec;
use softring_uapi::errno::{Errno, Result};

/// Resource with a limit; see getrlimit(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Resource {
    Fsize = nr::RLIMIT_FSIZE,
    Nproc = nr::RLIMIT_NPROC,
    Nofile = nr::RLIMIT_NOFILE,
    Memlock = nr::RLIMIT_MEMLOCK,
    Data = nr::RLIMIT_DATA,
    As = nr::RLIMIT_AS,
}

/// `struct rlimit`; `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rlimit {
    pub current: Option<u64>,
    pub maximum: Option<u64>,
}

macro_rules! numbers {
    ($($(#[$doc:meta])* fn $name:ident() -> $t:ty = $nr:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name() -> $t {
            // SAFETY: takes nothing, and never fails.
            unsafe { kernel!($nr) }.map_or(0, |number| number as $t)
        }
    )*};
}
numbers! {
    /// Calls getpid(2).
    fn getpid() -> i32 = __NR_getpid;
    /// Calls getppid(2); 0 if the parent is in another pid namespace.
    fn getppid() -> i32 = __NR_getppid;
    /// Calls getuid(2).
    fn getuid() -> u32 = __NR_getuid;
    /// Calls geteuid(2).
    fn geteuid() -> u32 = __NR_geteuid;
}

/// Returns the working directory.
///
/// # Errors
/// As getcwd(2).
pub(crate) fn getcwd() -> Result<Vec<u8>> {
    let mut path = vec![0; 256];
    loop {
        let at = path.as_mut_ptr().expose_provenance();
        // SAFETY: the bytes are ours, and the kernel is told how many.
        match unsafe { kernel!(__NR_getcwd, at, path.len()) } {
            // With the zero at the end.
            Ok(len) => {
                path.truncate(len - 1);
                return Ok(path);
            }
            Err(Errno::ERANGE) => path.resize(2 * path.len(), 0),
            Err(e) => return Err(e),
        }
    }
}

/// Returns the release of the kernel, as uname(2) has it, with zeroes behind it.
pub(crate) fn release() -> [u8; 65] {
    /// `struct new_utsname`: the system, the node, the release, and three more.
    const RELEASE: usize = 2;
    let mut names = [[0; 65]; 6];
    // SAFETY: the names are ours, and as long as the kernel takes them to be.
    let _ = unsafe { kernel!(__NR_uname, names.as_mut_ptr().expose_provenance()) };
    names[RELEASE]
}
