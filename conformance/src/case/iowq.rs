//! The queue of workers: queued requests begin when their batch is submitted.

use super::thread_exit::open_fifo;
use super::net::{pair, recv};
use super::pbuf::{GROUP, provide};
use super::prelude::*;
use crate::show;
use libc::{ENOTSOCK, MSG_WAITALL};
use rustix::fs::{Mode, OFlags};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::io::Write;
use std::os::fd::IntoRawFd;
use std::time::Duration;

pub const CASES: &[Case] = &[
    legal!("iowq", file_closed, [Sqe(IOSQE_ASYNC), Op(IORING_OP_CLOSE)], "the file of a worker's request is looked up after the batch, which may have closed it"),
    legal!("iowq", cancelled, [Sqe(IOSQE_ASYNC), Op(IORING_OP_ASYNC_CANCEL)], "a batch can cancel every kind of request that it queued to a worker"),
    legal!("iowq", not_polled, [Sqe(IOSQE_ASYNC), Op(IORING_OP_POLL_REMOVE)], "a poll queued to a worker is not armed yet"),
    legal!("iowq", cancel_finds_queued, [Sqe(IOSQE_ASYNC), Op(IORING_OP_ASYNC_CANCEL)], "a cancel in a worker finds requests queued behind it"),
    legal!("iowq", behind_barrier, [Sqe(IOSQE_IO_DRAIN), Op(IORING_OP_ASYNC_CANCEL)], "drained requests go to a worker"),
    legal!("iowq", unterminated_chain_first, [Sqe(IOSQE_IO_LINK), Op(IORING_OP_ASYNC_CANCEL)], "an unterminated chain goes to a worker before requests from task work"),
    any_order!("iowq", poll_first_waits, [Sqe(IOSQE_ASYNC), Op(IORING_OP_RECV)], "a ready request with POLL_FIRST waits in the worker"),
    case!("iowq", no_socket, [Sqe(IOSQE_ASYNC), Sqe(IOSQE_BUFFER_SELECT), Op(IORING_OP_RECV)], "a receive in a worker from a file that is not a socket uses no buffer"),
    legal!("iowq", drained_behind_close, [
        Sqe(IOSQE_IO_DRAIN), Op(IORING_OP_CLOSE), Op(IORING_OP_FILES_UPDATE),
    ], "a drained request behind a close finds the file closed"),
    legal!("iowq", chain_behind_device, [
        Sqe(IOSQE_ASYNC), Sqe(IOSQE_IO_LINK), Op(IORING_OP_READ), Op(IORING_OP_WRITE),
    ], "a chain continues in the worker, but after completions of a device"),
    any_order!("iowq", link_timeout_later_in_chain, [
        Op(IORING_OP_LINK_TIMEOUT), Sqe(IOSQE_IO_LINK), Op(IORING_OP_WRITE),
    ], "a linked timeout later in a chain starts, however the request before completes"),
    legal!("iowq", chain_behind_no_file, [
        Sqe(IOSQE_ASYNC), Sqe(IOSQE_IO_HARDLINK), Op(IORING_OP_WRITE),
    ], "a chain continues outside of the worker after a request without a file"),
    any_order!("iowq", ring_closed, [Sqe(IOSQE_ASYNC), Op(IORING_OP_OPENAT)], "closing a ring interrupts its waits in workers, and leaves jobs of other rings alone"),
];

/// Restriction of the thread and its workers to one processor while this lives: a worker begins
/// only when the thread has returned from its call.
pub(super) struct OneCpu(CpuSet);

impl OneCpu {
    pub(super) fn new() -> Result<OneCpu, Stop> {
        let before = sched_getaffinity(None)?;
        let mut one = CpuSet::new();
        one.set(sched_getcpu());
        sched_setaffinity(None, &one)?;
        Ok(OneCpu(before))
    }
}

impl Drop for OneCpu {
    fn drop(&mut self) {
        sched_setaffinity(None, &self.0).ok();
    }
}

fn asynchronous(sqe: io_uring_sqe, ud: u64) -> io_uring_sqe {
    sqe.with(IOSQE_ASYNC).ud(ud)
}

fn file_closed(cx: &mut Cx) -> Outcome {
    let _one = OneCpu::new()?;
    let mut ring = cx.ring(8, 0)?;
    let fd = cx.file("f", b"data")?.into_raw_fd();
    let sqes = [asynchronous(sqe::write(fd, b"x", 0), 1), sqe::op(IORING_OP_CLOSE, fd).ud(2)];
    cx.batch(&mut ring, "closed first", &sqes, &[(1, -EBADF), (2, 0)]);
    let content = cx.content("f")?;
    cx.eq("nothing written", content, b"data".to_vec());
    Ok(())
}

