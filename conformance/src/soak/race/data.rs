//! Kinds of requests that wait for data, for room, or for a report of either.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::super::{Check, ensure, sys};
use super::make::{GROUP, Waiting, balance, ignore, one_of, page, pipe, took, unread, wrong};
use crate::ring::Map;
use crate::sqe::{self, SqeExt};
use softring_uapi::*;

/// Puts a vector into a page, and a header with it, for the kinds that take one.
pub(super) fn vector(page: &Map) {
    sys::store(page.addr + 64, [(page.addr + 512) as u64, 2]);
    sys::store(page.addr, [0, 0, (page.addr + 64) as u64, 1, 0, 0, 0u64]);
}

/// A kind that reads one byte, or more, of two that come.
pub(super) type Reader = fn(RawFd, usize) -> io_uring_sqe;

/// `struct io_uring_recvmsg_out`.
const OUT: usize = 16;

pub(super) fn reader(name: &'static str, socket: bool, sqe: Reader) -> Check<Waiting> {
    let page = page()?;
    let (r, w): (OwnedFd, OwnedFd) = if socket {
        let (r, w) = UnixStream::pair().map_err(wrong)?;
        (r.into(), w.into())
    } else {
        pipe()?
    };
    vector(&page);
    let fd = r.as_raw_fd();
    let made = sqe(fd, page.addr);
    let provides = made.flags & IOSQE_BUFFER_SELECT != 0;
    // Each message has this header before its data.
    let header = if provides && made.opcode == IORING_OP_RECVMSG { OUT } else { 0 };
    Ok(Waiting {
        name,
        sqes: vec![made],
        fd,
        happen: Box::new(move || {
            for byte in [b"a", b"b"] {
                let _ = rustix::io::write(&w, byte);
            }
        }),
        account: Box::new(move |cqes, pbufs| {
            one_of(&cqes[0], |res| res > 0)?;
            if provides {
                cqes[0].iter().try_for_each(|c| pbufs.take(c, |_| ()))?;
            }
            let headers = header * cqes[0].iter().filter(|c| c.res > 0).count();
            balance(took(&cqes[0]) - headers, unread(&r), 2)
        }),
        page,
    })
}

pub(super) const READERS: &[(&str, bool, Reader)] = &[
    ("RECV", true, |fd, at| sqe::rw(IORING_OP_RECV, fd, at + 512, 1, 0)),
    ("RECV MSG_WAITALL", true, |fd, at| {
        sqe::rw(IORING_OP_RECV, fd, at + 512, 2, 0).op_flags(libc::MSG_WAITALL as u32)
    }),
    ("RECV POLL_FIRST", true, |fd, at| {
        let poll_first = |s: &mut io_uring_sqe| s.ioprio = IORING_RECVSEND_POLL_FIRST;
        sqe::rw(IORING_OP_RECV, fd, at + 512, 1, 0).set(poll_first)
    }),
    ("RECV in a worker", true, |fd, at| {
        sqe::rw(IORING_OP_RECV, fd, at + 512, 1, 0).with(IOSQE_ASYNC)
    }),
    ("RECVMSG", true, |fd, at| sqe::rw(IORING_OP_RECVMSG, fd, at, 1, 0)),
    ("RECV multishot", true, |fd, _| {
        select(IORING_OP_RECV, fd).set(|s| s.ioprio = IORING_RECV_MULTISHOT)
    }),
    // A header of zeroes asks for data only.
    ("RECVMSG multishot", true, |fd, at| {
        let header = (at + 128) as u64;
        select(IORING_OP_RECVMSG, fd)
            .set(|s| (s.addr, s.len, s.ioprio) = (header, 1, IORING_RECV_MULTISHOT))
    }),
    ("READ of a socket", true, |fd, at| sqe::rw(IORING_OP_READ, fd, at + 512, 1, 0)),
    ("READ", false, |fd, at| sqe::rw(IORING_OP_READ, fd, at + 512, 1, u64::MAX)),
    ("READ in a worker", false, |fd, at| {
        sqe::rw(IORING_OP_READ, fd, at + 512, 1, u64::MAX).with(IOSQE_ASYNC)
    }),
    ("READV", false, |fd, at| sqe::rw(IORING_OP_READV, fd, at + 64, 1, u64::MAX)),
    ("READ_MULTISHOT", false, |fd, _| select(IORING_OP_READ_MULTISHOT, fd)),
];

fn select(op: u8, fd: RawFd) -> io_uring_sqe {
    sqe::op(op, fd).with(IOSQE_BUFFER_SELECT).set(|s| s.buf_index = GROUP)
}

