//! The program's signal handlers, preceded by a question to the engine: may it run now?
//!
//! From the first ring on, what the program installs as a handler is kept here, and the kernel is
//! given [`handler`] in its place, with the mask and flags that the program wants, and SA_SIGINFO.
//! The program is shown its own. Left alone are signals that tell of a fault of the thread's own,
//! and what is installed by an inline system call that is not patched.
//!
//! A word per signal is all there is, and no lock: sigaction(2) may be called in a handler.
#![allow(unsafe_code)]

use crate::proc;
use crate::raw::{next, raw};
use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicUsize};
use libc::siginfo_t;
use softring_host::handlers;

/// Beside the handler's address: the program wants SA_SIGINFO.
const SIGINFO: usize = 1 << 63;
/// The bit for SA_RESETHAND.
const ONCE: usize = 1 << 62;
/// The bit for SA_NODEFER. The kernel is not given that: a signal that is sent again and again
/// would come on top of our own function until the stack is full.
const NESTS: usize = 1 << 61;
const OWN: usize = SIGINFO | ONCE | NESTS;
const SIGNALS: usize = 65;
/// glibc's, by which pthread_cancel(3) reaches a thread.
const SIGCANCEL: c_int = 32;

/// The program's handlers, by signal; 0: none was ever installed.
static HANDLERS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];
/// Handlers are preceded by ours.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// A thread may be cancelled at any time.
static ASYNCHRONOUS: AtomicBool = AtomicBool::new(false);

/// `struct sigaction` as the kernel has it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// Signals whose handlers run at once: those of faults, abort(3)'s, and SIGSYS, which has a module
/// of its own. Those of the C library are its own affair.
fn is_left_alone(signo: c_int) -> bool {
    use libc::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
    !(1..SIGNALS as c_int).contains(&signo)
        || [SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS, 33].contains(&signo)
}

fn is_handler(action: usize) -> bool {
    action != libc::SIG_DFL && action != libc::SIG_IGN && action != libc::SIG_ERR
}

fn ours() -> usize {
    handler as *const () as usize
}

/// Stands before every handler of the program's: jumps to it, with its arguments and on its stack,
/// so that no frame of ours is in the way of what unwinds.
#[unsafe(naked)]
extern "C" fn handler(_: c_int, _: *mut siginfo_t, _: *mut c_void) {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "call {choose}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "ret",
        choose = sym choose,
    )
}

/// The handler that is to run now; 0: none.
unsafe extern "C" fn choose(signo: c_int, info: *mut siginfo_t, context: *mut c_void) -> usize {
    let kept = HANDLERS[signo as usize].load(Acquire);
    let (info, context) = (info.expose_provenance(), context.expose_provenance());
    // SAFETY: what the kernel has passed to `handler`, installed with SA_SIGINFO.
    if !unsafe { handlers::defers(signo, info, context) } {
        if kept & NESTS != 0 {
            unblock(signo);
        }
        return kept & !OWN;
    }
    if kept & ONCE != 0 {
        install_again(signo);
    }
    0
}

/// The kernel has taken a handler with SA_RESETHAND away; flags and mask are still there.
fn install_again(signo: c_int) {
    let mut action = kernel_action(signo, None);
    if action.handler == libc::SIG_DFL {
        action.handler = ours();
        kernel_action(signo, Some(&action));
    }
}

/// rt_sigaction(2): the action before.
fn kernel_action(signo: c_int, new: Option<&KernelAction>) -> KernelAction {
    let mut old = KernelAction::default();
    let new = new.map_or(0, |new| core::ptr::from_ref(new).expose_provenance());
    // SAFETY: structures of ours, as the kernel has them.
    unsafe { raw!(libc::SYS_rt_sigaction, signo, new, (&raw mut old).expose_provenance(), 8) };
    old
}

fn unblock(signo: c_int) {
    let set = 1u64 << (signo - 1);
    // SAFETY: a set of ours.
    unsafe {
        let set = (&raw const set).expose_provenance();
        raw!(libc::SYS_rt_sigprocmask, libc::SIG_UNBLOCK, set, 0, 8);
    }
}

/// What is kept of an action, and the flags that the kernel is given. A mask with the signal in it
/// makes SA_NODEFER of no use.
fn kept_as(handler: usize, flags: c_int, masked: bool) -> (usize, c_int) {
    let bit = |flag, bit| if flags & flag != 0 { bit } else { 0 };
    let nests = if masked { 0 } else { bit(libc::SA_NODEFER, NESTS) };
    let kept = handler | bit(libc::SA_SIGINFO, SIGINFO) | bit(libc::SA_RESETHAND, ONCE) | nests;
    let held_back = if nests == 0 { 0 } else { libc::SA_NODEFER };
    (kept, flags & !held_back | libc::SA_SIGINFO)
}

