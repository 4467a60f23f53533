//! The test client on the engine in this process.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use softring_client::{Calls, Cqe, Ring};
use softring_engine::syscall::UserPtr;
use softring_engine::{fds, syscall};
use softring_uapi::*;

/// Functions of the engine, as the preloaded library calls them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Engine;

/// Calls io_uring_register(2) with an argument of a test's.
#[allow(dead_code)]
pub fn register(fd: i32, opcode: u32, arg: usize, nr_args: u32) -> isize {
    Engine.register(fd, opcode, arg, nr_args)
}

impl Calls for Engine {
    fn setup(self, entries: u32, params: usize) -> isize {
        // SAFETY: parameters of a test's, which says where the memory of its ring lies.
        syscall::setup(entries, unsafe { UserPtr::of_program(params as u64) })
    }

    fn enter(self, fd: i32, submit: u32, min: u32, flags: u32, arg: usize, size: usize) -> isize {
        syscall::enter(fd, submit, min, flags, arg, size)
    }

    fn register(self, fd: i32, opcode: u32, arg: usize, nr_args: u32) -> isize {
        // SAFETY: a structure of a test's.
        syscall::register(fd, opcode, unsafe { UserPtr::of_program(arg as u64) }, nr_args)
    }

    fn mmap(self, fd: i32, len: usize, offset: u64) -> isize {
        // SAFETY: the number was just made by setup.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh shared mapping of the ring's file.
        match unsafe { mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, fd, offset) } {
            Ok(at) => at.expose_provenance() as isize,
            Err(e) => -(e.raw_os_error() as isize),
        }
    }

    unsafe fn munmap(self, addr: usize, len: usize) -> isize {
        // SAFETY: the caller's word.
        let unmapped = unsafe { munmap(std::ptr::with_exposed_provenance_mut(addr), len) };
        unmapped.map_or_else(|e| -(e.raw_os_error() as isize), |()| 0)
    }

    fn close(self, fd: i32) -> isize {
        drop(fds::before_close(fd));
        // SAFETY: the descriptor is the client's and closed once.
        unsafe { rustix::io::close(fd) };
        0
    }
}

/// Ring of the engine's, which one thread at a time uses.
// Each test program uses a part of this.
#[allow(dead_code)]
pub struct Client {
    pub fd: i32,
    ring: RefCell<Ring<Engine>>,
}

#[allow(dead_code)]
impl Client {
    pub fn new(entries: u32, flags: u32) -> Client {
        Client::with(io_uring_params { flags, sq_entries: entries, ..Default::default() })
    }

    /// Makes a ring of `p.sq_entries`.
    pub fn with(mut p: io_uring_params) -> Client {
        let entries = core::mem::take(&mut p.sq_entries);
        Client::of(Ring::with(Engine, entries, p).expect("a ring"))
    }

    /// Makes a ring in memory of the test's own, which is unmapped as soon as the ring is closed.
    pub fn of_own_memory(p: io_uring_params) -> Client {
        Client::with(io_uring_params { flags: p.flags | IORING_SETUP_NO_MMAP, ..p })
    }

    /// Maps a ring that is set up.
    pub fn from_fd(fd: i32, p: io_uring_params) -> Client {
        Client::of(Ring::from_fd(Engine, fd, p, None).expect("its memory"))
    }

    fn of(ring: Ring<Engine>) -> Client {
        Client { fd: ring.fd, ring: RefCell::new(ring) }
    }

    /// Returns the number of SQEs that nobody has taken yet.
    pub fn queued(&self) -> u32 {
        self.ring.borrow().sq_ready()
    }

    pub fn sq_flags(&self) -> u32 {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.ring.borrow().sq_flags()
    }

    pub fn push(&self, sqe: io_uring_sqe) {
        self.ring.borrow_mut().push(sqe);
    }

    pub fn enter(&self, submit: u32, min: u32) -> isize {
        self.ring.borrow().enter_raw(submit, min, IORING_ENTER_GETEVENTS, 0, 8)
    }

    /// Takes `n` completions without entering; fewer if they take 10 seconds.
    pub fn watch(&self, n: usize) -> Vec<Cqe> {
        let (mut seen, start) = (Vec::new(), Instant::now());
        while seen.len() < n && start.elapsed() < Duration::from_secs(10) {
            match self.pop() {
                Some(cqe) => seen.push(cqe),
                None => std::thread::yield_now(),
            }
        }
        seen
    }

    pub fn pop(&self) -> Option<Cqe> {
        self.ring.borrow_mut().pop()
    }
}

pub fn sqe(opcode: u8, user_data: u64) -> io_uring_sqe {
    io_uring_sqe { opcode, user_data, ..Default::default() }
}
