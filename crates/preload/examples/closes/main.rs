//! A program that closes descriptors in every possible way, and uses their numbers again. The tests
//! run it on the kernel's rings and on ours. `closes CASE WAY` exits with 0 if the case holds.
#![allow(unsafe_code)]

mod onto;

use core::arch::global_asm;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::os::fd::{AsRawFd, RawFd};
use std::process::ExitCode;
use std::time::Duration;

macro_rules! inline {
    ($name:literal, $nr:literal) => {
        global_asm!(
            ".p2align 4",
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            ".cfi_startproc",
            concat!("mov eax, ", $nr),
            "syscall",
            "ret",
            ".cfi_endproc",
            concat!(".size ", $name, ", . - ", $name),
        );
    };
}
inline!("closes_inline_close", 3);
inline!("closes_inline_dup2", 33);
inline!("closes_inline_dup3", 292);
inline!("closes_inline_close_range", 436);

// Compilers write this for two calls in one function: the number is kept in a register over another
// call.
global_asm!(
    ".p2align 4",
    ".type closes_hoisted_close, @function",
    "closes_hoisted_close:",
    ".cfi_startproc",
    "push rbx",
    "push r12",
    "sub rsp, 8",
    "mov ebx, 3",
    "mov r12d, edi",
    "call getppid@PLT",
    "mov rax, rbx",
    "mov edi, r12d",
    "syscall",
    "add rsp, 8",
    "pop r12",
    "pop rbx",
    "ret",
    ".cfi_endproc",
    ".size closes_hoisted_close, . - closes_hoisted_close",
);

type Call = unsafe extern "C" fn(usize, usize, usize) -> isize;

unsafe extern "C" {
    fn closes_inline_close(a: usize, b: usize, c: usize) -> isize;
    fn closes_hoisted_close(a: usize, b: usize, c: usize) -> isize;
    fn closes_inline_dup2(a: usize, b: usize, c: usize) -> isize;
    fn closes_inline_dup3(a: usize, b: usize, c: usize) -> isize;
    fn closes_inline_close_range(a: usize, b: usize, c: usize) -> isize;
}

type Outcome = Result<(), String>;

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Outcome {
    if got == want { Ok(()) } else { Err(format!("{what}: {got:?}, not {want:?}")) }
}

/// Makes system call `nr` from memory that no loader knows of: the call is not reported.
fn unreported(nr: u32, a: usize, b: usize, c: usize) -> isize {
    let mut code = vec![0xb8];
    code.extend(nr.to_le_bytes());
    code.extend([0x0f, 0x05, 0xc3]);
    // SAFETY: a page of our own, with `mov $nr,%eax; syscall; ret` in it.
    unsafe {
        let (all, how) = (7, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let at = libc::mmap(core::ptr::null_mut(), 4096, all, how, -1, 0);
        core::ptr::copy_nonoverlapping(code.as_ptr(), at.cast(), code.len());
        let call: Call = core::mem::transmute(at);
        let ret = call(a, b, c);
        libc::munmap(at, 4096);
        ret
    }
}

/// Closes `fd` in this way.
fn close(way: &str, fd: RawFd) -> Outcome {
    let n = fd as usize;
    // For dup2 and dup3: another file, which is closed again at once. SAFETY: numbers of ours, and
    // a path.
    let ret = unsafe {
        let null = || libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY) as usize;
        let replaced = |f: &dyn Fn(usize) -> isize| {
            let other = null();
            let ret = f(other);
            libc::close(other as RawFd);
            libc::close(fd);
            if ret == n as isize { 0 } else { ret }
        };
        match way {
            "close" => libc::close(fd) as isize,
            "close_range" => libc::close_range(n as u32, n as u32, 0) as isize,
            "syscall_close" => libc::syscall(libc::SYS_close, n) as isize,
            "syscall_close_range" => libc::syscall(libc::SYS_close_range, n, n, 0) as isize,
            "syscall_dup2" => replaced(&|o| libc::syscall(libc::SYS_dup2, o, n) as isize),
            "syscall_dup3" => replaced(&|o| libc::syscall(libc::SYS_dup3, o, n, 0) as isize),
            "inline_close" => closes_inline_close(n, 0, 0),
            "hoisted_close" => closes_hoisted_close(n, 0, 0),
            "inline_close_range" => closes_inline_close_range(n, n, 0),
            "inline_dup2" => replaced(&|o| closes_inline_dup2(o, n, 0)),
            "inline_dup3" => replaced(&|o| closes_inline_dup3(o, n, 0)),
            "unreported" => unreported(libc::SYS_close as u32, n, 0, 0),
            _ => return Err(format!("no way {way}")),
        }
    };
    equal("close", ret, 0)
}