/// Puts ours before the handler that `signo` has now.
fn precede(signo: c_int) {
    let mut now = kernel_action(signo, None);
    while is_handler(now.handler) && now.handler != ours() {
        let masked = now.mask & 1 << (signo - 1) != 0;
        // The kernel knows no flags beyond 32 bits.
        let (kept, flags) = kept_as(now.handler, now.flags as c_int, masked);
        HANDLERS[signo as usize].store(kept, Relaxed);
        let flags = u64::from(flags.cast_unsigned());
        let before = kernel_action(signo, Some(&KernelAction { handler: ours(), flags, ..now }));
        if before.handler == now.handler {
            break;
        }
        // Another thread has just installed that one, or taken it away.
        now = before;
        if !is_handler(now.handler) {
            kernel_action(signo, Some(&now));
        }
    }
}

/// The engine is about to have something that a handler could leave behind.
pub fn activate() {
    if ACTIVE.swap(true, AcqRel) {
        return;
    }
    (1..SIGNALS as c_int).filter(|&s| s != SIGCANCEL && !is_left_alone(s)).for_each(precede);
    if ASYNCHRONOUS.load(Relaxed) {
        precede_cancel();
    }
}

/// Does a call of sigaction(2) concern us?
pub fn concerns(signo: c_int) -> bool {
    ACTIVE.load(Relaxed) && !is_left_alone(signo) && signo != SIGCANCEL
}

/// sigaction(2) by `real`, for a signal that [`concerns`] us.
///
/// # Safety
/// As for sigaction(2).
pub unsafe fn exchange(
    signo: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
    real: impl Fn(*const libc::sigaction, *mut libc::sigaction) -> c_int,
) -> c_int {
    let word = &HANDLERS[signo as usize];
    // SAFETY: the program's pointers, which libc's sigaction reads and writes just so.
    unsafe {
        let mut before = word.load(Acquire);
        // Ours: an inline call was shown it, and the program gives it back.
        let theirs = |a: &&libc::sigaction| is_handler(a.sa_sigaction) && a.sa_sigaction != ours();
        let asked = new.as_ref().filter(theirs).filter(|_| !proc::shares_memory());
        let ret = match asked {
            None => real(new, old),
            Some(asked) => {
                let masked = libc::sigismember(&raw const asked.sa_mask, signo) == 1;
                let (kept, flags) = kept_as(asked.sa_sigaction, asked.sa_flags, masked);
                before = word.swap(kept, AcqRel);
                let mut ours_first = *asked;
                (ours_first.sa_sigaction, ours_first.sa_flags) = (ours(), flags);
                let ret = real(&raw const ours_first, old);
                if ret != 0 {
                    word.store(before, Relaxed);
                }
                ret
            }
        };
        if let Some(old) = old.as_mut().filter(|_| ret == 0) {
            show(before, old);
        }
        ret
    }
}

/// Shows the program its own action where the kernel has ours. One with SA_RESETHAND has left its
/// flags behind.
fn show(kept: usize, old: &mut libc::sigaction) {
    let gone = old.sa_sigaction == libc::SIG_DFL && kept & ONCE != 0;
    if old.sa_sigaction == ours() {
        old.sa_sigaction = kept & !OWN;
    } else if !gone || old.sa_flags & libc::SA_RESETHAND == 0 {
        return;
    }
    if kept & SIGINFO == 0 {
        old.sa_flags &= !libc::SA_SIGINFO;
    }
    if kept & NESTS != 0 {
        old.sa_flags |= libc::SA_NODEFER;
    }
}

/// `pthread_setcanceltype(3)`: set cancelability type.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int {
    const PTHREAD_CANCEL_ASYNCHRONOUS: c_int = 1;
    if kind == PTHREAD_CANCEL_ASYNCHRONOUS && !ASYNCHRONOUS.swap(true, AcqRel) && is_active() {
        precede_cancel();
    }
    let next = next!(c"pthread_setcanceltype", fn(c_int, *mut c_int) -> c_int);
    // SAFETY: the program's own call.
    next.map_or(libc::ENOSYS, |f| unsafe { f(kind, old) })
}

fn is_active() -> bool {
    ACTIVE.load(Relaxed)
}

/// A thread that is cancelled at any time unwinds in a handler of the C library's, which installs
/// it with the first pthread_cancel(3). So that ours can stand before it, a thread of ours is the
/// first.
fn precede_cancel() {
    if !is_handler(kernel_action(SIGCANCEL, None).handler) {
        cancel_one();
    }
    precede(SIGCANCEL);
}

fn cancel_one() {
    extern "C" fn wait(_: *mut c_void) -> *mut c_void {
        loop {
            // SAFETY: no arguments; a cancellation point.
            unsafe { libc::pause() };
        }
    }
    let all = !0u64;
    let mut mask = 0u64;
    // SAFETY: masks of ours for the calling thread, whose new thread is to run no handler; what
    // pthread_create(3) fills is given back to pthread_join(3).
    unsafe {
        let [set, old] =
            [(&raw const all).expose_provenance(), (&raw mut mask).expose_provenance()];
        raw!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, set, old, 8);
        let mut thread = core::mem::zeroed();
        let null = core::ptr::null();
        if libc::pthread_create(&raw mut thread, null, wait, core::ptr::null_mut()) == 0 {
            libc::pthread_cancel(thread);
            libc::pthread_join(thread, core::ptr::null_mut());
        }
        raw!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, old, 0, 8);
    }
}
