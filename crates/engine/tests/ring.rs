//! The engine used directly, as a Rust program may use it: the three system calls as functions, the
//! ring mapped as ever.

mod client;

use std::fs::File;
use std::os::fd::AsRawFd;

use client::{Client, register, sqe};
use softring_client::Cqe;
use softring_engine::OPS;
use softring_engine::Support;
use softring_engine::fds;
use softring_engine::syscall::REGISTERS;
use softring_host::fd;
use softring_uapi::*;

#[test]
fn nops_complete_in_order() {
    let c = Client::new(8, 0);
    for i in 0..8 {
        c.push(sqe(IORING_OP_NOP, i));
    }
    assert_eq!(c.enter(8, 8), 8);
    for i in 0..8 {
        assert_eq!(c.pop(), Some(Cqe { user_data: i, ..Default::default() }));
    }
    assert_eq!(c.pop(), None);
}

#[test]
fn a_file_is_read_and_a_pipe_waits() {
    let c = Client::new(8, 0);
    let file = File::open("Cargo.toml").unwrap();
    let mut buf = [0u8; 16];
    let addr = buf.as_mut_ptr().expose_provenance() as u64;
    let read = io_uring_sqe { fd: file.as_raw_fd(), addr, len: 9, ..sqe(IORING_OP_READ, 1) };
    c.push(read);
    assert_eq!(c.enter(1, 1), 1);
    assert_eq!(c.pop().unwrap().res, 9);
    assert_eq!(&buf[..9], b"[package]");

    let (r, w) = rustix::pipe::pipe().unwrap();
    c.push(io_uring_sqe { fd: r.as_raw_fd(), addr, len: 4, ..sqe(IORING_OP_READ, 2) });
    assert_eq!(c.enter(1, 0), 1);
    assert_eq!(c.pop(), None);
    rustix::io::write(&w, b"data").unwrap();
    // Nobody enters: the completion appears all the same.
    for _ in 0..1000 {
        std::thread::sleep(std::time::Duration::from_millis(1));
        if let Some(cqe) = c.pop() {
            assert_eq!(cqe, Cqe { user_data: 2, res: 4, ..Default::default() });
            return;
        }
    }
    panic!("the read never completed");
}

#[test]
fn a_failed_try_lock_leaves_the_holder() {
    let c = Client::new(8, 0);
    let ring = fds::ring(c.fd).unwrap();
    let held = ring.read();
    assert!(ring.try_read_now().is_none());
    assert!(ring.try_read_now().is_none());
    drop(held);
    assert!(ring.try_read_now().is_some());
}

#[test]
fn a_timeout_ends_a_wait() {
    let c = Client::new(8, 0);
    let ts = kernel_timespec { tv_sec: 0, tv_nsec: 2_000_000 };
    let addr = (&raw const ts).expose_provenance() as u64;
    c.push(io_uring_sqe { addr, len: 1, ..sqe(IORING_OP_TIMEOUT, 3) });
    assert_eq!(c.enter(1, 1), 1);
    assert_eq!(c.pop(), Some(Cqe { user_data: 3, res: -62, ..Default::default() }));
}

#[test]
fn an_uninstrumented_reuse_is_noticed() {
    fd::closes_are_reported();
    let c = Client::new(8, 0);
    let mut buf = [0u8; 16];
    let addr = buf.as_mut_ptr().expose_provenance() as u64;
    let file = File::open("Cargo.toml").unwrap();
    let number = file.as_raw_fd();
    let read = io_uring_sqe { fd: number, addr, len: 4, off: 1, ..sqe(IORING_OP_READ, 1) };
    c.push(read);
    assert_eq!(c.enter(1, 1), 1);
    assert_eq!((c.pop().unwrap().res, &buf[..4]), (4, b"pack".as_slice()));

    let (r, w) = rustix::pipe::pipe().unwrap();
    let mut file = std::os::fd::OwnedFd::from(file);
    // The pipe takes the file's number without a report to the engine.
    rustix::io::dup2(&r, &mut file).unwrap();
    rustix::io::write(&w, b"pipe").unwrap();
    c.push(read);
    assert_eq!(c.enter(1, 1), 1);
    assert_eq!((c.pop().unwrap().res, &buf[..4]), (4, b"pipe".as_slice()));
}

#[test]
fn refused_opcodes_return_the_errno_of_their_row() {
    const DEFER: u32 = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    // Setup flags of a ring on which zero copy can be registered.
    let c = Client::new(8, DEFER | IORING_SETUP_CQE_MIXED);
    let played = version::played();
    for (opcode, row) in (0..played.ops).zip(&OPS) {
        if let Support::Refused(errno) = row.support {
            c.push(sqe(opcode, 1));
            assert_eq!(c.enter(1, 1), 1);
            assert_eq!(c.pop().unwrap().res, errno.res(), "{}", row.name);
        }
    }
    let some = [0u64; 16];
    let at = some.as_ptr().expose_provenance();
    for (opcode, row) in (0..played.registers).zip(&REGISTERS) {
        if let Support::Refused(errno) = row.support {
            assert_eq!(register(c.fd, opcode, at, 1), errno.res() as isize, "{}", row.name);
        }
    }
}
