//! A program that does to ring descriptors what programs do to descriptors. The tests run it on the
//! kernel's rings and on ours; both must answer the same. `fds CASE` exits with 0 if the case
//! holds.
#![allow(unsafe_code)]

use core::arch::global_asm;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use io_uring::{IoUring, opcode};
use std::os::fd::{AsRawFd, RawFd};
use std::process::ExitCode;

global_asm!(
    ".type close_inline, @function",
    "close_inline:",
    ".cfi_startproc",
    "mov eax, 3",
    "syscall",
    "ret",
    ".cfi_endproc",
    ".size close_inline, . - close_inline",
    ".p2align 4",
    ".type mmap_inline, @function",
    "mmap_inline:",
    ".cfi_startproc",
    "mov r10, rcx",
    "mov eax, 9",
    "syscall",
    "ret",
    ".cfi_endproc",
    ".size mmap_inline, . - mmap_inline",
);

unsafe extern "C" {
    fn close_inline(fd: i32) -> isize;
    fn mmap_inline(at: usize, len: usize, prot: i32, flags: i32, fd: i32, off: usize) -> isize;
}

type Outcome = Result<(), String>;

fn ring() -> Result<IoUring, String> {
    IoUring::new(4).map_err(|e| format!("setup: {e}"))
}

/// Leaves one completion in the ring.
fn complete(r: &mut IoUring) -> Outcome {
    // SAFETY: a NOP refers to nothing.
    unsafe { r.submission().push(&opcode::Nop::new().build()) }.map_err(|e| e.to_string())?;
    r.submit_and_wait(1).map(|_| ()).map_err(|e| format!("enter: {e}"))
}

fn reap(r: &mut IoUring) -> Outcome {
    equal("completions", r.completion().count(), 1)
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Outcome {
    if got == want { Ok(()) } else { Err(format!("{what}: {got:?}, not {want:?}")) }
}

/// Checks a call's answer about readability: empty, with a completion, empty again.
fn thrice(is_readable: impl Fn(RawFd) -> Result<bool, String>) -> Outcome {
    let mut r = ring()?;
    let fd = r.as_raw_fd();
    for round in 0..2 {
        equal(&format!("empty, round {round}"), is_readable(fd)?, false)?;
        complete(&mut r)?;
        equal(&format!("full, round {round}"), is_readable(fd)?, true)?;
        reap(&mut r)?;
    }
    equal("empty at last", is_readable(fd)?, false)
}

fn poll(fd: RawFd) -> Result<bool, String> {
    let mut p = [
        libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 },
        libc::pollfd { fd, events: libc::POLLIN, revents: 0 },
    ];
    // SAFETY: two entries.
    let n = unsafe { libc::poll(p.as_mut_ptr(), 2, 0) };
    equal("fd after poll", p[1].fd, fd)?;
    equal("poll's count", n, i32::from(p[1].revents != 0))?;
    Ok(p[1].revents & libc::POLLIN != 0)
}

fn ppoll(fd: RawFd) -> Result<bool, String> {
    let mut p = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one entry, a time, no mask.
    let n = unsafe { libc::ppoll(&raw mut p, 1, &raw const now, core::ptr::null()) };
    Ok(n == 1 && p.revents & libc::POLLIN != 0)
}

fn select(fd: RawFd) -> Result<bool, String> {
    // SAFETY: a whole set and a time.
    unsafe {
        let mut set: libc::fd_set = core::mem::zeroed();
        libc::FD_SET(fd, &raw mut set);
        let mut now: libc::timeval = core::mem::zeroed();
        let null = core::ptr::null_mut();
        let n = libc::select(fd + 1, &raw mut set, null, null, &raw mut now);
        equal("select's count", n == 1, libc::FD_ISSET(fd, &raw const set))?;
        Ok(n == 1)
    }
}

fn epoll() -> Outcome {
    // SAFETY: a number only.
    let set = unsafe { libc::epoll_create1(0) };
    let mut r = ring()?;
    let mut e = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 77 };
    // SAFETY: an event of ours, or none.
    let added = unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, r.as_raw_fd(), &raw mut e) };
    equal("add", added, 0)?;
    // SAFETY: an event of ours, or none.
    let again = unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, r.as_raw_fd(), &raw mut e) };
    equal("add twice", again, -1)?;
    // SAFETY: an event of ours, or none.
    let ready = |e: &mut libc::epoll_event| unsafe { libc::epoll_wait(set, e, 1, 0) };
    for _ in 0..2 {
        equal("empty", ready(&mut e), 0)?;
        complete(&mut r)?;
        equal("full", ready(&mut e), 1)?;
        let data = e.u64;
        equal("data", data, 77)?;
        reap(&mut r)?;
    }
    equal("empty at last", ready(&mut e), 0)?;
    let none = core::ptr::null_mut();
    // SAFETY: an event of ours, or none.
    let gone = unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_DEL, r.as_raw_fd(), none) };
    equal("delete", gone, 0)
}

