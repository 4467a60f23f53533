//! A program in which the C library closes descriptors internally, or in which a dup2(2) or dup3(2)
//! fails and closes nothing. The tests run it on the kernel's rings and on ours. `libc_closes CASE`
//! exits with 0 if the case holds.
#![allow(unsafe_code)]

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::os::fd::{AsRawFd, RawFd};
use std::process::ExitCode;
use std::time::Duration;

type Outcome = Result<(), String>;

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Outcome {
    if got == want { Ok(()) } else { Err(format!("{what}: {got:?}, not {want:?}")) }
}

fn ring() -> Result<IoUring, String> {
    IoUring::new(8).map_err(|e| format!("setup: {e}"))
}

/// Submits, and waits up to five seconds for one completion.
fn one(r: &mut IoUring) -> Result<cqueue::Entry, String> {
    let limit = types::Timespec::from(Duration::from_secs(5));
    let args = types::SubmitArgs::new().timespec(&limit);
    r.submitter().submit_with_args(1, &args).map_err(|e| format!("no completion: {e}"))?;
    r.completion().next().ok_or_else(|| "no completion".into())
}

fn submit(r: &mut IoUring, e: squeue::Entry) -> Outcome {
    // SAFETY: the buffers that requests name live as long as the program.
    unsafe { r.submission().push(&e) }.map_err(|e| e.to_string())?;
    r.submit().map(drop).map_err(|e| e.to_string())
}

fn recv(r: &mut IoUring, fd: RawFd, data: u64) -> Outcome {
    let to: &'static mut [u8; 8] = Box::leak(Box::new([0; 8]));
    submit(r, opcode::Recv::new(types::Fd(fd), to.as_mut_ptr(), 8).build().user_data(data))
}

/// Makes a socket under number `at`; returns its peer.
fn socket_at(at: RawFd) -> Result<RawFd, String> {
    let mut ends = [0; 2];
    // SAFETY: room for two numbers, and numbers of ours.
    unsafe {
        libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, ends.as_mut_ptr());
        if ends[1] == at {
            ends.swap(0, 1);
        }
        if ends[0] != at {
            equal("dup2", libc::dup2(ends[0], at), at)?;
            libc::close(ends[0]);
        }
    }
    Ok(ends[1])
}

fn write(fd: RawFd) -> Outcome {
    // SAFETY: four bytes of ours.
    equal("write", unsafe { libc::write(fd, b"abcd".as_ptr().cast(), 4) }, 4)
}

/// A RECV waits on `fd`, which `closes` closes. The RECV goes on with the file that it had, and a
/// RECV on the file that has the number now completes, too.
fn waits_on(fd: RawFd, peer: RawFd, closes: impl FnOnce() -> Outcome) -> Outcome {
    let mut r = ring()?;
    recv(&mut r, fd, 1)?;
    closes()?;
    write(peer)?;
    let c = one(&mut r)?;
    equal("what waited", (c.user_data(), c.result()), (1, 4))?;
    let peer = socket_at(fd)?;
    recv(&mut r, fd, 2)?;
    write(peer)?;
    let c = one(&mut r)?;
    equal("on the number used again", (c.user_data(), c.result()), (2, 4))
}

