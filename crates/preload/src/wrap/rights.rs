//! libc's functions that change the rights of threads. libc sets new ids for all threads of the
//! process, including the engine's, so the engine need not ask for ids each time. The kernel does
//! not report a seccomp filter, a Landlock domain or file-system state of a thread's own, so the
//! engine is told which thread has got one.
#![allow(unsafe_code)]

use crate::raw::{self, next};
use crate::{copies, proc};
use core::ffi::{c_char, c_int, c_ulong};
use libc::{gid_t, size_t, uid_t};
use softring_host::creds;
use softring_host::refused::{self, Coming, Filter};

/// Functions that change the ids of all threads.
macro_rules! of_all_threads {
    ($($(#[$doc:meta])* $name:ident, $text:literal, ($($arg:ident: $type:ty),*);)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            // Before and after: a thread that asks in between may be told the old ids.
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
    let coming = coming(libc::SYS_prctl as usize, &[op as usize, a1 as usize, a2 as usize]);
    // SAFETY: as above.
    let ret = next.map_or(-1, |f| unsafe { f(op, a1, a2, a3, a4) });
    if ret == 0 {
        filtered(coming);
    }
    ret
}

/// `unshare(2)`: disassociates parts of the execution context.
#[unsafe(no_mangle)]
unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    let own = !proc::shares_memory();
    // SAFETY: as above.
    let ret = next!(c"unshare", fn(c_int) -> c_int).map_or(-1, |f| unsafe { f(flags) });
    if ret == 0 && own {
        creds::restricted();
    }
    ret
}

/// `setns(2)`: reassociates a thread with a namespace.
#[unsafe(no_mangle)]
unsafe extern "C" fn setns(fd: c_int, kind: c_int) -> c_int {
    let own = !proc::shares_memory();
    // SAFETY: as above.
    let ret = next!(c"setns", fn(c_int, c_int) -> c_int).map_or(-1, |f| unsafe { f(fd, kind) });
    if ret == 0 && own {
        creds::restricted();
    }
    ret
}

/// Makes a system call that came through libc's `syscall()`, and notes its effect on the thread's
/// rights.
///
/// # Safety
/// The program's own call.
pub unsafe fn call(nr: usize, a: &[usize; 6]) -> isize {
    const LANDLOCK_RESTRICT_SELF: i64 = 446;
    const TSYNC: usize = libc::SECCOMP_FILTER_FLAG_TSYNC as usize;
    const LISTENS: usize = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER as usize;
    // Before the call, as a new filter may kill for what is asked later.
    let restricts =
        [libc::SYS_unshare, libc::SYS_setns, LANDLOCK_RESTRICT_SELF].contains(&(nr as i64));
    let own = restricts && !proc::shares_memory();
    let coming = coming(nr, a);
    // SAFETY: the caller's.
    let ret = unsafe { raw::syscall6(nr, a) };
    match nr as i64 {
        libc::SYS_setfsuid | libc::SYS_setfsgid => creds::file_ids_set(),
        _ if ret < 0 => {}
        // `ret` is the id of a thread that could not be put under the filter.
        libc::SYS_seccomp if ret > 0 && a[1] & TSYNC != 0 && a[1] & LISTENS == 0 => {}
        libc::SYS_prctl | libc::SYS_seccomp => filtered(coming),
        _ if own => creds::restricted(),
        // The caller may be a thread of the engine's: libpsx makes each thread repeat the call of
        // one.
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
    ret
}

/// Prepares for a call that puts a seccomp filter on a thread of this process; `None` for other
/// calls. Nothing may be called between this call and the program's next one, so all is asked
/// before.
fn coming(nr: usize, a: &[usize]) -> Option<Coming> {
    const STRICT: usize = libc::SECCOMP_MODE_STRICT as usize;
    const FILTER: usize = libc::SECCOMP_MODE_FILTER as usize;
    const SET_STRICT: usize = libc::SECCOMP_SET_MODE_STRICT as usize;
    const SET_FILTER: usize = libc::SECCOMP_SET_MODE_FILTER as usize;
    let sets = |op| op == libc::PR_SET_SECCOMP as usize;
    let filter = match (nr as i64, a) {
        (libc::SYS_prctl, [op, STRICT, ..]) if sets(*op) => Filter::Strict,
        (libc::SYS_prctl, [op, FILTER, fprog, ..]) if sets(*op) => Filter::Program(*fprog as u64),
        (libc::SYS_seccomp, [SET_STRICT, ..]) => Filter::Strict,
        (libc::SYS_seccomp, [SET_FILTER, _, fprog, ..]) => Filter::Program(*fprog as u64),
        _ => return None,
    };
    (!copies::stands_back() && !proc::shares_memory()).then(|| refused::filter_comes(filter))
}

/// Notes that the filter is on. Makes no system call.
fn filtered(coming: Option<Coming>) {
    if let Some(coming) = coming {
        creds::restricted();
        refused::filter_added(coming);
    }
}

fn missing() -> c_int {
    raw::set_errno(libc::ENOSYS);
    -1
}