fn enter(fd: RawFd) -> i32 {
    // SAFETY: submits nothing, waits for nothing.
    let ret = unsafe { libc::syscall(libc::SYS_io_uring_enter, fd, 0, 0, 0, 0, 0) };
    if ret < 0 { -std::io::Error::last_os_error().raw_os_error().unwrap() } else { ret as i32 }
}

/// Duplicates a ring: a duplicate is the ring, and closing one leaves the others.
fn dup() -> Outcome {
    let r = ring()?;
    let fd = r.as_raw_fd();
    // SAFETY: numbers only.
    unsafe {
        let copies = [
            libc::dup(fd),
            libc::dup2(fd, 200),
            libc::dup3(fd, 201, 0),
            libc::fcntl(fd, libc::F_DUPFD, 100),
        ];
        for c in copies {
            equal("enter by a copy", enter(c), 0)?;
            equal("close of a copy", libc::close(c), 0)?;
            equal("enter by a closed copy", enter(c), -libc::EBADF)?;
        }
        equal("enter after all", enter(fd), 0)?;
        let other = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY);
        let copy = libc::dup(fd);
        equal("dup2 onto a copy", libc::dup2(other, copy), copy)?;
        equal("enter by what is no ring now", enter(copy), -libc::EOPNOTSUPP)?;
    }
    equal("enter at last", enter(fd), 0)
}

/// Closes everything; the engine's own descriptors survive.
fn close_range() -> Outcome {
    let mut kept = ring()?;
    complete(&mut kept)?;
    equal("poll", poll(kept.as_raw_fd())?, true)?;
    let fd = kept.as_raw_fd() as u32;
    // SAFETY: this process holds no other descriptors that matter.
    unsafe { equal("close_range", libc::close_range(fd + 1, u32::MAX, 0), 0)? };
    reap(&mut kept)?;
    complete(&mut kept)?;
    equal("poll after it", poll(kept.as_raw_fd())?, true)?;
    // SAFETY: as above; the ring is not used again.
    unsafe { equal("close_range of all", libc::close_range(3, u32::MAX, 0), 0)? };
    equal("enter", enter(fd as i32), -libc::EBADF)?;
    let _closed = core::mem::ManuallyDrop::new(kept);
    complete(&mut ring()?)
}

/// Forks: a descriptor that the child closes stays open here; a ring that it inherits works there.
fn fork() -> Outcome {
    let mut r = ring()?;
    complete(&mut r)?;
    let mut status = 0;
    // SAFETY: the child does no more than this program does alone.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            let good = reap(&mut r).is_ok() && complete(&mut r).is_ok();
            libc::close(r.as_raw_fd());
            let good = good && complete(&mut ring().unwrap()).is_ok();
            libc::_exit(i32::from(!good));
        }
        libc::waitpid(pid, &raw mut status, 0);
    }
    equal("child", status, 0)?;
    reap(&mut r)?;
    complete(&mut r)
}

/// Runs `forks_in_handlers` with a ring that works before and after.
fn ring_forks_in_handlers() -> Outcome {
    let mut r = ring()?;
    complete(&mut r)?;
    forks_in_handlers()?;
    complete(&mut r)
}

/// Forks whose preparations are interrupted by handlers that fork as well.
fn forks_in_handlers() -> Outcome {
    extern "C" fn fork_too(_: i32) {
        // SAFETY: the child ends at once.
        unsafe {
            if libc::fork() == 0 {
                libc::_exit(0);
            }
        }
    }
    let every = libc::timeval { tv_sec: 0, tv_usec: 1500 };
    let timer = libc::itimerval { it_interval: every, it_value: every };
    let none = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let stop = libc::itimerval { it_interval: none, it_value: none };
    // SAFETY: handlers and structures of ours; the children end at once.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        libc::signal(libc::SIGALRM, fork_too as *const () as usize);
        libc::setitimer(libc::ITIMER_REAL, &raw const timer, core::ptr::null_mut());
        for _ in 0..1000 {
            if libc::fork() == 0 {
                libc::_exit(0);
            }
        }
        libc::setitimer(libc::ITIMER_REAL, &raw const stop, core::ptr::null_mut());
    }
    Ok(())
}

