//! Actions of the executor without any ring: the files at the start, and acts of the outside world.
#![allow(unsafe_code)]

use super::arena;
use crate::fuzz::program::Slot;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Returns a failure as `-errno`.
pub fn code(e: &io::Error) -> i64 {
    -i64::from(e.raw_os_error().unwrap_or(0))
}

fn err() -> i64 {
    code(&io::Error::last_os_error())
}

/// Sets limits and signals: a file stays below 3 GiB (a ring's memory may be a file, too, with
/// buffer rings from 2 GiB on), and no signal but the alarm interrupts.
pub fn calm() -> io::Result<()> {
    extern "C" fn ignore(_: i32) {}
    let limit = libc::rlimit { rlim_cur: 3 << 30, rlim_max: 3 << 30 };
    // SAFETY: the structures are valid; the handler does nothing.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let mut act: libc::sigaction = std::mem::zeroed();
        act.sa_sigaction = ignore as extern "C" fn(i32) as usize;
        libc::sigaction(libc::SIGALRM, &raw const act, std::ptr::null_mut());
        libc::umask(0o022);
        if libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Sets one SIGALRM after `ms` milliseconds; 0 cancels it.
pub fn alarm(ms: i64) {
    let value = libc::timeval { tv_sec: 0, tv_usec: ms * 1000 };
    let timer =
        libc::itimerval { it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 }, it_value: value };
    // SAFETY: `timer` is a valid structure.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
}

/// Creates the files that every program starts with, in the current directory.
pub fn make_files() -> io::Result<()> {
    let pattern: Vec<u8> = (0..20_480u32).map(|i| (i / 7 % 251) as u8).collect();
    fs::write("a", &pattern)?;
    fs::write("b", b"")?;
    fs::write("ro", &pattern[..100])?;
    fs::write("wo", &pattern[..5000])?;
    fs::write("ap", b"line\n")?;
    fs::write("dio", pattern.iter().cycle().take(65_536).copied().collect::<Vec<u8>>())?;
    fs::create_dir("sub")?;
    fs::write("sub/e", b"inner")?;
    symlink("a", "link")?;
    symlink("nowhere", "dangling")?;
    for name in [c"a", c"ro"] {
        let (attr, value) = (c"user.one", b"first value");
        // SAFETY: the strings are NUL-terminated and `value` is live, with its length.
        unsafe {
            let value = (value.as_ptr().cast(), value.len());
            libc::setxattr(name.as_ptr(), attr.as_ptr(), value.0, value.1, 0);
        }
    }
    Ok(())
}

fn open(path: &str, flags: i32) -> i32 {
    let path = CString::new(path).unwrap_or_default();
    // SAFETY: `path` is NUL-terminated.
    unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) }
}

fn pair(slot: [Slot; 2], fds: [i32; 2]) -> [(Slot, i32); 2] {
    [(slot[0], fds[0]), (slot[1], fds[1])]
}

/// Opens every slot at its number.
pub fn open_slots() -> io::Result<()> {
    use Slot::*;
    let (mut p, mut n, mut f, mut s) = ([0; 2], [0; 2], [0; 2], [0; 2]);
    // SAFETY: the calls that fill two numbers get arrays of two.
    let (event, sem, own) = unsafe {
        libc::pipe2(p.as_mut_ptr(), 0);
        libc::pipe2(n.as_mut_ptr(), libc::O_NONBLOCK);
        libc::pipe2(f.as_mut_ptr(), libc::O_NONBLOCK);
        libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, s.as_mut_ptr());
        let sem = libc::eventfd(2, libc::EFD_SEMAPHORE | libc::EFD_NONBLOCK);
        (libc::eventfd(0, 0), sem, libc::eventfd(0, libc::EFD_NONBLOCK))
    };
    let mut all = vec![
        (A, open("a", libc::O_RDWR)),
        (B, open("b", libc::O_RDWR)),
        (Ro, open("ro", libc::O_RDONLY)),
        (Wo, open("wo", libc::O_WRONLY)),
        (Append, open("ap", libc::O_RDWR | libc::O_APPEND)),
        (Direct, open("dio", libc::O_RDWR | libc::O_DIRECT)),
        (Dir, open(".", libc::O_DIRECTORY)),
        (Sub, open("sub", libc::O_DIRECTORY)),
        (Event, event),
        (Sem, sem),
        (Null, open("/dev/null", libc::O_RDWR)),
        (Path, open("a", libc::O_PATH)),
        (RingEvent, own),
    ];
    all.extend(pair([PipeR, PipeW], p));
    all.extend(pair([NbR, NbW], n));
    all.extend(pair([FullR, FullW], f));
    all.extend(pair([SockA, SockB], s));
    all.extend(super::net::make()?);
    for (slot, fd) in all {
        // SAFETY: the descriptors are our own.
        let moved = unsafe { libc::dup2(fd, slot.number()) };
        if fd < 0 || moved < 0 {
            return Err(io::Error::other(format!("cannot open {slot:?}")));
        }
        // SAFETY: as above.
        unsafe { libc::close(fd) };
    }
    // SAFETY: the descriptors are our own.
    let nonblock =
        |slot: Slot, flags: i32| unsafe { libc::fcntl(slot.number(), libc::F_SETFL, flags) };
    nonblock(TightA, libc::O_NONBLOCK);
    for slot in [FullW, TightA] {
        fill(slot);
        // From now on the slot is blocking, like the others.
        nonblock(slot, 0);
    }
    Ok(())
}

