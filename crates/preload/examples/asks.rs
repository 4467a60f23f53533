//! A program whose signal handler interrupts malloc(3), and there closes descriptors, and makes,
//! uses and registers with rings. The program's own malloc(3) counts the calls that ask it for
//! memory meanwhile: with the C library's, such a call may wait for ever. `asks CASE` exits with 0
//! if there is none.
#![allow(unsafe_code)]

use core::ffi::c_void;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering::SeqCst};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::os::fd::{AsRawFd, RawFd};
use std::process::ExitCode;

type Outcome = Result<(), String>;

unsafe extern "C" {
    fn __libc_malloc(n: usize) -> *mut c_void;
    fn __libc_calloc(n: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(at: *mut c_void, n: usize) -> *mut c_void;
    fn __libc_free(at: *mut c_void);
    fn __libc_memalign(align: usize, n: usize) -> *mut c_void;
}

/// The thread that is in the middle of malloc, or about to be (negative); 0: none.
static INSIDE: AtomicI32 = AtomicI32::new(0);
/// Calls that asked malloc for memory there.
static ASKED: AtomicU32 = AtomicU32::new(0);

fn asked() {
    let inside = INSIDE.load(SeqCst);
    if inside == 0 {
        return;
    }
    // SAFETY: no arguments.
    let me = unsafe { libc::gettid() };
    if inside == me {
        ASKED.fetch_add(1, SeqCst);
    } else if inside == -me {
        INSIDE.store(me, SeqCst);
        // SAFETY: handled.
        unsafe { libc::raise(libc::SIGUSR1) };
        INSIDE.store(0, SeqCst);
    }
}

macro_rules! counted {
    ($name:ident, $libc:ident, ($($arg:ident: $type:ty),*) $(-> $ret:ty)?) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) $(-> $ret)? {
            asked();
            // SAFETY: the caller's.
            unsafe { $libc($($arg),*) }
        }
    };
}
counted!(malloc, __libc_malloc, (n: usize) -> *mut c_void);
counted!(calloc, __libc_calloc, (n: usize, size: usize) -> *mut c_void);
counted!(realloc, __libc_realloc, (at: *mut c_void, n: usize) -> *mut c_void);
counted!(free, __libc_free, (at: *mut c_void));
counted!(memalign, __libc_memalign, (align: usize, n: usize) -> *mut c_void);
counted!(aligned_alloc, __libc_memalign, (align: usize, n: usize) -> *mut c_void);

/// # Safety
/// As posix_memalign(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, n: usize) -> i32 {
    // SAFETY: the caller's.
    unsafe { *to = memalign(align, n) };
    0
}

/// Descriptor and ring that handlers work on.
static CLOSES: AtomicI32 = AtomicI32::new(-1);
static RING: AtomicPtr<IoUring> = AtomicPtr::new(core::ptr::null_mut());
static WORK: AtomicPtr<fn()> = AtomicPtr::new(core::ptr::null_mut());
static WRONG: AtomicU32 = AtomicU32::new(0);

fn check(good: bool) {
    WRONG.fetch_add(u32::from(!good), SeqCst);
}

extern "C" fn handler(_: i32) {
    // SAFETY: set before the signal is sent.
    unsafe { (*WORK.load(SeqCst))() };
}

/// Runs `work` in a handler that interrupts malloc.
fn inside(what: &str, work: fn()) -> Outcome {
    WORK.store((&raw const work).cast_mut(), SeqCst);
    // SAFETY: no arguments.
    INSIDE.store(-unsafe { libc::gettid() }, SeqCst);
    drop(core::hint::black_box(Box::new(7)));
    let (inside, asked) = (INSIDE.load(SeqCst), ASKED.swap(0, SeqCst));
    equal(&format!("{what}: malloc was called"), inside, 0)?;
    equal(&format!("{what}: wrong"), WRONG.swap(0, SeqCst), 0)?;
    equal(&format!("{what}: asked for memory"), asked, 0)
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Outcome {
    if got == want { Ok(()) } else { Err(format!("{what}: {got:?}, not {want:?}")) }
}

fn close() {
    // SAFETY: a number of ours.
    check(unsafe { libc::close(CLOSES.load(SeqCst)) } == 0);
}

fn pair() -> [RawFd; 2] {
    let mut ends = [0; 2];
    // SAFETY: room for two numbers.
    unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, ends.as_mut_ptr()) };
    ends
}

fn push(r: &mut IoUring, e: &squeue::Entry) -> Outcome {
    // SAFETY: the buffers that requests name live as long as the program.
    unsafe { r.submission().push(e) }.map_err(|e| e.to_string())
}

fn recv(fd: RawFd, data: u64) -> squeue::Entry {
    let buffer = Box::leak(Box::new([0u8; 8]));
    opcode::Recv::new(types::Fd(fd), buffer.as_mut_ptr(), 8).build().user_data(data)
}

