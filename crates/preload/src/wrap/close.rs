//! close(2), close_range(2), closefrom(3).
#![allow(unsafe_code)]

use super::{closing, internal};
use crate::gate::{WATCHED, watched};
use crate::proc;
use crate::raw::{self, Next, next, raw};
use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_uint, c_void};
use core::mem::transmute;
use core::sync::atomic::{AtomicUsize, Ordering};
use softring_engine::Closing;
use softring_engine::fds;

/// Start and end of our own text, once there are rings.
static OWN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Notes which callers are our own. Called before the first ring.
pub fn first_ring() {
    if let Some(text) = crate::intercept::patch::own_text() {
        // Relaxed: a caller in our text runs after the first ring was made.
        OWN[1].store(text.end, Ordering::Relaxed);
        OWN[0].store(text.start, Ordering::Relaxed);
    }
}

/// `close(2)`: close a file descriptor.
///
/// Without rings of ours it is libc's. The standard library closes the engine's own descriptors
/// through this name, with the engine's locks held: a call that returns into our text goes straight
/// to the kernel.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn close(_fd: c_int) -> c_int {
    naked_asm!(
        "cmp byte ptr [rip + {watched}], 0",
        "jne 3f",
        "mov rax, [rip + {next} + {address}]",
        "test rax, rax",
        "jz {theirs}",
        "jmp rax",
        "3:",
        "mov rax, [rsp]",
        "cmp rax, [rip + {own}]",
        "jb 2f",
        "cmp rax, [rip + {own} + 8]",
        "jae 2f",
        "jmp {ours}",
        "2:",
        "jmp {theirs}",
        own = sym OWN,
        ours = sym close_ours,
        theirs = sym close_theirs,
        watched = sym WATCHED,
        next = sym LIBCS,
        address = const Next::ADDRESS,
    )
}

/// libc's function.
static LIBCS: Next = Next::new(c"close");

/// Handles close(2) by number.
pub fn raw_close(fd: c_int) -> isize {
    let Ok(_closing) = closing(fd) else { return -(libc::EBADF as isize) };
    // SAFETY: a number of the program's.
    unsafe { raw!(libc::SYS_close, fd) }
}

extern "C" fn close_ours(fd: c_int) -> c_int {
    // SAFETY: a descriptor that the engine gives up.
    raw::libc_answer(unsafe { raw!(libc::SYS_close, fd) }) as c_int
}

unsafe extern "C" fn close_theirs(fd: c_int) -> c_int {
    let Ok(_closing) = closing(fd) else {
        raw::set_errno(libc::EBADF);
        return -1;
    };
    let found = LIBCS.get();
    if found.is_null() {
        // SAFETY: the program's own call.
        return unsafe { raw::libc_answer(raw!(libc::SYS_close, fd)) as c_int };
    }
    // SAFETY: the function of this name. libc's, because it is a cancellation point.
    unsafe { transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> c_int>(found)(fd) }
}

/// `fclose(3)`: close a stream. libc closes the stream's descriptor without calling our `close`.
#[unsafe(no_mangle)]
unsafe extern "C" fn fclose(stream: *mut libc::FILE) -> c_int {
    // SAFETY: the program's own stream.
    let _closing = unsafe { stream_closes(stream) };
    match next!(c"fclose", fn(*mut libc::FILE) -> c_int) {
        // SAFETY: the program's own call.
        Some(f) => unsafe { f(stream) },
        None => libc::EOF,
    }
}

/// `pclose(3)`: close a stream to or from a process.
#[unsafe(no_mangle)]
unsafe extern "C" fn pclose(stream: *mut libc::FILE) -> c_int {
    // SAFETY: the program's own stream.
    let _closing = unsafe { stream_closes(stream) };
    match next!(c"pclose", fn(*mut libc::FILE) -> c_int) {
        // SAFETY: the program's own call.
        Some(f) => unsafe { f(stream) },
        None => -1,
    }
}

type Name = *const c_char;
type File = *mut libc::FILE;

/// `freopen(3)`: stream open functions.
#[unsafe(no_mangle)]
unsafe extern "C" fn freopen(path: Name, mode: Name, stream: File) -> File {
    let next = next!(c"freopen", fn(Name, Name, File) -> File);
    // SAFETY: the program's own call.
    unsafe { reopen(path, mode, stream, next) }
}

/// `freopen(3)`, under the name that programs with 64-bit offsets use.
#[unsafe(no_mangle)]
unsafe extern "C" fn freopen64(path: Name, mode: Name, stream: File) -> File {
    let next = next!(c"freopen64", fn(Name, Name, File) -> File);
    // SAFETY: the program's own call.
    unsafe { reopen(path, mode, stream, next) }
}

type Reopen = unsafe extern "C" fn(Name, Name, File) -> File;

/// # Safety
/// The arguments are those of freopen(3).
unsafe fn reopen(path: Name, mode: Name, stream: File, next: Option<Reopen>) -> File {
    // SAFETY: our caller's.
    unsafe {
        let _closing = stream_closes(stream);
        next.map_or(core::ptr::null_mut(), |f| f(path, mode, stream))
    }
}

/// # Safety
/// `stream` is an open stream or null.
unsafe fn stream_closes(stream: File) -> Option<Closing> {
    if !watched() || stream.is_null() {
        return None;
    }
    // SAFETY: an open stream, says our caller.
    let fd = next!(c"fileno", fn(File) -> c_int).map_or(-1, |f| unsafe { f(stream) });
    // No stream holds a descriptor of the engine's.
    if fd >= 0 { closing(fd).ok().flatten() } else { None }
}