/// daemon(3) gives numbers 0 to 2 to /dev/null in a child, which has rings of its own.
fn daemon() -> Outcome {
    let mut report = [0; 2];
    let _ours = ring()?;
    // SAFETY: room for two numbers, then numbers of ours.
    unsafe {
        libc::pipe(report.as_mut_ptr());
        let child = libc::fork();
        if child != 0 {
            libc::close(report[1]);
            let (mut answer, mut status) = ([0u8; 200], 0);
            let n = libc::read(report[0], answer.as_mut_ptr().cast(), answer.len());
            libc::waitpid(child, &raw mut status, 0);
            let text = answer.get(..n as usize).unwrap_or_default();
            return equal("daemon", core::str::from_utf8(text), Ok("good"));
        }
    }
    let as_daemon = || {
        let peer = socket_at(1)?;
        let mut r = ring()?;
        let file = memory_file()?;
        // A memfd under number 2, read once, is a file of a known kind. SAFETY: numbers of ours.
        equal("dup2", unsafe { libc::dup2(file, 2) }, 2)?;
        read(&mut r, 2, 1)?;
        equal("read", one(&mut r)?.result(), 4)?;
        // SAFETY: numbers only.
        equal("daemon", unsafe { libc::daemon(1, 0) }, 0)?;
        drop(r);
        let mut r = ring()?;
        let mut ends = [0; 2];
        // SAFETY: room for two numbers, and numbers of ours.
        unsafe {
            libc::pipe(ends.as_mut_ptr());
            equal("dup2", libc::dup2(ends[0], 2), 2)?;
        }
        read(&mut r, 2, 3)?;
        recv(&mut r, 1, 4)?;
        equal("/dev/null is no socket", one(&mut r)?.result(), -libc::ENOTSOCK)?;
        write(ends[1])?;
        let c = one(&mut r)?;
        equal("a pipe under the number of a file", (c.user_data(), c.result()), (3, 4))?;
        drop(r);
        let _ = peer;
        let peer = socket_at(0)?;
        waits_on(0, peer, || {
            // SAFETY: numbers only.
            equal("close", unsafe { libc::close(0) }, 0)
        })
    };
    let answer: String = as_daemon().err().unwrap_or_else(|| "good".into());
    // SAFETY: bytes of ours; nothing of this process is needed any more.
    unsafe {
        libc::write(report[1], answer.as_ptr().cast(), answer.len());
        libc::_exit(0)
    }
}

fn memory_file() -> Result<RawFd, String> {
    // SAFETY: a name, then a number of ours.
    let fd = unsafe { libc::memfd_create(c"file".as_ptr(), 0) };
    write(fd).map(|()| fd)
}

fn read(r: &mut IoUring, fd: RawFd, data: u64) -> Outcome {
    let to: &'static mut [u8; 8] = Box::leak(Box::new([0; 8]));
    submit(r, opcode::Read::new(types::Fd(fd), to.as_mut_ptr(), 8).build().user_data(data))
}

/// login_tty(3) gives numbers 0 to 2 to a terminal.
fn login_tty() -> Outcome {
    let (mut main, mut terminal) = (0, 0);
    let name = core::ptr::null_mut();
    let (mode, size) = (core::ptr::null_mut(), core::ptr::null_mut());
    // SAFETY: room for two numbers.
    let made = unsafe { libc::openpty(&raw mut main, &raw mut terminal, name, mode, size) };
    equal("openpty", made, 0)?;
    let peer = socket_at(1)?;
    waits_on(1, peer, || {
        // SAFETY: a number only. It does not matter that the terminal cannot be this session's.
        unsafe {
            libc::setsid();
            equal("login_tty", libc::login_tty(terminal), 0)
        }
    })
}

/// closedir(3) of a directory that was read through a ring; a socket gets the number next.
fn closedir() -> Outcome {
    let mut r = ring()?;
    // SAFETY: a path; a directory that is open; numbers.
    unsafe {
        let dir = libc::opendir(c"/".as_ptr());
        let fd = libc::dirfd(dir);
        read(&mut r, fd, 1)?;
        equal("read of a directory", one(&mut r)?.result(), -libc::EISDIR)?;
        equal("closedir", libc::closedir(dir), 0)?;
        let peer = socket_at(fd)?;
        read(&mut r, fd, 2)?;
        write(peer)?;
        equal("read of a socket", one(&mut r)?.result(), 4)
    }
}

/// freopen(3) gives a stream's number to another file.
fn freopen() -> Outcome {
    let mut ends = [0; 2];
    // SAFETY: room for two numbers; strings; a stream that is open.
    unsafe {
        libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, ends.as_mut_ptr());
        let stream = libc::fdopen(ends[0], c"r".as_ptr());
        waits_on(ends[0], ends[1], || {
            let again = libc::freopen(c"/dev/null".as_ptr(), c"r".as_ptr(), stream);
            equal("freopen", again.is_null(), false)
        })
    }
}

