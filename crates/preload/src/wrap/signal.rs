//! sigaction(2), by name and by number, and signal(2): for SIGSYS, while it is ours, and for
//! handlers that may run between calls only ([`super::handlers`]).
//!
//! The program's own SIGSYS handler is kept beside ours, called for a SIGSYS that is no ring call,
//! and shown to the program as the installed one. Masks that block SIGSYS belong to
//! [`super::mask`].
#![allow(unsafe_code)]

use crate::intercept::sigsys;
use crate::raw::{self, next, raw};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use libc::{sighandler_t, siginfo_t};
use softring_host::sync::real::Mutex;
use softring_host::user::{self, UserPtr};

/// The action that the program wants for SIGSYS: handler, flags.
#[derive(Clone, Copy)]
struct Wish {
    handler: sighandler_t,
    flags: c_int,
}

static WISH: Mutex<Wish> = Mutex::new(Wish { handler: libc::SIG_DFL, flags: 0 });

/// Notes the action that ours replaces.
pub fn keep(old: &libc::sigaction) {
    *WISH.lock() = Wish { handler: old.sa_sigaction, flags: old.sa_flags };
}

/// Treats a SIGSYS that is not about rings as if the library were not there. `trapped`: by
/// another's filter, which kills a thread that blocks the signal.
///
/// # Safety
/// The arguments are those of a handler of the signal.
pub unsafe fn forward(signo: c_int, info: *mut siginfo_t, context: *mut c_void, trapped: bool) {
    if trapped && super::mask::is_blocked() {
        return die(signo);
    }
    if !trapped && super::mask::keeps_pending() {
        return;
    }
    // Not `lock`: the signal may have interrupted the holder.
    let wish = WISH.try_lock().map_or(Wish { handler: libc::SIG_DFL, flags: 0 }, |w| *w);
    match wish.handler {
        libc::SIG_IGN => {}
        libc::SIG_DFL => die(signo),
        // SAFETY: the program's handler, of the kind that its flags say; the arguments are as our
        // caller says.
        handler => unsafe {
            if wish.flags & libc::SA_SIGINFO != 0 {
                type F = unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
                core::mem::transmute::<sighandler_t, F>(handler)(signo, info, context);
            } else {
                core::mem::transmute::<sighandler_t, unsafe extern "C" fn(c_int)>(handler)(signo);
            }
        },
    }
}

fn die(signo: c_int) {
    // SAFETY: zero is SIG_DFL without flags; ours is not blocked here (SA_NODEFER), so raise does
    // not return.
    unsafe {
        let default: libc::sigaction = core::mem::zeroed();
        real_sigaction(signo, &raw const default, core::ptr::null_mut());
        raw::raise(signo);
    }
}

/// Makes sigaction(2) past ours: by the next library's, or by a system call where there is none.
///
/// # Safety
/// As for sigaction(2).
pub unsafe fn real_sigaction(
    signo: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    type F = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
    let next: Option<F> =
        next!(c"sigaction", fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int);
    // SAFETY: the caller's.
    unsafe {
        match next {
            Some(f) => f(signo, new, old),
            None => own_sigaction(signo, new, old),
        }
    }
}

/// Makes sigaction(2) by a system call, for handlers of ours.
///
/// # Safety
/// As for sigaction(2).
unsafe fn own_sigaction(
    signo: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the caller's; zero is a valid sigaction.
    unsafe {
        let mut before: libc::sigaction = core::mem::zeroed();
        let new = new.as_ref().map(|new| {
            let flags = new.sa_flags | softring_host::signal::SA_RESTORER as c_int;
            let restorer = Some(softring_host::signal::restorer as extern "C" fn());
            libc::sigaction { sa_flags: flags, sa_restorer: restorer, ..*new }
        });
        let new = new.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        let ret = kernel_sigaction(signo, new, &raw mut before);
        if let Some(old) = old.as_mut() {
            *old = before;
        }
        if ret == 0 { 0 } else { -1 }
    }
}

