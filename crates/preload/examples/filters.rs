//! A program that puts seccomp filters on itself between its rings: `filters STEP…`. It prints on
//! stdout how each step went. Steps:
//!
//! ```text
//! ring            makes a ring, uses it, and ends it
//! keep            makes a ring that stays
//! poll, read      a request on that ring
//! kill=1,2 eperm=1,2      a filter that refuses these calls, by prctl(2) of the C library
//! only=ACTION,1,2         by seccomp(2) through syscall(): all calls but these and the needed ones
//! inline=ACTION,1,2       the same as the first, by an inline system call
//! strict          SECCOMP_MODE_STRICT, and the end of the program
//! load            opens a library
//! fork            makes a child, and waits for it
//! mask, unmask    all signals, by sigprocmask(3); raw-mask, raw-unmask by its number
//! shown           prints whether SIGSYS is blocked
//! raise           sends SIGSYS to this thread
//! ```
#![allow(unsafe_code)]

use io_uring::{IoUring, opcode, squeue, types};
use libc::sock_filter;
use std::arch::asm;

const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;

/// Calls that this program itself needs, beside those that rings need.
const NEEDED: [i64; 20] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_close,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_brk,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_pipe2,
    libc::SYS_newfstatat,
    libc::SYS_fcntl,
    libc::SYS_futex,
    libc::SYS_sigaltstack,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_clock_nanosleep,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_clock_gettime,
];

fn action(name: &str) -> u32 {
    match name {
        "kill" => KILL,
        "trap" => libc::SECCOMP_RET_TRAP,
        _ => libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
    }
}

/// Returns a filter that answers `hit` to these calls, and `rest` to all others.
fn filter(calls: &[u32], hit: u32, rest: u32) -> Vec<sock_filter> {
    let op = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    let mut filter = vec![op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for nr in calls {
        filter.push(op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, *nr));
        filter.push(op(libc::BPF_RET | libc::BPF_K, 0, 0, hit));
    }
    filter.push(op(libc::BPF_RET | libc::BPF_K, 0, 0, rest));
    filter
}

#[derive(Clone, Copy)]
enum How {
    Prctl,
    Seccomp,
    Inline,
}

fn install(filter: &[sock_filter], how: How) {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    let at = &raw const program;
    // SAFETY: a filter that the kernel copies.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        match how {
            How::Prctl => libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, at).into(),
            How::Seccomp => libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, at),
            How::Inline => {
                let ret: i64;
                asm!("syscall", inlateout("rax") libc::SYS_seccomp => ret,
                    in("rdi") libc::SECCOMP_SET_MODE_FILTER, in("rsi") 0, in("rdx") at,
                    lateout("rcx") _, lateout("r11") _, options(nostack));
                ret
            }
        }
    };
    assert_eq!(done, 0, "the filter is not taken");
}

fn pipe() -> [i32; 2] {
    let mut ends = [0; 2];
    // SAFETY: two numbers of ours.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    ends
}

/// Returns the result of a request that waits for data, which are written to the pipe after it is
/// submitted.
fn request(ring: &mut IoUring, ends: [i32; 2], entry: squeue::Entry) -> i32 {
    // SAFETY: what the request names outlives it; a byte of ours.
    unsafe {
        ring.submission().push(&entry).unwrap();
        ring.submit().unwrap();
        libc::write(ends[1], c"x".as_ptr().cast(), 1);
    }
    ring.submit_and_wait(1).unwrap();
    ring.completion().next().unwrap().result()
}

fn poll(ring: &mut IoUring) -> i32 {
    let ends = pipe();
    let entry = opcode::PollAdd::new(types::Fd(ends[0]), libc::POLLIN as u32).build();
    request(ring, ends, entry)
}

fn read(ring: &mut IoUring) -> i32 {
    let (ends, mut byte) = (pipe(), 0u8);
    let entry = opcode::Read::new(types::Fd(ends[0]), &raw mut byte, 1).build();
    request(ring, ends, entry)
}