/// pclose(3) closes a pipe's number.
fn popen() -> Outcome {
    // SAFETY: strings; a stream that is open until it is closed.
    unsafe {
        let mut r = ring()?;
        let stream = libc::popen(c"read a; echo b; read c".as_ptr(), c"w".as_ptr());
        equal("popen", stream.is_null(), false)?;
        let fd = libc::fileno(stream);
        let poll = opcode::PollAdd::new(types::Fd(fd), libc::POLLOUT as u32);
        submit(&mut r, poll.build().user_data(1))?;
        equal("poll", one(&mut r)?.result() & i32::from(libc::POLLOUT), i32::from(libc::POLLOUT))?;
        libc::pclose(stream);
        let peer = socket_at(fd)?;
        recv(&mut r, fd, 2)?;
        write(peer)?;
        let c = one(&mut r)?;
        equal("receive", (c.user_data(), c.result()), (2, 4))
    }
}

/// Returns whether another process would have to wait for a lock on this file.
fn is_locked(fd: RawFd) -> Result<bool, String> {
    // SAFETY: the child asks for a lock, and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let mut lock: libc::flock = core::mem::zeroed();
            lock.l_type = libc::F_WRLCK as i16;
            let asked = libc::fcntl(fd, libc::F_GETLK, &raw mut lock);
            libc::_exit(if asked != 0 {
                2
            } else {
                i32::from(lock.l_type != libc::F_UNLCK as i16)
            });
        }
        let mut status = 0;
        libc::waitpid(child, &raw mut status, 0);
        match libc::WEXITSTATUS(status) {
            2 => Err("no answer about the lock".into()),
            answer => Ok(answer == 1),
        }
    }
}

/// A dup2(2) or dup3(2) that fails closes nothing: the lock and the ring stay.
fn failed_dup() -> Outcome {
    let mut r = ring()?;
    let file = memory_file()?;
    let high = 900;
    // SAFETY: numbers and structures of ours.
    unsafe {
        equal("dup2", libc::dup2(file, high), high)?;
        let mut lock: libc::flock = core::mem::zeroed();
        lock.l_type = libc::F_WRLCK as i16;
        equal("lock", libc::fcntl(file, libc::F_SETLK, &raw mut lock), 0)?;
        // A worker runs this request, on a duplicate that stays as long as the lock.
        r.submitter().register_files(&[file]).map_err(|e| e.to_string())?;
        r.submitter().unregister_files().map_err(|e| e.to_string())?;
        submit(&mut r, opcode::Fsync::new(types::Fd(file)).build().user_data(1))?;
        equal("fsync", one(&mut r)?.result(), 0)?;
        equal("at first", is_locked(file)?, true)?;
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY);
        for onto in [file, r.as_raw_fd()] {
            equal("no such flag", libc::dup3(null, onto, libc::O_NONBLOCK), -1)?;
            equal("no such number", libc::dup2(-1, onto), -1)?;
            equal("not open", libc::dup3(899, onto, libc::O_CLOEXEC), -1)?;
        }
        equal("the same", libc::dup3(file, file, 0), -1)?;
        let mut limit: libc::rlimit = core::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        let before = limit;
        limit.rlim_cur = high as u64;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        equal("beyond the limit", libc::dup2(null, high), -1)?;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const before);
        equal("afterwards", is_locked(file)?, true)?;
        submit(&mut r, opcode::Nop::new().build().user_data(5))?;
        equal("the ring", one(&mut r)?.user_data(), 5)?;
        equal("onto the file", libc::dup2(null, file), file)?;
        equal("in the end", is_locked(high)?, false)
    }
}

fn main() -> ExitCode {
    let case = std::env::args().nth(1).unwrap_or_default();
    let outcome = match case.as_str() {
        "daemon" => daemon(),
        "login_tty" => login_tty(),
        "closedir" => closedir(),
        "freopen" => freopen(),
        "popen" => popen(),
        "failed_dup" => failed_dup(),
        _ => Err("no such case".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{case}: {e}");
            ExitCode::FAILURE
        }
    }
}
