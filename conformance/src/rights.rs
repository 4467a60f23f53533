//! Rights of the calling thread alone, by system calls that the C library does not repeat on the
//! others.
#![allow(unsafe_code)]

use std::ffi::CStr;

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;
pub const NOBODY: u32 = 65534;

/// Gives up root's ids for good.
pub fn become_nobody() -> bool {
    // SAFETY: changes this thread's credentials, no memory.
    unsafe {
        libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY) == 0
            && libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) == 0
    }
}

/// The groups beside the first.
pub fn set_groups(groups: &[u32]) -> bool {
    // SAFETY: reads the slice.
    unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) == 0 }
}

/// Makes effective what is permitted, but for the capabilities in `without`.
pub fn capabilities(without: u64) -> bool {
    let header = [CAPABILITY_VERSION_3, 0];
    let mut sets = [[0u32; 3]; 2];
    // SAFETY: both calls get a header and two sets, as version 3 has them.
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

/// The effective user of the whole process, as the C library sets it.
pub fn effective_user(id: u32) -> bool {
    // SAFETY: changes credentials, no memory.
    unsafe { libc::seteuid(id) == 0 }
}

/// The effective user of the calling thread alone; that of files becomes the same.
pub fn effective_user_of_thread(id: u32) -> bool {
    // SAFETY: changes this thread's credentials, no memory.
    unsafe { libc::syscall(libc::SYS_setresuid, -1, id, -1) == 0 }
}

/// The user that the calling thread accesses files by.
pub fn file_user(id: u32) {
    // SAFETY: changes this thread's credentials, no memory.
    unsafe { libc::setfsuid(id) };
}

/// The mask for new files.
pub fn umask(mask: u32) -> u32 {
    // SAFETY: a number.
    unsafe { libc::umask(mask) }
}

/// Gives the calling thread a mask for new files and a working directory of its own.
pub fn own_files() -> bool {
    // SAFETY: a number.
    unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_FS) == 0 }
}

/// Changes the working directory.
pub fn enter_directory(path: &CStr) -> bool {
    // SAFETY: a string.
    unsafe { libc::chdir(path.as_ptr()) == 0 }
}

/// A Landlock domain in which no file can be removed; false where there is no Landlock.
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

/// Is it so already?
pub fn has_no_new_privs() -> bool {
    // SAFETY: asks for a flag of the thread's.
    unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 }
}

/// The calling thread, and what comes of it, gains no rights by exec(2).
pub fn no_new_privs() {
    // SAFETY: a flag of the thread's.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
}
