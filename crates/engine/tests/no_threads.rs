//! Requests without threads: even if no thread can be made (RLIMIT_NPROC), every request completes.
//! One test, since its process has no way back.

mod client;

use softring_testing::skipped;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::AsRawFd;

use client::{Client, sqe};
use rustix::process::{Resource, Rlimit, getuid, setrlimit};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};
use softring_uapi::*;

const ETIME: i32 = -62;

/// Makes this thread another user, since limits do not bind root. False if it may not.
fn no_more_threads() -> bool {
    if getuid().is_root() {
        let (user, group) = (rustix::fs::Uid::from_raw(65534), rustix::fs::Gid::from_raw(65534));
        if set_thread_res_gid(group, group, group).is_err()
            || set_thread_res_uid(user, user, user).is_err()
        {
            return false;
        }
    }
    let maximum = rustix::process::getrlimit(Resource::Nproc).maximum;
    setrlimit(Resource::Nproc, Rlimit { current: Some(0), maximum }).unwrap();
    std::thread::Builder::new().spawn(|| ()).is_err()
}

#[test]
fn requests_complete_without_threads() {
    let mut file = tempfile();
    file.write_all(b"01234567").unwrap();
    let (r, w) = rustix::pipe::pipe().unwrap();
    if !no_more_threads() {
        skipped!("threads cannot be forbidden here");
        return;
    }
    const DEFER: u32 = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    for flags in [0, DEFER] {
        let c = Client::new(16, flags);
        let mut bufs = [[0u8; 4]; 3];
        let [a, b, d] = &mut bufs;
        let read = |fd: i32, buf: &mut [u8; 4], off: u64, ud: u64| {
            let addr = buf.as_mut_ptr().expose_provenance() as u64;
            io_uring_sqe { fd, addr, len: 4, off, ..sqe(IORING_OP_READ, ud) }
        };
        let soon = kernel_timespec { tv_sec: 0, tv_nsec: 5_000_000 };
        let soon = (&raw const soon).expose_provenance() as u64;
        let fd = file.as_raw_fd();
        let forced = |sqe: io_uring_sqe| io_uring_sqe { flags: IOSQE_ASYNC, ..sqe };
        c.push(read(fd, a, 0, 1));
        c.push(forced(read(fd, b, 4, 2)));
        c.push(io_uring_sqe { fd, ..sqe(IORING_OP_FSYNC, 3) });
        c.push(forced(read(r.as_raw_fd(), d, 0, 4)));
        c.push(io_uring_sqe { addr: soon, len: 1, ..sqe(IORING_OP_TIMEOUT, 5) });
        assert_eq!(c.enter(5, 0), 5);
        rustix::io::write(&w, b"wake").unwrap();
        let mut got = BTreeMap::new();
        while got.len() < 5 {
            assert!(c.enter(0, 1) >= 0);
            while let Some(cqe) = c.pop() {
                assert!(got.insert(cqe.user_data, cqe.res).is_none(), "{cqe:?} twice");
            }
        }
        assert_eq!(got, BTreeMap::from([(1, 4), (2, 4), (3, 0), (4, 4), (5, ETIME)]));
        assert_eq!(bufs, [*b"0123", *b"4567", *b"wake"]);
    }
}

fn tempfile() -> std::fs::File {
    let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR;
    let dir = std::env::temp_dir();
    rustix::fs::open(dir, flags, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap().into()
}
