//! Rings whose descriptors are closed without a report to the engine, as by a program's own system
//! calls. One test, since it checks all of this process's rings.
#![allow(unsafe_code)]

mod client;

use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use client::{Client, sqe};
use rustix::event::{PollFd, PollFlags, poll};
use softring_engine::{fds, syscall};
use softring_uapi::*;

const EBADF: isize = -9;

/// Closes the ring's descriptor, and does not report the close.
fn close_unreported(c: Client) -> i32 {
    let c = ManuallyDrop::new(c);
    // SAFETY: the descriptor is the client's, which is used no more.
    unsafe { rustix::io::close(c.fd) };
    c.fd
}

fn soon(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn reactors() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let name = |t: std::fs::DirEntry| std::fs::read_to_string(t.path().join("comm"));
    tasks.filter_map(|t| name(t).ok()).filter(|n| n.starts_with("iou-rct")).count()
}

#[test]
fn an_uninstrumented_close_is_noticed() {
    // Calls that have the time to check notice it.
    let fd = close_unreported(Client::new(4, 0));
    assert_eq!(syscall::enter(fd, 0, 0, 0, 0, 0), EBADF);
    let fd = close_unreported(Client::new(4, 0));
    assert_eq!(client::register(fd, IORING_UNREGISTER_FILES, 0, 0), EBADF);

    // An enter that submits notices it in time.
    let c = Client::new(4, 0);
    for _ in 0..100 {
        c.push(sqe(IORING_OP_NOP, 1));
        assert_eq!(c.enter(1, 1), 1);
        c.pop().unwrap();
    }
    let fd = close_unreported(c);
    let answers = || (0..100).any(|_| syscall::enter(fd, 1, 0, 0, 0, 0) == EBADF);
    assert!(answers());

    // The next ring of the number notices it, and is not taken for the old one.
    let fd = close_unreported(Client::new(4, 0));
    let next = Client::new(4, 0);
    assert_eq!(next.fd, fd);
    fds::sweep();
    next.push(sqe(IORING_OP_NOP, 2));
    assert_eq!(next.enter(1, 1), 1);
    drop(next);
    assert!(fds::surely_no_ring());

    // Without any call, the ring's resources are released, and our thread ends with the last ring.
    let (r, w) = rustix::pipe::pipe().unwrap();
    let c = Client::new(4, 0);
    let files = [w.as_raw_fd()];
    let at = files.as_ptr().expose_provenance();
    assert_eq!(client::register(c.fd, IORING_REGISTER_FILES, at, 1), 0);
    drop(w);
    soon("the reactor starts", || reactors() == 1);
    close_unreported(c);
    let mut hung_up = [PollFd::new(&r, PollFlags::IN)];
    let limit = rustix::time::Timespec { tv_sec: 10, tv_nsec: 0 };
    assert_eq!(poll(&mut hung_up, Some(&limit)), Ok(1));
    assert!(hung_up[0].revents().contains(PollFlags::HUP));
    soon("the reactor ends", || reactors() == 0);

    // The reactor starts again when it is needed.
    let c = Client::new(4, 0);
    let (r, w) = rustix::pipe::pipe().unwrap();
    let mut buf = [0u8; 4];
    let addr = buf.as_mut_ptr().expose_provenance() as u64;
    c.push(io_uring_sqe { fd: r.as_raw_fd(), addr, len: 4, ..sqe(IORING_OP_READ, 3) });
    assert_eq!(c.enter(1, 0), 1);
    rustix::io::write(&w, b"data").unwrap();
    soon("a completion that nobody waits for", || c.pop().is_some_and(|e| e.res == 4));
}
