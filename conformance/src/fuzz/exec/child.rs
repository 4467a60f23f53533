//! Children of the executor: each waits for its fate.
#![allow(unsafe_code)]

use super::host;
use crate::fuzz::program::Fate;
use std::io;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// Number of children of a program.
pub const CHILDREN: usize = 3;
/// Exit code of a child that was asked to end.
const CODE: i32 = 7;
/// Longest wait for a change of state.
const CHANGE_LIMIT: Duration = Duration::from_millis(50);

static PIDS: [AtomicI32; CHILDREN] = [const { AtomicI32::new(-1) }; CHILDREN];

/// Forks the children, each the leader of a group; call before there are descriptors that they
/// would hold.
pub fn make() -> io::Result<()> {
    extern "C" fn end(_: i32) {
        // SAFETY: `_exit` is async-signal-safe.
        unsafe { libc::_exit(CODE) };
    }
    let parent = std::process::id().cast_signed();
    // Kernels from 6.16 on give a process a private futex table with its first thread, which may be
    // a worker: a wake does not find an older FUTEX_WAIT. So the process gets its table now.
    const PR_FUTEX_HASH: i32 = 78;
    const SET_SLOTS: i32 = 1;
    // SAFETY: this prctl touches no memory of ours.
    unsafe { libc::prctl(PR_FUTEX_HASH, SET_SLOTS, 16, 0) };
    for pid in &PIDS {
        // SAFETY: this process has one thread; the child makes system calls only.
        match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            // SAFETY: as above; the handler does nothing but leave.
            0 => unsafe {
                libc::signal(libc::SIGUSR1, end as extern "C" fn(i32) as usize);
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                while libc::getppid() == parent {
                    libc::pause();
                }
                libc::_exit(0)
            },
            new => pid.store(new, Ordering::Relaxed),
        }
        let pid = pid.load(Ordering::Relaxed);
        // SAFETY: setpgid touches no memory.
        unsafe { libc::setpgid(pid, pid) };
        wait_until_it_sleeps(pid);
    }
    Ok(())
}

/// Waits until the child's handler is surely installed.
fn wait_until_it_sleeps(pid: i32) {
    let path = format!("/proc/{pid}/stat");
    let start = Instant::now();
    while start.elapsed() < CHANGE_LIMIT {
        let stat = std::fs::read_to_string(&path).unwrap_or_default();
        if stat.rsplit(") ").next().is_some_and(|s| s.starts_with('S')) {
            return;
        }
        std::thread::yield_now();
    }
}

/// Returns the process id of child `i`.
pub fn pid(i: u8) -> i32 {
    PIDS[usize::from(i) % CHILDREN].load(Ordering::Relaxed)
}

/// Applies a fate to a child, and waits for it to show.
pub fn befall(i: u8, fate: Fate) -> i64 {
    let (signal, events) = match fate {
        Fate::Exit => (libc::SIGUSR1, libc::WEXITED),
        Fate::Kill => (libc::SIGKILL, libc::WEXITED),
        Fate::Stop => (libc::SIGSTOP, libc::WSTOPPED | libc::WEXITED),
        Fate::Continue => (libc::SIGCONT, libc::WCONTINUED | libc::WEXITED),
    };
    let pid = pid(i);
    if pid <= 0 {
        return -i64::from(libc::ESRCH);
    }
    // SAFETY: kill touches no memory; `pid` is our child, whose number is not reused so soon.
    if unsafe { libc::kill(pid, signal) } < 0 {
        return host::code(&io::Error::last_os_error());
    }
    let start = Instant::now();
    while start.elapsed() < CHANGE_LIMIT && !shows(pid, events) {
        std::thread::sleep(Duration::from_micros(100));
    }
    0
}

/// Returns whether the child's change of state can be waited for, or another wait has taken it.
fn shows(pid: i32, events: i32) -> bool {
    // SAFETY: all-zero is a valid siginfo_t; the call fills it.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = events | libc::WNOHANG | libc::WNOWAIT;
        let id = pid.cast_unsigned();
        libc::waitid(libc::P_PID, id, &raw mut info, options) != 0 || info.si_signo != 0
    }
}

/// Describes a siginfo_t, with the child's index for its process id.
pub fn show(bytes: &[u8]) -> String {
    let word =
        |at: usize| i32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let of = (0..CHILDREN as u8).find(|&i| pid(i) == word(16) && word(16) != 0);
    format!("child {of:?} signo {} errno {} code {} status {}", word(0), word(4), word(8), word(24))
}