fn ring() -> Result<IoUring, String> {
    IoUring::new(8).map_err(|e| format!("setup: {e}"))
}

fn push(r: &mut IoUring, e: squeue::Entry) -> Outcome {
    // SAFETY: the buffers that requests name live as long as the program.
    unsafe { r.submission().push(&e) }.map_err(|e| e.to_string())
}

/// Submits, and waits up to five seconds for one completion.
fn one(r: &mut IoUring) -> Result<cqueue::Entry, String> {
    let limit = types::Timespec::from(Duration::from_secs(5));
    let args = types::SubmitArgs::new().timespec(&limit);
    r.submitter().submit_with_args(1, &args).map_err(|e| format!("no completion: {e}"))?;
    r.completion().next().ok_or_else(|| "no completion".into())
}

/// Returns a buffer that lives for good.
fn buffer() -> &'static mut [u8; 64] {
    Box::leak(Box::new([0; 64]))
}

fn pair() -> [RawFd; 2] {
    let mut ends = [0; 2];
    // SAFETY: room for two numbers.
    unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, ends.as_mut_ptr()) };
    ends
}

fn tcp_pair() -> [RawFd; 2] {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let a = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (b, _) = listener.accept().unwrap();
    use std::os::fd::IntoRawFd;
    [a.into_raw_fd(), b.into_raw_fd()]
}

fn write(fd: RawFd, text: &[u8]) -> Outcome {
    // SAFETY: the text is ours.
    let n = unsafe { libc::write(fd, text.as_ptr().cast(), text.len()) };
    equal("written", n, text.len() as isize)
}

fn recv(r: &mut IoUring, fd: RawFd) -> Outcome {
    let b = buffer();
    push(r, opcode::Recv::new(types::Fd(fd), b.as_mut_ptr(), 64).build().user_data(7))
}

/// Makes `to` mean what `from` meant.
fn place(from: RawFd, to: RawFd) -> Outcome {
    if from == to {
        return Ok(());
    }
    // No entry point sees this, as with a fresh open(2).
    let ret = unreported(libc::SYS_dup2 as u32, from as usize, to as usize, 0);
    equal("dup2", ret, to as isize)?;
    equal("close", unreported(libc::SYS_close as u32, from as usize, 0, 0), 0)
}

/// Closes a socket whose number another socket gets: a RECV there completes when data come.
fn recv_reused(way: &str) -> Outcome {
    for make in [pair, tcp_pair] {
        let mut r = ring()?;
        let first = make();
        for round in 0..3 {
            recv(&mut r, first[0])?;
            r.submit().map_err(|e| e.to_string())?;
            write(first[1], b"hello")?;
            equal(&format!("first, round {round}"), one(&mut r)?.result(), 5)?;
        }
        close(way, first[0])?;
        let second = make();
        place(second[0], first[0])?;
        for round in 0..3 {
            recv(&mut r, first[0])?;
            r.submit().map_err(|e| e.to_string())?;
            std::thread::sleep(Duration::from_millis(20));
            write(second[1], b"again")?;
            equal(&format!("second, round {round}"), one(&mut r)?.result(), 5)?;
        }
        close(way, first[0])?;
        close("close", second[1])?;
        close("close", first[1])?;
    }
    Ok(())
}

/// Closes the number of a socket that a request waits on. The request goes on there, and a request
/// on the socket that gets the number receives this socket's data.
fn recv_goes_on(way: &str) -> Outcome {
    let mut r = ring()?;
    let first = pair();
    recv(&mut r, first[0])?;
    r.submit().map_err(|e| e.to_string())?;
    close(way, first[0])?;
    let second = pair();
    place(second[0], first[0])?;
    push(
        &mut r,
        opcode::Recv::new(types::Fd(first[0]), buffer().as_mut_ptr(), 64).build().user_data(8),
    )?;
    r.submit().map_err(|e| e.to_string())?;
    write(second[1], b"second")?;
    let c = one(&mut r)?;
    equal("of the second", (c.user_data(), c.result()), (8, 6))?;
    write(first[1], b"one")?;
    let c = one(&mut r)?;
    equal("of the first", (c.user_data(), c.result()), (7, 3))
}