fn cancelled(cx: &mut Cx) -> Outcome {
    let _one = OneCpu::new()?;
    let mut ring = cx.ring(8, 0)?;
    let (r, _w) = cx.pipe()?;
    let mut buf = [0; 4];
    let sqes = [
        asynchronous(sqe::nop(), 1),
        asynchronous(sqe::read(r.as_raw_fd(), &mut buf, 0), 2),
        sqe::cancel(1, 0).ud(3),
        sqe::cancel(2, 0).ud(4),
    ];
    let want = [(1, -ECANCELED), (2, -ECANCELED), (3, 0), (4, 0)];
    cx.batch(&mut ring, "both", &sqes, &want);
    Ok(())
}

fn not_polled(cx: &mut Cx) -> Outcome {
    let _one = OneCpu::new()?;
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let poll = asynchronous(sqe::poll_add(r.as_raw_fd(), libc::POLLIN), 1);
    let remove = sqe::op(IORING_OP_POLL_REMOVE, -1).set(|s| s.addr = 1).ud(2);
    cx.batch(&mut ring, "too early", &[poll, remove], &[(2, -ENOENT)]);
    rustix::io::write(&w, b"x")?;
    cx.reap(&mut ring, "told", &[(1, i32::from(libc::POLLIN))]);
    Ok(())
}

fn cancel_finds_queued(cx: &mut Cx) -> Outcome {
    let _one = OneCpu::new()?;
    let mut ring = cx.ring(8, 0)?;
    let sqes = [asynchronous(sqe::cancel(2, 0), 1), asynchronous(sqe::nop(), 2)];
    cx.batch(&mut ring, "the next", &sqes, &[(1, 0), (2, -ECANCELED)]);
    Ok(())
}

fn behind_barrier(cx: &mut Cx) -> Outcome {
    let _one = OneCpu::new()?;
    let mut ring = cx.ring(8, DEFER)?;
    let (r, w) = cx.pipe()?;
    let sqes = [
        sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(1),
        sqe::nop().with(IOSQE_IO_DRAIN).ud(2),
        sqe::cancel(4, 0).ud(3),
        sqe::nop().ud(4),
    ];
    cx.start(&mut ring, &sqes);
    rustix::io::write(&w, b"x")?;
    cx.reap(&mut ring, "the last", &[(1, 1), (2, 0), (3, 0), (4, -ECANCELED)]);
    Ok(())
}

fn unterminated_chain_first(cx: &mut Cx) -> Outcome {
    let _one = OneCpu::new()?;
    let mut ring = cx.ring(8, 0)?;
    let sqes = [
        sqe::nop().link().ud(1),
        asynchronous(sqe::cancel(3, 0), 2),
        sqe::nop().link().ud(3),
    ];
    cx.batch(&mut ring, "it was first", &sqes, &[(1, 0), (2, -ENOENT), (3, 0)]);
    Ok(())
}

fn poll_first_waits(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (mut one, two) = pair()?;
    let mut buf = [0; 4];
    let first = recv(two.as_raw_fd(), &mut buf).op_flags(MSG_WAITALL as u32);
    let first = first.set(|s| s.ioprio = IORING_RECVSEND_POLL_FIRST);
    for (what, ready) in [("nothing is there", false), ("something is there", true)] {
        if ready {
            one.write_all(b"x")?;
        }
        cx.start(&mut ring, &[asynchronous(first, 1)]);
        cx.quiet(&ring, what, 20);
        // A request that runs is interrupted, and does not count.
        let all = sqe::cancel(1, IORING_ASYNC_CANCEL_ALL).ud(2);
        let res = if ready { 1 } else { -ECANCELED };
        cx.batch(&mut ring, "cancel", &[all], &[(1, res), (2, i32::from(!ready))]);
    }
    Ok(())
}

fn no_socket(cx: &mut Cx) -> Outcome {
    no_socket_of(cx, 0)?;
    no_socket_of(cx, DEFER)?;
    no_file_of_sockets(cx)
}

fn no_socket_of(cx: &mut Cx, setup: u32) -> Outcome {
    let mut ring = cx.ring(8, setup)?;
    let (r, w) = cx.pipe()?;
    rustix::io::write(&w, b"x")?;
    let mut mem = [b'-'; 8];
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
    let receive = sqe::rw(IORING_OP_RECV, r.as_raw_fd(), 0, 0, 0).with(IOSQE_BUFFER_SELECT);
    for ioprio in [0, IORING_RECVSEND_POLL_FIRST] {
        for flags in [0, IOSQE_ASYNC] {
            let s = receive.set(|s| (s.buf_index, s.ioprio) = (GROUP, ioprio)).with(flags);
            cx.one(&mut ring, "no socket", s, -ENOTSOCK);
        }
    }
    let read = sqe::rw(IORING_OP_READ, r.as_raw_fd(), 0, 0, 0).with(IOSQE_BUFFER_SELECT);
    cx.one(&mut ring, "the buffer is there", read.set(|s| s.buf_index = GROUP), 1);
    Ok(())
}

