//! libc's functions that change what threads may do. libc gives other ids to all threads of the
//! process, also to the engine's, which therefore need not ask for theirs each time; a seccomp
//! filter, a Landlock domain and file-system state of its own show in no answer of the kernel's, so
//! the engine is told of the thread that has got them.
#![allow(unsafe_code)]

use crate::proc;
use crate::raw::{self, next};
use core::ffi::{c_char, c_int, c_ulong};
use libc::{gid_t, size_t, uid_t};
use softring_engine::{creds, refused};

/// Functions that change the ids of all threads.
macro_rules! of_all_threads {
    ($($(#[$doc:meta])* $name:ident, $text:literal, ($($arg:ident: $type:ty),*);)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            // Both times: a thread that asks in between may be told what was.
            creds::changed();
            let ret = match next!($text, fn($($type),*) -> c_int) {
                // SAFETY: the program's own call.
                Some(f) => unsafe { f($($arg),*) },
                None => missing(),
            };
            creds::changed();
            ret
        }
    )*};
}

of_all_threads! {
    /// `setuid(2)`
    setuid, c"setuid", (uid: uid_t);
    /// `setgid(2)`
    setgid, c"setgid", (gid: gid_t);
    /// `seteuid(2)`
    seteuid, c"seteuid", (euid: uid_t);
    /// `setegid(2)`
    setegid, c"setegid", (egid: gid_t);
    /// `setreuid(2)`
    setreuid, c"setreuid", (ruid: uid_t, euid: uid_t);
    /// `setregid(2)`
    setregid, c"setregid", (rgid: gid_t, egid: gid_t);
    /// `setresuid(2)`
    setresuid, c"setresuid", (ruid: uid_t, euid: uid_t, suid: uid_t);
    /// `setresgid(2)`
    setresgid, c"setresgid", (rgid: gid_t, egid: gid_t, sgid: gid_t);
    /// `setgroups(2)`
    setgroups, c"setgroups", (size: size_t, list: *const gid_t);
    /// `initgroups(3)`
    initgroups, c"initgroups", (user: *const c_char, group: gid_t);
}

/// `setfsuid(2)`: sets the user that the thread accesses files by.
#[unsafe(no_mangle)]
unsafe extern "C" fn setfsuid(uid: uid_t) -> c_int {
    // SAFETY: the program's own call, here and below.
    let ret = next!(c"setfsuid", fn(uid_t) -> c_int).map_or(-1, |f| unsafe { f(uid) });
    creds::file_ids_set();
    ret
}

/// `setfsgid(2)`: sets the group that the thread accesses files by.
#[unsafe(no_mangle)]
unsafe extern "C" fn setfsgid(gid: gid_t) -> c_int {
    // SAFETY: as above.
    let ret = next!(c"setfsgid", fn(gid_t) -> c_int).map_or(-1, |f| unsafe { f(gid) });
    creds::file_ids_set();
    ret
}

/// `prctl(2)`: operations on a process or thread. Variadic in C, which passes integers as any
/// others.
#[unsafe(no_mangle)]
unsafe extern "C" fn prctl(op: c_int, a1: c_ulong, a2: c_ulong, a3: c_ulong, a4: c_ulong) -> c_int {
    let next = next!(c"prctl", fn(c_int, c_ulong, c_ulong, c_ulong, c_ulong) -> c_int);
    // SAFETY: as above.
    let ret = next.map_or(-1, |f| unsafe { f(op, a1, a2, a3, a4) });
    if op == libc::PR_SET_SECCOMP && ret == 0 {
        filtered();
    }
    ret
}

/// `unshare(2)`: disassociates parts of the execution context.
#[unsafe(no_mangle)]
unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    // SAFETY: as above.
    let ret = next!(c"unshare", fn(c_int) -> c_int).map_or(-1, |f| unsafe { f(flags) });
    if ret == 0 {
        restricted();
    }
    ret
}

/// `setns(2)`: reassociates a thread with a namespace.
#[unsafe(no_mangle)]
unsafe extern "C" fn setns(fd: c_int, kind: c_int) -> c_int {
    // SAFETY: as above.
    let ret = next!(c"setns", fn(c_int, c_int) -> c_int).map_or(-1, |f| unsafe { f(fd, kind) });
    if ret == 0 {
        restricted();
    }
    ret
}

/// A system call through libc's `syscall()`, by its number and first argument, has answered `ret`.
pub fn heard(nr: usize, first: usize, ret: isize) {
    const LANDLOCK_RESTRICT_SELF: i64 = 446;
    const SETS_FILTER: usize = libc::SECCOMP_SET_MODE_FILTER as usize;
    match nr as i64 {
        libc::SYS_setfsuid | libc::SYS_setfsgid => creds::file_ids_set(),
        _ if ret < 0 => {}
        libc::SYS_seccomp if first > SETS_FILTER => {}
        libc::SYS_prctl if first != libc::PR_SET_SECCOMP as usize => {}
        libc::SYS_prctl | libc::SYS_seccomp => filtered(),
        libc::SYS_unshare | libc::SYS_setns | LANDLOCK_RESTRICT_SELF => restricted(),
        // It may be a thread of the engine's: libpsx makes each repeat what one does.
        libc::SYS_setuid
        | libc::SYS_setgid
        | libc::SYS_setreuid
        | libc::SYS_setregid
        | libc::SYS_setgroups
        | libc::SYS_setresuid
        | libc::SYS_setresgid
        | libc::SYS_capset => creds::changed(),
        _ => {}
    }
}

fn restricted() {
    if !proc::shares_memory() {
        creds::restricted();
    }
}

/// Restricted by a seccomp filter.
fn filtered() {
    restricted();
    if !proc::shares_memory() {
        refused::filter_added();
    }
}

fn missing() -> c_int {
    raw::set_errno(libc::ENOSYS);
    -1
}