fn write(fd: RawFd) -> Outcome {
    // SAFETY: a byte of ours.
    equal("write", unsafe { libc::write(fd, [5u8].as_ptr().cast(), 1) }, 1)
}

fn one(r: &mut IoUring) -> Result<cqueue::Entry, String> {
    r.submit_and_wait(1).map_err(|e| e.to_string())?;
    r.completion().next().ok_or_else(|| "no completion".into())
}

fn ring(flags: u32) -> Result<IoUring, String> {
    let mut b = IoUring::builder();
    if flags != 0 {
        b.setup_single_issuer().setup_defer_taskrun();
    }
    b.build(64).map_err(|e| format!("setup: {e}"))
}

/// Closes a number that requests wait under; they go on.
fn waited(flags: u32) -> Outcome {
    let mut r = ring(flags)?;
    for n in 1..8 {
        let ends = pair();
        for data in 0..n {
            push(&mut r, &recv(ends[0], data))?;
        }
        r.submit().map_err(|e| e.to_string())?;
        CLOSES.store(ends[0], SeqCst);
        inside("close of a number", close)?;
        let mut seen = Vec::new();
        for _ in 0..n {
            write(ends[1])?;
            let c = one(&mut r)?;
            equal("received", c.result(), 1)?;
            seen.push(c.user_data());
        }
        seen.sort_unstable();
        equal("who waited", seen, (0..n).collect())?;
        // SAFETY: a number of ours.
        unsafe { libc::close(ends[1]) };
    }
    Ok(())
}

/// Closes the last descriptor of a ring, with requests in flight and files registered.
fn last(flags: u32) -> Outcome {
    let mut r = ring(flags)?;
    let (slot, ends, timer) = (pair(), pair(), types::Timespec::new().sec(60));
    r.submitter().register_files(&[slot[0]]).map_err(|e| e.to_string())?;
    for data in 0..20 {
        push(&mut r, &recv(ends[0], data))?;
    }
    push(&mut r, &opcode::Timeout::new(&raw const timer).build())?;
    push(&mut r, &opcode::Nop::new().build().user_data(77))?;
    equal("nop", one(&mut r)?.user_data(), 77)?;
    // SAFETY: a number of ours, which the ring also holds; then one that the handler closes.
    CLOSES.store(unsafe { libc::close(slot[0]) } + r.as_raw_fd(), SeqCst);
    inside("close of a ring", close)?;
    // The mappings keep a ring; the number is closed already.
    drop(r);
    // The other side of the registered file sees the end.
    let mut p = libc::pollfd { fd: slot[1], events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry.
    equal("registered files are closed", unsafe { libc::poll(&raw mut p, 1, 5000) }, 1)
}

fn with_ring(f: impl FnOnce(&mut IoUring) -> Result<bool, std::io::Error>) {
    // SAFETY: nobody uses the ring while the handler runs.
    let r = unsafe { &mut *RING.load(SeqCst) };
    check(f(r).unwrap_or(false));
}

/// Registers with the ring of [`RING`] and uses it on top of malloc.
fn used(flags: u32) -> Outcome {
    let mut r = ring(flags)?;
    RING.store(&raw mut r, SeqCst);
    let ends = pair();
    CLOSES.store(ends[0], SeqCst);
    inside("registered files", || {
        with_ring(|r| {
            let fd = CLOSES.load(SeqCst);
            r.submitter().register_files(&[fd; 60])?;
            r.submitter().register_files_update(3, &[-1; 4])?;
            r.submitter().unregister_files()?;
            Ok(true)
        });
    })?;
    inside("a probe", || {
        with_ring(|r| {
            let mut probe = io_uring::register::Probe::new();
            r.submitter().register_probe(&mut probe)?;
            Ok(probe.is_supported(0))
        });
    })?;
    for data in 0..40 {
        push(&mut r, &recv(ends[0], data))?;
    }
    push(&mut r, &opcode::Nop::new().build().user_data(77))?;
    inside("a submission", || {
        with_ring(|r| {
            r.submit_and_wait(1)?;
            Ok(r.completion().next().is_some_and(|c| c.user_data() == 77))
        });
    })?;
    for n in 0..40 {
        write(ends[1])?;
        equal("received", one(&mut r)?.result(), 1).map_err(|e| format!("{n}: {e}"))?;
    }
    Ok(())
}

fn run(case: &str) -> Outcome {
    // SAFETY: a handler of ours.
    unsafe { libc::signal(libc::SIGUSR1, handler as *const () as usize) };
    // Threads of the engine begin with the first ring.
    let mut first = ring(0)?;
    let ends = pair();
    push(&mut first, &recv(ends[0], 1))?;
    push(&mut first, &opcode::Nop::new().build().user_data(77))?;
    one(&mut first)?;
    for flags in [0, 1] {
        match case {
            "used" => used(flags)?,
            "waited" => waited(flags)?,
            "last" => last(flags)?,
            _ => return Err(format!("no case {case}")),
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(&std::env::args().nth(1).unwrap_or_default()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
