//! System calls that a stopped program is made to make, before its first instruction.

use crate::Error;
use crate::ptrace::{Registers, Stop, Tracee, Until};
use std::io;

/// The instruction `syscall`, in the low bytes of a word.
const SYSCALL: u64 = 0x050f;
const SYSCALL_MASK: u64 = 0xffff;
/// Code segment of 64-bit code.
const CODE_64: u64 = 0x33;

/// A program that has stopped before its first instruction. There, a system call instruction takes
/// the place of the program's first bytes for a while.
#[derive(Debug)]
pub(crate) struct Stopped {
    pub tracee: Tracee,
    /// Registers as execve(2) has made them.
    pub first: Registers,
    mask: u64,
    text: u64,
}

fn trace(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |e| Error::Trace(what, e)
}

impl Stopped {
    /// Takes over a program whose execve(2) is about to return.
    pub fn new(tracee: Tracee) -> Result<Stopped, Error> {
        finish_exec(tracee)?;
        let first = tracee.registers().map_err(trace("read registers"))?;
        if first.cs != CODE_64 {
            return Err(Error::OtherMode);
        }
        let mask = tracee.mask().map_err(trace("read the signal mask"))?;
        // The word that the address lies in is on one page with it.
        tracee.word(first.rip & !7).map_err(|_| Error::Faults)?;
        let text = tracee.word(first.rip).map_err(trace("read memory"))?;
        let stopped = Stopped { tracee, first, mask, text };
        let with_call = text & !SYSCALL_MASK | SYSCALL;
        tracee.set_word(first.rip, with_call).map_err(trace("write memory"))?;
        // A signal would be delivered in the midst of a call.
        tracee.set_mask(!0).map_err(trace("set the signal mask"))?;
        Ok(stopped)
    }

    /// Has the program make a system call.
    ///
    /// # Errors
    /// The program may not make it, or it fails.
    pub fn call(&self, name: &'static str, nr: i64, args: &[u64]) -> Result<u64, Error> {
        let mut registers = self.first;
        let arg = |n: usize| args.get(n).copied().unwrap_or(0);
        registers.rax = nr.cast_unsigned();
        // No system call is interrupted here that would have to be made again.
        registers.orig_rax = u64::MAX;
        (registers.rdi, registers.rsi, registers.rdx) = (arg(0), arg(1), arg(2));
        (registers.r10, registers.r8, registers.r9) = (arg(3), arg(4), arg(5));
        self.tracee.set_registers(&registers).map_err(trace("set registers"))?;
        // The call begins, then it ends.
        for _ in 0..2 {
            match self.to_call(name)? {
                Stop::Call => {}
                _ => return Err(Error::Refused(name, io::Error::from_raw_os_error(libc::EPERM))),
            }
        }
        let answer = self.tracee.registers().map_err(trace("read registers"))?.rax;
        match i32::try_from(answer.cast_signed()) {
            Ok(error @ -4095..0) => Err(Error::Refused(name, io::Error::from_raw_os_error(-error))),
            _ => Ok(answer),
        }
    }

    /// Runs the program to the start or the end of a system call. A filter that traps the call
    /// raises SIGSYS, which is the other answer.
    fn to_call(&self, name: &'static str) -> Result<Stop, Error> {
        let (mut until, mut signal) = (Until::Call, 0);
        loop {
            self.tracee.resume(until, signal).map_err(trace("resume the program"))?;
            (until, signal) = (Until::Call, 0);
            match self.tracee.wait().map_err(trace("wait for the program"))? {
                Stop::Killed(signal) => return Err(Error::Killed(name, signal)),
                Stop::Exited => return Err(Error::Killed(name, 0)),
                Stop::Stopped => until = Until::Continued,
                stop @ (Stop::Call | Stop::Signal(libc::SIGSYS)) => return Ok(stop),
                // Blocked as it is, only the instruction itself can raise it.
                Stop::Signal(libc::SIGSEGV) => return Err(Error::Faults),
                // SIGSTOP: all others are blocked.
                Stop::Signal(other) => signal = other,
                Stop::Exec | Stop::Other => {}
            }
        }
    }

    /// Puts the program back to its first instruction.
    pub fn restore(&self) -> Result<(), Error> {
        self.tracee.set_word(self.first.rip, self.text).map_err(trace("write memory"))?;
        self.tracee.set_registers(&self.first).map_err(trace("set registers"))?;
        self.tracee.set_mask(self.mask).map_err(trace("set the signal mask"))
    }
}

/// Waits for the end of execve(2), which sets the registers.
fn finish_exec(tracee: Tracee) -> Result<(), Error> {
    let (mut until, mut signal) = (Until::Call, 0);
    loop {
        tracee.resume(until, signal).map_err(trace("resume the program"))?;
        (until, signal) = (Until::Call, 0);
        match tracee.wait().map_err(trace("wait for the program"))? {
            Stop::Call => return Ok(()),
            Stop::Killed(signal) => return Err(Error::Killed("execve", signal)),
            Stop::Exited => return Err(Error::Killed("execve", 0)),
            Stop::Stopped => until = Until::Continued,
            Stop::Signal(other) => signal = other,
            Stop::Exec | Stop::Other => {}
        }
    }
}
