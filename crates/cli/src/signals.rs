//! Signals of a command that runs beside a program: the command records them, passes them on, and
//! dies of the same signal as the program.
#![allow(unsafe_code)]

use libc::{
    SIGALRM, SIGCHLD, SIGHUP, SIGINT, SIGIO, SIGPIPE, SIGPROF, SIGPWR, SIGQUIT, SIGSTKFLT, SIGTERM,
    SIGTSTP, SIGURG, SIGUSR1, SIGUSR2, SIGVTALRM, SIGWINCH, SIGXCPU, c_int,
};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Signals that end their target.
const END: [c_int; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];
/// Other signals that end their target, beside the real-time ones; signals of faults are left out.
const OTHER_ENDS: [c_int; 10] =
    [SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU, SIGIO, SIGPWR, SIGPIPE, SIGSTKFLT];
/// Signals that do nothing by default, and that a program may have a use for.
const QUIET: [c_int; 2] = [SIGWINCH, SIGURG];

/// Signals recorded and not yet taken, one bit each.
static RECORDED: AtomicU64 = AtomicU64::new(0);
/// Recorded signals that a process has sent to this one. A terminal sends to all its processes, the
/// program among them.
static SENT: AtomicU64 = AtomicU64::new(0);
/// Flag, true if SIGPIPE was ignored when this process began to ignore it; a program that we start
/// must find what we found.
static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// Flag, true if this process ignores SIGPIPE of its own accord.
static SIGPIPE_CHANGED: AtomicBool = AtomicBool::new(false);
/// Flag, true if a call for SIGPIPE might end this process.
static SIGPIPE_LEFT: AtomicBool = AtomicBool::new(false);

/// Ignores SIGPIPE: a reader that leaves early is an error from now on, and does not end this
/// process. If a policy refuses the call, such a reader still ends it.
pub fn ignore_sigpipe() {
    if SIGPIPE_LEFT.load(Relaxed) || SIGPIPE_CHANGED.swap(true, Relaxed) {
        return;
    }
    SIGPIPE_IGNORED.store(is_ignored(SIGPIPE), Relaxed);
    // SAFETY: no pointers.
    unsafe { libc::signal(SIGPIPE, libc::SIG_IGN) };
}

/// Has [`ignore_sigpipe`] make no call: a policy may kill for it. A reader that leaves early then
/// ends this process.
pub fn leave_sigpipe() {
    SIGPIPE_LEFT.store(true, Relaxed);
}

/// Restores SIGPIPE before exec, as this process found it.
pub fn restore_sigpipe() {
    if SIGPIPE_CHANGED.swap(false, Relaxed) && !sigpipe_was_ignored() {
        // SAFETY: no pointers.
        unsafe { libc::signal(SIGPIPE, libc::SIG_DFL) };
    }
}

/// Returns whether SIGPIPE was ignored when this process started.
pub fn sigpipe_was_ignored() -> bool {
    SIGPIPE_IGNORED.load(Relaxed)
}

fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// Returns all signals that end their target.
fn all_ends() -> impl Iterator<Item = c_int> {
    END.into_iter().chain(OTHER_ENDS).chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
}

/// Returns the signals that a program may have a use for.
fn for_program() -> impl Iterator<Item = c_int> {
    all_ends().chain(QUIET)
}

fn is_ignored(signal: c_int) -> bool {
    // SAFETY: an all-zero sigaction is a valid one; the kernel fills it in and keeps no pointer.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut old) == 0
            && old.sa_sigaction == libc::SIG_IGN
    }
}

extern "C" fn record(signal: c_int, info: *const libc::siginfo_t, _: *const libc::c_void) {
    let bit = bit(signal);
    // SAFETY: the kernel passes a siginfo_t to a handler with SA_SIGINFO; the sender's number is
    // there for all codes that are checked, which are those of kill(2) and sigqueue(3); getpid(2)
    // may be called in a handler.
    let (code, own) = unsafe {
        let info = &*info;
        (info.si_code, info.si_code <= 0 && info.si_pid() == libc::getpid())
    };
    // The signal is of a pipe of our own without a reader: it looks like a kill(2) by the writer.
    if signal == SIGPIPE && own {
        return;
    }
    // Positive codes are the kernel's own: a terminal's keys have SI_KERNEL.
    if code <= 0 {
        SENT.fetch_or(bit, Relaxed);
    }
    RECORDED.fetch_or(bit, Relaxed);
}

