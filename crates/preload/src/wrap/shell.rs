//! system(3) and popen(3): the C library starts a shell by calls of its own, which no other wrapper
//! sees, with its own environment. For a program whose environment does not name this library
//! ([`children::follow`]), `environ` has what the shell needs while the call lasts.
#![allow(unsafe_code)]

use super::exec::{Environment, Path, environment, missing};
use crate::children::{self, Program};
use crate::raw::next;
use core::ffi::{c_int, c_void};
use core::mem::ManuallyDrop;
use softring_host::c_library::environ;
use softring_host::sync::real::Mutex;

/// Environment of the last shell: another thread may have begun to read it while it was there.
static LAST: Mutex<Option<Environment>> = Mutex::new(None);

/// `system(3)`: execute a shell command.
#[unsafe(no_mangle)]
unsafe extern "C" fn system(command: Path) -> c_int {
    let next = next!(c"system", fn(Path) -> c_int);
    // SAFETY: the program's own call.
    let call = || next.map_or_else(missing, |f| unsafe { f(command) });
    if command.is_null() { call() } else { by_shell(call) }
}

/// `popen(3)`: pipe stream to or from a process, which is a shell.
#[unsafe(no_mangle)]
unsafe extern "C" fn popen(command: Path, mode: Path) -> *mut c_void {
    let next = next!(c"popen", fn(Path, Path) -> *mut c_void);
    // SAFETY: the program's own call.
    by_shell(|| next.map_or(core::ptr::null_mut(), |f| unsafe { f(command, mode) }))
}

/// Makes a call by which the C library starts a shell.
fn by_shell<T>(call: impl FnOnce() -> T) -> T {
    let shell = Program::At(libc::AT_FDCWD, c"/bin/sh".as_ptr());
    let given = environment();
    let file = children::inspect(shell);
    let Some(file) = file.as_ref() else { return call() };
    let added = children::follow(file, given);
    let with = added.and_then(|added| Some((added.count(), Environment::added(&added, given)?)));
    let Some((added, with)) = with else {
        children::starts(file, given);
        return call();
    };
    children::starts(file, with.strings);
    // SAFETY: the C library's variable; a program that changes it while others read it breaks its
    // rules. The new strings are the given ones and more.
    unsafe { environ().write(with.strings) };
    let ret = call();
    // SAFETY: as above; the program may have changed either array, or made a new one.
    unsafe {
        let now = environment().cast_mut();
        let own = if now.cast_const() == with.strings { given.cast_mut() } else { now };
        without_added(now, added, own);
        environ().write(own);
    }
    let with = ManuallyDrop::new(with);
    if let Some(mut last) = LAST.try_lock() {
        *last = Some(ManuallyDrop::into_inner(with));
    }
    ret
}

/// Copies the strings of `from` that were not added to `to`, which may be the same array.
///
/// # Safety
/// Both are arrays of strings up to a null pointer, and `to` has room.
unsafe fn without_added(from: *const Path, added: usize, to: *mut Path) {
    if to.is_null() {
        return;
    }
    // SAFETY: the caller's. What is the same is not written, as it may be read-only.
    unsafe {
        let put = |at: usize, string: Path| {
            if *to.add(at) != string {
                to.add(at).write(string);
            }
        };
        let (mut n, mut left) = (0, 0);
        while !(*from.add(n)).is_null() {
            if children::follow::is_first(*from.add(n)) {
                n += added;
                continue;
            }
            put(left, *from.add(n));
            (n, left) = (n + 1, left + 1);
        }
        put(left, core::ptr::null());
    }
}