fn make() -> Result<IoUring, i32> {
    IoUring::new(4).map_err(|e| e.raw_os_error().unwrap_or(0))
}

fn strict() -> ! {
    // SAFETY: numbers only, and a string.
    unsafe {
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT);
        libc::write(1, c"strict\n".as_ptr().cast(), 7);
        libc::syscall(libc::SYS_exit, 3);
    }
    unreachable!();
}

fn load() {
    // SAFETY: a library of the C library's that has no constructor.
    let library = unsafe { libc::dlopen(c"libanl.so.1".as_ptr(), libc::RTLD_NOW) };
    println!("load {}", !library.is_null());
}

fn fork() {
    let mut status = 0;
    // SAFETY: the child ends at once; a number of ours.
    unsafe {
        match libc::fork() {
            0 => libc::_exit(7),
            child => libc::waitpid(child, &raw mut status, 0),
        };
    }
    println!("fork {}", libc::WEXITSTATUS(status));
}

/// Blocks all signals, or none; returns whether SIGSYS was blocked before.
fn mask(how: Option<bool>, by_number: bool) -> bool {
    let set = if how == Some(true) { !0u64 } else { 0 };
    let mut old = [0u64; 16];
    // SAFETY: a libc set begins with the kernel's, and is as large as these words.
    unsafe {
        let mut new: libc::sigset_t = core::mem::zeroed();
        (&raw mut new).cast::<u64>().write(set);
        let new = if how.is_none() { core::ptr::null() } else { &raw const new };
        if by_number {
            let (nr, how) = (libc::SYS_rt_sigprocmask, libc::SIG_SETMASK);
            assert_eq!(libc::syscall(nr, how, new, old.as_mut_ptr(), 8), 0);
        } else {
            assert_eq!(libc::sigprocmask(libc::SIG_SETMASK, new, old.as_mut_ptr().cast()), 0);
        }
    }
    old[0] & 1 << (libc::SIGSYS - 1) != 0
}

fn main() {
    let mut kept = None;
    for step in std::env::args().skip(1) {
        let (what, calls) = step.split_once('=').unwrap_or((&step, ""));
        let words = || calls.split(',').filter(|w| !w.is_empty());
        let numbers = || words().filter_map(|w| w.parse::<u32>().ok()).collect::<Vec<_>>();
        let first = action(words().next().unwrap_or(""));
        match what {
            "ring" => match make() {
                Ok(mut ring) => println!("ring {} {}", poll(&mut ring), read(&mut ring)),
                Err(errno) => println!("no ring: {errno}"),
            },
            "keep" => kept = Some(make().expect("a ring")),
            "poll" => println!("poll {}", poll(kept.as_mut().expect("keep"))),
            "read" => println!("read {}", read(kept.as_mut().expect("keep"))),
            "kill" | "eperm" | "trap" => {
                let refused = filter(&numbers(), action(what), libc::SECCOMP_RET_ALLOW);
                install(&refused, How::Prctl);
            }
            "only" => {
                let calls = NEEDED.map(|nr| nr as u32).into_iter().chain(numbers());
                let calls = calls.collect::<Vec<_>>();
                install(&filter(&calls, libc::SECCOMP_RET_ALLOW, first), How::Seccomp);
            }
            "inline" => {
                install(&filter(&numbers(), first, libc::SECCOMP_RET_ALLOW), How::Inline);
            }
            "strict" => strict(),
            "load" => load(),
            "fork" => fork(),
            "mask" | "unmask" => _ = mask(Some(what == "mask"), false),
            "raw-mask" | "raw-unmask" => _ = mask(Some(what == "raw-mask"), true),
            "shown" => println!("blocked {} {}", mask(None, false), mask(None, true)),
            // SAFETY: a number.
            "raise" => _ = unsafe { libc::raise(libc::SIGSYS) },
            other => panic!("{other}: no such step"),
        }
    }
    println!("end");
}
