//! Child processes for work that a policy may kill for: it then kills only the child. fork(2)
//! itself waits for the child to end, as vfork(2) does. If this process is under a seccomp filter,
//! children are started without pipe2(2), which a policy may refuse, or kill for, as well. They are
//! reaped by wait4(2), unless a child that tries wait4(2) is refused.
#![allow(unsafe_code)]

use crate::{files, sys};
use rustix::process::{Resource, getrlimit};
use softring_host::refused;
use std::borrow::Cow;
use std::ffi::{CStr, CString, c_long};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// End of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Exited,
    /// Killed by this signal.
    Killed(i32),
    /// An unknown end.
    Unknown,
}

/// Outcome of a probe that ran in a process of its own.
pub enum Isolated {
    /// An answer.
    Answer(Vec<u8>),
    /// An end without an answer.
    Ended(End),
}

/// Memory that a child shares with us, for its answer.
struct Answer {
    at: *mut u8,
}

/// Most bytes of an answer; they take memory only where they are touched.
const ROOM: usize = 1 << 20;
const HEAD: usize = size_of::<usize>();

impl Answer {
    fn new() -> io::Result<Answer> {
        let how = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), ROOM, rights, how, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Answer { at: at.cast() })
    }

    /// Returns the length of the answer plus one; 0 if there is no answer.
    fn length(&self) -> &AtomicUsize {
        // SAFETY: a mapping begins on a page, and is of zeroes at first.
        unsafe { AtomicUsize::from_ptr(self.at.cast()) }
    }

    fn write(&self, bytes: &[u8]) {
        let len = bytes.len().min(ROOM - HEAD);
        // SAFETY: within the mapping; only the child writes there, and we read once it is done.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.add(HEAD), len) };
        self.length().store(len + 1, Ordering::Release);
    }

    fn read(&self) -> Option<Vec<u8>> {
        let len = self.length().load(Ordering::Acquire).checked_sub(1)?.min(ROOM - HEAD);
        // SAFETY: within the mapping; the child has ended.
        Some(unsafe { std::slice::from_raw_parts(self.at.add(HEAD), len) }.to_vec())
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // A filter may kill for munmap(2), which a program without a loader does not call.
        if refused::is_filtered() {
            return;
        }
        // SAFETY: our own mapping, to which nothing refers any more.
        unsafe { libc::munmap(self.at.cast(), ROOM) };
    }
}

/// Forks; the child is `None`. Returns once the child has ended, or runs another program. The
/// child's end sends no SIGCHLD, which would be left to the program that this process becomes. If a
/// policy refuses such a clone(2), a plain fork is tried.
fn fork() -> io::Result<Option<i32>> {
    // SAFETY: this process has one thread, so the child may go on as usual, in a copy of its
    // memory. libc's own records of that thread are not the child's, which makes no use of them.
    let pid = unsafe {
        match libc::syscall(libc::SYS_clone, libc::CLONE_VFORK, 0, 0, 0, 0) {
            pid if pid < 0 => libc::fork(),
            pid => pid as i32,
        }
    };
    match pid {
        0 => Ok(None),
        pid if pid < 0 => Err(io::Error::last_os_error()),
        pid => Ok(Some(pid)),
    }
}

/// Opens a file under the number `fd`, free or in use, by close(2) and open(2) alone; all numbers
/// below are in use.
fn put(fd: i32, path: &str, flags: i32) -> bool {
    let Ok(path) = CString::new(path) else { return false };
    // SAFETY: nobody owns the standard streams; the path is a string.
    unsafe {
        libc::close(fd);
        libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) == c_long::from(fd)
    }
}

/// Runs `probe` in a forked child, so that a sandbox that kills for a system call kills only the
/// child. Messages of softring's library there, if it is under this process, are discarded.
///
/// # Errors
/// No process can be had, or no memory.
pub fn isolated(probe: impl FnOnce() -> Vec<u8>) -> io::Result<Isolated> {
    let (pid, answer) = start(|answer| answer.write(&probe()))?;
    let end = wait(pid);
    Ok(answer.read().map_or(Isolated::Ended(end), Isolated::Answer))
}

