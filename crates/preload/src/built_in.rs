//! The library as a part of a program: `libsoftring.a`, which `dist/archive.sh` makes of this
//! crate's own archive. The program starts it by `softring_install`.
//!
//! Calls are taken at their instructions alone, as in a static program under `softring run`, so one
//! mechanism serves static and dynamic programs. In the archive the names of the C library that
//! this library interposes are hidden, and most of those that it asks for are renamed, so that what
//! else the program is linked with makes no difference. Our text is a section of its own
//! (`softring_text`).
//!
//! One copy works in a process. A copy that `softring run` has put before the program has patched
//! the program's text by now, and with it [`site`], which is there for nothing else.
#![allow(unsafe_code)]

use core::arch::{global_asm, naked_asm};
use core::ffi::{c_int, c_uint};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use softring_host::raw::weak;
use softring_host::{c_library, initial, user};

use crate::intercept::sigsys;
use crate::{config, copies, raw, start, start_static};

/// `SOFTRING_OBEY_ENVIRONMENT`: the environment variables count.
const OBEY_ENVIRONMENT: c_uint = 1;
/// `SOFTRING_QUIET`: no line on stderr.
const QUIET: c_uint = 2;

/// Name of the archive's note.
const NOTE: &[u8] = b"softring\0";

// Ends of the section that holds our text in the archive; null in the shared library, which has no
// such section.
global_asm!(
    ".weak __start_softring_text",
    ".hidden __start_softring_text",
    ".weak __stop_softring_text",
    ".hidden __stop_softring_text",
);

/// Returns where our text is in the program's; `None` in the shared library.
pub fn text() -> Option<Range<usize>> {
    // SAFETY: asks for addresses.
    let (start, end) = unsafe { (weak!("__start_softring_text"), weak!("__stop_softring_text")) };
    (start != 0).then_some(start..end)
}

/// Returns whether this copy is built in and does not work: `softring_install` was not called, or
/// has failed, or another copy serves the program.
pub fn is_idle() -> bool {
    text().is_some() && !initial::is_known()
}

/// Returns where the text of a copy that is built into a program is, if the program's notes say so:
/// distances from the two words behind the name. Other copies leave that text alone.
///
/// # Safety
/// The program is loaded, and has `len` bytes of notes at `at`.
pub unsafe fn in_notes(at: usize, len: usize) -> Option<Range<usize>> {
    // SAFETY: the caller's.
    let notes = unsafe { core::slice::from_raw_parts(core::ptr::with_exposed_provenance(at), len) };
    let word = |at: usize| Some(u32::from_ne_bytes(notes.get(at..at + 4)?.try_into().ok()?));
    let mut offset = 0;
    loop {
        let [name, text] = [word(offset)?, word(offset + 4)?];
        let [name, text] = [name, text].map(|len| (len as usize).next_multiple_of(4));
        let name_at = offset + 12;
        let text_at = name_at + name;
        if notes.get(name_at..)?.starts_with(NOTE) {
            let end = |n: usize| {
                let distance = word(text_at + n)?.cast_signed() as isize;
                (at + text_at + n).checked_add_signed(distance)
            };
            return Some(end(0)?..end(4)?);
        }
        offset = text_at + text;
    }
}

/// In the shared library, which has begun by itself, nothing is left to do.
#[unsafe(no_mangle)]
extern "C" fn softring_install(_flags: c_uint) -> c_int {
    0
}

// The archive's `softring_install`: it gets this name there. The shared library's linker leaves it
// out, as nothing leads to it.
global_asm!(
    ".pushsection .text.softring_begin,\"ax\",@progbits",
    ".hidden softring_begin",
    ".globl softring_begin",
    ".type softring_begin,@function",
    "softring_begin: jmp {}",
    ".size softring_begin, . - softring_begin",
    ".popsection",
    sym install,
);

/// Gives the program rings where the kernel denies them; returns -1 and sets `errno` on failure.
extern "C" fn install(flags: c_uint) -> c_int {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if flags & !(OBEY_ENVIRONMENT | QUIET) != 0 {
        return failed(libc::EINVAL);
    }
    if INSTALLED.swap(true, Relaxed) {
        return 0;
    }
    if copies::find_out() || is_patched() || sigsys::is_handled_by_another() {
        copies::stand_back();
        return 0;
    }
    let Some(stack) = first_stack() else {
        INSTALLED.store(false, Relaxed);
        return failed(libc::ENOTSUP);
    };
    // SAFETY: as was just found; a processor's instruction, once the kernel has said that it works.
    unsafe {
        initial::begins_at(stack);
        if start_static::has_thread_register() {
            initial::by_register();
        }
    }
    if flags & OBEY_ENVIRONMENT == 0 {
        config::ignore_environment();
    }
    if flags & QUIET != 0 {
        config::be_quiet();
    }
    start::begin(|| {});
    0
}

fn failed(errno: c_int) -> c_int {
    raw::fail(errno);
    -1
}

/// First byte of `mov $nr,%eax`.
const MOV: u8 = 0xb8;

/// A call of io_uring's, which nobody makes: another copy of this library patches it. So it does
/// not lie in our text.
// SAFETY: a section of code.
#[unsafe(link_section = ".softring_site")]
#[unsafe(naked)]
unsafe extern "C" fn site() {
    naked_asm!(
        ".cfi_startproc",
        "mov eax, {register}",
        "syscall",
        "ret",
        ".cfi_endproc",
        register = const libc::SYS_io_uring_register,
    )
}

/// Returns whether another copy has patched [`site`].
fn is_patched() -> bool {
    let at = site as *const u8;
    // SAFETY: the first byte of the function; another copy may have written it.
    unsafe { at.read_volatile() != MOV }
}

/// Returns the stack pointer with which the program began, as the environment tells while nobody
/// has changed it: below are a null, the arguments, and their number.
fn first_stack() -> Option<*mut usize> {
    const WORD: usize = size_of::<usize>();
    // Lower than any address.
    const MOST: usize = 1 << 16;
    // SAFETY: the C library's variable.
    let environment = unsafe { c_library::environ().as_ref() }?.addr();
    let word = |n: usize| {
        user::read::<u64>((environment - n * WORD) as u64).ok().map(|word| word as usize)
    };
    if word(1)? != 0 {
        return None;
    }
    let mut count = 0;
    while word(count + 2)? >= MOST {
        count += 1;
    }
    let stack = environment - (count + 2) * WORD;
    (word(count + 2)? == count).then(|| core::ptr::with_exposed_provenance_mut(stack))
}