fn fill(slot: Slot) {
    let block = [b'f'; 4096];
    // SAFETY: `block` is live, with its length.
    while unsafe { libc::write(slot.number(), block.as_ptr().cast(), block.len()) } > 0 {}
}

/// Calls `poll(2)` without waiting: the events, or `-errno`.
pub fn poll(fd: i32) -> i64 {
    let events = libc::POLLIN | libc::POLLOUT | libc::POLLPRI;
    let mut p = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: `p` is one valid structure.
    match unsafe { libc::poll(&raw mut p, 1, 0) } {
        -1 => err(),
        _ => i64::from(p.revents),
    }
}

/// Calls `write(2)` if it will not wait.
pub fn write(slot: Slot, n: u32) -> i64 {
    if poll(slot.number()) & i64::from(libc::POLLOUT) == 0 {
        return -i64::from(libc::EAGAIN);
    }
    let word = u64::from(n).to_le_bytes();
    let event = matches!(slot, Slot::Event | Slot::Sem);
    let bytes: Vec<u8> = if event { word.to_vec() } else { (0..n).map(|i| i as u8).collect() };
    // SAFETY: `bytes` is live, with its length.
    let got = unsafe { libc::write(slot.number(), bytes.as_ptr().cast(), bytes.len()) };
    if got < 0 { err() } else { got as i64 }
}

/// Calls `read(2)` if it will not wait; returns the result and the data.
pub fn read(slot: Slot, n: u32) -> (i64, Vec<u8>) {
    let ready = i64::from(libc::POLLIN | libc::POLLHUP);
    if poll(slot.number()) & ready == 0 {
        return (-i64::from(libc::EAGAIN), Vec::new());
    }
    let mut bytes = vec![0u8; n as usize];
    // SAFETY: `bytes` is live, with its length.
    let got = unsafe { libc::read(slot.number(), bytes.as_mut_ptr().cast(), bytes.len()) };
    if got < 0 {
        return (err(), Vec::new());
    }
    bytes.truncate(got as usize);
    (got as i64, bytes)
}

/// Calls `close(2)`.
pub fn close(fd: i32) -> i64 {
    // SAFETY: close touches no memory.
    if unsafe { libc::close(fd) } < 0 { err() } else { 0 }
}

/// Fills a buffer of the arena.
pub fn poke(buf: u8, words: &[u32]) {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    arena::write(arena::buffer(buf, 0), &bytes[..bytes.len().min(arena::BUFFER_LEN)]);
}

/// Lists names and values of the `user.*` attributes of `path`, sorted, for the tree.
pub fn xattrs(path: &Path) -> String {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return String::new() };
    let mut names = [0u8; 4096];
    // SAFETY: the path is NUL-terminated and `names` is live, with its length.
    let n = unsafe { libc::llistxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    let names = names.get(..usize::try_from(n).unwrap_or(0)).unwrap_or_default();
    let mut out: Vec<String> = Vec::new();
    for name in names.split(|&b| b == 0).filter(|n| n.starts_with(b"user.")) {
        let name = CString::new(name).unwrap_or_default();
        let mut value = [0u8; 256];
        let at = value.as_mut_ptr().cast();
        // SAFETY: the strings are NUL-terminated and `value` is live, with its length.
        let n = unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), at, value.len()) };
        let value = &value[..usize::try_from(n).unwrap_or(0)];
        out.push(format!(" {}={}", name.to_string_lossy(), super::digest::short(value)));
    }
    out.sort();
    out.concat()
}