/// A system call with its name, number and arguments.
pub type Call = (&'static str, c_long, [c_long; 4]);

/// Returns the first of these system calls that ends its caller. A child makes them.
///
/// # Errors
/// No process can be had, or no memory.
pub fn killing(calls: &[Call]) -> io::Result<Option<&Call>> {
    let (pid, answer) = start(|answer| {
        for (_, number, [a, b, c, d]) in calls {
            // SAFETY: the caller's list is of calls that change nothing but in this child.
            unsafe { libc::syscall(*number, *a, *b, *c, *d) };
            answer.length().fetch_add(1, Ordering::Release);
        }
    })?;
    wait(pid);
    Ok(calls.get(answer.length().load(Ordering::Acquire)))
}

/// Starts a child for a probe; the answer is there once the child has ended.
fn start(probe: impl FnOnce(&Answer)) -> io::Result<(i32, Answer)> {
    let answer = Answer::new()?;
    if let Some(pid) = fork()? {
        return Ok((pid, answer));
    }
    put(2, "/dev/null", libc::O_WRONLY);
    probe(&answer);
    // SAFETY: ends the child without running the parent's exit handlers.
    unsafe { libc::_exit(0) }
}

/// Waits for a child of ours and reaps it, as the program that this process becomes must not find
/// it. If a filter refuses that, /proc tells the end.
fn wait(pid: i32) -> End {
    if !refused::is_filtered() || may_wait() { reap(pid) } else { end_by_proc(pid) }
}

/// Returns whether wait4(2) may be called. A child tries it, once.
fn may_wait() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    let no_child = |answer: &Answer| {
        let how = libc::WNOHANG | libc::__WALL;
        // SAFETY: the status pointer is null, which is allowed.
        let none = unsafe { libc::waitpid(-1, std::ptr::null_mut(), how) } < 0;
        let e = io::Error::last_os_error().raw_os_error();
        if none && e == Some(libc::ECHILD) {
            answer.write(&[]);
        }
    };
    *MAY.get_or_init(|| {
        let Ok((pid, answer)) = start(no_child) else { return true };
        end_by_proc(pid);
        let may = answer.read().is_some();
        if may {
            reap(pid);
        }
        may
    })
}

/// Waits for a child of ours by /proc, as far as there is one; the child is not reaped.
fn end_by_proc(pid: i32) -> End {
    const PASSES: u32 = 4096;
    let path = CString::new(format!("/proc/{pid}/stat")).unwrap_or_default();
    let (mut own, mut stat) = ([0; STAT], [0; STAT]);
    let own = text_of(c"/proc/self/stat", &mut own);
    for pass in 0.. {
        let stat = text_of(&path, &mut stat);
        // In a /proc of another pid namespace the number is another process's.
        if !is_parent(&own, &stat) {
            break;
        }
        if let Some(end) = end_of(&stat) {
            return end;
        }
        // A child that ends is soon gone, and a policy may kill for nanosleep(2).
        if pass > PASSES {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    End::Unknown
}

/// Bytes that are enough for a text of proc_pid_stat(5).
const STAT: usize = 1024;

/// Reads such a text; an empty one if there is none.
fn text_of<'a>(path: &CStr, to: &'a mut [u8; STAT]) -> Cow<'a, str> {
    files::head(path, to).map_or(Cow::Borrowed(""), String::from_utf8_lossy)
}

/// Reaps a child by wait4(2), also one that sends no SIGCHLD.
fn reap(pid: i32) -> End {
    let mut status = 0;
    // SAFETY: `status` is a live i32.
    while unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) } < 0 {
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return End::Unknown;
        }
    }
    of_status(status)
}

fn of_status(status: i32) -> End {
    if libc::WIFSIGNALED(status) { End::Killed(libc::WTERMSIG(status)) } else { End::Exited }
}

/// Returns whether `parent` and `child`, texts of proc_pid_stat(5), are of a parent and its child.
fn is_parent(parent: &str, child: &str) -> bool {
    let above = files::stat_fields(child).nth(1);
    above.is_some() && parent.split_whitespace().next() == above
}

/// Returns the end that a text of proc_pid_stat(5) tells; None while the process runs.
fn end_of(stat: &str) -> Option<End> {
    let mut fields = files::stat_fields(stat);
    if !matches!(fields.next(), Some("Z" | "X")) {
        return None;
    }
    // The last field is `exit_code`, a status as in wait(2).
    let status = fields.next_back().and_then(|field| field.parse().ok());
    Some(status.map_or(End::Unknown, of_status))
}

/// Output of a program, and its end.
#[derive(Debug)]
pub struct Captured {
    pub stdout: String,
    pub stderr: String,
    pub end: End,
}

/// Target of a program's output.
struct Output {
    /// Side that we read: a pipe, or the file that the output goes to.
    from: File,
    /// The other end of a pipe.
    to: Option<File>,
}

impl Output {
    /// Makes a pipe; under a filter a file, unless a limit keeps it from being written.
    fn new() -> io::Result<Output> {
        const ENOUGH: u64 = 1 << 20;
        let short = || getrlimit(Resource::Fsize).current.is_some_and(|most| most < ENOUGH);
        if refused::is_filtered() && !short() {
            return Ok(Output { from: unnamed()?, to: None });
        }
        let (from, to) = io::pipe()?;
        let [from, to] = [OwnedFd::from(from), OwnedFd::from(to)].map(File::from);
        Ok(Output { from, to: Some(to) })
    }

