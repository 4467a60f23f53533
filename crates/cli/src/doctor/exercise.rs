//! Exercise of the trial program with a ring of softring's, beyond the trial that every ring gets:
//! one request for each mechanism that rests on system calls of its own. A policy may kill for one
//! of these calls, so each step is announced before it is taken.

use crate::bench::uring::Ring;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use softring_uapi::{
    IORING_OP_READ, IORING_OP_READV, IORING_OP_RECV, IORING_OP_TIMEOUT, IORING_OP_WRITE,
    IOSQE_ASYNC, io_uring_sqe, iovec,
};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// A step on the ring; `None` if there is nothing to take it with. Preparations are no request, and
/// come before the announcement.
type Step = fn(&mut Ring, &dyn Fn()) -> Option<io::Result<()>>;

/// The steps with their names, in order: those whose preparations a policy may kill for come last.
const STEPS: [(&str, Step); 4] = [
    ("a timeout", timeout),
    ("a read by a worker thread", by_worker),
    ("a write and a read of a file", file),
    ("a receive from a socket", socket),
];

/// Takes all steps; calls `report` before each step, and for each that has failed.
pub fn take(report: impl Fn(Progress)) {
    let Ok(mut ring) = Ring::new(4, 0) else {
        return report(Progress::Failed("a second ring".into()));
    };
    for (name, step) in STEPS {
        if let Some(Err(e)) = step(&mut ring, &|| report(Progress::Tries(name))) {
            report(Progress::Failed(format!("{name} ({e})")));
        }
        report(Progress::Tries(""));
    }
}

/// Message about a step.
#[derive(Debug)]
pub enum Progress {
    Tries(&'static str),
    Failed(String),
}

/// Returns the result of a request, for which it waits some seconds at most.
fn result_of(ring: &mut Ring, sqe: io_uring_sqe) -> io::Result<i32> {
    const TRIES: u32 = 3000;
    ring.push(sqe);
    ring.enter(0)?;
    for _ in 0..TRIES {
        let mut result = None;
        ring.reap(|cqe| result = Some(cqe.res));
        if let Some(result) = result {
            return Ok(result);
        }
        std::thread::sleep(Duration::from_millis(1));
        ring.run_completions()?;
    }
    Err(io::ErrorKind::TimedOut.into())
}

fn wants(result: io::Result<i32>, wanted: i32) -> io::Result<()> {
    match result? {
        n if n == wanted => Ok(()),
        n if n < 0 => Err(io::Error::from_raw_os_error(-n)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn address<T: ?Sized>(of: *const T) -> u64 {
    of.cast::<u8>().expose_provenance() as u64
}

fn timeout(ring: &mut Ring, begin: &dyn Fn()) -> Option<io::Result<()>> {
    let time = [0i64, 1_000_000];
    begin();
    let (addr, len) = (address(&raw const time), 1);
    let sqe = io_uring_sqe { opcode: IORING_OP_TIMEOUT, fd: -1, addr, len, ..Default::default() };
    Some(wants(result_of(ring, sqe), -libc::ETIME))
}

fn by_worker(ring: &mut Ring, begin: &dyn Fn()) -> Option<io::Result<()>> {
    let file = File::open("/proc/self/exe").or_else(|_| File::open("/dev/null")).ok()?;
    let mut byte = [0u8; 1];
    begin();
    let sqe = io_uring_sqe {
        opcode: IORING_OP_READ,
        flags: IOSQE_ASYNC,
        fd: file.as_raw_fd(),
        addr: address(byte.as_mut_ptr()),
        len: 1,
        ..Default::default()
    };
    Some(result_of(ring, sqe).and_then(|n| wants(Ok(n.min(0)), 0)))
}

fn file(ring: &mut Ring, begin: &dyn Fn()) -> Option<io::Result<()>> {
    let file = crate::child::unnamed().ok()?;
    let (bytes, mut back) = ([7u8; 64], [0u8; 64]);
    begin();
    let (fd, len) = (file.as_raw_fd(), 64);
    let addr = address(bytes.as_ptr());
    let write = io_uring_sqe { opcode: IORING_OP_WRITE, fd, addr, len, ..Default::default() };
    let (half, to) = (len as usize / 2, back.as_mut_ptr());
    let part = |at| iovec { base: address(to) + at as u64, len: half as u64 };
    let parts = [part(0), part(half)];
    let addr = address(parts.as_ptr());
    let read = io_uring_sqe { opcode: IORING_OP_READV, fd, addr, len: 2, ..Default::default() };
    let done = wants(result_of(ring, write), 64).and_then(|()| wants(result_of(ring, read), 64));
    let same = || if bytes == back { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) };
    Some(done.and_then(|()| same()))
}

fn socket(ring: &mut Ring, begin: &dyn Fn()) -> Option<io::Result<()>> {
    let made = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let (ours, peer) = made.ok()?;
    let mut bytes = [0u8; 8];
    let mut peer = File::from(peer);
    peer.write_all(b"x").ok()?;
    begin();
    let (fd, addr) = (ours.as_raw_fd(), address(bytes.as_mut_ptr()));
    let sqe = io_uring_sqe { opcode: IORING_OP_RECV, fd, addr, len: 8, ..Default::default() };
    Some(wants(result_of(ring, sqe), 1))
}
