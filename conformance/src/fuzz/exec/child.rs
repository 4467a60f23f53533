//! Children of the executor: each waits until something befalls it.
#![allow(unsafe_code)]

use super::host;
use crate::fuzz::program::Fate;
use std::io;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// Children of a program.
pub const CHILDREN: usize = 3;
/// What a child's end says that was asked to end.
const CODE: i32 = 7;
/// A change of state is waited for no longer than this.
const CHANGE_LIMIT: Duration = Duration::from_millis(50);

static PIDS: [AtomicI32; CHILDREN] = [const { AtomicI32::new(-1) }; CHILDREN];

/// Makes them, each the leader of a group; call before there are descriptors that they would hold.
pub fn make() -> io::Result<()> {
    extern "C" fn end(_: i32) {
        // SAFETY: async-signal-safe.
        unsafe { libc::_exit(CODE) };
    }
    let parent = std::process::id().cast_signed();
    // Kernels from 6.16 on give a process a futex table of its own with its first thread, which may
    // be a worker's: a FUTEX_WAIT from before that is not found by a wake. So it has one now.
    const PR_FUTEX_HASH: i32 = 78;
    const SET_SLOTS: i32 = 1;
    // SAFETY: touches no memory of ours.
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
        // SAFETY: touches no memory.
        unsafe { libc::setpgid(pid, pid) };
        wait_until_it_sleeps(pid);
    }
    Ok(())
}

/// Waits until its handler is surely installed.
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

/// The process id of child `i`.
pub fn pid(i: u8) -> i32 {
    PIDS[usize::from(i) % CHILDREN].load(Ordering::Relaxed)
}

/// Something befalls a child, and is given time to show.
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
    // SAFETY: a child of our own; where it is gone, its number is not used again so soon.
    if unsafe { libc::kill(pid, signal) } < 0 {
        return host::code(&io::Error::last_os_error());
    }
    let start = Instant::now();
    while start.elapsed() < CHANGE_LIMIT && !shows(pid, events) {
        std::thread::sleep(Duration::from_micros(100));
    }
    0
}

/// Has the child something to tell, or was it told to somebody else?
fn shows(pid: i32, events: i32) -> bool {
    // SAFETY: all-zero is a valid siginfo_t; the call fills it.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = events | libc::WNOHANG | libc::WNOWAIT;
        let id = pid.cast_unsigned();
        libc::waitid(libc::P_PID, id, &raw mut info, options) != 0 || info.si_signo != 0
    }
}

/// What is told of a child, with its place in the row for its number.
pub fn show(bytes: &[u8]) -> String {
    let word =
        |at: usize| i32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let of = (0..CHILDREN as u8).find(|&i| pid(i) == word(16) && word(16) != 0);
    format!("child {of:?} signo {} errno {} code {} status {}", word(0), word(4), word(8), word(24))
}
