//! Functions of the process's C library, if it has one, found by name when this code is loaded.
#![allow(unsafe_code)]

use alloc::boxed::Box;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;

use crate::initial;
use crate::raw::{nr, syscall, weak, weak_fn};
use softring_uapi::errno::{Errno, Result};

/// Function that a new thread runs.
pub type Life = Box<dyn FnOnce() + Send>;

/// `pthread_attr_t`, and more.
type Attributes = [u64; 16];
type OfAttributes = unsafe extern "C" fn(*mut Attributes) -> c_int;
type Sized = unsafe extern "C" fn(*mut Attributes, usize) -> c_int;
type Stated = unsafe extern "C" fn(*mut Attributes, c_int) -> c_int;
type Enter = extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(*mut usize, *const Attributes, Enter, *mut c_void) -> c_int;
type Auxiliary = extern "C" fn(usize) -> usize;
type Exit = extern "C" fn(c_int) -> !;

/// Functions that start a thread.
struct Threads {
    init: OfAttributes,
    destroy: OfAttributes,
    set_size: Sized,
    set_state: Stated,
    create: Create,
}

impl Threads {
    fn find() -> Option<Threads> {
        // SAFETY: functions of these names have these types in every C library. There is no value
        // between a function and none.
        unsafe {
            Some(Threads {
                init: weak_fn!("pthread_attr_init", OfAttributes)?,
                destroy: weak_fn!("pthread_attr_destroy", OfAttributes)?,
                set_size: weak_fn!("pthread_attr_setstacksize", Sized)?,
                set_state: weak_fn!("pthread_attr_setdetachstate", Stated)?,
                create: weak_fn!("pthread_create", Create)?,
            })
        }
    }
}

extern "C" fn lives(life: *mut c_void) -> *mut c_void {
    // SAFETY: `start_thread` has made `life` from a box, for this thread alone.
    let life = unsafe { Box::from_raw(life.cast::<Life>()) };
    life();
    null_mut()
}

/// Starts a detached thread with a stack of at least `stack` bytes, by pthread_create(3).
///
/// # Errors
/// As `pthread_create(3)`; `life` itself if the process has no such function.
pub(crate) fn start_thread(stack: usize, life: Life) -> core::result::Result<Result<()>, Life> {
    /// `PTHREAD_STACK_MIN`.
    const LEAST: usize = 16 << 10;
    const DETACHED: c_int = 1;
    let Some(threads) = Threads::find() else { return Err(life) };
    let life = Box::into_raw(Box::new(life));
    let (mut attributes, mut thread): (Attributes, usize) = ([0; 16], 0);
    // SAFETY: the attributes are initialised first and destroyed last; `life` is the new thread's,
    // or, if there is none, still this one's.
    unsafe {
        let attributes = &raw mut attributes;
        (threads.init)(attributes);
        (threads.set_size)(attributes, stack.max(LEAST));
        (threads.set_state)(attributes, DETACHED);
        let error = (threads.create)(&raw mut thread, attributes, lives, life.cast());
        (threads.destroy)(attributes);
        if error != 0 {
            drop(Box::from_raw(life));
            return Ok(Err(Errno(error)));
        }
    }
    Ok(Ok(()))
}

/// Calls exit(3), which runs the program's atexit(3) functions; without a C library exit_group(2).
pub fn exit(code: i32) -> ! {
    // SAFETY: as in `Threads`.
    let exit = unsafe { weak_fn!("exit", Exit) };
    if let Some(exit) = exit {
        exit(code);
    }
    loop {
        // SAFETY: a number.
        unsafe { syscall(nr::__NR_exit_group as usize, &[code as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Returns a value of the auxiliary vector, by getauxval(3) or from the program's first stack;
/// `None` if there is none.
pub fn auxiliary(kind: usize) -> Option<usize> {
    // SAFETY: as in `Threads`.
    let ask = unsafe { weak_fn!("getauxval", Auxiliary) };
    match ask {
        Some(ask) => Some(ask(kind)).filter(|value| *value != 0),
        None => initial::auxiliary(kind),
    }
}

/// Strings, followed by a null pointer.
pub type Strings = *const *const c_char;

/// Returns the address of the C library's variable `environ`, or of one in its place
/// ([`initial`]).
pub fn environ() -> *mut Strings {
    // SAFETY: reads a word of the loader's.
    let own: *mut Strings = core::ptr::with_exposed_provenance_mut(unsafe { weak!("environ") });
    if own.is_null() { initial::environ() } else { own }
}

/// Returns the value of an environment variable, which the program may change; `None` also without
/// a C library.
pub fn variable(name: &[u8]) -> Option<&'static CStr> {
    // SAFETY: the C library's list of strings, which ends with null. A program that changes it in
    // another thread races with getenv(3) alike.
    unsafe {
        let mut at = *environ().as_ref()?;
        while !at.is_null() && !(*at).is_null() {
            if let Some(value) = value_of(*at, name) {
                return Some(CStr::from_ptr(value));
            }
            at = at.add(1);
        }
    }
    None
}

/// Returns the value that the string `NAME=VALUE` at `at` has, if its name is this one. Reads no
/// more of other strings than tells them apart: every start of a program asks for two dozen names.
///
/// # Safety
/// A string, which lives on as the result does.
unsafe fn value_of(at: *const c_char, name: &[u8]) -> Option<*const c_char> {
    for (i, byte) in name.iter().chain(b"=").enumerate() {
        // SAFETY: each byte before was part of a name, so the string goes on.
        if unsafe { at.add(i).read() } as u8 != *byte {
            return None;
        }
    }
    // SAFETY: what follows the `=`, if only the string's end.
    Some(unsafe { at.add(name.len() + 1) })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn variables_are_those_of_the_process() {
        let path = std::env::var_os("PATH").map(|v| v.into_encoded_bytes());
        assert_eq!(variable(b"PATH").map(|v| v.to_bytes().to_vec()), path);
        assert_eq!(variable(b"PAT"), None);
        assert_eq!(variable(b"SOFTRING_NO_SUCH_VARIABLE"), None);
    }
}
