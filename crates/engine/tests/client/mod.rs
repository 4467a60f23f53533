//! A program's view of a ring of the engine's: its mappings, SQEs in, CQEs out.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, ProtFlags, mmap};
use softring_engine::{fds, syscall};
use softring_uapi::*;

/// A ring of the engine's, seen as a program sees it.
pub struct Client {
    pub fd: i32,
    p: io_uring_params,
    ring: *mut u8,
    sqes: *mut io_uring_sqe,
    /// Memory of the test's own (NO_MMAP): where and how much.
    own: Option<(*mut u8, usize)>,
}

// Each test program uses a part of this.
#[allow(dead_code)]
impl Client {
    pub fn new(entries: u32, flags: u32) -> Client {
        Client::with(io_uring_params { flags, sq_entries: entries, ..Default::default() })
    }

    /// A ring of `p.sq_entries`.
    pub fn with(mut p: io_uring_params) -> Client {
        let entries = core::mem::take(&mut p.sq_entries);
        let fd = syscall::setup(entries, (&raw mut p).expose_provenance());
        assert!(fd >= 0, "setup: {fd}");
        Client::adopt(fd as i32, p)
    }

    /// The same in memory of the test's own, which is unmapped as soon as the ring is closed.
    pub fn of_own_memory(mut p: io_uring_params) -> Client {
        const LEN: usize = 1 << 16;
        let entries = core::mem::take(&mut p.sq_entries);
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let null = std::ptr::null_mut();
        // SAFETY: a fresh anonymous mapping.
        let at = unsafe { rustix::mm::mmap_anonymous(null, 2 * LEN, prot, MapFlags::SHARED) };
        let at: *mut u8 = at.unwrap().cast();
        // SAFETY: the second half of it.
        let sqes: *mut u8 = unsafe { at.add(LEN) };
        p.flags |= IORING_SETUP_NO_MMAP;
        p.cq_off.user_addr = at.expose_provenance() as u64;
        p.sq_off.user_addr = sqes.expose_provenance() as u64;
        let fd = syscall::setup(entries, (&raw mut p).expose_provenance());
        assert!(fd >= 0, "setup: {fd}");
        Client { fd: fd as i32, p, ring: at, sqes: sqes.cast(), own: Some((at, 2 * LEN)) }
    }

    /// Maps a ring that is set up.
    pub fn adopt(fd: i32, p: io_uring_params) -> Client {
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
        Client { fd, p, ring, sqes, own: None }
    }

    /// SQEs that nobody has taken yet.
    pub fn queued(&self) -> u32 {
        let tail = self.word(self.p.sq_off.tail).load(Ordering::Relaxed);
        tail.wrapping_sub(self.word(self.p.sq_off.head).load(Ordering::Acquire))
    }

    pub fn sq_flags(&self) -> u32 {
        std::sync::atomic::fence(Ordering::SeqCst);
        self.word(self.p.sq_off.flags).load(Ordering::Relaxed)
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

    /// Takes `n` completions without entering; fewer if they take 10 seconds.
    pub fn watch(&self, n: usize) -> Vec<io_uring_cqe> {
        let (mut seen, start) = (Vec::new(), Instant::now());
        while seen.len() < n && start.elapsed() < Duration::from_secs(10) {
            match self.pop() {
                Some(cqe) => seen.push(cqe),
                None => std::thread::yield_now(),
            }
        }
        seen
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
        if let Some((at, len)) = self.own {
            // SAFETY: mapped for this ring alone, which is closed.
            unsafe { rustix::mm::munmap(at.cast(), len) }.unwrap();
        }
    }
}

pub fn sqe(opcode: u8, user_data: u64) -> io_uring_sqe {
    io_uring_sqe { opcode, user_data, ..Default::default() }
}
