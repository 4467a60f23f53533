//! Start of a program for `stat` and `trace`: by way of `softring run`, which becomes that program
//! or says why it could not.

use crate::cli::UnderArgs;
use crate::{fail, files, signals};
use anyhow::Context;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command};

/// Pipe that tells whether `softring run` has failed to become the program.
#[derive(Debug)]
pub struct Failure(OwnedFd);

impl Failure {
    /// Returns whether the program has never run. It is asked when the child has ended, whose exit
    /// code can be the program's own, too.
    pub fn happened(&self) -> bool {
        rustix::io::read(&self.0, &mut [0u8; 1]).is_ok_and(|n| n == 1)
    }
}

/// Starts the program with these options.
pub fn start(under: &UnderArgs, command: &[OsString]) -> anyhow::Result<(Child, Failure)> {
    let own = files::own_exe().context("cannot find this program's own file")?;
    let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
    let (read, write) = pipe_with(flags).context("cannot make a pipe")?;
    // The pipe is for `softring run`, not for the program that it becomes.
    fcntl_setfd(&write, FdFlags::empty()).context("cannot pass on a pipe")?;
    let mut c = Command::new(own);
    c.arg("run").args(under.words());
    c.arg(format!("--failure-fd={}", write.as_raw_fd())).arg("--").args(command);
    let child = signals::spawn(&mut c).map_err(|e| fail::cannot_start("the program", &e))?;
    Ok((child, Failure(read)))
}
