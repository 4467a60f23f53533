//! ptrace(2), as far as it is needed here.
#![allow(unsafe_code)]

use std::io;

/// `PTRACE_GET_SYSCALL_INFO`, which the libc crate lacks for musl.
const GET_SYSCALL_INFO: i64 = 0x420e;

/// Options of a tracee: its children and threads are traced, too; it ends with its tracer.
const OPTIONS: i32 = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACESECCOMP
    | libc::PTRACE_O_EXITKILL;

/// A system call that a thread is about to make.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub nr: i64,
    pub args: [u64; 6],
}

/// Places where a thread runs on to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The next event of the thread.
    Event,
    /// The end of its system call.
    Return,
    /// SIGCONT: it stays stopped.
    Continued,
}

/// Reasons why a thread has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The thread has ended, with this status as in wait(2).
    Ended(i32),
    /// The filter has stopped it before a system call.
    Filtered,
    /// The system call has ended.
    Returned,
    /// Stop by SIGSTOP or another signal that stops.
    Stopped,
    /// A signal that is to be delivered.
    Signal(i32),
    /// Start of a thread, or another event that needs no answer.
    Other,
}

/// Begins to trace a process.
pub fn seize(pid: i32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE.into(), pid, 0, OPTIONS as usize).map(drop)
}

/// Lets a stopped thread run on, and gives it a signal if that is not 0.
pub fn resume(tid: i32, until: Until, signal: i32) -> io::Result<()> {
    let how = match until {
        Until::Event => libc::PTRACE_CONT,
        Until::Return => libc::PTRACE_SYSCALL,
        Until::Continued => libc::PTRACE_LISTEN,
    };
    request(how.into(), tid, 0, signal as usize).map(drop)
}

/// Words of `struct ptrace_syscall_info`: a head of three words, the number, six arguments.
const WORDS: usize = 11;

fn info(tid: i32) -> io::Result<[u64; WORDS]> {
    let mut words = [0u64; WORDS];
    let at = (&raw mut words).expose_provenance();
    request(GET_SYSCALL_INFO, tid, size_of_val(&words), at)?;
    Ok(words)
}

/// Returns the system call before which a thread has stopped.
pub fn call(tid: i32) -> io::Result<Call> {
    let words = info(tid)?;
    let mut args = [0; 6];
    args.copy_from_slice(&words[4..10]);
    Ok(Call { nr: words[3].cast_signed(), args })
}

/// Returns the result of the system call that has ended; negative: an error number.
pub fn result(tid: i32) -> io::Result<i64> {
    info(tid).map(|words| words[3].cast_signed())
}

/// Makes a request. C libraries differ in the type of its number.
fn request(what: i64, tid: i32, addr: usize, data: usize) -> io::Result<i64> {
    // SAFETY: the only request that writes to memory of ours, GET_SYSCALL_INFO, is given an array
    // and its size.
    let done = unsafe { libc::syscall(libc::SYS_ptrace, what, tid, addr, data) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
}

/// Waits for a thread to stop or to end; None: `wait` is false and none has, or none is left.
pub fn next(wait: bool) -> io::Result<Option<(i32, Stop)>> {
    let mut status = 0;
    let how = libc::__WALL | if wait { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: `status` is a live i32.
        let tid = unsafe { libc::waitpid(-1, &raw mut status, how) };
        if tid > 0 {
            return Ok(Some((tid, decoded(status))));
        }
        let e = io::Error::last_os_error();
        match e.raw_os_error() {
            _ if tid == 0 => return Ok(None),
            Some(libc::EINTR) => {}
            _ => return Err(e),
        }
    }
}

fn decoded(status: i32) -> Stop {
    if !libc::WIFSTOPPED(status) {
        return Stop::Ended(status);
    }
    let signal = libc::WSTOPSIG(status);
    match (signal, status >> 16) {
        (_, libc::PTRACE_EVENT_SECCOMP) => Stop::Filtered,
        (libc::SIGTRAP, libc::PTRACE_EVENT_STOP) => Stop::Other,
        (_, libc::PTRACE_EVENT_STOP) => Stop::Stopped,
        (signal, 0) if signal == libc::SIGTRAP | 0x80 => Stop::Returned,
        (signal, 0) => Stop::Signal(signal),
        _ => Stop::Other,
    }
}

/// Kills a process, by the number of one of its threads.
pub fn kill(tid: i32) {
    // SAFETY: no pointers. The thread is a tracee that has not been waited for: its number is its.
    unsafe { libc::kill(tid, libc::SIGKILL) };
}