/// Has the signal only recorded from now on, unless it is ignored. A program that is started gets
/// it as ever: a handler does not outlive exec.
fn catch(signal: c_int) {
    // Our start-up ignores SIGPIPE: its state before that counts.
    let ignored = if signal == SIGPIPE { sigpipe_was_ignored() } else { is_ignored(signal) };
    if ignored {
        return;
    }
    // SAFETY: an all-zero sigaction is a valid one; the handler only stores to atomics.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction =
            (record as extern "C" fn(c_int, *const libc::siginfo_t, *const libc::c_void)) as usize;
        new.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(signal, &raw const new, std::ptr::null_mut());
    }
}

/// Has signals that would end us recorded from now on.
pub fn catch_ends() {
    END.into_iter().for_each(catch);
}

/// Has all signals that would end us recorded from now on, for [`any_end`]. It is for a command
/// that has changed what outlives it.
pub fn catch_all_ends() {
    all_ends().for_each(catch);
}

/// Has signals that are meant for the program recorded from now on, to be passed on.
pub fn catch_for_program() {
    for_program().for_each(catch);
}

/// Has a request to stop recorded from now on, for [`stop_asked`].
pub fn catch_stop() {
    catch(SIGTSTP);
}

/// Makes a file that would become larger than RLIMIT_FSIZE an error from now on, which does not end
/// us. It is called after the program is started, which must find what we found.
pub fn ignore_file_size() {
    // SAFETY: no pointers.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Returns the signal that asked us to end, if one has.
pub fn end() -> Option<c_int> {
    let recorded = RECORDED.load(Relaxed);
    END.into_iter().find(|&signal| recorded & bit(signal) != 0)
}

/// Returns the same, of all signals that [`catch_all_ends`] has recorded.
pub fn any_end() -> Option<c_int> {
    let recorded = RECORDED.load(Relaxed);
    all_ends().find(|&signal| recorded & bit(signal) != 0)
}

/// Returns whether SIGTSTP has come since the last call.
pub fn stop_asked() -> bool {
    RECORDED.fetch_and(!bit(SIGTSTP), Relaxed) & bit(SIGTSTP) != 0
}

/// Sends the program the signals that came for it, except those that its terminal has sent to it
/// itself.
pub fn pass_on(child: &Child) {
    let recorded = RECORDED.swap(0, Relaxed);
    let sent = SENT.fetch_and(!recorded, Relaxed);
    for signal in for_program() {
        if recorded & sent & bit(signal) != 0 {
            // SAFETY: no pointers; the child has not been waited for, so the number is its.
            unsafe { libc::kill(child.id().cast_signed(), signal) };
        }
    }
}

/// Has the kernel keep a child's end until it is waited for, from now on. Returns true if SIGCHLD
/// was ignored, with which the kernel would not keep it.
fn keep_children() -> bool {
    let ignored = is_ignored(SIGCHLD);
    if ignored {
        // SAFETY: no pointers.
        unsafe { libc::signal(SIGCHLD, libc::SIG_DFL) };
    }
    ignored
}

/// Starts a program with the signal mask of this process, and SIGPIPE and SIGCHLD ignored if they
/// were: std would empty the mask and reset SIGPIPE, and we SIGCHLD.
///
/// # Errors
/// Those of fork(2) and execve(2).
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    let was_ignored = [(SIGPIPE, sigpipe_was_ignored()), (SIGCHLD, keep_children())];
    // SAFETY: an all-zero set is a valid one; the call only fills it in.
    let mask = unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_SETMASK, std::ptr::null(), &raw mut mask);
        mask
    };
    // SAFETY: between fork and exec the closure makes async-signal-safe calls only.
    unsafe {
        command.pre_exec(move || {
            for (signal, _) in was_ignored.iter().filter(|(_, ignored)| *ignored) {
                libc::signal(*signal, libc::SIG_IGN);
            }
            libc::sigprocmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut());
            Ok(())
        });
    }
    command.spawn()
}

/// Ends as if the signal had not been caught, so that whoever started us sees it. No core file is
/// written: it would take the place of the program's.
pub fn die_of(signal: c_int) -> ! {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is only read; raise(3) returns only if the signal does not end us.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
        libc::_exit(128 + signal)
    }
}

/// Stops this process until the shell continues it; does nothing if no shell could.
pub fn stop() {
    // SAFETY: no pointers.
    unsafe {
        libc::signal(SIGTSTP, libc::SIG_DFL);
        libc::raise(SIGTSTP);
    }
    catch(SIGTSTP);
}
