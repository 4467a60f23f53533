//! sigaction(2), signal(2), sigprocmask(2), pthread_sigmask(3): only while SIGSYS is ours, and only
//! about it.
//!
//! The program's own SIGSYS handler is kept beside ours, called for what is not a ring call, and
//! shown to the program as the one that is installed. SIGSYS is left out of every mask that blocks
//! it: a trapped call under a blocked SIGSYS kills.
#![allow(unsafe_code)]

use crate::door::sigsys;
use crate::raw::next;
use core::ffi::{c_int, c_void};
use libc::{sighandler_t, siginfo_t, sigset_t};
use std::sync::Mutex;

/// What the program wants done about SIGSYS: handler, flags.
#[derive(Clone, Copy)]
struct Wish {
    handler: sighandler_t,
    flags: c_int,
}

static WISH: Mutex<Wish> = Mutex::new(Wish { handler: libc::SIG_DFL, flags: 0 });

/// Notes the action that ours replaces.
pub fn keep(old: &libc::sigaction) {
    if let Ok(mut wish) = WISH.lock() {
        *wish = Wish { handler: old.sa_sigaction, flags: old.sa_flags };
    }
}

/// A SIGSYS that is not about rings: what would have happened without us.
pub fn forward(signo: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // Not `lock`: the signal may have interrupted whoever holds it.
    let wish = WISH.try_lock().map_or(Wish { handler: libc::SIG_DFL, flags: 0 }, |w| *w);
    match wish.handler {
        libc::SIG_IGN => {}
        libc::SIG_DFL => die(signo),
        // SAFETY: the program's handler, of the kind that its flags say.
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
        libc::raise(signo);
    }
}

unsafe fn real_sigaction(
    signo: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    type F = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
    let next: Option<F> =
        next!(c"sigaction", fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int);
    // SAFETY: the caller's.
    next.map_or(-1, |f| unsafe { f(signo, new, old) })
}

/// `sigaction(2)`: examine and change a signal action.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(
    signo: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    if !sigsys::handling() {
        // SAFETY: the program's own call.
        return unsafe { real_sigaction(signo, new, old) };
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
        let Some(asked) = new.as_ref() else { return real_sigaction(signo, new, old) };
        let mut open = *asked;
        libc::sigdelset(&raw mut open.sa_mask, libc::SIGSYS);
        real_sigaction(signo, &raw const open, old)
    }
}

/// `signal(2)`: ANSI C signal handling.
#[unsafe(no_mangle)]
unsafe extern "C" fn signal(signo: c_int, handler: sighandler_t) -> sighandler_t {
    if signo == libc::SIGSYS && sigsys::handling() {
        return exchange(Some(Wish { handler, flags: libc::SA_RESTART })).handler;
    }
    match next!(c"signal", fn(c_int, sighandler_t) -> sighandler_t) {
        // SAFETY: the program's own call.
        Some(f) => unsafe { f(signo, handler) },
        None => libc::SIG_ERR,
    }
}

fn exchange(wanted: Option<Wish>) -> Wish {
    let Ok(mut wish) = WISH.lock() else { return Wish { handler: libc::SIG_DFL, flags: 0 } };
    let before = *wish;
    if let Some(w) = wanted {
        *wish = w;
    }
    before
}

/// `sigprocmask(2)`: examine and change blocked signals.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    let next = next!(c"sigprocmask", fn(c_int, *const sigset_t, *mut sigset_t) -> c_int);
    // SAFETY: the program's own call, or the same with a set of ours.
    open_set(how, set, |set| next.map_or(-1, |f| unsafe { f(how, set, old) }))
}

/// `pthread_sigmask(3)`: examine and change mask of blocked signals.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_sigmask(
    how: c_int,
    set: *const sigset_t,
    old: *mut sigset_t,
) -> c_int {
    let next = next!(c"pthread_sigmask", fn(c_int, *const sigset_t, *mut sigset_t) -> c_int);
    // SAFETY: as in `sigprocmask`.
    open_set(how, set, |set| next.map_or(libc::ENOSYS, |f| unsafe { f(how, set, old) }))
}

fn open_set(
    how: c_int,
    set: *const sigset_t,
    call: impl FnOnce(*const sigset_t) -> c_int,
) -> c_int {
    if set.is_null() || how == libc::SIG_UNBLOCK || !sigsys::handling() {
        return call(set);
    }
    // SAFETY: the program's set, which libc reads just so; the copy is ours.
    let mut open = unsafe { *set };
    leave_out(&mut open);
    call(&raw const open)
}

fn leave_out(set: &mut sigset_t) {
    // SAFETY: a whole set and a valid number.
    unsafe { libc::sigdelset(set, libc::SIGSYS) };
}
