//! The gate of an io_uring call, where every entry point ends: the engine or the kernel answers.
//! For kernel aio the engine decides for each context.
//!
//! A ring belongs to its maker, so calls on a ring fd need no rule. Other calls (with a registered
//! ring's index, `register` on fd -1, on a descriptor that is no ring) go to the engine once it has
//! made a ring or was asked for, else to the kernel; and to the engine if the kernel denies
//! io_uring as such. In a process with rings of both, the engine is asked first about an index, and
//! the kernel if the engine does not know the index; the kernel answers the rest.
#![allow(unsafe_code)]

use crate::config::{self, Engine};
use crate::intercept::{libaio, sigsys};
use crate::raw::raw;
use crate::wrap::{close, dup, epoll, epoll_wait, exec, mask, poll, select, signal};
use crate::{heap, intercept, notice, old, proc, report, threads, trial};
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use softring_engine::poll_queues;
use softring_engine::{fds, syscall as engine};
use softring_host::fd;
use softring_host::refused::{self, Refusal};
use softring_host::substitute;
use softring_host::user::{self, UserPtr};
use softring_uapi::{IORING_SETUP_IOPOLL, io_uring_params};

/// `IORING_ENTER_REGISTERED_RING`.
const ENTER_REGISTERED_RING: usize = 1 << 4;
/// `IORING_REGISTER_USE_REGISTERED_RING`.
const USE_REGISTERED_RING: usize = 1 << 31;