/// Makes a kind that waits for room: its file is full until it is drained.
pub(super) fn writer(name: &'static str, socket: bool, sqe: Reader) -> Check<Waiting> {
    let page = page()?;
    let (r, w): (OwnedFd, OwnedFd) = if socket {
        let (r, w) = UnixStream::pair().map_err(wrong)?;
        rustix::net::sockopt::set_socket_send_buffer_size(&w, 4096).map_err(wrong)?;
        (r.into(), w.into())
    } else {
        pipe()?
    };
    vector(&page);
    let nonblock = |yes| rustix::io::ioctl_fionbio(&w, yes).map_err(wrong);
    nonblock(true)?;
    let mut full = 0;
    while let Ok(n) = rustix::io::write(&w, &[7; 4096]) {
        full += n;
    }
    nonblock(false)?;
    let fd = w.as_raw_fd();
    let made = sqe(fd, page.addr);
    let provides = made.flags & IOSQE_BUFFER_SELECT != 0;
    let drained = Arc::new(AtomicUsize::new(0));
    let (r, sum) = (Arc::new(r), drained.clone());
    let from = r.clone();
    Ok(Waiting {
        name,
        sqes: vec![made],
        fd,
        happen: Box::new(move || {
            let mut buf = [0u8; 4096];
            while unread(&from) > 0 {
                drained.fetch_add(rustix::io::read(&from, &mut buf).unwrap_or(0), SeqCst);
            }
        }),
        account: Box::new(move |cqes, pbufs| {
            let _open = &w;
            one_of(&cqes[0], |res| res > 0)?;
            if provides {
                cqes[0].iter().try_for_each(|c| pbufs.take(c, |_| ()))?;
            }
            let given = took(&cqes[0]);
            let got = sum.load(SeqCst) + unread(&r) - full;
            ensure(given == got, || format!("{given} written, {got} came"))
        }),
        page,
    })
}

pub(super) const WRITERS: &[(&str, bool, Reader)] = &[
    ("WRITE", false, |fd, at| sqe::rw(IORING_OP_WRITE, fd, at + 512, 2, u64::MAX)),
    ("WRITEV", false, |fd, at| sqe::rw(IORING_OP_WRITEV, fd, at + 64, 1, u64::MAX)),
    ("WRITE in a worker", false, |fd, at| {
        sqe::rw(IORING_OP_WRITE, fd, at + 512, 2, u64::MAX).with(IOSQE_ASYNC)
    }),
    ("SEND", true, |fd, at| sqe::rw(IORING_OP_SEND, fd, at + 512, 2, 0)),
    ("SEND MSG_WAITALL", true, |fd, at| {
        sqe::rw(IORING_OP_SEND, fd, at + 512, 2, 0).op_flags(libc::MSG_WAITALL as u32)
    }),
    ("SEND of a provided buffer", true, |fd, _| select(IORING_OP_SEND, fd).set(|s| s.len = 2)),
    ("SENDMSG", true, |fd, at| sqe::rw(IORING_OP_SENDMSG, fd, at, 1, 0)),
];

/// Makes a kind whose pipe is polled, and not read.
pub(super) fn watcher(name: &'static str, sqe: Watcher) -> Check<Waiting> {
    let (r, w) = pipe()?;
    let fd = r.as_raw_fd();
    Ok(Waiting {
        name,
        sqes: vec![sqe(fd)],
        fd,
        happen: Box::new(move || ignore(rustix::io::write(&w, b"x"))),
        account: Box::new(move |cqes, _| {
            one_of(&cqes[0], |res| res == i32::from(libc::POLLIN))?;
            balance(0, unread(&r), 1)
        }),
        page: page()?,
    })
}

pub(super) type Watcher = fn(RawFd) -> io_uring_sqe;

pub(super) const WATCHERS: &[(&str, Watcher)] = &[
    ("POLL_ADD", |fd| sqe::poll_add(fd, libc::POLLIN)),
    ("POLL_ADD multishot", |fd| {
        sqe::poll_add(fd, libc::POLLIN).set(|s| s.len = IORING_POLL_ADD_MULTI)
    }),
    ("POLL_ADD in a worker", |fd| sqe::poll_add(fd, libc::POLLIN).with(IOSQE_ASYNC)),
];

/// Makes a read that waits only for a disk.
pub(super) fn direct() -> Check<Waiting> {
    use rustix::fs::{Mode, OFlags, open};
    const BYTE: u8 = 0x5a;
    let page = page()?;
    let path = std::env::temp_dir().join(sys::new_name());
    std::fs::write(&path, [BYTE; 4096]).map_err(wrong)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = open(&path, flags | OFlags::DIRECT, Mode::empty());
    let file = file.or_else(|_| open(&path, flags, Mode::empty()));
    std::fs::remove_file(&path).map_err(wrong)?;
    let file = file.map_err(wrong)?;
    let (fd, at) = (file.as_raw_fd(), page.addr);
    Ok(Waiting {
        name: "READ of an O_DIRECT file",
        sqes: vec![sqe::rw(IORING_OP_READ, fd, at, 4096, 0)],
        fd,
        happen: Box::new(|| ()),
        account: Box::new(move |cqes, _| {
            let _open = &file;
            one_of(&cqes[0], |res| res == 4096)?;
            let whole = cqes[0][0].res < 0 || sys::bytes(at, 4096).iter().all(|b| *b == BYTE);
            ensure(whole, || "not what the file holds".into())
        }),
        page,
    })
}
