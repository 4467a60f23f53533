//! Numbers that the program never opened: whatever softring has there, no request works on it.
//! softring's own descriptors lie from 512 up. A file that the program itself puts there is its
//! own.

use super::prelude::*;
use std::ffi::CStr;
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::OwnedFd;

pub const CASES: &[Case] = &[
    any_order!("unopened", files, [], "requests on files by numbers of softring's own descriptors"),
    legal!("unopened", names, [], "requests on names below a directory by softring's own descriptors"),
    legal!("unopened", registrations, [], "registrations, cancels, enters and commands on softring's own descriptors"),
    any_order!("unopened", number_taken_by_program, [], "a file that the program puts at such a number works"),
];

/// Numbers to test. The kernel gives the lowest free number, and no case opens so many files.
const NUMBERS: Range<i32> = 512..544;

type Row<'a> = (&'a str, &'a dyn Fn(i32) -> io_uring_sqe);

/// Users of softring's own descriptors: registered files, an eventfd and a ring, a file that a
/// worker has synced, requests that wait.
struct Busy {
    ring: Ring,
    other: Ring,
    pipe: (OwnedFd, OwnedFd),
    _socket: (TcpStream, TcpStream),
}

fn busy(cx: &mut Cx) -> Result<Busy, Stop> {
    os::set_limit(libc::RLIMIT_NOFILE, 1024);
    let (mut ring, other) = (cx.ring(8, 0)?, cx.ring(8, 0)?);
    let (pipe, socket) = (cx.pipe()?, super::net::pair()?);
    let file = cx.file("busy", b"data")?;
    let dir = std::fs::File::open(cx.dir()?)?;
    let event = cx.eventfd(0)?;
    let fds = [file.as_raw_fd(), pipe.0.as_raw_fd(), dir.as_raw_fd(), socket.0.as_raw_fd()];
    cx.is("files", ring.register_slice(IORING_REGISTER_FILES, &fds), 0);
    cx.is("an eventfd", ring.register_slice(IORING_REGISTER_EVENTFD, &[event.as_raw_fd()]), 0);
    let mut own = [io_uring_rsrc_update { offset: u32::MAX, resv: 0, data: other.fd as u64 }];
    cx.is("a ring", ring.register_struct(IORING_REGISTER_RING_FDS, &mut own, 1), 1);
    cx.one(&mut ring, "sync", sqe::op(IORING_OP_FSYNC, file.as_raw_fd()), 0);
    cx.start(&mut ring, &[
        sqe::poll_add(pipe.0.as_raw_fd(), libc::POLLIN),
        sqe::poll_add(socket.0.as_raw_fd(), libc::POLLIN),
    ]);
    Ok(Busy { ring, other, pipe, _socket: socket })
}

/// Submits each row's request on each number; checks for EBADF.
fn refused(cx: &mut Cx, ring: &mut Ring, rows: &[Row]) -> Outcome {
    for (what, row) in rows {
        for n in NUMBERS {
            ring.push(row(n).ud(n as u64));
            let submitted = ring.submit_wait(1);
            let got = ring.take(1)?[0].res;
            if (submitted, got) != (1, -EBADF) {
                cx.is(&format!("{what}: {submitted} submitted"), got, -EBADF);
                break;
            }
        }
        cx.note(what, "everywhere EBADF");
    }
    Ok(())
}