/// `sigaction(2)`: examine and change a signal action.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(
    signo: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the program's own call, or the same with an action of ours.
    unsafe { action(signo, new, old, |new, old| real_sigaction(signo, new, old)) }
}

/// Makes sigaction(2) by `real`, except what is ours: our handlers and SIGSYS.
///
/// # Safety
/// As for sigaction(2).
unsafe fn action(
    signo: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
    real: impl Fn(*const libc::sigaction, *mut libc::sigaction) -> c_int,
) -> c_int {
    // SAFETY: our caller's.
    unsafe {
        if super::handlers::concerns(signo) {
            return super::handlers::exchange(signo, new, old, |new, old| {
                open_action(signo, new, old, &real)
            });
        }
        open_action(signo, new, old, real)
    }
}

/// Makes sigaction(2) by `real`, and leaves SIGSYS to us.
///
/// # Safety
/// As for sigaction(2).
unsafe fn open_action(
    signo: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
    real: impl Fn(*const libc::sigaction, *mut libc::sigaction) -> c_int,
) -> c_int {
    if !sigsys::handling() {
        return real(new, old);
    }
    // SAFETY: the program's pointers, which libc's sigaction reads and writes just so.
    unsafe {
        if signo == libc::SIGSYS {
            let wanted = new.as_ref().map(|a| Wish { handler: a.sa_sigaction, flags: a.sa_flags });
            let before = exchange(wanted);
            if let Some(old) = old.as_mut() {
                *old = core::mem::zeroed();
                old.sa_sigaction = before.handler;
                old.sa_flags = before.flags;
            }
            return 0;
        }
        let Some(asked) = new.as_ref() else { return real(new, old) };
        let mut open = *asked;
        raw::remove_signal(&raw mut open.sa_mask, libc::SIGSYS);
        real(&raw const open, old)
    }
}

/// Handles rt_sigaction(2) by number: the kernel's structures, its order of checks, its errors.
///
/// # Safety
/// The arguments are those of a call that the program makes.
pub unsafe fn raw_sigaction(signo: c_int, new: usize, old: usize, size: usize) -> isize {
    if size != size_of::<u64>() || !super::handlers::concerns(signo) && !sigsys::handling() {
        // SAFETY: the program's own call.
        return unsafe { raw!(libc::SYS_rt_sigaction, signo, new, old, size) };
    }
    let asked = match (new != 0).then(|| user::read(new as u64)).transpose() {
        Ok(asked) => asked.map(of_kernel),
        Err(_) => return -(libc::EFAULT as isize),
    };
    let asked = asked.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: zero is a valid sigaction.
    let mut before: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: structures of ours.
    let ret = unsafe {
        action(signo, asked, &raw mut before, |new, old| kernel_sigaction(signo, new, old))
    };
    // SAFETY: the argument of the program's call.
    let to = unsafe { UserPtr::of_program(old as u64) };
    if ret == 0 && old != 0 && user::write(to, &to_kernel(&before)).is_err() {
        return -(libc::EFAULT as isize);
    }
    ret as isize
}

/// `struct sigaction` as the kernel has it: handler, flags, restorer, mask.
type KernelAction = [u64; 4];

fn of_kernel([handler, flags, restorer, mask]: KernelAction) -> libc::sigaction {
    // SAFETY: zero is a valid sigaction; a set begins with the kernel's word; whatever the program
    // gives as restorer only the kernel calls.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler as sighandler_t;
        // The kernel knows no flags beyond 32 bits.
        action.sa_flags = flags as c_int;
        action.sa_restorer = core::mem::transmute::<u64, Option<extern "C" fn()>>(restorer);
        (&raw mut action.sa_mask).cast::<u64>().write(mask);
        action
    }
}

fn to_kernel(action: &libc::sigaction) -> KernelAction {
    let restorer = action.sa_restorer.map_or(0, |f| f as *const () as u64);
    // SAFETY: a set begins with the kernel's word.
    let mask = unsafe { (&raw const action.sa_mask).cast::<u64>().read() };
    let flags = u64::from(action.sa_flags.cast_unsigned());
    [action.sa_sigaction as u64, flags, restorer, mask]
}

