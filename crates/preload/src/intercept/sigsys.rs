//! The SIGSYS trap, the last resort: the kernel raises SIGSYS for every io_uring call that would
//! bypass us.
//!
//! **seccomp TRAP, not Syscall User Dispatch**, for reasons measured on Linux 6.18 (ns; a ring call
//! means the trap and back, getppid is an example of every other call):
//!
//! | | ring call | getppid |
//! |---|---|---|
//! | neither | | 165 |
//! | seccomp TRAP, three numbers | 3,200–5,000 | 180–300 |
//! | SUD with a selector byte | 5,100–6,900 | 415–440, or a trap each while armed |
//! | SUD for one range of addresses (new kernels only) | 3,400–5,300 | 300–415 |
//!
//! The trap costs the same, but SUD chooses by address where seccomp chooses by number. SUD slows
//! every other call about twice as much (seccomp answers those from a bitmap), and belongs to one
//! thread: each new thread would have to be caught and set. Both outrank a container's ERRNO
//! filter.
//!
//! The price of seccomp: the filter is inherited through fork and exec and cannot be removed. A
//! child without this library dies of SIGSYS at its first io_uring call; a child with the library
//! finds the filter at start ([`inherit`]). Without CAP_SYS_ADMIN the filter needs no_new_privs, so
//! that setuid programs started later gain nothing. Hence the trap is never the default: it is set
//! only if a call site could not be patched, or if the user asks.
//!
//! A trap is a fault: it kills if SIGSYS is blocked or ignored at that moment. While the trap is
//! set, `wrap::mask` keeps SIGSYS unblocked, and `wrap::signal` keeps the program's own handler
//! beside ours.
#![allow(unsafe_code)]

use super::{filter, libaio, patch};
use crate::raw::{self, raw};
use crate::{config, wrap};
use alloc::format;
use alloc::string::ToString;
use core::arch::global_asm;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use libc::{siginfo_t, sock_fprog, ucontext_t};
use softring_host::handlers::MARK;
use softring_host::{files, refused, user};

const IDLE: u8 = 0;
const OPENING: u8 = 1;
const OPEN: u8 = 2;
const FAILED: u8 = 3;

/// State of the trap. Release and acquire: a thread that sees OPEN also sees the program's earlier
/// handler in `wrap::signal`.
static STATE: AtomicU8 = AtomicU8::new(IDLE);
/// Nonzero once the handler is installed.
static HANDLING: AtomicU8 = AtomicU8::new(0);

/// Flag, set once a call of our own to the kernel was trapped by a filter that an earlier program
/// had installed, as ours lets our calls pass.
static INHERITED: AtomicBool = AtomicBool::new(false);
/// Flag, set once a call of our own was trapped by a filter that is not softring's.
static FOREIGN: AtomicBool = AtomicBool::new(false);

/// Returns whether our own calls do not reach the kernel either, as this process has inherited a
/// trap.
pub fn is_inherited() -> bool {
    INHERITED.load(Ordering::Relaxed)
}

/// Returns whether a policy has trapped a call of our own, which kills a process without a handler.
pub fn is_foreign() -> bool {
    FOREIGN.load(Ordering::Relaxed)
}

/// Returns whether our handler for SIGSYS is installed.
#[inline]
pub fn handling() -> bool {
    HANDLING.load(Ordering::Acquire) != 0
}

/// Returns whether we have set the trap.
pub fn is_open() -> bool {
    STATE.load(Ordering::Acquire) == OPEN
}

/// Sets the trap for every thread of this process, once; returns whether it is set.
pub fn open() -> bool {
    match STATE.compare_exchange(IDLE, OPENING, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            let set = handle() && !is_outranked() && filter();
            STATE.store(if set { OPEN } else { FAILED }, Ordering::Release);
            set
        }
        Err(OPENING) => {
            while STATE.load(Ordering::Acquire) == OPENING {
                softring_host::threads::yield_now();
            }
            STATE.load(Ordering::Acquire) == OPEN
        }
        Err(state) => state == OPEN,
    }
}

/// Returns whether a policy kills for a call that the trap is for. Of all filters' answers the
/// kernel takes the most severe, so the trap would never see the call.
pub fn is_outranked() -> bool {
    refused::learn();
    crate::gate::asking_kills()
}

/// Returns the number of the program's other threads that block SIGSYS. A trapped call would kill
/// such a thread, and only the thread itself could unblock SIGSYS. The C library blocks all signals
/// for the moment in which it starts a thread, so a finding is checked again.
pub fn blocked_elsewhere() -> usize {
    let mut found = 0;
    for _ in 0..3 {
        // SAFETY: no arguments.
        let me = unsafe { raw!(libc::SYS_gettid) }.to_string();
        let others = files::names_in("/proc/self/task").into_iter().filter(|task| *task != me);
        // The first line is a name, which may be any bytes.
        let status = |task| files::proc_text(&format!("/proc/self/task/{task}/status"));
        found = others.filter_map(status).filter(|status| blocks(status)).count();
        if found == 0 {
            break;
        }
        let millisecond = [0u64, 1_000_000];
        // SAFETY: reads the time, which is ours.
        unsafe { raw!(libc::SYS_nanosleep, millisecond.as_ptr().expose_provenance(), 0) };
    }
    found
}

/// Returns whether a thread with this `status` blocks SIGSYS. The engine's own threads do not
/// count: they block it, and make no ring calls.
fn blocks(status: &str) -> bool {
    let of = |name| status.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
    let mask = of("SigBlk:").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    let ours = of("Name:").is_some_and(|name| name.starts_with("iou-"));
    !ours && mask.is_some_and(|mask| mask & 1 << (libc::SIGSYS - 1) != 0)
}

