//! The engine used directly from Rust: a ring in this process, with no library preloaded, and a
//! file read through it. `cargo run -p softring-engine --example read_file -- FILE`
//!
//! `syscall::{setup, enter, register}` are the three system calls, which return a value or
//! `-errno`. The rest is the work of any io_uring program: map the ring, fill an SQE, publish the
//! tail, enter, read the CQE, give its slot back.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use softring_engine::syscall::UserPtr;
use softring_engine::{fds, syscall};
use softring_uapi::*;

const MAP_LEN: usize = 4096;

fn checked(answer: isize) -> io::Result<i32> {
    let value = answer as i32;
    if value < 0 { Err(io::Error::from_raw_os_error(-value)) } else { Ok(value) }
}

/// Ring and its two mappings.
struct Ring {
    fd: i32,
    params: io_uring_params,
    rings: *mut u8,
    sqes: *mut io_uring_sqe,
}

impl Ring {
    fn new(entries: u32) -> io::Result<Ring> {
        let mut params = io_uring_params::default();
        // SAFETY: ours, and nobody uses the structure during the call.
        let at = unsafe { UserPtr::of_program((&raw mut params).expose_provenance() as u64) };
        let fd = checked(syscall::setup(entries, at))?;
        // SAFETY: setup has just made the descriptor, and only `drop` closes it.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let map = |offset| {
            // SAFETY: a new mapping overlays nothing; a ring this small fits into one page.
            unsafe { mmap(null_mut(), MAP_LEN, access, MapFlags::SHARED, file, offset) }
        };
        let (rings, sqes) = (map(IORING_OFF_SQ_RING)?.cast(), map(IORING_OFF_SQES)?.cast());
        Ok(Ring { fd, params, rings, sqes })
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: setup gave the offset; it lies in the mapping, which lives as long as `self`.
        unsafe { AtomicU32::from_ptr(self.rings.add(offset as usize).cast()) }
    }

    /// Submits one SQE and waits for its completion.
    fn run(&self, sqe: io_uring_sqe) -> io::Result<i32> {
        let (sq, cq) = (&self.params.sq_off, &self.params.cq_off);
        let tail = self.word(sq.tail).load(Ordering::Relaxed);
        let slot = tail & (self.params.sq_entries - 1);
        // SAFETY: the slot lies in the array, and is ours until the tail is published.
        unsafe { self.sqes.add(slot as usize).write(sqe) };
        self.word(sq.array + slot * 4).store(slot, Ordering::Relaxed);
        self.word(sq.tail).store(tail.wrapping_add(1), Ordering::Release);

        checked(syscall::enter(self.fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0))?;

        let head = self.word(cq.head).load(Ordering::Relaxed);
        assert_ne!(head, self.word(cq.tail).load(Ordering::Acquire), "a completion is there");
        let slot = head & (self.params.cq_entries - 1);
        let at = cq.cqes as usize + slot as usize * size_of::<io_uring_cqe>();
        // SAFETY: the CQE lies in the mapping, and is ours until the head is published.
        let cqe = unsafe { self.rings.add(at).cast::<io_uring_cqe>().read() };
        self.word(cq.head).store(head.wrapping_add(1), Ordering::Release);
        checked(cqe.res as isize)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The engine does not see the system calls of this program, so it is told of this one.
        drop(fds::before_close(self.fd));
        // SAFETY: descriptor and mappings are ours, and nobody uses them any more.
        unsafe {
            rustix::io::close(self.fd);
            let _ = munmap(self.rings.cast(), MAP_LEN);
            let _ = munmap(self.sqes.cast(), MAP_LEN);
        }
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let ring = Ring::new(8)?;
    let mut data = vec![0; file.metadata()?.len() as usize];
    let mut done = 0;
    while done < data.len() {
        let part = &mut data[done..];
        let n = ring.run(io_uring_sqe {
            opcode: IORING_OP_READ,
            fd: file.as_raw_fd(),
            off: done as u64,
            addr: part.as_mut_ptr().expose_provenance() as u64,
            len: part.len() as u32,
            user_data: 1,
            ..Default::default()
        })?;
        if n == 0 {
            break;
        }
        done += n as usize;
    }
    data.truncate(done);
    Ok(data)
}

fn main() -> io::Result<()> {
    let path = std::env::args_os().nth(1).unwrap_or_else(|| "Cargo.toml".into());
    io::Write::write_all(&mut io::stdout(), &read(Path::new(&path))?)
}

#[test]
fn reads_what_is_there() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/lib.rs"));
    assert_eq!(read(path).unwrap(), std::fs::read(path).unwrap());
}