fn files(cx: &mut Cx) -> Outcome {
    let mut b = busy(cx)?;
    let (pipe, set) = (cx.pipe()?, os::edge_set(b.pipe.0.as_raw_fd()));
    let (p, ep) = (pipe.1.as_raw_fd(), set.as_raw_fd());
    let mut buf = [0u8; 8];
    let (at, name) = (addr_mut(&mut buf), addr(c"user.name"));
    let event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    let ev = addr(&event);
    let inet = os::loopback(9);
    let to = addr(&inet);
    let rw = |code, n| sqe::rw(code, n, at, 8, 0);
    let splice = |code, n| sqe::rw(code, p, 0, 8, 0).set(|s| s.file_index = n as u32);
    let byte = |code, n| sqe::rw(code, n, at, 1, 0);
    refused(cx, &mut b.ring, &[
        ("READ", &|n| rw(IORING_OP_READ, n)),
        ("READ in a worker", &|n| rw(IORING_OP_READ, n).with(IOSQE_ASYNC)),
        ("POLL_ADD", &|n| sqe::poll_add(n, libc::POLLIN)),
        ("FSYNC", &|n| sqe::op(IORING_OP_FSYNC, n)),
        ("SYNC_FILE_RANGE", &|n| sqe::op(IORING_OP_SYNC_FILE_RANGE, n)),
        ("FADVISE", &|n| sqe::op(IORING_OP_FADVISE, n)),
        ("FALLOCATE", &|n| sqe::op(IORING_OP_FALLOCATE, n).set(|s| s.addr = 1)),
        ("FTRUNCATE", &|n| sqe::op(IORING_OP_FTRUNCATE, n).set(|s| s.off = 4)),
        ("FGETXATTR", &|n| sqe::rw(IORING_OP_FGETXATTR, n, name, 8, at as u64)),
        ("RECV", &|n| byte(IORING_OP_RECV, n)),
        ("SEND", &|n| byte(IORING_OP_SEND, n)),
        ("ACCEPT", &|n| sqe::op(IORING_OP_ACCEPT, n)),
        ("CONNECT", &|n| sqe::rw(IORING_OP_CONNECT, n, to, 0, 16)),
        ("BIND", &|n| sqe::rw(IORING_OP_BIND, n, to, 0, 16)),
        ("LISTEN", &|n| sqe::op(IORING_OP_LISTEN, n)),
        ("SHUTDOWN", &|n| sqe::op(IORING_OP_SHUTDOWN, n)),
        ("SPLICE to it", &|n| splice(IORING_OP_SPLICE, p).set(|s| s.fd = n)),
        ("SPLICE from it", &|n| splice(IORING_OP_SPLICE, n)),
        ("TEE from it", &|n| splice(IORING_OP_TEE, n)),
        ("NOP with a file", &|n| sqe::op(IORING_OP_NOP, n).op_flags(IORING_NOP_FILE)),
        ("EPOLL_CTL of it", &|n| sqe::rw(IORING_OP_EPOLL_CTL, ep, ev, 1, n as u64)),
        ("EPOLL_CTL in it", &|n| sqe::rw(IORING_OP_EPOLL_CTL, n, ev, 1, p as u64)),
        ("EPOLL_WAIT", &|n| sqe::rw(IORING_OP_EPOLL_WAIT, n, ev, 1, 0)),
        ("MSG_RING to it", &|n| sqe::op(IORING_OP_MSG_RING, n).set(|s| s.len = 1)),
        ("ASYNC_CANCEL", &|n| sqe::cancel(0, IORING_ASYNC_CANCEL_FD).set(|s| s.fd = n)),
        ("WRITE", &|n| byte(IORING_OP_WRITE, n)),
        ("CLOSE", &|n| sqe::op(IORING_OP_CLOSE, n)),
    ])?;
    cx.one(&mut b.ring, "a slot of that number", sqe::read(0, &mut buf, 0).fixed(), 4);
    cx.quiet(&b.other, "no message", 0);
    Ok(())
}

fn names(cx: &mut Cx) -> Outcome {
    const EMPTY_PATH: u32 = 0x1000;
    let mut b = busy(cx)?;
    let mut statx = os::zeroed_statx();
    let at = addr_mut(&mut statx) as u64;
    let path = |p: &CStr| p.as_ptr().expose_provenance();
    let (name, empty) = (path(c"busy"), path(c""));
    let whole = cx.path("other")?;
    let other = path(&whole) as u64;
    let here = libc::AT_FDCWD;
    let two = |code, n| sqe::rw(code, n, name, here as u32 as usize, other);
    let second = |code, n: i32| sqe::rw(code, here, path(&whole), n as usize, name as u64);
    refused(cx, &mut b.ring, &[
        ("OPENAT", &|n| sqe::rw(IORING_OP_OPENAT, n, name, 0, 0)),
        ("STATX", &|n| sqe::rw(IORING_OP_STATX, n, name, 0x7ff, at)),
        ("STATX of itself", &|n| {
            sqe::rw(IORING_OP_STATX, n, empty, 0x7ff, at).op_flags(EMPTY_PATH)
        }),
        ("MKDIRAT", &|n| sqe::rw(IORING_OP_MKDIRAT, n, name, 0o700, 0)),
        ("SYMLINKAT", &|n| sqe::rw(IORING_OP_SYMLINKAT, n, name, 0, name as u64)),
        ("LINKAT from it", &|n| two(IORING_OP_LINKAT, n)),
        ("LINKAT of itself", &|n| {
            two(IORING_OP_LINKAT, n).set(|s| s.addr = empty as u64).op_flags(EMPTY_PATH)
        }),
        ("RENAMEAT from it", &|n| two(IORING_OP_RENAMEAT, n)),
        ("RENAMEAT to it", &|n| second(IORING_OP_RENAMEAT, n)),
        ("UNLINKAT", &|n| sqe::rw(IORING_OP_UNLINKAT, n, name, 0, 0)),
    ])?;
    let root = |n| sqe::rw(IORING_OP_STATX, n, path(c"/"), 0x7ff, at);
    cx.one(&mut b.ring, "a whole path needs no directory", root(NUMBERS.start), 0);
    Ok(())
}