/// The three calls of io_uring.
const RINGS: [i64; 3] =
    [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// Reason why the engine runs.
#[derive(Clone, Copy, Debug)]
pub enum Why {
    Asked,
    Denied(i32),
    /// Denied by a filter that an earlier program has installed and that raises SIGSYS
    /// (SECCOMP_RET_TRAP).
    Trapped,
    /// A policy kills the process if it asks the kernel.
    Kills,
    /// The kernel would give a ring that does not work.
    Broken(&'static str),
    /// The kernel would give a polled ring and refuse every read and write on it.
    Unpolled,
    /// The kernel does not know a set-up flag that the program needs.
    NoFlag(&'static str),
    /// The kernel's rings lack a feature of the release that the user demands at least.
    TooOld,
}

// Relaxed throughout: each only turns on, before the program knows the ring that it reports.
pub static ENGINE_RINGS: AtomicBool = AtomicBool::new(false);
/// Flag, set once the engine has a descriptor, or will have one in a moment.
pub static WATCHED: AtomicBool = AtomicBool::new(false);
pub static KERNEL_RINGS: AtomicBool = AtomicBool::new(false);

/// Returns whether descriptors need a second check.
#[inline]
pub fn watched() -> bool {
    WATCHED.load(Ordering::Relaxed)
}

/// Notes that the engine has a descriptor, or will have one in a moment.
pub fn watch() {
    if !WATCHED.swap(true, Ordering::Relaxed) {
        intercept::patch::stub::watch();
    }
}

/// Returns whether the engine has made a ring for this process.
#[inline]
pub fn engine_rings() -> bool {
    ENGINE_RINGS.load(Ordering::Relaxed)
}

/// Answers system call `nr` if it concerns rings or kernel aio, else passes it to the kernel.
///
/// # Safety
/// `a` are the arguments of a call that the program makes.
pub unsafe fn call(nr: usize, a: &[usize; 6]) -> isize {
    // SAFETY: the caller's.
    unsafe {
        match nr as i64 {
            libc::SYS_io_uring_setup => setup(a),
            libc::SYS_io_uring_enter => enter(a),
            libc::SYS_io_uring_register => register(a),
            libaio::FIRST..=libaio::LAST | libaio::PGETEVENTS => libaio::call(nr as i64, a),
            libc::SYS_close => close::raw_close(a[0] as i32),
            libc::SYS_close_range => close::raw_close_range(a[0] as u32, a[1] as u32, a[2] as i32),
            libc::SYS_dup => dup::raw_dup(a[0] as i32),
            libc::SYS_dup2 => dup::raw_dup2(a[0] as i32, a[1] as i32),
            libc::SYS_dup3 => dup::raw_dup3(a[0] as i32, a[1] as i32, a[2] as i32),
            libc::SYS_fcntl => dup::raw_fcntl(a[0] as i32, a[1] as i32, a[2]),
            libc::SYS_rt_sigaction => signal::raw_sigaction(a[0] as i32, a[1], a[2], a[3]),
            libc::SYS_rt_sigprocmask => mask::raw_sigprocmask(a[0] as i32, a[1], a[2], a[3]),
            libc::SYS_epoll_ctl => epoll::by_number(a[0] as i32, a[1] as i32, a[2] as i32, a[3]),
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => {
                epoll_wait::by_number(nr, a)
            }
            libc::SYS_poll | libc::SYS_ppoll => poll::by_number(nr, a),
            libc::SYS_select | libc::SYS_pselect6 => select::by_number(nr, a),
            libc::SYS_execve => exec::raw_execve(a),
            libc::SYS_execveat => exec::raw_execveat(a),
            libc::SYS_mmap => {
                let fd = crate::wrap::visible(a[4] as i32) as usize;
                let off = crate::wrap::mmap::offset(a[4] as i32, a[5] as i64);
                crate::raw::syscall6(nr, &[a[0], a[1], a[2], a[3], fd, off as usize])
            }
            _ => crate::raw::syscall6(nr, a),
        }
    }
}

unsafe fn setup(a: &[usize; 6]) -> isize {
    report::SETUPS.add();
    if config::engine() != Engine::Kernel
        && let Some((call, how)) = impossible()
    {
        // SAFETY: the program's own call.
        return unsafe { setup_without_ours(a, call, how) };
    }
    if config::engine() == Engine::Auto && refused::came_unreported() {
        // The unknown filter may kill for any call but the program's own, so that one is made
        // first. SAFETY: as above.
        let ret = unsafe { kernel_setup(a) };
        if denied(ret).is_none() {
            return ret;
        }
    }
    learn();
    // A child has found more than the known filters say.
    if config::engine() != Engine::Kernel
        && let Some((call, how)) = impossible()
    {
        // SAFETY: as above.
        return unsafe { setup_without_ours(a, call, how) };
    }
    let why = match config::engine() {
        Engine::User => Why::Asked,
        Engine::Kernel => {
            // SAFETY: the program's own call.
            let ret = unsafe { kernel_setup(a) };
            if let Some(errno) = denied(ret).filter(|_| minimal_ring_refused().is_some()) {
                notice::kernel_denies(errno);
            }
            return ret;
        }
        Engine::Auto if asking_kills() => Why::Kills,
        Engine::Auto if cannot_poll(a) => Why::Unpolled,
        Engine::Auto => match trial::fault() {
            Some(what) => Why::Broken(what),
            None if old::lacking().is_some() => Why::TooOld,
            None => {
                // SAFETY: as above.
                let ret = unsafe { kernel_setup(a) };
                match why_not(ret, a) {
                    Some(why) => why,
                    None => return ret,
                }
            }
        },
    };
    // SAFETY: the argument of the program's call.
    take_over(a, unsafe { UserPtr::of_program(a[1] as u64) }, why)
}

/// Answers a setup where our rings cannot be had, without trying anything that only they need.
///
/// # Safety
/// The program's own call.
unsafe fn setup_without_ours(a: &[usize; 6], call: &str, how: Refusal) -> isize {
    let why = match config::engine() {
        Engine::Auto if !kills_for_rings() => {
            // SAFETY: the caller's.
            let ret = unsafe { kernel_setup(a) };
            match denied(ret) {
                Some(errno) => Why::Denied(errno),
                None => return ret,
            }
        }
        Engine::Auto => Why::Kills,
        _ => Why::Asked,
    };
    notice::missing(call, how);
    without_ours(a, why)
}

/// Returns why the kernel gives no ring; `None` if the program asked for a wrong one.
fn why_not(ret: isize, a: &[usize; 6]) -> Option<Why> {
    if ret >= 0 {
        return None;
    }
    let why = |errno| match (sigsys::is_inherited(), sigsys::is_foreign()) {
        (true, _) => Why::Trapped,
        (_, true) => Why::Kills,
        _ => Why::Denied(errno),
    };
    let denied = denied(ret).map(why);
    denied.or_else(|| old::shape(ret, a[1]).map(Why::NoFlag))
}

unsafe fn kernel_setup(a: &[usize; 6]) -> isize {
    // SAFETY: the caller's.
    let ret = unsafe { raw!(libc::SYS_io_uring_setup, a[0], a[1]) };
    if ret >= 0 {
        KERNEL_RINGS.store(true, Ordering::Relaxed);
        if engine_rings() {
            // One of our rings may have had this number and been closed without our notice.
            fds::sweep();
        }
    }
    ret
}

/// Learns what policies refuse, unless only the kernel makes rings.
fn learn() {
    if config::engine() != Engine::Kernel {
        refused::learn();
    }
}

/// Returns whether a policy is known to kill for the kernel's ring calls. Calls that could not be
/// tried do not count.
fn kills_for_rings() -> bool {
    asking_kills() && !refused::rings_are_unasked()
}

/// Returns whether a policy kills for the kernel's ring calls, or may do so as they could not be
/// tried.
pub fn asking_kills() -> bool {
    RINGS.into_iter().any(|nr| refused::how(nr) == Some(Refusal::Kills))
}

/// Returns the answer to a setup where our rings cannot be had either.
fn without_ours(a: &[usize; 6], why: Why) -> isize {
    match why {
        Why::Asked | Why::Trapped => -(libc::EPERM as isize),
        Why::Kills => -(libc::ENOSYS as isize),
        Why::Denied(errno) => -(errno as isize),
        // SAFETY: the program's own call.
        Why::Unpolled | Why::Broken(_) | Why::TooOld | Why::NoFlag(_) => unsafe { kernel_setup(a) },
    }
}

/// Returns a call that our rings need and a policy refuses, if there is one.
fn missing() -> Option<(&'static str, Refusal)> {
    impossible().or_else(refused::essential)
}

/// Returns a refused call without which no ring of ours is possible, if there is one.
fn impossible() -> Option<(&'static str, Refusal)> {
    threads::refused().or_else(refused::barred)
}

fn take_over(a: &[usize; 6], params: UserPtr, why: Why) -> isize {
    // The preparations for a ring need memory, too.
    if !heap::has_spare() {
        return -(libc::ENOMEM as isize);
    }
    if let Err(gaps) = intercept::close_gaps() {
        notice::refused(&gaps);
        return without_ours(a, why);
    }
    if let Some((call, how)) = missing() {
        notice::missing(call, how);
        return without_ours(a, why);
    }
    intercept::before_ring();
    proc::first_ring();
    close::first_ring();
    epoll::first_ring();
    proc::check_forked();
    fd::closes_are_reported();
    fd::closes_are_all_reported(intercept::reports_closes());
    // Before the ring exists: whoever sees the new descriptor sees this as well.
    watch();
    let first = !ENGINE_RINGS.swap(true, Ordering::Relaxed);
    let room = heap::has_spare();
    let ret = if room { engine::setup(a[0] as u32, params) } else { -(libc::ENOMEM as isize) };
    if ret >= 0 && first {
        notice::engine_runs(why);
    }
    match -ret as i32 {
        libc::ENOMEM => notice::no_memory(),
        errno @ (libc::EPERM | libc::EACCES | libc::ENOSYS | libc::EOPNOTSUPP) => no_file(errno),
        _ => {}
    }
    ret
}

/// Reports why there is no ring: memfd_create(2) is refused without a substitute, or a call failed.
#[cold]
fn no_file(errno: i32) {
    match refused::how(libc::SYS_memfd_create) {
        Some(how) if substitute::memory_file("[io_uring]").is_err() => {
            notice::missing("memfd_create", how);
        }
        _ => notice::failed(errno),
    }
}

unsafe fn enter(a: &[usize; 6]) -> isize {
    let indexed = a[3] & ENTER_REGISTERED_RING != 0;
    // SAFETY: the program's own call.
    let kernel = || unsafe { raw!(libc::SYS_io_uring_enter, a[0], a[1], a[2], a[3], a[4], a[5]) };
    let [submit, min, flags] = [a[1] as u32, a[2] as u32, a[3] as u32];
    if engine_rings() && !indexed {
        proc::check_forked();
        let args = engine::Args { submit, min, flags, arg: a[4] as u64, argsz: a[5] };
        if let Some(ret) = engine::enter_ours(a[0] as i32, &args) {
            return ret;
        }
    }
    let ours = || engine::enter(a[0] as i32, submit, min, flags, a[4], a[5]);
    answer(a[0] as i32, indexed, ours, kernel)
}

unsafe fn register(a: &[usize; 6]) -> isize {
    let indexed = a[1] & USE_REGISTERED_RING != 0;
    let kernel = || {
        // SAFETY: the program's own call.
        let ret = unsafe { raw!(libc::SYS_io_uring_register, a[0], a[1], a[2], a[3]) };
        if config::engine() == Engine::Auto {
            old::record_register(a[1] & !USE_REGISTERED_RING, a[2], ret);
        }
        ret
    };
    // SAFETY: the argument of the program's call.
    let arg = unsafe { UserPtr::of_program(a[2] as u64) };
    let ours = || engine::register(a[0] as i32, a[1] as u32, arg, a[3] as u32);
    answer(a[0] as i32, indexed, ours, kernel)
}

/// Applies the rule at the top of this file.
#[inline]
fn answer(fd: i32, indexed: bool, ours: impl Fn() -> isize, kernel: impl Fn() -> isize) -> isize {
    if engine_rings() {
        proc::check_forked();
        if !indexed && fd::is_known_ring(fd) {
            return ours();
        }
        if !KERNEL_RINGS.load(Ordering::Relaxed) {
            return ours();
        }
        if indexed {
            let ret = ours();
            let unknown = [-libc::EBADF, -libc::EINVAL].contains(&(ret as i32));
            return if unknown { kernel() } else { ret };
        }
        return kernel();
    }
    let by_kernel = KERNEL_RINGS.load(Ordering::Relaxed);
    if config::engine() == Engine::Auto && (by_kernel || impossible().is_some()) {
        return kernel();
    }
    learn();
    match config::engine() {
        Engine::Kernel => kernel(),
        Engine::User => ours(),
        Engine::Auto if asking_kills() || old::lacking().is_some() => ours(),
        Engine::Auto => {
            let ret = kernel();
            // Before the first ring, EPERM may be an answer to this call. A minimal ring tells
            // whether io_uring as such is refused.
            let refused = matches!(-ret as i32, libc::EPERM | libc::ENOSYS | libc::EACCES);
            if refused && minimal_ring_refused().is_some() { ours() } else { ret }
        }
    }
}

/// Returns whether this sets up a polled ring (IOPOLL) that the kernel would give and whose I/O it
/// would refuse, because no disk here has poll queues.
fn cannot_poll(a: &[usize; 6]) -> bool {
    let flags = a[1].wrapping_add(core::mem::offset_of!(io_uring_params, flags));
    let polls = |flags: u32| flags & IORING_SETUP_IOPOLL != 0;
    let reads = [libc::SYS_openat, libc::SYS_getdents64, libc::SYS_read, libc::SYS_close];
    user::read(flags as u64).is_ok_and(polls)
        && reads.into_iter().all(refused::spares)
        && poll_queues::refuses()
        && minimal_ring_refused().is_none()
}

/// Returns whether all of the program's rings must be ours.
pub fn denies_all() -> bool {
    learn();
    match config::engine() {
        Engine::User => true,
        Engine::Kernel => false,
        Engine::Auto => {
            asking_kills()
                || trial::fault().is_some()
                || minimal_ring_refused().is_some()
                || old::lacking().is_some()
        }
    }
}

/// Returns the errno if this answer of `io_uring_setup` means that the kernel gives no ring here,
/// and not that the program asked for a wrong one.
fn denied(ret: isize) -> Option<i32> {
    match -ret as i32 {
        e @ (libc::EPERM | libc::ENOSYS | libc::EOPNOTSUPP | libc::ENOMEM | libc::EACCES) => {
            Some(e)
        }
        // A filter may answer with any errno: then not even the simplest ring is given. The errors
        // in the next line are temporary and tell nothing.
        libc::EINTR | libc::EAGAIN | libc::EMFILE | libc::ENFILE => None,
        errno if errno > 0 => minimal_ring_refused(),
        _ => None,
    }
}

/// Asks the kernel, once, for the simplest ring; returns the errno if the kernel refuses.
fn minimal_ring_refused() -> Option<i32> {
    const UNKNOWN: i32 = -1;
    static ANSWER: AtomicI32 = AtomicI32::new(UNKNOWN);
    let known = ANSWER.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return (known != 0).then_some(known);
    }
    let params = [0u64; 15];
    // SAFETY: 120 bytes, the size of io_uring_params, all zero; the kernel writes within them.
    let fd = unsafe { raw!(libc::SYS_io_uring_setup, 1, (&raw const params).expose_provenance()) };
    let errno = if fd >= 0 {
        // SAFETY: our own descriptor.
        unsafe { raw!(libc::SYS_close, fd) };
        0
    } else {
        -fd as i32
    };
    ANSWER.store(errno, Ordering::Relaxed);
    (errno != 0).then_some(errno)
}
