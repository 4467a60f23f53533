//! The engine used directly, as a Rust program may: the three system calls as functions, the ring mapped as ever.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap};
use softring_engine::abi::*;
use softring_engine::{fds, syscall};

/// A ring of the engine's, seen as a program sees it.
struct Client {
    fd: i32,
    p: io_uring_params,
    ring: *mut u8,
    sqes: *mut io_uring_sqe,
}

impl Client {
    fn new(entries: u32, flags: u32) -> Client {
        let mut p = io_uring_params { flags, ..Default::default() };
        let fd = syscall::setup(entries, (&raw mut p).expose_provenance());
        assert!(fd >= 0, "setup: {fd}");
        let fd = fd as i32;
        // SAFETY: the number was just made by setup.
        let bfd = unsafe { BorrowedFd::borrow_raw(fd) };
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let map = |len: usize, off: u64| {
            // SAFETY: a fresh shared mapping of the ring's file.
            unsafe { mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, bfd, off) }.unwrap()
        };
        let len = (p.sq_off.array + p.sq_entries * 4).max(p.cq_off.cqes + p.cq_entries * 32);
        let ring = map(len as usize, IORING_OFF_SQ_RING).cast();
        let sqes = map(p.sq_entries as usize * 64, IORING_OFF_SQES).cast();
        Client { fd, p, ring, sqes }
    }

    fn word(&self, off: u32) -> &AtomicU32 {
        // SAFETY: offsets come from setup and lie inside the mapping, which lives as long as the test.
        unsafe { AtomicU32::from_ptr(self.ring.add(off as usize).cast()) }
    }

    fn push(&self, sqe: io_uring_sqe) {
        let tail = self.word(self.p.sq_off.tail).load(Ordering::Relaxed);
        let slot = tail & (self.p.sq_entries - 1);
        self.word(self.p.sq_off.array + slot * 4).store(slot, Ordering::Relaxed);
        // SAFETY: the slot is inside the SQE array and ours until the tail is published.
        unsafe { self.sqes.add(slot as usize).write(sqe) };
        self.word(self.p.sq_off.tail).store(tail + 1, Ordering::Release);
    }

    fn enter(&self, submit: u32, min: u32) -> isize {
        syscall::enter(self.fd, submit, min, IORING_ENTER_GETEVENTS, 0, 8)
    }

    fn pop(&self) -> Option<io_uring_cqe> {
        let head = self.word(self.p.cq_off.head).load(Ordering::Relaxed);
        if head == self.word(self.p.cq_off.tail).load(Ordering::Acquire) {
            return None;
        }
        let at = self.p.cq_off.cqes as usize + (head & (self.p.cq_entries - 1)) as usize * 16;
        // SAFETY: inside the mapping; published by the engine.
        let cqe = unsafe { self.ring.add(at).cast::<io_uring_cqe>().read() };
        self.word(self.p.cq_off.head).store(head + 1, Ordering::Release);
        Some(cqe)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        fds::before_close(self.fd);
        // SAFETY: the descriptor is ours and closed once.
        unsafe { rustix::io::close(self.fd) };
    }
}

fn sqe(opcode: u8, user_data: u64) -> io_uring_sqe {
    io_uring_sqe { opcode, user_data, ..Default::default() }
}

#[test]
fn nops_complete_in_order() {
    let c = Client::new(8, 0);
    for i in 0..8 {
        c.push(sqe(IORING_OP_NOP, i));
    }
    assert_eq!(c.enter(8, 8), 8);
    for i in 0..8 {
        assert_eq!(c.pop(), Some(io_uring_cqe { user_data: i, res: 0, flags: 0 }));
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
            assert_eq!(cqe, io_uring_cqe { user_data: 2, res: 4, flags: 0 });
            return;
        }
    }
    panic!("the read never completed");
}

#[test]
fn a_timeout_ends_a_wait() {
    let c = Client::new(8, 0);
    let ts = kernel_timespec { tv_sec: 0, tv_nsec: 2_000_000 };
    let addr = (&raw const ts).expose_provenance() as u64;
    c.push(io_uring_sqe { addr, len: 1, ..sqe(IORING_OP_TIMEOUT, 3) });
    assert_eq!(c.enter(1, 1), 1);
    assert_eq!(c.pop(), Some(io_uring_cqe { user_data: 3, res: -62, flags: 0 }));
}

#[test]
fn a_number_reused_behind_our_back_is_noticed() {
    fds::closes_are_reported();
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
    // The pipe takes the file's number; nobody tells the engine.
    rustix::io::dup2(&r, &mut file).unwrap();
    rustix::io::write(&w, b"pipe").unwrap();
    c.push(read);
    assert_eq!(c.enter(1, 1), 1);
    assert_eq!((c.pop().unwrap().res, &buf[..4]), (4, b"pipe".as_slice()));
}
