//! The start of a program where a policy may kill: this command, its helper and the library make
//! system calls that the program can do without. A child makes them first, and is killed in the
//! place of this process, or of the program.

use super::elf;
use crate::child::{self, Call, End, Isolated};
use crate::{fail, files, out, signals};
use softring_host::refused;
use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Calls of the library as any program starts, with arguments that change nothing. The kernel asks
/// filters before it checks them.
const LIBRARY: [Call; 8] = [
    ("getpid", libc::SYS_getpid, [0; 4]),
    ("rt_sigaction", libc::SYS_rt_sigaction, [libc::SIGPIPE as i64, 0, 0, 8]),
    ("rt_sigprocmask", libc::SYS_rt_sigprocmask, [libc::SIG_BLOCK as i64, 0, 0, 8]),
    ("fcntl", libc::SYS_fcntl, [-1, libc::F_DUPFD_CLOEXEC as i64, 0, 0]),
    ("clock_gettime", libc::SYS_clock_gettime, [libc::CLOCK_THREAD_CPUTIME_ID as i64, 0, 0, 0]),
    ("munmap", libc::SYS_munmap, [0; 4]),
    ("mprotect", libc::SYS_mprotect, [0, 0, (libc::PROT_READ | libc::PROT_EXEC) as i64, 0]),
    ("mprotect", libc::SYS_mprotect, [0, 0, (libc::PROT_WRITE | libc::PROT_EXEC) as i64, 0]),
];

/// Further calls of the library in a program with a dynamic loader: those of the C library's own
/// functions, and calls that glibc's loader makes and musl's does not.
const DYNAMIC: [Call; 4] = [
    ("getrandom", libc::SYS_getrandom, [0; 4]),
    ("prlimit64", libc::SYS_prlimit64, [0, libc::RLIMIT_NOFILE as i64, 0, 0]),
    ("newfstatat", libc::SYS_newfstatat, [libc::AT_FDCWD as i64, 0, 0, 0]),
    ("pread64", libc::SYS_pread64, [-1, 0, 0, 0]),
];

/// Further calls of this command, its helper, and the library in a static program.
const STATIC: [Call; 18] = [
    ("stat", libc::SYS_stat, [0; 4]),
    ("newfstatat", libc::SYS_newfstatat, [libc::AT_FDCWD as i64, 0, 0, 0]),
    ("access", libc::SYS_access, [0; 4]),
    ("pread64", libc::SYS_pread64, [-1, 0, 0, 0]),
    ("getcwd", libc::SYS_getcwd, [0; 4]),
    ("gettid", libc::SYS_gettid, [0; 4]),
    ("mmap", libc::SYS_mmap, [0; 4]),
    ("mremap", libc::SYS_mremap, [0; 4]),
    ("madvise", libc::SYS_madvise, [0; 4]),
    ("pipe2", libc::SYS_pipe2, [0, libc::O_CLOEXEC as i64, 0, 0]),
    ("fcntl", libc::SYS_fcntl, [0, libc::F_GETFD as i64, 0, 0]),
    ("wait4", libc::SYS_wait4, [-1, 0, (libc::WNOHANG | libc::__WALL) as i64, 0]),
    ("clock_gettime", libc::SYS_clock_gettime, [libc::CLOCK_MONOTONIC as i64, 0, 0, 0]),
    ("nanosleep", libc::SYS_nanosleep, [0; 4]),
    ("clock_nanosleep", libc::SYS_clock_nanosleep, [libc::CLOCK_REALTIME as i64, 0, 0, 0]),
    ("open", libc::SYS_open, [0; 4]),
    ("openat", libc::SYS_openat, [libc::AT_FDCWD as i64, 0, libc::O_CLOEXEC as i64, 0]),
    ("write", libc::SYS_write, [-1, 0, 0, 0]),
];

/// Calls of `--deny`.
const DENY: [Call; 2] = [
    ("prctl", libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as i64, 0, 0, 0]),
    ("seccomp", libc::SYS_seccomp, [-1, 0, 0, 0]),
];

/// Returns a call that a policy kills for, and that brings the library to a static program.
pub fn killing_static() -> Option<&'static str> {
    killing(&[&LIBRARY, &STATIC])
}

/// Returns a call that a policy kills for, and that the library makes as a program with a dynamic
/// loader starts, or this command if it is to `deny` rings.
pub fn killing_dynamic(deny: bool) -> Option<&'static str> {
    killing(&[&LIBRARY, &DYNAMIC, if deny { &DENY } else { &[] }])
}

fn killing(lists: &[&[Call]]) -> Option<&'static str> {
    if !refused::is_filtered() {
        return None;
    }
    let calls = lists.concat();
    let name = child::killing(&calls).ok().flatten().map(|(name, ..)| *name);
    if name.is_some() {
        // The policy may kill for more calls than this one.
        signals::leave_sigpipe();
    }
    name
}

/// Has a child `prepare` the start of a static program, if a policy may kill for that. If it does,
/// this process ends with a message. `words` are the command's.
pub fn try_start(words: &[OsString], prepare: impl FnOnce()) {
    if !refused::is_filtered() || !is_static(words) {
        return;
    }
    let rehearsed = child::isolated(|| {
        prepare();
        out::note("no line of this child is seen");
        Vec::new()
    });
    let Ok(Isolated::Ended(End::Killed(signal))) = rehearsed else { return };
    let call =
        killing_static().map_or_else(|| "a system call".to_owned(), |name| format!("{name}(2)"));
    out::note_by_write(&format!(
        "error: signal {signal} ends who calls {call} here, by a policy, and `softring run` of a \
         statically linked program does; the program was not started"
    ));
    out::note_by_write("hint: have the policy allow the call, or start the program alone");
    // No memory is given back, as by a return.
    std::process::exit(fail::USAGE.into())
}

/// Returns whether the program that the command's words name is static: the word behind `--`, or
/// the first word that names a file.
fn is_static(words: &[OsString]) -> bool {
    let behind = words.iter().position(|word| word == "--").map(|at| at + 1);
    let words = behind.map_or(words, |at| words.get(at..=at).unwrap_or_default());
    let names = words.iter().filter(|word| !word.as_bytes().starts_with(b"-"));
    let mut head = [0; 4096];
    names.into_iter().find_map(|name| begins_static(name, &mut head)).unwrap_or(false)
}

/// Returns whether the start of a file is a static program's; `None` if there is no such file.
fn begins_static(name: &OsStr, head: &mut [u8]) -> Option<bool> {
    let mut begins = |path: &Path| {
        let path = CString::new(path.as_os_str().as_bytes()).ok()?;
        files::head(&path, head).map(elf::begins_static)
    };
    if name.as_bytes().contains(&b'/') {
        return begins(Path::new(name));
    }
    env::split_paths(&env::var_os("PATH")?).find_map(|dir| begins(&dir.join(name)))
}