/// Makes rt_sigaction(2); returns 0 or the kernel's `-errno`.
///
/// # Safety
/// `new` is an action or null; `old` is one of ours.
unsafe fn kernel_sigaction(
    signo: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    let mut before = KernelAction::default();
    let to = (&raw mut before).expose_provenance();
    // SAFETY: as our caller says; structures of ours for the kernel.
    unsafe {
        let new = new.as_ref().map(to_kernel);
        let from = new.as_ref().map_or(0, |new| new.as_ptr().expose_provenance());
        let ret = raw!(libc::SYS_rt_sigaction, signo, from, to, size_of::<u64>());
        if ret == 0 {
            *old = of_kernel(before);
        }
        ret as c_int
    }
}

/// `signal(2)`: ANSI C signal handling.
#[unsafe(no_mangle)]
unsafe extern "C" fn signal(signo: c_int, handler: sighandler_t) -> sighandler_t {
    if signo == libc::SIGSYS && sigsys::handling() {
        return exchange(Some(Wish { handler, flags: libc::SA_RESTART })).handler;
    }
    if super::handlers::concerns(signo) {
        let interrupts = 1 << (signo - 1) & INTERRUPTS.load(Relaxed) != 0;
        return install(signo, handler, if interrupts { 0 } else { libc::SA_RESTART });
    }
    match next!(c"signal", fn(c_int, sighandler_t) -> sighandler_t) {
        // SAFETY: the program's own call.
        Some(f) => unsafe { f(signo, handler) },
        None => libc::SIG_ERR,
    }
}

/// `signal(2)` in programs that ask for System V's rules (`-std=c99`).
#[unsafe(no_mangle)]
unsafe extern "C" fn __sysv_signal(signo: c_int, handler: sighandler_t) -> sighandler_t {
    if super::handlers::concerns(signo) {
        return install(signo, handler, libc::SA_RESETHAND | libc::SA_NODEFER);
    }
    match next!(c"__sysv_signal", fn(c_int, sighandler_t) -> sighandler_t) {
        // SAFETY: the program's own call.
        Some(f) => unsafe { f(signo, handler) },
        None => libc::SIG_ERR,
    }
}

/// Installs a handler as libc's signal(2) does.
fn install(signo: c_int, handler: sighandler_t, flags: c_int) -> sighandler_t {
    // SAFETY: zero is a valid sigaction; both are ours.
    unsafe {
        let mut new: libc::sigaction = core::mem::zeroed();
        let mut old = new;
        (new.sa_sigaction, new.sa_flags) = (handler, flags);
        if flags & libc::SA_NODEFER == 0 {
            raw::add_signal(&raw mut new.sa_mask, signo);
        }
        match sigaction(signo, &raw const new, &raw mut old) {
            0 => old.sa_sigaction,
            _ => libc::SIG_ERR,
        }
    }
}

/// Signals whose handlers, installed by signal(2), interrupt system calls.
static INTERRUPTS: AtomicU64 = AtomicU64::new(0);

/// `siginterrupt(3)`: allow signals to interrupt system calls.
#[unsafe(no_mangle)]
unsafe extern "C" fn siginterrupt(signo: c_int, flag: c_int) -> c_int {
    let next = next!(c"siginterrupt", fn(c_int, c_int) -> c_int);
    // SAFETY: the program's own call.
    let ret = next.map_or(-1, |f| unsafe { f(signo, flag) });
    if ret == 0 && (1..=64).contains(&signo) {
        let bit = 1 << (signo - 1);
        match flag {
            0 => INTERRUPTS.fetch_and(!bit, Relaxed),
            _ => INTERRUPTS.fetch_or(bit, Relaxed),
        };
    }
    ret
}

fn exchange(wanted: Option<Wish>) -> Wish {
    let mut wish = WISH.lock();
    let before = *wish;
    if let Some(w) = wanted {
        *wish = w;
    }
    before
}
