//! The program's signal handlers, and ours, which asks the engine first whether they may run now.
//!
//! From the first ring on, a handler that the program installs is stored here. The kernel gets
//! [`handler`] in its place, with the program's mask and flags, and SA_SIGINFO. The program is
//! shown its own handler. Exceptions are signals that report a fault of the thread itself, and
//! handlers that are installed by an inline system call that is not patched.
//!
//! All state is a word per signal, without a lock: sigaction(2) may be called in a handler.
#![allow(unsafe_code)]

use crate::proc;
use crate::raw::{self, next, raw, weak_fn};
use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::ptr::{null, null_mut};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicUsize};
use libc::siginfo_t;
use softring_host::handlers;

/// Bit beside the handler's address: the program wants SA_SIGINFO.
const SIGINFO: usize = 1 << 63;
/// Bit for SA_RESETHAND.
const ONCE: usize = 1 << 62;
/// Bit for SA_NODEFER. The kernel does not get this flag: a signal that is sent again and again
/// would interrupt our own function until the stack is full.
const NESTS: usize = 1 << 61;
const OWN: usize = SIGINFO | ONCE | NESTS;
const SIGNALS: usize = 65;
/// glibc's signal by which pthread_cancel(3) reaches a thread.
const SIGCANCEL: c_int = 32;

/// The program's handlers by signal; 0: none was ever installed.
static HANDLERS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];
/// Flag, set once ours runs before the program's handlers.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// Flag, set once a thread may be cancelled at any time.
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

/// True for signals whose handlers run at once: those of faults, abort(3)'s, and SIGSYS, which has
/// a module of its own. The C library handles its own signals itself.
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

/// Runs before every handler of the program's and jumps to it, with its arguments and on its stack,
/// so that no frame of ours is in the way of an unwinder.
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

/// Returns the handler to run now; 0: none.
unsafe extern "C" fn choose(signo: c_int, info: *mut siginfo_t, context: *mut c_void) -> usize {
    let stored = HANDLERS[signo as usize].load(Acquire);
    let (info, context) = (info.expose_provenance(), context.expose_provenance());
    // SAFETY: what the kernel has passed to `handler`, installed with SA_SIGINFO.
    if !unsafe { handlers::defers(signo, info, context) } {
        if stored & NESTS != 0 {
            unblock(signo);
        }
        return stored & !OWN;
    }
    if stored & ONCE != 0 {
        install_again(signo);
    }
    0
}

/// Installs ours again: the kernel has removed a handler with SA_RESETHAND, but flags and mask
/// remain.
fn install_again(signo: c_int) {
    let mut action = kernel_action(signo, None);
    if action.handler == libc::SIG_DFL {
        action.handler = ours();
        kernel_action(signo, Some(&action));
    }
}

/// Makes rt_sigaction(2); returns the previous action.
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

/// Returns the word to store for an action, and the flags for the kernel. SA_NODEFER has no effect
/// if the mask holds the signal.
fn stored_as(handler: usize, flags: c_int, masked: bool) -> (usize, c_int) {
    let bit = |flag, bit| if flags & flag != 0 { bit } else { 0 };
    let nests = if masked { 0 } else { bit(libc::SA_NODEFER, NESTS) };
    let stored = handler | bit(libc::SA_SIGINFO, SIGINFO) | bit(libc::SA_RESETHAND, ONCE) | nests;
    let held_back = if nests == 0 { 0 } else { libc::SA_NODEFER };
    (stored, flags & !held_back | libc::SA_SIGINFO)
}

/// Puts ours before the handler that `signo` has now.
fn precede(signo: c_int) {
    let mut now = kernel_action(signo, None);
    while is_handler(now.handler) && now.handler != ours() {
        let masked = now.mask & 1 << (signo - 1) != 0;
        // The kernel knows no flags beyond 32 bits.
        let (stored, flags) = stored_as(now.handler, now.flags as c_int, masked);
        HANDLERS[signo as usize].store(stored, Relaxed);
        let flags = u64::from(flags.cast_unsigned());
        let before = kernel_action(signo, Some(&KernelAction { handler: ours(), flags, ..now }));
        if before.handler == now.handler {
            break;
        }
        // Another thread has just installed this one, or removed it.
        now = before;
        if !is_handler(now.handler) {
            kernel_action(signo, Some(&now));
        }
    }
}

