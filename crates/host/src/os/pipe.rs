//! Pipes.
#![allow(unsafe_code)]

use super::fd::{FromRawFd, OwnedFd};
use super::kernel;
use crate::raw::nr;
use softring_uapi::errno::Result;
use softring_uapi::flag_set;

flag_set! {
    /// Flags of pipe2(2).
    pub struct PipeFlags: u32 {
        const CLOEXEC = nr::O_CLOEXEC;
        const NONBLOCK = nr::O_NONBLOCK;
    }
}

/// Makes a pipe: the read end, the write end.
///
/// # Errors
/// As pipe2(2).
pub fn pipe_with(flags: PipeFlags) -> Result<(OwnedFd, OwnedFd)> {
    let mut fds = [-1i32; 2];
    // SAFETY: the array is ours, and as long as the kernel takes it to be; the numbers are made
    // for us.
    unsafe {
        kernel!(__NR_pipe2, fds.as_mut_ptr().expose_provenance(), flags.bits())?;
        Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])))
    }
}