fn memory_file() -> Result<RawFd, String> {
    // SAFETY: a name.
    let fd = unsafe { libc::memfd_create(c"file".as_ptr(), 0) };
    write(fd, &[1; 64])?;
    // SAFETY: a number of ours.
    unsafe { libc::lseek(fd, 0, libc::SEEK_SET) };
    Ok(fd)
}

fn read(r: &mut IoUring, fd: RawFd, off: u64, data: u64) -> Outcome {
    let b = buffer();
    push(
        r,
        opcode::Read::new(types::Fd(fd), b.as_mut_ptr(), 16).offset(off).build().user_data(data),
    )
}

/// Closes a ring whose number a file gets: requests and poll(2) find the file there.
fn ring_reused(way: &str) -> Outcome {
    let mut r = ring()?;
    // The ring lives on without a number, as its end would close the file.
    let gone = Box::leak(Box::new(ring()?)).as_raw_fd();
    close(way, gone)?;
    place(memory_file()?, gone)?;
    read(&mut r, gone, 0, 1)?;
    equal("read", one(&mut r)?.result(), 16)?;
    let both = libc::POLLIN | libc::POLLOUT;
    let mut p = libc::pollfd { fd: gone, events: both, revents: 0 };
    // SAFETY: one entry.
    equal("poll", unsafe { libc::poll(&raw mut p, 1, 0) }, 1)?;
    equal("ready", p.revents, both)?;
    // SAFETY: a number only.
    let duplicate = unsafe { libc::dup(gone) };
    read(&mut r, duplicate, 0, 2)?;
    equal("read of the duplicate", one(&mut r)?.result(), 16)
}

/// Reads and closes a file whose number a FIFO gets: a read of the FIFO waits for data, and holds
/// up neither the submission nor a timer.
fn fifo_reused(way: &str) -> Outcome {
    for off in [u64::MAX, 0] {
        fifo_read_by(ring()?, way, off)?;
        let polled = IoUring::builder().setup_sqpoll(20).build(8);
        fifo_read_by(polled.map_err(|e| format!("setup: {e}"))?, way, off)?;
    }
    Ok(())
}

fn fifo_read_by(mut r: IoUring, way: &str, off: u64) -> Outcome {
    let fd = memory_file()?;
    for _ in 0..3 {
        read(&mut r, fd, off, 1)?;
        equal("of the file", one(&mut r)?.result(), 16)?;
    }
    close(way, fd)?;
    let mut ends = [0; 2];
    // SAFETY: room for two numbers.
    unsafe { libc::pipe(ends.as_mut_ptr()) };
    place(ends[0], fd)?;
    let writer = if ends[1] == fd { return Err("numbers".into()) } else { ends[1] };
    let late = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(600));
        write(writer, b"late")
    });
    let began = std::time::Instant::now();
    let in_time = |what: &str| equal(what, began.elapsed() > Duration::from_millis(500), false);
    let soon = Box::leak(Box::new(types::Timespec::from(Duration::from_millis(50))));
    push(&mut r, opcode::Timeout::new(soon).build().user_data(4))?;
    read(&mut r, fd, u64::MAX, 2)?;
    r.submit().map_err(|e| e.to_string())?;
    in_time("the submission waits")?;
    push(&mut r, opcode::Nop::new().build().user_data(3))?;
    equal("NOP", one(&mut r)?.user_data(), 3)?;
    let c = one(&mut r)?;
    equal("the timer", (c.user_data(), c.result()), (4, -libc::ETIME))?;
    in_time("the timer waits")?;
    let c = one(&mut r)?;
    equal("of the FIFO", (c.user_data(), c.result()), (2, 4))?;
    late.join().unwrap()?;
    close(way, fd)?;
    close("close", writer)
}