/// Checks requests that poll first, and sends, on each kind of file that is no socket.
fn no_file_of_sockets(cx: &mut Cx) -> Outcome {
    let (r, w) = cx.pipe()?;
    let (ready, filled) = cx.pipe()?;
    rustix::io::write(&filled, b"x")?;
    let (file, null) = (cx.file("f", b"data")?, std::fs::File::open("/dev/null")?);
    let set = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?;
    let zero = cx.eventfd(0)?;
    let kinds = [
        ("a pipe", r.as_raw_fd()),
        ("a pipe with data", ready.as_raw_fd()),
        ("a pipe to write to", w.as_raw_fd()),
        ("a file", file.as_raw_fd()),
        ("a device", null.as_raw_fd()),
        ("a set", set.as_raw_fd()),
        ("an eventfd", zero.as_raw_fd()),
    ];
    for (kind, fd) in kinds {
        for (how, flags) in [("", 0), (" by a worker", IOSQE_ASYNC)] {
            let mut ring = cx.ring(16, DEFER)?;
            let (mut buf, msg) = ([0; 4], super::net_msg::hdr(&[]));
            let all = [
                recv(fd, &mut buf),
                sqe::rw(IORING_OP_SEND, fd, addr(&buf), 4, 0),
                sqe::rw(IORING_OP_RECVMSG, fd, addr(&msg), 1, 0),
                sqe::rw(IORING_OP_SENDMSG, fd, addr(&msg), 1, 0),
                sqe::op(IORING_OP_ACCEPT, fd),
            ];
            let first = |s: io_uring_sqe| match s.opcode {
                IORING_OP_ACCEPT => s.set(|s| s.ioprio = IORING_ACCEPT_POLL_FIRST),
                _ => s.set(|s| s.ioprio = IORING_RECVSEND_POLL_FIRST),
            };
            let both = all.into_iter().chain(all.map(first)).zip(1..);
            let sqes: Vec<_> = both.map(|(s, ud)| s.with(flags).ud(ud)).collect();
            cx.start(&mut ring, &sqes);
            std::thread::sleep(Duration::from_millis(20));
            for when in ["before", "then"] {
                let mut cqes = ring.pop_all();
                cqes.sort();
                let told = |c: &Cqe| format!("{}={}", c.user_data, show::answer(c.res.into()));
                let each = cqes.iter().map(told).collect::<Vec<_>>().join(" ");
                cx.note(&format!("{kind}{how}: {when}"), each);
                ring.enter(0, 0, IORING_ENTER_GETEVENTS);
            }
        }
    }
    Ok(())
}

fn drained_behind_close(cx: &mut Cx) -> Outcome {
    for _ in 0..4 {
        let _one = OneCpu::new()?;
        let mut ring = cx.ring(8, 0)?;
        cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[-1]), 0);
        let (r, w) = cx.pipe()?;
        let fd = cx.file("f", b"data")?.into_raw_fd();
        let sqes = [
            sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(1),
            sqe::nop().with(IOSQE_IO_DRAIN).ud(2),
            sqe::op(IORING_OP_CLOSE, fd).ud(3),
        ];
        cx.start(&mut ring, &sqes);
        let fds = [fd];
        cx.start(&mut ring, &[sqe::rw(IORING_OP_FILES_UPDATE, -1, addr(&fds), 1, 0).ud(4)]);
        rustix::io::write(&w, b"x")?;
        cx.reap(&mut ring, "closed first", &[(1, 1), (2, 0), (3, 0), (4, -EBADF)]);
    }
    Ok(())
}

/// Checks where a cancel behind a failed write runs. If a worker goes on with the chain, the cancel
/// finds a request that has begun: itself. The kernel's own worker does so at times.
fn chain_behind_no_file(cx: &mut Cx) -> Outcome {
    let mut outside = false;
    for _ in 0..16 {
        let closed = cx.file("f", b"data")?.into_raw_fd();
        let mut ring = cx.ring(8, 0)?;
        let write = sqe::rw(IORING_OP_WRITE, closed, addr(b"x"), 1, 0).ud(2);
        let sqes = [
            sqe::op(IORING_OP_CLOSE, closed).ud(1),
            write.with(IOSQE_ASYNC | IOSQE_IO_HARDLINK),
            sqe::cancel(3, 0).ud(3),
        ];
        cx.start(&mut ring, &sqes);
        let cqes = ring.take(3)?;
        outside |= cqes.iter().any(|c| (c.user_data, c.res) == (3, -ENOENT));
    }
    cx.holds("not always in the worker", outside);
    Ok(())
}

