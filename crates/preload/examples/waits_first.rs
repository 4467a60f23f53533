//! A program in which a thread waits in epoll_wait(2) before there is a ring: the ring is added to
//! its set meanwhile, and ends the wait by a completion. `et`: edge-triggered; `inline`: the thread
//! waits past the C library; `poll`, `select`: it waits for the set by that call, then takes the
//! event.
#![allow(unsafe_code)]

use io_uring::{IoUring, opcode, types};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Time for the thread to begin its wait, and for the wait to end.
const BEGIN: Duration = Duration::from_millis(20);
const END: Duration = Duration::from_secs(10);

/// Waits for one event by a system call of our own.
fn wait_inline(set: i32, event: &mut libc::epoll_event) -> i32 {
    let ret: i64;
    // SAFETY: the event outlives the call, which changes no other memory.
    unsafe {
        std::arch::asm!(
            "mov eax, {number}",
            "syscall",
            number = const libc::SYS_epoll_wait,
            lateout("rax") ret,
            in("rdi") set, in("rsi") core::ptr::from_mut(event), in("rdx") 1, in("r10") -1,
            out("rcx") _, out("r11") _,
            options(nostack),
        );
    }
    ret as i32
}

fn main() -> ExitCode {
    let has = |option: &str| std::env::args().any(|arg| arg == option);
    let (edge, inline, poll, select) = (has("et"), has("inline"), has("poll"), has("select"));
    // SAFETY: no memory is passed.
    let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    let (ended, wait) = mpsc::channel();
    thread::spawn(move || {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        if poll {
            let mut entry = libc::pollfd { fd: set, events: libc::POLLIN, revents: 0 };
            // SAFETY: the entry outlives the call.
            unsafe { libc::poll(&raw mut entry, 1, -1) };
        }
        if select {
            // SAFETY: bits, of which none is set.
            let mut fds: libc::fd_set = unsafe { std::mem::zeroed() };
            let none = std::ptr::null_mut();
            // SAFETY: the set outlives the call.
            unsafe {
                libc::FD_SET(set, &raw mut fds);
                libc::select(set + 1, &raw mut fds, none, none, none.cast());
            }
        }
        let n = match inline {
            true => wait_inline(set, &mut event),
            // SAFETY: the event outlives the call.
            false => unsafe { libc::epoll_wait(set, &raw mut event, 1, -1) },
        };
        let _ = ended.send((n, event.u64));
    });
    thread::sleep(BEGIN);
    let mut ring = IoUring::new(4).expect("a ring");
    let events = libc::EPOLLIN | if edge { libc::EPOLLET } else { 0 };
    let mut event = libc::epoll_event { events: events.cast_unsigned(), u64: 7 };
    // SAFETY: the event outlives the call.
    unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, ring.as_raw_fd(), &raw mut event) };
    let time = types::Timespec::from(Duration::from_millis(5));
    let timeout = opcode::Timeout::new(&raw const time).build();
    // SAFETY: the time outlives the submission, which reads it.
    unsafe { ring.submission().push(&timeout) }.expect("an SQE");
    ring.submit().expect("a submission");
    match wait.recv_timeout(END) {
        Ok((1, 7)) => ExitCode::SUCCESS,
        other => {
            eprintln!("the wait: {other:?}");
            ExitCode::FAILURE
        }
    }
}
