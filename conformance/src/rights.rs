//! Rights of the calling thread alone, by system calls that the C library does not repeat on the
//! other threads.
#![allow(unsafe_code)]

use std::ffi::CStr;

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;
pub const NOBODY: u32 = 65534;

/// Gives up root's ids for good.
pub fn become_nobody() -> bool {
    // SAFETY: the calls change this thread's credentials, no memory.
    unsafe {
        libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY) == 0
            && libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) == 0
    }
}

/// Sets the supplementary groups.
pub fn set_groups(groups: &[u32]) -> bool {
    // SAFETY: setgroups reads the slice.
    unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) == 0 }
}

/// Makes all permitted capabilities effective, except those in `without`.
pub fn capabilities(without: u64) -> bool {
    let header = [CAPABILITY_VERSION_3, 0];
    let mut sets = [[0u32; 3]; 2];
    // SAFETY: both calls get a header and two sets, as version 3 requires.
    unsafe {
        if libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) != 0 {
            return false;
        }
        for (i, [effective, permitted, _]) in sets.iter_mut().enumerate() {
            *effective = *permitted & !((without >> (32 * i)) as u32);
        }
        libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) == 0
    }
}

/// Sets the effective user of the whole process, as the C library does.
pub fn effective_user(id: u32) -> bool {
    // SAFETY: seteuid changes credentials, no memory.
    unsafe { libc::seteuid(id) == 0 }
}

/// Sets the effective user of the calling thread alone, and with it the user for files.
pub fn effective_user_of_thread(id: u32) -> bool {
    // SAFETY: the call changes this thread's credentials, no memory.
    unsafe { libc::syscall(libc::SYS_setresuid, -1, id, -1) == 0 }
}

/// Sets the user by which the calling thread accesses files.
pub fn file_user(id: u32) {
    // SAFETY: setfsuid changes this thread's credentials, no memory.
    unsafe { libc::setfsuid(id) };
}

/// Sets the mask for new files; returns the old one.
pub fn umask(mask: u32) -> u32 {
    // SAFETY: umask takes a number.
    unsafe { libc::umask(mask) }
}

/// Gives the calling thread a mask for new files and a working directory of its own.
pub fn own_files() -> bool {
    // SAFETY: unshare takes a number.
    unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_FS) == 0 }
}

/// Changes the working directory.
pub fn enter_directory(path: &CStr) -> bool {
    // SAFETY: `path` is a NUL-terminated string.
    unsafe { libc::chdir(path.as_ptr()) == 0 }
}

/// Enters a Landlock domain in which no file can be removed; false without Landlock.
pub fn no_removal() -> bool {
    const CREATE_RULESET: i64 = 444;
    const RESTRICT_SELF: i64 = 446;
    const REMOVE_FILE: u64 = 1 << 5;
    // SAFETY: the first call reads the handled accesses of the first version of the ABI; the rest
    // are numbers.
    unsafe {
        let handled = REMOVE_FILE;
        let rules = libc::syscall(CREATE_RULESET, &raw const handled, size_of_val(&handled), 0);
        rules >= 0
            && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(RESTRICT_SELF, rules, 0) == 0
            && libc::close(rules as i32) == 0
    }
}

/// Returns whether the calling thread has no_new_privs set.
pub fn has_no_new_privs() -> bool {
    // SAFETY: the call reads a flag of the thread.
    unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 }
}

/// Sets no_new_privs: the calling thread and its children gain no rights by exec(2).
pub fn no_new_privs() {
    // SAFETY: the call sets a flag of the thread.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
}