/// Checks where the request behind an O_DIRECT request of a worker's chain runs: in the worker a
/// cancel finds itself. The file system decides what a worker has to wait for.
fn chain_behind_device(cx: &mut Cx) -> Outcome {
    let file = cx.direct_file("f", &[7; 8192])?;
    file.sync_all()?;
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    let io = |op, len: usize, off| sqe::rw(op, file.as_raw_fd(), page, len, off);
    let (read, write) = (IORING_OP_READ, IORING_OP_WRITE);
    let requests = [
        ("a read", io(read, 4096, 0)),
        ("a read of nothing", io(read, 0, 0)),
        ("a read behind the end", io(read, 4096, 1 << 20)),
        ("a write of nothing", io(write, 0, 0)),
        ("a write that makes the file longer", io(write, 4096, 8192)),
    ];
    for (what, request) in requests {
        let request = request.with(IOSQE_IO_HARDLINK).ud(2);
        let first = asynchronous(sqe::nop().with(IOSQE_IO_HARDLINK), 1);
        let itself = sqe::cancel(3, 0).ud(3);
        for chain in [vec![request.with(IOSQE_ASYNC), itself], vec![first, request, itself]] {
            file.set_len(8192)?;
            let mut ring = cx.ring(8, 0)?;
            cx.start(&mut ring, &chain);
            let got = ring.take(chain.len())?;
            let got: Vec<_> = got.iter().map(|c| (c.user_data, c.res)).collect();
            cx.note(what, format_args!("{got:?}"));
        }
    }
    Ok(())
}

/// Closes one of two rings of one thread, or of one set of workers.
fn ring_closed(cx: &mut Cx) -> Outcome {
    let (path, open) = open_fifo(cx)?;
    let ends = |flags| rustix::fs::open(&path, OFlags::NONBLOCK | flags, Mode::empty());
    for attached in [false, true] {
        let mut other = cx.ring(8, 0)?;
        let (flags, fd) = if attached { (IORING_SETUP_ATTACH_WQ, other.fd) } else { (0, 0) };
        let wq_fd = fd.cast_unsigned();
        let params = io_uring_params { flags, wq_fd, ..Default::default() };
        let mut ring = cx.ring_with(8, params)?;
        cx.start(&mut ring, &[open.ud(1), open.ud(2)]);
        std::thread::sleep(Duration::from_millis(10));
        drop(ring);
        // softring notices a close() that no entry point sees at the setup of the next ring.
        drop(cx.ring(8, 0)?);
        std::thread::sleep(Duration::from_millis(60));
        let reader = ends(OFlags::WRONLY);
        cx.eq("nobody reads any more", reader.err(), Some(rustix::io::Errno::NXIO));
        cx.start(&mut other, &[open.ud(3)]);
        std::thread::sleep(Duration::from_millis(10));
        drop(ends(OFlags::WRONLY)?);
        let fd = other.take(1)?[0].res;
        cx.holds("the other's is served", fd >= 0);
        os::close(fd);
    }
    Ok(())
}

fn link_timeout_later_in_chain(cx: &mut Cx) -> Outcome {
    let limit = sqe::millis(5);
    let direct = cx.direct_file("d", &[b'x'; 65536])?;
    let plain = cx.file("p", &[b'x'; 8192])?;
    let pages = os::page(libc::PROT_READ | libc::PROT_WRITE);
    let (fd, cached) = (direct.as_raw_fd(), plain.as_raw_fd());
    let none: [libc::iovec; 0] = [];
    let whole = |op, fd, off| sqe::rw(op, fd, pages, 4096, off);
    for (what, head) in [
        ("nothing", sqe::rw(IORING_OP_WRITEV, fd, addr(&none), 0, u64::MAX)),
        ("nothing at a place", sqe::rw(IORING_OP_WRITEV, fd, addr(&none), 0, 0)),
        ("a read at a place", whole(IORING_OP_READ, fd, 0)),
        ("a cached write", whole(IORING_OP_WRITE, cached, 0)),
        ("a worker's cached write", whole(IORING_OP_WRITE, cached, 0).with(IOSQE_ASYNC)),
        ("FSYNC", sqe::op(IORING_OP_FSYNC, cached)),
    ] {
        let mut ring = cx.ring(8, 0)?;
        let (one, _two) = pair()?;
        let mut buf = [0; 8];
        let waits = recv(one.as_raw_fd(), &mut buf).link().ud(2);
        cx.start(&mut ring, &[head.link().ud(1), waits, sqe::link_timeout(&limit, 0).ud(3)]);
        std::thread::sleep(Duration::from_millis(60));
        let mut got: Vec<_> = ring.pop_all().iter().map(|c| (c.user_data, c.res)).collect();
        got.sort_unstable();
        cx.note(what, format_args!("{got:?}"));
    }
    Ok(())
}
