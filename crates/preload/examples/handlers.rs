//! A program whose signal handlers close, duplicate and poll descriptors, while they interrupt a
//! thread that does the same and makes and uses rings. The tests run it on the kernel's rings and
//! on ours. `handlers storm MILLISECONDS` and `handlers denied 0` exit with 0 if all is well.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::SeqCst};
use io_uring::{IoUring, opcode, types};
use std::os::fd::{AsRawFd, RawFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

type Outcome = Result<(), String>;

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Outcome {
    if got == want { Ok(()) } else { Err(format!("{what}: {got:?}, not {want:?}")) }
}

/// Descriptors that handlers work on: a file, a pipe, a ring, a socket to close.
static NULL: AtomicI32 = AtomicI32::new(-1);
static PIPE: [AtomicI32; 2] = [const { AtomicI32::new(-1) }; 2];
static RING: AtomicI32 = AtomicI32::new(-1);
static WAITED: AtomicI32 = AtomicI32::new(-1);
static HANDLED: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);
static OVER: AtomicBool = AtomicBool::new(false);

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Closes, duplicates and polls; returns how many of these calls went wrong.
fn descriptors(ring: RawFd) -> u64 {
    let (null, ends) = (NULL.load(SeqCst), [PIPE[0].load(SeqCst), PIPE[1].load(SeqCst)]);
    // SAFETY: numbers and structures of ours; all of these calls are async-signal-safe.
    unsafe {
        let errno = *libc::__errno_location();
        let mut wrong = 0;
        let mut check = |good: bool| wrong += u64::from(!good);
        let a = libc::dup(null);
        let b = libc::dup2(null, a);
        check(a >= 0 && a == b);
        let c = libc::fcntl(null, libc::F_DUPFD_CLOEXEC, 100);
        check(c >= 100 && libc::dup3(null, c, 0) == c);
        check(libc::close(a) == 0 && libc::close(c) == 0);
        let mut p =
            [ends[0], ring, null].map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        check(libc::poll(p.as_mut_ptr(), 3, 0) >= 1);
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        check(libc::ppoll(p.as_mut_ptr(), 3, &raw const now, core::ptr::null()) >= 1);
        check(p[0].fd == ends[0] && p[1].fd == ring && p[2].revents & libc::POLLIN != 0);
        let mut set: libc::fd_set = core::mem::zeroed();
        libc::FD_SET(null, &raw mut set);
        libc::FD_SET(ring, &raw mut set);
        let (mut zero, none) = (core::mem::zeroed::<libc::timeval>(), core::ptr::null_mut());
        check(libc::select(ring.max(null) + 1, &raw mut set, none, none, &raw mut zero) >= 1);
        let (mut byte, at) = ([0u8; 1], ends);
        check(libc::write(at[1], byte.as_ptr().cast(), 1) == 1);
        check(libc::read(at[0], byte.as_mut_ptr().cast(), 1) == 1);
        *libc::__errno_location() = errno;
        wrong
    }
}

extern "C" fn handler(_: i32) {
    let ring = RING.load(SeqCst);
    WRONG.fetch_add(descriptors(ring), SeqCst);
    let waited = WAITED.swap(-1, SeqCst);
    // SAFETY: numbers of ours.
    unsafe {
        let errno = *libc::__errno_location();
        let copy = libc::dup(ring);
        let good = copy >= 0 && libc::close(copy) == 0 && (waited < 0 || libc::close(waited) == 0);
        WRONG.fetch_add(u64::from(!good), SeqCst);
        *libc::__errno_location() = errno;
    }
    HANDLED.fetch_add(1, SeqCst);
}

/// Makes, uses, duplicates, polls and closes a ring.
fn one_ring() -> Outcome {
    let mut r = IoUring::new(4).map_err(|e| format!("setup: {e}"))?;
    let end = PIPE[0].load(SeqCst);
    for data in 0..3 {
        let poll = opcode::PollAdd::new(types::Fd(end), libc::POLLOUT as u32).build().user_data(9);
        let nop = opcode::Nop::new().build().user_data(data);
        // SAFETY: neither names memory.
        let pushed = unsafe { r.submission().push_multiple(&[poll, nop]) };
        pushed.map_err(|e| e.to_string())?;
        loop {
            match r.submit_and_wait(1) {
                Ok(_) => break,
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                Err(e) => return Err(format!("enter: {e}")),
            }
        }
        let mut found = false;
        while !found {
            found = r.completion().any(|c| c.user_data() == data);
            let _ = r.submit_and_wait(usize::from(!found));
        }
        WRONG.fetch_add(descriptors(r.as_raw_fd()), SeqCst);
    }
    waited(&mut r)?;
    // SAFETY: numbers of ours.
    unsafe {
        let copy = libc::dup(r.as_raw_fd());
        equal("dup", copy >= 0, true)?;
        equal("close", libc::close(copy), 0)
    }
}

/// Enters until there is a completion.
fn completion(r: &mut IoUring) -> Result<(u64, i32), String> {
    loop {
        if let Some(c) = r.completion().next() {
            return Ok((c.user_data(), c.result()));
        }
        if let Err(e) = r.submit_and_wait(1)
            && e.raw_os_error() != Some(libc::EINTR)
        {
            return Err(format!("enter: {e}"));
        }
    }
}

