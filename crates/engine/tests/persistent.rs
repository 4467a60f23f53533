//! Sockets that stay in the poll set, with every close reported before it happens
//! (`io::persistent`).
#![allow(unsafe_code)]

mod client;

use std::io::{Read, Write};
use std::mem::ManuallyDrop;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, IntoRawFd};

use client::{Client, sqe};
use softring_engine::fds;
use softring_host::fd;
use softring_uapi::*;

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    a.set_nodelay(true).unwrap();
    (a, listener.accept().unwrap().0)
}

/// Client with a buffer for each name.
struct Receiver {
    c: Client,
    bufs: [[u8; 64]; 8],
}

impl Receiver {
    fn new() -> Self {
        fd::closes_are_reported();
        fd::closes_are_all_reported(true);
        Receiver { c: Client::new(8, 0), bufs: [[0; 64]; 8] }
    }

    fn recv(&mut self, fd: i32, name: u8) {
        let addr = self.bufs[usize::from(name)].as_mut_ptr().expose_provenance() as u64;
        let s = io_uring_sqe { fd, addr, len: 64, ..sqe(IORING_OP_RECV, name.into()) };
        self.c.push(s);
    }

    fn submit(&self, n: u32, min: u32) {
        assert_eq!(self.c.enter(n, min), n as isize);
    }

    #[track_caller]
    fn takes(&self, name: u64, res: i32) -> u32 {
        let cqe = self.c.pop().expect("a completion");
        assert_eq!((cqe.user_data, cqe.res), (name, res));
        cqe.flags
    }
}

fn write(s: &mut TcpStream, bytes: &[u8]) {
    s.write_all(bytes).unwrap();
}

#[test]
fn available_data_are_received_in_submission_order() {
    let mut r = Receiver::new();
    let (mut a1, b1) = pair();
    let (mut a2, b2) = pair();
    let (fd1, fd2) = (b1.as_raw_fd(), b2.as_raw_fd());
    // Both requests wait once, so that both sockets are known to be empty afterwards.
    for _ in 0..3 {
        r.recv(fd1, 1);
        r.recv(fd2, 2);
        r.submit(2, 0);
        assert!(r.c.pop().is_none());
        write(&mut a1, b"one");
        r.submit(0, 1);
        r.takes(1, 3);
        write(&mut a2, b"two");
        r.submit(0, 1);
        r.takes(2, 3);
    }
    // Each request finds the data that came meanwhile in its turn, second socket first, before the
    // NOP.
    write(&mut a2, b"second");
    write(&mut a1, b"first");
    r.recv(fd1, 1);
    r.recv(fd2, 2);
    r.c.push(sqe(IORING_OP_NOP, 3));
    r.submit(3, 0);
    r.takes(1, 5);
    r.takes(2, 6);
    r.takes(3, 0);
    // A request that was submitted behind the send finds its data, too.
    let text = *b"sent";
    let addr = text.as_ptr().expose_provenance() as u64;
    let send = sqe(IORING_OP_SEND, 4);
    r.c.push(io_uring_sqe { fd: a1.as_raw_fd(), addr, len: 4, ..send });
    r.recv(fd1, 5);
    r.submit(2, 0);
    r.takes(4, 4);
    r.takes(5, 4);
}

#[test]
fn the_latest_receive_is_tried_first() {
    let mut r = Receiver::new();
    let (mut a, b) = pair();
    for name in 1..=3 {
        r.recv(b.as_raw_fd(), name);
    }
    r.submit(3, 0);
    write(&mut a, b"x");
    r.submit(0, 1);
    r.takes(3, 1);
    assert!(r.c.pop().is_none());
    write(&mut a, b"yy");
    a.shutdown(Shutdown::Write).unwrap();
    r.submit(0, 2);
    // Of the requests that go on waiting, the last tried is the first the next time
    // (`reissue::one_socket`).
    assert_ne!(r.takes(1, 2) & IORING_CQE_F_SOCK_NONEMPTY, 0, "the end counts as something");
    r.takes(2, 0);
    r.recv(b.as_raw_fd(), 4);
    r.submit(1, 1);
    r.takes(4, 0);
}

