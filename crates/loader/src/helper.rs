//! The process that maps the library into the program.
#![allow(unsafe_code)]

use crate::calls::Stopped;
use crate::ptrace::{Stop, Tracee, Until};
use crate::{Error, Library, map};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::process;

/// Choice for a program into which the library could not be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// Run without the library.
    Untouched,
    /// End with this code, before its first instruction.
    Exit(i32),
}

/// Answer of a helper: it traces this process. Others are error numbers.
const TRACES: i32 = 0;

/// Has the library mapped into the program that this process becomes by its next execve(2), if that
/// is a program without a dynamic loader. This process has one thread, and must not end otherwise
/// than by execve(2) or exit(2).
///
/// If the library could not be mapped, the helper asks `failed` what the program is to do. `failed`
/// runs in a copy of this process that has no other use than that. A program that ends at its first
/// instruction in any case does so untouched.
///
/// # Errors
/// This process cannot be traced.
pub fn arrange(library: &Library, failed: impl FnOnce(&Error) -> Otherwise) -> Result<(), Error> {
    let pipes = || Ok((io::pipe()?, io::pipe()?));
    let ((answers, answer), (orders, order)) = pipes().map_err(Error::NoHelper)?;
    // The program inherits the file, and closes it before its first instruction.
    inherit(library.file.as_raw_fd()).map_err(Error::NoHelper)?;
    let runner = process::id().cast_signed();
    let mask = block_signals();
    match fork() {
        Ok(None) => {
            drop((answers, order));
            serve(runner, orders, answer, library, failed);
            exit();
        }
        Ok(Some(helper)) => {
            set_mask(mask);
            drop((answer, orders));
            permit(helper, answers, order)
        }
        Err(e) => {
            set_mask(mask);
            Err(Error::NoHelper(e))
        }
    }
}

/// Waits until the helper traces this process, and allows that where Yama wants it.
fn permit(helper: i32, mut answers: PipeReader, mut order: PipeWriter) -> Result<(), Error> {
    let mut last = answer_of(&mut answers);
    if last == Some(libc::EPERM) {
        // SAFETY: numbers. Without Yama the call fails, and changes nothing.
        unsafe { libc::prctl(libc::PR_SET_PTRACER, helper) };
        let _ = order.write_all(&[1]);
        last = answer_of(&mut answers);
    }
    match last {
        Some(TRACES) => Ok(()),
        Some(error) => {
            reap(helper);
            Err(Error::NotTraced(io::Error::from_raw_os_error(error)))
        }
        None => {
            reap(helper);
            Err(Error::Kills("ptrace"))
        }
    }
}

fn answer_of(answers: &mut PipeReader) -> Option<i32> {
    let mut answer = [0; 4];
    answers.read_exact(&mut answer).ok().map(|()| i32::from_ne_bytes(answer))
}

fn reap(helper: i32) {
    // SAFETY: no status is asked for.
    unsafe { libc::waitpid(helper, std::ptr::null_mut(), libc::__WALL) };
}

/// The helper's life.
fn serve(
    runner: i32,
    mut orders: PipeReader,
    mut answer: PipeWriter,
    library: &Library,
    failed: impl FnOnce(&Error) -> Otherwise,
) {
    let mut tell = |seized: &io::Result<Tracee>| {
        let error = seized.as_ref().err().map(|e| e.raw_os_error().unwrap_or(libc::EIO));
        answer.write_all(&error.unwrap_or(TRACES).to_ne_bytes())
    };
    try_calls();
    let mut seized = Tracee::seize(runner);
    let _ = tell(&seized);
    if seized.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::EPERM))
        && orders.read_exact(&mut [0]).is_ok()
    {
        seized = Tracee::seize(runner);
        let _ = tell(&seized);
    }
    drop(answer);
    if let Ok(tracee) = seized
        && becomes_program(tracee)
    {
        load(tracee, library, failed);
    }
}

/// Makes calls that a policy may kill for, while that ends nobody but this helper.
fn try_calls() {
    let (mut from, mut to) = ([0u8; 1], [0u8; 1]);
    let part = |at: &mut [u8; 1]| libc::iovec { iov_base: at.as_mut_ptr().cast(), iov_len: 1 };
    let (from, to) = (part(&mut from), part(&mut to));
    // SAFETY: the call copies a byte of this process; prctl(2) gets numbers.
    unsafe {
        let (from, to) = (&raw const from, &raw const to);
        let (one, flags) = (1usize, 0usize);
        libc::syscall(libc::SYS_process_vm_writev, process::id(), from, one, to, one, flags);
        libc::prctl(libc::PR_SET_PTRACER, 0);
    }
}

/// Waits for execve(2); returns false if the process has ended before.
fn becomes_program(tracee: Tracee) -> bool {
    loop {
        let (until, signal) = match tracee.wait() {
            Ok(Stop::Exec) => return true,
            Ok(Stop::Stopped) => (Until::Continued, 0),
            Ok(Stop::Signal(signal)) => (Until::Event, signal),
            Ok(Stop::Call | Stop::Other) => (Until::Event, 0),
            Ok(Stop::Exited | Stop::Killed(_)) | Err(_) => return false,
        };
        if tracee.resume(until, signal).is_err() {
            return false;
        }
    }
}

/// Maps the library into the program, and lets it go.
fn load(tracee: Tracee, library: &Library, failed: impl FnOnce(&Error) -> Otherwise) {
    let failed = |e: &Error| match e {
        Error::Faults => Otherwise::Untouched,
        _ => failed(e),
    };
    let program = match Stopped::new(tracee) {
        Ok(program) => program,
        Err(e) => {
            return match failed(&e) {
                Otherwise::Untouched => _ = tracee.detach(),
                // The end of the helper kills it.
                Otherwise::Exit(_) => {}
            };
        }
    };
    let begun = match map::is_static(&program) {
        Ok(true) => map::begin_in(&program, library, process::id()),
        Ok(false) => map::close(&program, library).and_then(|()| program.restore()),
        Err(e) => Err(e),
    };
    if let Err(e) = begun {
        match failed(&e) {
            Otherwise::Untouched => {
                let _ = map::close(&program, library);
                let _ = program.restore();
            }
            Otherwise::Exit(code) => {
                let _ = program.call("exit_group", libc::SYS_exit_group, &[code as u64]);
                return;
            }
        }
    }
    let _ = tracee.detach();
}

/// Blocks all signals, which are not the helper's; returns those that were blocked.
fn block_signals() -> libc::sigset_t {
    // SAFETY: sigset_t is plain data, which is filled in.
    unsafe {
        let (mut all, mut old) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const all, &raw mut old);
        old
    }
}

fn set_mask(mask: libc::sigset_t) {
    // SAFETY: a set that the kernel has given.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut()) };
}

/// Makes a copy of this process, whose end sends no signal; the copy is `None`.
fn fork() -> io::Result<Option<i32>> {
    // SAFETY: this process has one thread, so the copy may go on as usual.
    match unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) } {
        0 => Ok(None),
        pid if pid < 0 => Err(io::Error::last_os_error()),
        pid => Ok(Some(pid as i32)),
    }
}

/// Leaves a descriptor open across execve(2).
fn inherit(fd: i32) -> io::Result<()> {
    // SAFETY: numbers.
    match unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends the helper, without its copy of the runner's exit handlers.
fn exit() -> ! {
    // SAFETY: a number.
    unsafe { libc::_exit(0) }
}