/// Forks beside a thread whose rings are polled, and closed while the fork is prepared.
fn forks_beside_polled_rings() -> Outcome {
    static END: AtomicBool = AtomicBool::new(false);
    let beside = std::thread::spawn(|| {
        while !END.load(Relaxed) {
            poll(ring()?.as_raw_fd())?;
        }
        Ok(())
    });
    for _ in 0..500 {
        // SAFETY: the child ends at once.
        forks_by(|| unsafe { libc::fork() });
    }
    END.store(true, Relaxed);
    beside.join().unwrap()
}

/// Makes a child, which closes all that it inherits, and waits for it.
fn forks_by(fork: impl FnOnce() -> libc::pid_t) {
    match fork() {
        // SAFETY: takes numbers; these functions may be called in any child.
        0 => unsafe {
            for fd in 3..64 {
                libc::close(fd);
            }
            libc::_exit(0)
        },
        // SAFETY: no status is asked for.
        child => drop(unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) }),
    }
}

/// Forks by ways that run no fork handlers, beside threads that make, poll and close rings.
fn forks_without_handlers() -> Outcome {
    static END: AtomicBool = AtomicBool::new(false);
    type Fork = unsafe extern "C" fn() -> libc::pid_t;
    let rings = || {
        while !END.load(Relaxed) {
            let mut r = ring()?;
            complete(&mut r)?;
            poll(r.as_raw_fd())?;
        }
        Ok(())
    };
    let beside: Vec<_> = (0..3).map(|_| std::thread::spawn(rings)).collect();
    // SAFETY: the function of this name, if the C library has it.
    let fork = unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"_Fork".as_ptr());
        core::mem::transmute::<*mut libc::c_void, Option<Fork>>(found)
    };
    for _ in 0..200 {
        // SAFETY: the children end at once.
        unsafe {
            forks_by(|| fork.map_or_else(|| libc::fork(), |fork| fork()));
            forks_by(|| libc::syscall(libc::SYS_fork) as libc::pid_t);
            forks_by(|| libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t);
        }
    }
    END.store(true, Relaxed);
    beside.into_iter().try_for_each(|thread| thread.join().unwrap())
}

/// Makes a ring by `io_uring_setup(2)` without mapping it; returns the descriptor and the
/// parameters.
fn bare_ring() -> (RawFd, [u32; 30]) {
    let mut params = [0u32; 30];
    // SAFETY: 120 bytes of parameters.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, params.as_mut_ptr()) };
    (fd as RawFd, params)
}

/// Closes a ring inline, which releases its files.
fn inline_close() -> Outcome {
    let (fd, _) = bare_ring();
    let mut ends = [0; 2];
    // SAFETY: two numbers of ours; the ring is not used again.
    unsafe {
        libc::pipe(ends.as_mut_ptr());
        let files = &raw const ends[1];
        equal("register", libc::syscall(libc::SYS_io_uring_register, fd, 2, files, 1), 0)?;
        libc::close(ends[1]);
        equal("close", close_inline(fd), 0)?;
        let mut p = libc::pollfd { fd: ends[0], events: libc::POLLIN, revents: 0 };
        libc::poll(&raw mut p, 1, 5000);
        equal("hang-up", p.revents, libc::POLLHUP)?;
    }
    equal("enter", enter(fd), -libc::EBADF)
}

/// Maps the CQ ring inline: it has an offset of its own, however it is mapped.
fn inline_mmap() -> Outcome {
    const CQ_RING: usize = 0x800_0000;
    /// Index of cq_off.ring_entries in 32-bit words of struct io_uring_params.
    const RING_ENTRIES: usize = 23;
    let (fd, params) = bare_ring();
    // SAFETY: a new mapping, of which the first page is read.
    let entries = unsafe {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let at = mmap_inline(0, 4096, prot, libc::MAP_SHARED, fd, CQ_RING);
        if at < 0 {
            return Err(format!("mmap answered {at}"));
        }
        let at = core::ptr::with_exposed_provenance::<u32>(at as usize);
        at.byte_add(params[RING_ENTRIES] as usize).read()
    };
    equal("entries of the CQ", entries, 8)
}

/// A set that is not there is EFAULT, also beside a set that names a ring.
fn select_fault() -> Outcome {
    let r = ring()?;
    let n = r.as_raw_fd() + 1;
    let bad = core::ptr::without_provenance_mut(8);
    // SAFETY: one whole set; the other is the kernel's to refuse.
    unsafe {
        let mut set: libc::fd_set = core::mem::zeroed();
        libc::FD_SET(r.as_raw_fd(), &raw mut set);
        let null = core::ptr::null_mut();
        for [r, w] in [[&raw mut set, bad], [bad, null]] {
            let mut now: libc::timeval = core::mem::zeroed();
            equal("select", libc::select(n, r, w, null, &raw mut now), -1)?;
            equal("errno", std::io::Error::last_os_error().raw_os_error(), Some(libc::EFAULT))?;
        }
    }
    Ok(())
}