/// `closedir(3)`: close a directory.
#[unsafe(no_mangle)]
unsafe extern "C" fn closedir(dir: *mut libc::DIR) -> c_int {
    let dirfd = next!(c"dirfd", fn(*mut libc::DIR) -> c_int).filter(|_| watched());
    // SAFETY: the program's own directory.
    let fd = dirfd.filter(|_| !dir.is_null()).map_or(-1, |f| unsafe { f(dir) });
    let _closing = if fd >= 0 { closing(fd).ok().flatten() } else { None };
    match next!(c"closedir", fn(*mut libc::DIR) -> c_int) {
        // SAFETY: the program's own call.
        Some(f) => unsafe { f(dir) },
        None => -1,
    }
}

/// `mq_close(3)`: close a message queue descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn mq_close(queue: libc::mqd_t) -> c_int {
    let _closing = if watched() { closing(queue).ok().flatten() } else { None };
    match next!(c"mq_close", fn(libc::mqd_t) -> c_int) {
        // SAFETY: the program's own call.
        Some(f) => unsafe { f(queue) },
        None => raw::libc_answer(raw_close(queue)) as c_int,
    }
}

/// Numbers that daemon(3) and login_tty(3) give to another file.
const STANDARD: core::ops::RangeInclusive<c_int> = 0..=2;

/// `daemon(3)`: run in the background.
#[unsafe(no_mangle)]
unsafe extern "C" fn daemon(nochdir: c_int, noclose: c_int) -> c_int {
    let Some(f) = next!(c"daemon", fn(c_int, c_int) -> c_int) else {
        raw::set_errno(libc::ENOSYS);
        return -1;
    };
    // SAFETY: the program's own call.
    let ret = unsafe { f(nochdir, noclose) };
    if noclose == 0 && ret == 0 {
        // In the child, which shares none of its parent's waits: to report this afterwards is early
        // enough.
        STANDARD.for_each(|fd| drop(closing(fd)));
    }
    ret
}

/// `login_tty(3)`: prepare a terminal for a login.
#[unsafe(no_mangle)]
unsafe extern "C" fn login_tty(fd: c_int) -> c_int {
    let Some(f) = next!(c"login_tty", fn(c_int) -> c_int) else {
        raw::set_errno(libc::ENOSYS);
        return -1;
    };
    let terminal = (!STANDARD.contains(&fd)).then_some(fd);
    let _closing: [_; 4] = [Some(0), Some(1), Some(2), terminal].map(|fd| fd.map(closing));
    // SAFETY: the program's own call.
    unsafe { f(fd) }
}

/// `close_range(2)`: close all file descriptors in a given range.
#[unsafe(no_mangle)]
unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    raw::libc_answer(raw_close_range(first, last, flags)) as c_int
}

/// Handles close_range(2) by number.
pub fn raw_close_range(first: c_uint, last: c_uint, flags: c_int) -> isize {
    const KNOWN: u32 = libc::CLOSE_RANGE_CLOEXEC | libc::CLOSE_RANGE_UNSHARE;
    let closes = flags as u32 & !KNOWN == 0 && flags as u32 & libc::CLOSE_RANGE_CLOEXEC == 0;
    if !watched() || !closes || first > last || proc::shares_memory() {
        return range(first, last, flags);
    }
    split(first, last, flags)
}

/// `closefrom(3)`: close all file descriptors from `low` on.
#[unsafe(no_mangle)]
unsafe extern "C" fn closefrom(low: c_int) {
    let low = low.max(0) as c_uint;
    if watched() && !proc::shares_memory() {
        split(low, c_uint::MAX, 0);
    } else if let Some(f) = next!(c"closefrom", fn(c_int) -> ()) {
        // SAFETY: the program's own call.
        unsafe { f(low as c_int) };
    } else {
        range(low, c_uint::MAX, 0);
    }
}

fn range(first: c_uint, last: c_uint, flags: c_int) -> isize {
    // SAFETY: numbers only.
    unsafe { raw!(libc::SYS_close_range, first, last, flags) }
}

/// Closes the range except the engine's own descriptors in it.
fn split(first: c_uint, last: c_uint, flags: c_int) -> isize {
    let mut from = first;
    let mut ret = 0;
    let end = last.min(table_size());
    let mut fd = first;
    while fd < end.saturating_add(1) {
        if internal(fd as c_int) {
            if fd > from {
                ret = run(from, fd - 1, flags);
            }
            from = fd + 1;
        }
        fd += 1;
    }
    if ret == 0 && from <= last { run(from, last, flags) } else { ret }
}

/// Closes a range that holds none of the engine's own descriptors.
fn run(first: c_uint, last: c_uint, flags: c_int) -> isize {
    // No descriptor is made beyond the limit. The kernel closes those that are there from before
    // the limit was lowered.
    let last_open = last.min(table_size());
    super::epoll::closes(first.cast_signed(), last_open.cast_signed());
    let _closing = fds::before_close_range(first, last_open);
    range(first, last, flags)
}

fn table_size() -> c_uint {
    limit().min(1 << 20) as c_uint
}

/// Returns the lowest number that no descriptor may be given.
pub fn limit() -> u64 {
    let mut limit = [0u64; 2];
    // SAFETY: `limit` is a struct rlimit: two 64-bit numbers.
    unsafe {
        raw!(libc::SYS_getrlimit, libc::RLIMIT_NOFILE, (&raw mut limit).expose_provenance());
    }
    limit[0]
}
