//! ptrace(2), as far as it is needed here: one process of one thread, from its execve(2) to its
//! first instruction.
#![allow(unsafe_code)]

use std::io;

/// Registers of a process.
pub(crate) type Registers = libc::user_regs_struct;

const GETSIGMASK: i64 = 0x420a;
const SETSIGMASK: i64 = 0x420b;
const WORD: usize = size_of::<u64>();

/// A traced process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tracee(i32);

/// Place where a stopped process runs on to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// The next event.
    Event,
    /// The start or the end of a system call.
    Call,
    /// SIGCONT: it stays stopped.
    Continued,
}

/// Reason why a process has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// End by exit(2).
    Exited,
    /// End by this signal.
    Killed(i32),
    /// End of an execve(2) that made another program of it.
    Exec,
    /// A system call begins or ends.
    Call,
    /// Stop by SIGSTOP or another signal that stops.
    Stopped,
    /// A signal that is to be delivered.
    Signal(i32),
    /// An event that needs no answer.
    Other,
}

/// Makes a request. C libraries differ in the type of its number.
///
/// # Safety
/// `data` is what the request wants there.
unsafe fn request(what: i64, pid: i32, addr: usize, data: usize) -> io::Result<usize> {
    // SAFETY: the caller's.
    let done = unsafe { libc::syscall(libc::SYS_ptrace, what, pid, addr, data) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done.cast_unsigned() as usize) }
}

impl Tracee {
    /// Begins to trace a process, which goes on. It is killed if this process ends first.
    pub fn seize(pid: i32) -> io::Result<Tracee> {
        let options =
            libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
        // SAFETY: numbers.
        unsafe { request(libc::PTRACE_SEIZE.into(), pid, 0, options as usize) }?;
        Ok(Tracee(pid))
    }

    /// Waits for the process to stop or to end.
    pub fn wait(self) -> io::Result<Stop> {
        let mut status = 0;
        loop {
            // SAFETY: `status` is a live i32.
            if unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL) } == self.0 {
                return Ok(decoded(status));
            }
            let e = io::Error::last_os_error();
            if e.kind() != io::ErrorKind::Interrupted {
                return Err(e);
            }
        }
    }

    /// Lets the stopped process run on, and gives it a signal if that is not 0.
    pub fn resume(self, until: Until, signal: i32) -> io::Result<()> {
        let how = match until {
            Until::Event => libc::PTRACE_CONT.into(),
            Until::Call => libc::PTRACE_SYSCALL.into(),
            Until::Continued => libc::PTRACE_LISTEN.into(),
        };
        // SAFETY: numbers.
        unsafe { request(how, self.0, 0, signal as usize) }.map(drop)
    }

    /// Lets the stopped process go.
    pub fn detach(self) -> io::Result<()> {
        // SAFETY: numbers.
        unsafe { request(libc::PTRACE_DETACH.into(), self.0, 0, 0) }.map(drop)
    }

    pub fn registers(self) -> io::Result<Registers> {
        let mut registers = std::mem::MaybeUninit::<Registers>::zeroed();
        let at = registers.as_mut_ptr().expose_provenance();
        // SAFETY: the kernel fills in the structure, all of whose values are valid.
        unsafe {
            request(libc::PTRACE_GETREGS.into(), self.0, 0, at)?;
            Ok(registers.assume_init())
        }
    }

    pub fn set_registers(self, registers: &Registers) -> io::Result<()> {
        let at = std::ptr::from_ref(registers).expose_provenance();
        // SAFETY: the kernel reads the structure.
        unsafe { request(libc::PTRACE_SETREGS.into(), self.0, 0, at) }.map(drop)
    }

    /// Returns the signals that are blocked.
    pub fn mask(self) -> io::Result<u64> {
        let mut mask = 0u64;
        // SAFETY: the kernel writes a set of the given size.
        unsafe {
            let at = (&raw mut mask).expose_provenance();
            request(GETSIGMASK, self.0, size_of_val(&mask), at)?;
        }
        Ok(mask)
    }

    pub fn set_mask(self, mask: u64) -> io::Result<()> {
        // SAFETY: the kernel reads a set of the given size.
        unsafe {
            let at = (&raw const mask).expose_provenance();
            request(SETSIGMASK, self.0, size_of_val(&mask), at).map(drop)
        }
    }

    /// Reads a word of memory.
    pub fn word(self, at: u64) -> io::Result<u64> {
        let mut word = 0u64;
        // SAFETY: the system call, other than its wrapper, stores the word where `data` says.
        unsafe {
            let to = (&raw mut word).expose_provenance();
            request(libc::PTRACE_PEEKDATA.into(), self.0, at as usize, to)?;
        }
        Ok(word)
    }

    /// Writes a word of memory, also of memory that the process itself may not write to.
    pub fn set_word(self, at: u64, word: u64) -> io::Result<()> {
        // SAFETY: numbers; the memory is another process's.
        unsafe { request(libc::PTRACE_POKEDATA.into(), self.0, at as usize, word as usize) }
            .map(drop)
    }

    /// Writes bytes to memory that the process may write to.
    pub fn write(self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let local =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let there = std::ptr::with_exposed_provenance_mut(at as usize);
        let remote = libc::iovec { iov_base: there, iov_len: bytes.len() };
        // Of whole registers: what syscall(3) takes from the stack has no upper half otherwise.
        let (nr, one, flags) = (libc::SYS_process_vm_writev, 1usize, 0usize);
        // SAFETY: the kernel reads both vectors and the bytes.
        let done = unsafe {
            libc::syscall(nr, self.0, &raw const local, one, &raw const remote, one, flags)
        };
        if usize::try_from(done) == Ok(bytes.len()) {
            return Ok(());
        }
        // A policy may refuse that call and allow ptrace(2).
        let (words, rest) = bytes.as_chunks::<WORD>();
        let mut to = at;
        for word in words {
            self.set_word(to, u64::from_ne_bytes(*word))?;
            to += WORD as u64;
        }
        if !rest.is_empty() {
            let mut last = self.word(to)?.to_ne_bytes();
            last[..rest.len()].copy_from_slice(rest);
            self.set_word(to, u64::from_ne_bytes(last))?;
        }
        Ok(())
    }
}

fn decoded(status: i32) -> Stop {
    if libc::WIFSIGNALED(status) {
        return Stop::Killed(libc::WTERMSIG(status));
    }
    if !libc::WIFSTOPPED(status) {
        return Stop::Exited;
    }
    match (libc::WSTOPSIG(status), status >> 16) {
        (_, libc::PTRACE_EVENT_EXEC) => Stop::Exec,
        (libc::SIGTRAP, libc::PTRACE_EVENT_STOP) => Stop::Other,
        (_, libc::PTRACE_EVENT_STOP) => Stop::Stopped,
        (signal, 0) if signal == libc::SIGTRAP | 0x80 => Stop::Call,
        (signal, 0) => Stop::Signal(signal),
        _ => Stop::Other,
    }
}
