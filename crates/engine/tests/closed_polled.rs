//! A polled ring that is closed while a thread waits in it: its stand-in's number is free for any
//! file of the program's. A test program of its own, since it forks by its own word.
#![allow(unsafe_code)]

mod client;

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use client::{Client, sqe};
use rustix::io::{Errno, fcntl_dupfd_cloexec, fcntl_getfd, ioctl_fionread, write};
use rustix::pipe::pipe;
use softring_engine::{fds, fork};
use softring_uapi::*;

/// Waits until a thread sleeps in a ring that has taken its SQE.
fn wait_for_entry(ring: i32) {
    let start = Instant::now();
    while fds::report(ring).is_none_or(|(events, _)| events & 4 == 0) {
        assert!(start.elapsed() < Duration::from_secs(10));
    }
    std::thread::sleep(Duration::from_millis(50));
}

#[test]
fn a_fork_does_not_read_the_number_of_a_closed_stand_in() {
    let ((from, to), (other, data)) = (pipe().unwrap(), pipe().unwrap());
    let c = std::mem::ManuallyDrop::new(Client::new(4, 0));
    let (ring, stand_in) = (c.fd, fds::poll_fd(c.fd).unwrap());
    let mut buf = [0u8; 4];
    let addr = buf.as_mut_ptr().expose_provenance() as u64;
    c.push(io_uring_sqe { fd: from.as_raw_fd(), addr, len: 4, ..sqe(IORING_OP_READ, 1) });
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| softring_engine::syscall::enter(ring, 1, 1, 1, 0, 0));
        wait_for_entry(ring);
        drop(fds::before_close(ring));
        // SAFETY: the client is used no more.
        unsafe { rustix::io::close(ring) };

        // SAFETY: only asks for a number.
        let free = fcntl_getfd(unsafe { std::os::fd::BorrowedFd::borrow_raw(stand_in) });
        let reused = fcntl_dupfd_cloexec(&other, stand_in).unwrap();
        write(&data, &[7; 16]).unwrap();
        // After the first fork a stand-in's state is asked for.
        for _ in 0..2 {
            fork::prepare();
            fork::in_parent();
        }
        let left = ioctl_fionread(&other).unwrap();
        write(&to, b"data").unwrap();
        let free = (free.err(), reused.as_raw_fd());
        assert_eq!(free, (Some(Errno::BADF), stand_in));
        assert_eq!((waits.join().unwrap(), left), (1, 16));
    });
}