fn registrations(cx: &mut Cx) -> Outcome {
    let b = busy(cx)?;
    let (ring, free) = (&b.ring, cx.ring(8, 0)?);
    let mut rows = std::collections::BTreeMap::new();
    for n in NUMBERS {
        let fds = [n];
        let update = rsrc_update(0, &fds, &[]);
        let msg = [sqe::op(IORING_OP_MSG_RING, n).set(|s| s.len = 1)];
        let mut own = [io_uring_rsrc_update { offset: u32::MAX, resv: 0, data: n as u64 }];
        let cancel = io_uring_sync_cancel_reg {
            fd: n,
            flags: IORING_ASYNC_CANCEL_FD,
            timeout: sqe::millis(1),
            ..Default::default()
        };
        let attach = IORING_SETUP_ATTACH_WQ;
        let params = io_uring_params { flags: attach, wq_fd: n as u32, ..Default::default() };
        let setup = Ring::with(cx.entry, 4, params).map(|_| 0).unwrap_or_else(|e| -e as isize);
        let enter = |n| entry::enter(cx.entry, n, 0, 0, 0, 0, 0);
        let clone = io_uring_clone_buffers { src_fd: n as u32, ..Default::default() };
        let register = |op, arg, nr| entry::register(cx.entry, n, op, arg, nr);
        let probe = register(IORING_REGISTER_PROBE, addr_mut(&mut [0u64; 34]), 1);
        for (what, got) in [
            ("FILES", free.register_slice(IORING_REGISTER_FILES, &fds)),
            ("FILES_UPDATE2", ring.register(IORING_REGISTER_FILES_UPDATE2, addr(&update), 32)),
            ("EVENTFD", free.register_slice(IORING_REGISTER_EVENTFD, &fds)),
            ("RING_FDS", ring.register_struct(IORING_REGISTER_RING_FDS, &mut own, 1)),
            ("SYNC_CANCEL", ring.register(IORING_REGISTER_SYNC_CANCEL, addr(&cancel), 1)),
            ("CLONE_BUFFERS", free.register(IORING_REGISTER_CLONE_BUFFERS, addr(&clone), 1)),
            ("SEND_MSG_RING", entry::register(
                cx.entry, -1, IORING_REGISTER_SEND_MSG_RING, addr(&msg), 1,
            )),
            ("ATTACH_WQ", setup),
            ("enter", enter(n)),
            ("register", probe),
        ] {
            rows.entry(what).or_insert_with(Vec::new).push(got);
        }
    }
    for (what, mut got) in rows {
        got.dedup();
        cx.eq(what, got, vec![if what == "ATTACH_WQ" { -libc::ENXIO } else { -EBADF } as isize]);
    }
    Ok(())
}

fn number_taken_by_program(cx: &mut Cx) -> Outcome {
    let mut b = busy(cx)?;
    let pipe = cx.pipe()?;
    let mut buf = [0; 4];
    for n in NUMBERS {
        cx.holds("dup2", os::dup2(pipe.0.as_raw_fd(), n) == n);
        rustix::io::write(&pipe.1, b"data")?;
        cx.one(&mut b.ring, "poll", sqe::poll_add(n, libc::POLLIN), libc::POLLIN.into());
        cx.one(&mut b.ring, "read", sqe::read(n, &mut buf, 0), 4);
        cx.one(&mut b.ring, "close", sqe::op(IORING_OP_CLOSE, n), 0);
        cx.one(&mut b.ring, "closed", sqe::read(n, &mut buf, 0), -EBADF);
    }
    let n = NUMBERS.start;
    cx.holds("a ring", os::dup2(b.other.fd, n) == n);
    let msg = sqe::op(IORING_OP_MSG_RING, n).set(|s| (s.len, s.off) = (7, 8));
    cx.one(&mut b.ring, "a message to it", msg, 0);
    cx.reap(&mut b.other, "there", &[(8, 7)]);
    cx.is("enter", entry::enter(cx.entry, n, 0, 0, 0, 0, 0), 0);
    Ok(())
}