/// Puts ours before all handlers, as the engine will have something that a handler could leave
/// behind.
pub fn activate() {
    if ACTIVE.swap(true, AcqRel) {
        return;
    }
    (1..SIGNALS as c_int).filter(|&s| s != SIGCANCEL && !is_left_alone(s)).for_each(precede);
    if ASYNCHRONOUS.load(Relaxed) {
        precede_cancel();
    }
}

/// Returns whether a call of sigaction(2) for `signo` concerns us.
pub fn concerns(signo: c_int) -> bool {
    ACTIVE.load(Relaxed) && !is_left_alone(signo) && signo != SIGCANCEL
}

/// Makes sigaction(2) by `real`, for a signal that [`concerns`] us.
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
        // Not ours: an inline call may have been shown ours, and the program gives it back.
        let theirs = |a: &&libc::sigaction| is_handler(a.sa_sigaction) && a.sa_sigaction != ours();
        let asked = new.as_ref().filter(theirs).filter(|_| !proc::shares_memory());
        let ret = match asked {
            None => real(new, old),
            Some(asked) => {
                let masked = raw::has_signal(&raw const asked.sa_mask, signo);
                let (stored, flags) = stored_as(asked.sa_sigaction, asked.sa_flags, masked);
                before = word.swap(stored, AcqRel);
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

/// Shows the program its own action where the kernel has ours. A handler with SA_RESETHAND that has
/// run leaves its flags behind.
fn show(stored: usize, old: &mut libc::sigaction) {
    let gone = old.sa_sigaction == libc::SIG_DFL && stored & ONCE != 0;
    if old.sa_sigaction == ours() {
        old.sa_sigaction = stored & !OWN;
    } else if !gone || old.sa_flags & libc::SA_RESETHAND == 0 {
        return;
    }
    if stored & SIGINFO == 0 {
        old.sa_flags &= !libc::SA_SIGINFO;
    }
    if stored & NESTS != 0 {
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

/// Puts ours before the C library's handler in which a cancelled thread unwinds. The library
/// installs this handler with the first pthread_cancel(3), so a thread of ours is cancelled first.
fn precede_cancel() {
    if !is_handler(kernel_action(SIGCANCEL, None).handler) {
        cancel_one();
    }
    precede(SIGCANCEL);
}

fn cancel_one() {
    type Start = extern "C" fn(*mut c_void) -> *mut c_void;
    type Create = unsafe extern "C" fn(*mut usize, *const c_void, Start, *mut c_void) -> c_int;
    extern "C" fn wait(_: *mut c_void) -> *mut c_void {
        loop {
            // SAFETY: a cancellation point, without arguments.
            if let Some(pause) = unsafe { weak_fn!("pause", extern "C" fn() -> c_int) } {
                pause();
            }
        }
    }
    let cancel = next!(c"pthread_cancel", fn(usize) -> c_int);
    let all = !0u64;
    let mut mask = 0u64;
    // SAFETY: masks of ours for the calling thread, whose new thread is to run no handler; what
    // pthread_create(3) fills is given back to pthread_join(3).
    unsafe {
        let [set, old] =
            [(&raw const all).expose_provenance(), (&raw mut mask).expose_provenance()];
        raw!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, set, old, 8);
        if let (Some(create), Some(cancel), Some(join)) = (
            weak_fn!("pthread_create", Create),
            cancel,
            weak_fn!("pthread_join", unsafe extern "C" fn(usize, *mut *mut c_void) -> c_int),
        ) {
            let mut thread = 0;
            if create(&raw mut thread, null(), wait, null_mut()) == 0 {
                cancel(thread);
                join(thread, null_mut());
            }
        }
        raw!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, old, 0, 8);
    }
}