/// Sets the handler at start if this process has inherited any filter, which may be ours, set by a
/// parent. A test by a call would be one that another's filter may punish.
pub fn inherit() {
    if refused::is_filtered() {
        handle();
    }
}

fn handle() -> bool {
    if handling() {
        return true;
    }
    if patch::own_text().is_none() {
        return false;
    }
    // SAFETY: zero is a valid sigaction: no flags, an empty mask.
    let mut old: libc::sigaction = unsafe { core::mem::zeroed() };
    let mut new = old;
    new.sa_sigaction = softring_on_sigsys as *const () as usize;
    new.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: both structures are ours; the handler is one for SA_SIGINFO.
    let done =
        unsafe { wrap::signal::real_sigaction(libc::SIGSYS, &raw const new, &raw mut old) == 0 };
    if done {
        wrap::signal::keep(&old);
        wrap::mask::set(unblock());
        HANDLING.store(1, Ordering::Release);
        refused::ring_traps_are_handled();
    }
    done
}

/// Unblocks SIGSYS for the calling thread; returns whether it was blocked.
fn unblock() -> bool {
    let set = 1u64 << (libc::SIGSYS - 1);
    let mut old = 0u64;
    // SAFETY: kernel signal sets of 8 bytes.
    unsafe {
        let [new, old] = [(&raw const set).expose_provenance(), (&raw mut old).expose_provenance()];
        raw!(libc::SYS_rt_sigprocmask, libc::SIG_UNBLOCK, new, old, 8);
    }
    old & set != 0
}

/// Installs the filter ([`filter::program`]) for all threads.
fn filter() -> bool {
    let Some(own) = patch::own_text() else { return false };
    refused::learn();
    if ![libc::SYS_seccomp, libc::SYS_prctl].into_iter().all(refused::works) {
        return false;
    }
    let program = filter::program(own, config::aio_hipri());
    let program = sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    let at = (&raw const program).expose_provenance();
    let (set, every) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
    // SAFETY: a valid program, which the kernel copies. TSYNC answers the id of a thread that it
    // cannot set.
    unsafe {
        if raw!(libc::SYS_seccomp, set, every, at) == 0 {
            return true;
        }
        raw!(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && raw!(libc::SYS_seccomp, set, every, at) == 0
    }
}

/// `siginfo_t` of a SIGSYS.
#[repr(C)]
struct SigsysInfo {
    signo: c_int,
    errno: c_int,
    code: c_int,
    pad: c_int,
    call_addr: usize,
    syscall: c_int,
    arch: u32,
}

/// SYS_SECCOMP.
const SYS_SECCOMP: c_int = 1;

// The handler, in front of which a mark tells other copies of this library whose it is.
global_asm!(
    ".pushsection .text.softring_on_sigsys,\"ax\",@progbits",
    ".balign 16",
    ".space 8",
    ".ascii \"softring\"",
    ".hidden softring_on_sigsys",
    ".globl softring_on_sigsys",
    ".type softring_on_sigsys,@function",
    "softring_on_sigsys:",
    "jmp {handle}",
    ".size softring_on_sigsys, . - softring_on_sigsys",
    ".popsection",
    handle = sym on_sigsys,
);
unsafe extern "C" {
    fn softring_on_sigsys(signo: c_int, info: *mut siginfo_t, context: *mut c_void);
}

/// Returns whether another copy of this library handles SIGSYS.
pub fn is_handled_by_another() -> bool {
    let mut action = [0u64; 4];
    let to = (&raw mut action).expose_provenance();
    // SAFETY: the kernel's structure: handler, flags, restorer and mask.
    let ret = unsafe { raw!(libc::SYS_rt_sigaction, libc::SIGSYS, 0, to, 8) };
    let handler = action[0].checked_sub(MARK.len() as u64).filter(|at| ret == 0 && *at > 1);
    let mark = handler.and_then(|at| user::read::<u64>(at).ok());
    mark.is_some_and(|mark| mark.to_ne_bytes() == MARK.as_bytes())
}

/// Handles SIGSYS. The call is not made here, on the stack of a handler: the thread continues in
/// [`patch::entry::trapped`], as if the instruction had been patched.
unsafe extern "C" fn on_sigsys(signo: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let errno = raw::errno();
    // SAFETY: the kernel's structures, for the life of this frame.
    let (sys, uc) = unsafe { (&*info.cast::<SigsysInfo>(), &mut *context.cast::<ucontext_t>()) };
    let nr = i64::from(sys.syscall);
    let ring = (libc::SYS_io_uring_setup..=libc::SYS_io_uring_register).contains(&nr);
    let ours = ring || libaio::knows(nr);
    if sys.code != SYS_SECCOMP || !ours {
        // SAFETY: this handler's own arguments.
        unsafe { wrap::signal::forward(signo, info, context, sys.code == SYS_SECCOMP) };
        return raw::set_errno(errno);
    }
    let regs = &mut uc.uc_mcontext.gregs;
    // Found before there was a filter: here it is only read.
    let own = patch::own_text().unwrap_or_default();
    if own.contains(&sys.call_addr) {
        // Our own call to the kernel, under a filter that a parent set for its own copy of this
        // library, or under somebody else's.
        let by = if sys.errno == filter::MARK.cast_signed() { &INHERITED } else { &FOREIGN };
        by.store(true, Ordering::Relaxed);
        regs[libc::REG_RAX as usize] = -i64::from(libc::EPERM);
    } else {
        regs[libc::REG_RAX as usize] = nr;
        regs[libc::REG_RCX as usize] = sys.call_addr as i64;
        regs[libc::REG_RIP as usize] = patch::entry::trapped as *const () as i64;
    }
    raw::set_errno(errno);
}
