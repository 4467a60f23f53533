//! A program's view of a ring of the engine's: its mappings, SQEs in, CQEs out.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap};
use softring_engine::abi::*;
use softring_engine::{fds, syscall};

/// A ring of the engine's, seen as a program sees it.
pub struct Client {
    pub fd: i32,
    p: io_uring_params,
    ring: *mut u8,
    sqes: *mut io_uring_sqe,
}

impl Client {
    pub fn new(entries: u32, flags: u32) -> Client {
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
        // SAFETY: offsets come from setup and lie inside the mapping, which lives as long as the
        // test.
        unsafe { AtomicU32::from_ptr(self.ring.add(off as usize).cast()) }
    }

    pub fn push(&self, sqe: io_uring_sqe) {
        let tail = self.word(self.p.sq_off.tail).load(Ordering::Relaxed);
        let slot = tail & (self.p.sq_entries - 1);
        self.word(self.p.sq_off.array + slot * 4).store(slot, Ordering::Relaxed);
        // SAFETY: the slot is inside the SQE array and ours until the tail is published.
        unsafe { self.sqes.add(slot as usize).write(sqe) };
        self.word(self.p.sq_off.tail).store(tail + 1, Ordering::Release);
    }

    pub fn enter(&self, submit: u32, min: u32) -> isize {
        syscall::enter(self.fd, submit, min, IORING_ENTER_GETEVENTS, 0, 8)
    }

    pub fn pop(&self) -> Option<io_uring_cqe> {
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
        drop(fds::before_close(self.fd));
        // SAFETY: the descriptor is ours and closed once.
        unsafe { rustix::io::close(self.fd) };
    }
}

pub fn sqe(opcode: u8, user_data: u64) -> io_uring_sqe {
    io_uring_sqe { opcode, user_data, ..Default::default() }
}