    /// Makes a standard stream, in a child, be this output.
    fn put(&self, fd: i32) -> bool {
        redirect(self.to.as_ref().unwrap_or(&self.from), fd)
    }

    /// Reads what was written: from a pipe until nobody can write there any more, from a file so
    /// far.
    fn text(&mut self, is_pipe: bool) -> String {
        const MOST: usize = 1 << 16;
        let (mut bytes, mut len) = (vec![0; MOST], 0);
        loop {
            // A file is read from its beginning: a child may share our position in it.
            let more = match is_pipe {
                true => self.from.read(&mut bytes[len..]),
                false => self.from.read_at(&mut bytes[len..], len as u64),
            };
            match more {
                Ok(n @ 1..) => len += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // An error ends the text; what came before it stays.
                _ => return String::from_utf8_lossy(&bytes[..len]).into_owned(),
            }
        }
    }
}

/// Runs a program by fork(2) and execve(2), with variables added to its environment. The standard
/// library is not used for this, so that doctor goes on if a policy refuses its call (clone3). The
/// program writes only a few lines, so no pipe fills while the other is read.
///
/// # Errors
/// No process can be had, or no place for the output.
pub fn captured(args: &[CString], add: &[(&str, &str)]) -> io::Result<Captured> {
    let (mut out, mut err) = (Output::new()?, Output::new()?);
    let mut env = sys::environ();
    env.retain(|e| !add.iter().any(|a| e.as_bytes().starts_with(format!("{}=", a.0).as_bytes())));
    env.extend(add.iter().filter_map(|(k, v)| CString::new(format!("{k}={v}")).ok()));
    let Some(pid) = fork()? else {
        if out.put(1) && err.put(2) {
            sys::streams_are_put();
            sys::execve(&args[0], args, &env);
        }
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(127) }
    };
    let is_pipe = out.to.is_some();
    (out.to, err.to) = (None, None);
    // A file is whole once its writer has ended.
    let mut texts = || (out.text(is_pipe), err.text(is_pipe));
    let early = is_pipe.then(&mut texts);
    let end = wait(pid);
    let (stdout, stderr) = early.unwrap_or_else(texts);
    Ok(Captured { stdout, stderr, end })
}

/// Makes a file that no name leads to: by open(2) in a directory for temporary files, or in memory.
///
/// # Errors
/// None can be made.
pub fn unnamed() -> io::Result<File> {
    let named = std::env::var_os("TMPDIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let dirs = ["/dev/shm", "/tmp", "/var/tmp"].map(PathBuf::from).into_iter().chain(named);
    let mut how = File::options();
    how.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE);
    if let Some(file) = dirs.into_iter().find_map(|dir| how.open(dir).ok()) {
        return Ok(file);
    }
    refused::learn();
    let made = softring_host::substitute::memfd("softring-doctor", false);
    made.map(|fd| sys::from_engine(fd).into()).map_err(|e| io::Error::from_raw_os_error(e.0))
}

/// Makes a standard stream, in a child, be a file: by /proc, or by one of three calls, each of
/// which a policy may refuse.
fn redirect(to: &File, fd: i32) -> bool {
    let from = to.as_raw_fd();
    if put(fd, &format!("/proc/self/fd/{from}"), libc::O_RDWR) {
        return true;
    }
    // SAFETY: numbers; nobody owns the standard streams.
    let calls: [fn(i32, i32) -> c_long; 3] = unsafe {
        [
            |from, fd| libc::syscall(libc::SYS_dup2, from, fd),
            |from, fd| libc::syscall(libc::SYS_dup3, from, fd, 0),
            |from, _| libc::syscall(libc::SYS_dup, from),
        ]
    };
    calls.into_iter().any(|call| call(from, fd) == c_long::from(fd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_statuses_are_decoded() {
        assert_eq!(end_of("12 (a) b) R 1 2 0"), None);
        assert_eq!(end_of("12 (a) b) Z 1 2 0"), Some(End::Exited));
        assert_eq!(end_of("12 (a) b) Z 1 2 159"), Some(End::Killed(31)));
        assert_eq!(end_of("12 (a) b) Z 1 2 256"), Some(End::Exited));
        assert!(is_parent("7 (a b) R 1 2 0", "12 (a) b) R 7 2 0"));
        assert!(!is_parent("7 (a b) R 1 2 0", "12 (a) b) R 2 7 0") && !is_parent("", ""));
    }
}