/// Closes everything from 3 on at once, and makes all numbers a file of the program's: nobody
/// writes to the file, and none of the numbers is closed.
fn close_all(way: &str) -> Outcome {
    let mut r = ring()?;
    let events = unsafe_eventfd();
    r.submitter().register_eventfd(events).map_err(|e| e.to_string())?;
    let some = pair();
    r.submitter().register_files(&[some[0]]).map_err(|e| e.to_string())?;
    recv(&mut r, some[0])?;
    let limit = Box::leak(Box::new(types::Timespec::from(Duration::from_millis(300))));
    push(&mut r, opcode::Timeout::new(limit).build())?;
    r.submit().map_err(|e| e.to_string())?;
    let mut p = libc::pollfd { fd: r.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry; then numbers only: nothing that this process has open matters.
    let ret = unsafe {
        libc::poll(&raw mut p, 1, 0);
        match way {
            "close_range" => libc::close_range(3, u32::MAX, 0) as isize,
            "closefrom" => {
                closefrom(3);
                0
            }
            "syscall" => libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) as isize,
            "inline" => closes_inline_close_range(3, u32::MAX as usize, 0),
            _ => unreported(libc::SYS_close_range as u32, 3, u32::MAX as usize, 0),
        }
    };
    equal("close", ret, 0)?;
    let path = std::env::temp_dir().join(format!("closes-{}", std::process::id()));
    std::fs::write(&path, [9; 64]).map_err(|e| e.to_string())?;
    use std::os::fd::IntoRawFd;
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap().into_raw_fd();
    let top = 1000;
    for n in 3..top {
        // SAFETY: numbers only.
        let got = unsafe { if n == file { n } else { libc::dup2(file, n) } };
        equal(&format!("dup2 onto {n}"), got, n)?;
    }
    // The timeout has passed meanwhile, on a ring that is closed.
    std::thread::sleep(Duration::from_millis(700));
    let mut other = ring()?;
    push(&mut other, opcode::Nop::new().build().user_data(3))?;
    equal("NOP", one(&mut other)?.user_data(), 3)?;
    drop(other);
    let _closed = core::mem::ManuallyDrop::new(r);
    std::thread::sleep(Duration::from_millis(1500));
    let is_ours = |n: RawFd| {
        // SAFETY: zeroes are a valid structure; fstat fills it.
        unsafe {
            let (mut a, mut b): (libc::stat, libc::stat) = core::mem::zeroed();
            libc::fstat(n, &raw mut a) == 0
                && libc::fstat(file, &raw mut b) == 0
                && a.st_ino == b.st_ino
        }
    };
    let gone: Vec<_> = (3..top).filter(|n| !is_ours(*n)).collect();
    equal("closed", gone, vec![])?;
    let now = std::fs::read(&path).map_err(|e| e.to_string())?;
    let _ = std::fs::remove_file(&path);
    equal("the file", now, vec![9; 64])
}

unsafe extern "C" {
    fn closefrom(low: i32);
}

fn unsafe_eventfd() -> RawFd {
    // SAFETY: numbers only.
    unsafe { libc::eventfd(0, libc::EFD_NONBLOCK) }
}

/// Makes `n` mean what `fd` means.
fn onto(way: &str, fd: RawFd, n: RawFd) -> isize {
    // SAFETY: numbers only.
    unsafe {
        match way {
            "dup3" => libc::dup3(fd, n, libc::O_CLOEXEC) as isize,
            "syscall" => libc::syscall(libc::SYS_dup2, fd, n) as isize,
            "inline" => closes_inline_dup2(fd as usize, n as usize, 0),
            _ => libc::dup2(fd, n) as isize,
        }
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let [_, case, way] = &args[..] else { return ExitCode::FAILURE };
    let outcome = match case.as_str() {
        "recv_reused" => recv_reused(way),
        "recv_goes_on" => recv_goes_on(way),
        "fifo_reused" => fifo_reused(way),
        "ring_reused" => ring_reused(way),
        "close_all" => close_all(way),
        "onto_any" => onto::any(way, 3..1000),
        "onto_all_high" => onto::all_high(way),
        _ => Err("no such case".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{case} {way}: {e}");
            ExitCode::FAILURE
        }
    }
}