/// Makes a ring here, then one in each of two child programs.
fn family() -> Outcome {
    complete(&mut ring()?)?;
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    for _ in 0..2 {
        let status = std::process::Command::new(&me).arg("once").status();
        equal("child", status.is_ok_and(|s| s.success()), true)?;
    }
    Ok(())
}

/// Numbers that this program never opened are closed to each of libc's functions, also if a ring in
/// user space has a descriptor there.
fn unopened() -> Outcome {
    let mut r = ring()?;
    complete(&mut r)?;
    equal("poll of the ring", poll(r.as_raw_fd())?, true)?;
    // SAFETY: a number only.
    let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    // select(2) ignores numbers beyond the process's table, so the table is made large. SAFETY:
    // numbers only.
    unsafe {
        libc::dup2(set, 1000);
        libc::close(1000);
    }
    for n in 512..560 {
        refuses(n, set).map_err(|e| format!("{n}: {e}"))?;
    }
    // SAFETY: numbers only.
    let taken = unsafe { libc::dup2(set, 520) };
    equal("dup2", taken, 520)?;
    // SAFETY: a number only.
    equal("what is the program's", unsafe { libc::fcntl(520, libc::F_GETFD) }, 0)
}

/// A ring takes one number, and work on it takes none: the next ring gets the next free number.
fn one_number() -> Outcome {
    let free = || {
        // SAFETY: numbers only.
        unsafe {
            let n = libc::dup(0);
            libc::close(n);
            n
        }
    };
    let mut kept = Vec::new();
    for _ in 0..3 {
        let expected = free();
        let mut r = ring()?;
        equal("the ring's number", r.as_raw_fd(), expected)?;
        complete(&mut r)?;
        let after = free();
        equal("the next number", after, expected + 1)?;
        kept.push(r);
    }
    Ok(())
}

/// Checks that each function answers that `n` is not open.
fn refuses(n: RawFd, set: RawFd) -> Outcome {
    let mut e = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    let mut p = libc::pollfd { fd: n, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry.
    let polled = unsafe { libc::poll(&raw mut p, 1, 0) };
    equal("poll", (polled, p.revents, p.fd), (1, libc::POLLNVAL, n))?;
    let refused = |what, ret: isize| {
        let errno = std::io::Error::last_os_error().raw_os_error();
        equal(what, (ret, errno), (-1, Some(libc::EBADF)))
    };
    let (event, null) = (&raw mut e, core::ptr::null_mut());
    // SAFETY: numbers, and structures of ours; what is mapped is not accessed.
    unsafe {
        let mut read: libc::fd_set = core::mem::zeroed();
        libc::FD_SET(n, &raw mut read);
        let none: *mut libc::fd_set = core::ptr::null_mut();
        let mut now: libc::timeval = core::mem::zeroed();
        refused("select", libc::select(n + 1, &raw mut read, none, none, &raw mut now) as isize)?;
        refused("epoll_ctl of it", libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, n, event) as isize)?;
        refused("epoll_ctl in it", libc::epoll_ctl(n, libc::EPOLL_CTL_ADD, set, event) as isize)?;
        refused("epoll_wait", libc::epoll_wait(n, event, 1, 0) as isize)?;
        refused("F_GETFD", libc::fcntl(n, libc::F_GETFD) as isize)?;
        refused("F_GETFL", libc::syscall(libc::SYS_fcntl, n, libc::F_GETFL) as isize)?;
        refused("dup", libc::dup(n) as isize)?;
        refused("close", libc::close(n) as isize)?;
        let map = libc::mmap(null, 4096, libc::PROT_READ, libc::MAP_SHARED, n, 0);
        refused("mmap", map.expose_provenance().cast_signed())
    }
}

fn main() -> ExitCode {
    let case = std::env::args().nth(1).unwrap_or_default();
    let outcome = match case.as_str() {
        "poll" => thrice(poll),
        "ppoll" => thrice(ppoll),
        "select" => thrice(select),
        "epoll" => epoll(),
        "dup" => dup(),
        "close_range" => close_range(),
        "fork" => fork(),
        "forks_in_handlers" => forks_in_handlers(),
        "forks_beside_polled_rings" => forks_beside_polled_rings(),
        "forks_without_handlers" => forks_without_handlers(),
        "ring_forks_in_handlers" => ring_forks_in_handlers(),
        "inline_close" => inline_close(),
        "inline_mmap" => inline_mmap(),
        "select_fault" => select_fault(),
        "one_number" => one_number(),
        "unopened" => unopened(),
        "family" => family(),
        "once" => ring().and_then(|mut r| complete(&mut r)),
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