#[test]
fn waiting_requests_outlive_the_number() {
    let mut r = Receiver::new();
    let (mut a, b) = pair();
    let number = b.into_raw_fd();
    r.recv(number, 1);
    r.submit(1, 0);
    let closing = fds::before_close(number);
    // A request between the two gets no persistent registration, whatever it learns.
    r.recv(number, 3);
    r.submit(1, 0);
    // SAFETY: the number is ours and closed once.
    unsafe { rustix::io::close(number) };
    drop(closing);
    // Another socket under the same number is another socket.
    let (mut a2, b2) = pair();
    r.recv(b2.as_raw_fd(), 2);
    r.submit(1, 0);
    write(&mut a2, b"new");
    r.submit(0, 1);
    r.takes(2, 3);
    write(&mut a, b"old!");
    r.submit(0, 1);
    let first = r.c.pop().expect("a completion");
    assert_eq!(first.res, 4);
    assert_eq!(&r.bufs[first.user_data as usize][..4], b"old!");
    write(&mut a, b"older");
    r.submit(0, 1);
    // The two requests may come in either order.
    r.takes(4 - first.user_data, 5);
    // The last request holds the last reference.
    a.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    assert_eq!(a.read(&mut [0; 8]).unwrap_or(0), 0);
}

#[test]
fn a_close_request_keeps_waiting_requests() {
    let mut r = Receiver::new();
    let (mut a, b) = pair();
    let number = b.into_raw_fd();
    r.recv(number, 1);
    r.submit(1, 0);
    r.c.push(io_uring_sqe { fd: number, ..sqe(IORING_OP_CLOSE, 2) });
    r.submit(1, 1);
    r.takes(2, 0);
    write(&mut a, b"still");
    r.submit(0, 1);
    r.takes(1, 5);
}

#[test]
fn poll_first_and_cancel() {
    let mut r = Receiver::new();
    let (mut a, b) = pair();
    let fd = b.as_raw_fd();
    r.recv(fd, 1);
    r.submit(1, 0);
    r.c.push(io_uring_sqe { addr: 1, ..sqe(IORING_OP_ASYNC_CANCEL, 2) });
    r.submit(1, 2);
    r.takes(2, 0);
    r.takes(1, -125);
    // The event comes while no request waits; a later request that waits for readiness finds it.
    write(&mut a, b"data");
    r.c.push(sqe(IORING_OP_NOP, 3));
    r.submit(1, 1);
    r.takes(3, 0);
    let addr = r.bufs[4].as_mut_ptr().expose_provenance() as u64;
    let first = IORING_RECVSEND_POLL_FIRST;
    let s = io_uring_sqe { fd, addr, len: 64, ioprio: first, ..sqe(IORING_OP_RECV, 4) };
    r.c.push(s);
    r.submit(1, 1);
    r.takes(4, 4);
}

#[test]
fn a_close_ends_waits_of_a_closed_ring() {
    // The descriptor is closed here.
    let mut r = ManuallyDrop::new(Receiver::new());
    let (mut a, b) = pair();
    let (ring, number) = (r.c.fd, b.into_raw_fd());
    r.recv(number, 1);
    r.submit(1, 0);
    let waiter = std::thread::spawn(move || {
        softring_engine::syscall::enter(ring, 0, 1, IORING_ENTER_GETEVENTS, 0, 0)
    });
    // Lets the thread begin to wait: a ring in which no thread waits ends when it is closed.
    std::thread::sleep(std::time::Duration::from_millis(100));
    for fd in [ring, number] {
        let closing = fds::before_close(fd);
        // SAFETY: ours, and closed once.
        unsafe { rustix::io::close(fd) };
        drop(closing);
    }
    write(&mut a, b"late");
    assert_eq!(waiter.join().unwrap(), 0);
    r.takes(1, 4);
}