/// A handler closes a number that a request waits under, while the thread enters; the request
/// completes.
fn waited(r: &mut IoUring) -> Outcome {
    while r.completion().next().is_some() {}
    let (mut ends, mut byte) = ([0; 2], [0u8; 1]);
    // SAFETY: room for two numbers.
    unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, ends.as_mut_ptr()) };
    let recv = opcode::Recv::new(types::Fd(ends[0]), byte.as_mut_ptr(), 1).build().user_data(77);
    // SAFETY: the byte outlives the request, whose completion is waited for.
    unsafe { r.submission().push(&recv) }.map_err(|e| e.to_string())?;
    while let Err(e) = r.submit() {
        equal("submit", e.raw_os_error(), Some(libc::EINTR))?;
    }
    WAITED.store(ends[0], SeqCst);
    for _ in 1..30 {
        // SAFETY: names no memory.
        let pushed = unsafe { r.submission().push(&opcode::Nop::new().build().user_data(3)) };
        pushed.map_err(|e| e.to_string())?;
        equal("while it waits", completion(r)?, (3, 0))?;
    }
    let left = WAITED.swap(-1, SeqCst);
    // SAFETY: numbers and a byte of ours.
    unsafe {
        equal("close", left < 0 || libc::close(left) == 0, true)?;
        equal("write", libc::write(ends[1], [5u8].as_ptr().cast(), 1), 1)?;
    }
    equal("what waited", completion(r)?, (77, 1))?;
    // SAFETY: a number of ours.
    equal("close", unsafe { libc::close(ends[1]) }, 0)?;
    equal("byte", byte, [5])
}

fn storm(time: Duration) -> Outcome {
    let held = IoUring::new(4).map_err(|e| format!("setup: {e}"))?;
    RING.store(held.as_raw_fd(), SeqCst);
    one_ring()?;
    descriptors(held.as_raw_fd());
    std::thread::sleep(Duration::from_millis(50));
    let before = open_descriptors();
    // SAFETY: a handler of ours; the thread that is sent signals outlives the sender.
    let sender = unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR1, &raw const action, core::ptr::null_mut());
        let me = libc::pthread_self();
        std::thread::spawn(move || {
            let mut pause = 0u64;
            while !OVER.load(SeqCst) {
                libc::pthread_kill(me, libc::SIGUSR1);
                pause = (pause * 7 + 13) % 1000;
                std::thread::sleep(Duration::from_micros(200 + pause));
            }
        })
    };
    let (start, mut rounds) = (Instant::now(), 0);
    let mut outcome = Ok(());
    while start.elapsed() < time && outcome.is_ok() {
        outcome = one_ring();
        (0..20).for_each(|_| _ = WRONG.fetch_add(descriptors(held.as_raw_fd()), SeqCst));
        rounds += 1;
    }
    OVER.store(true, SeqCst);
    sender.join().map_err(|_| "the sender")?;
    outcome?;
    println!("{rounds} rounds, {} handlers", HANDLED.load(SeqCst));
    equal("wrong", WRONG.load(SeqCst), 0)?;
    // Threads of the engine may be about to close one.
    for _ in 0..30 {
        if open_descriptors() <= before {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    equal("descriptors", open_descriptors(), before)
}

/// Installs a policy that kills for process_vm_readv(2) and process_vm_writev(2).
fn deny() {
    let op = |code: u32, jt, jf, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let kill = libc::SECCOMP_RET_KILL_PROCESS;
    let filter = [
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0, libc::SYS_process_vm_readv as u32),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_process_vm_writev as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, kill),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 5, filter: filter.as_ptr().cast_mut() };
    // SAFETY: a whole program, which the kernel copies.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program);
    }
}

fn denied() -> Outcome {
    deny();
    one_ring()?;
    let r = IoUring::new(4).map_err(|e| format!("setup: {e}"))?;
    equal("wrong", descriptors(r.as_raw_fd()), 0)?;
    let null = NULL.load(SeqCst);
    let poll = |at: *mut libc::pollfd, n| {
        // SAFETY: the address is the kernel's to judge.
        let ret = unsafe { libc::poll(at, n, 0) };
        (ret, std::io::Error::last_os_error().raw_os_error().filter(|_| ret < 0))
    };
    let fault = (-1, Some(libc::EFAULT));
    equal("nowhere", poll(core::ptr::without_provenance_mut(8), 1), fault)?;
    // SAFETY: two fresh pages, of which the second is taken away, and the first made read-only.
    unsafe {
        let (prot, how) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let page = libc::mmap(core::ptr::null_mut(), 8192, prot, how, -1, 0);
        libc::munmap(page.byte_add(4096), 4096);
        for fd in [r.as_raw_fd(), null] {
            // An entry that is not aligned, and one over the end.
            let last = page.byte_add(4096 - 9).cast::<libc::pollfd>();
            last.write_unaligned(libc::pollfd { fd, events: libc::POLLOUT, revents: 0 });
            equal("unaligned", poll(last, 1).0, 1)?;
            equal("over the end", poll(last, 2), fault)?;
            libc::mprotect(page, 4096, libc::PROT_READ);
            equal("read-only", poll(last, 1), fault)?;
            libc::mprotect(page, 4096, prot);
        }
        let many: Vec<_> = (0..1000)
            .map(|_| libc::pollfd { fd: null, events: libc::POLLIN, revents: 0 })
            .collect();
        let mut many = many;
        many[777].fd = r.as_raw_fd();
        equal("many", poll(many.as_mut_ptr(), 1000).0, 999)?;
        equal("of the ring", (many[777].revents, many[776].revents), (0, libc::POLLIN))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let [_, case, time] = &args[..] else { return ExitCode::FAILURE };
    let mut ends = [0; 2];
    // SAFETY: a path, and room for two numbers.
    unsafe {
        NULL.store(libc::open(c"/dev/null".as_ptr(), libc::O_RDWR), SeqCst);
        libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK);
    }
    PIPE.iter().zip(ends).for_each(|(end, fd)| end.store(fd, SeqCst));
    let outcome = match case.as_str() {
        "storm" => storm(Duration::from_millis(time.parse().unwrap_or(1000))),
        "denied" => denied(),
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
