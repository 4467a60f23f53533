//! CQEs that a worker posts itself, and CQEs that it leaves to task work. An async eventfd shows
//! which, and so does the thread that goes on with a link.

use super::futex::{Word, wait_on};
use super::futexv::{any_of, entry};
use super::prelude::*;
use libc::{EAFNOSUPPORT, ENOBUFS, ENOTSOCK};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

pub const CASES: &[Case] = &[
    any_order!("worker", async_eventfd, [Reg(IORING_REGISTER_EVENTFD_ASYNC)], "an async eventfd is signalled for workers, not for task work or another ring"),
    case!("worker", issue_fails, [Reg(IORING_REGISTER_EVENTFD_ASYNC)], "a request that a worker cannot issue ends by task work"),
    case!("worker", dontwait_fails, [Reg(IORING_REGISTER_EVENTFD_ASYNC)], "a network request that may not wait ends by task work in a worker"),
    any_order!("worker", deferred_eventfd, [Reg(IORING_REGISTER_EVENTFD_ASYNC), Setup(IORING_SETUP_DEFER_TASKRUN)], "with DEFER_TASKRUN the eventfd reports a worker's task work, not its CQEs"),
    legal!("worker", deferred_armed_request, [Reg(IORING_REGISTER_EVENTFD_ASYNC), Setup(IORING_SETUP_DEFER_TASKRUN)], "with DEFER_TASKRUN the eventfd does not report the end of a request that a worker armed"),
    case!("worker", deferred_poll_removed, [Op(IORING_OP_POLL_ADD), Setup(IORING_SETUP_DEFER_TASKRUN)], "a multishot poll that a worker armed can be removed although its file is ready"),
    any_order!("worker", continues_chain, [Sqe(IOSQE_IO_HARDLINK), Op(IORING_OP_ACCEPT)], "linked requests continue in the worker, unless task work ended the request before"),
    any_order!("worker", multishot_accept_dontwait, [Op(IORING_OP_ACCEPT)], "a multishot ACCEPT armed by a worker ends with DONTWAIT after an attempt in vain"),
];

/// Returns the eventfd's count since the last read; 0 for nothing.
fn counted(fd: &OwnedFd) -> u64 {
    let mut n = [0u8; 8];
    match rustix::io::read(fd, &mut n) {
        Ok(8) => u64::from_ne_bytes(n),
        _ => 0,
    }
}

/// Sets up a ring with an async eventfd.
fn ring_async(cx: &mut Cx, flags: u32) -> Result<(Ring, OwnedFd), Stop> {
    let ring = cx.ring(8, flags)?;
    let ev = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK)?;
    let fd = [ev.as_raw_fd()];
    cx.is("register", ring.register_slice(IORING_REGISTER_EVENTFD_ASYNC, &fd), 0);
    Ok((ring, ev))
}

/// Records whether the eventfd is signalled within 30 ms.
fn signalled_by_now(cx: &mut Cx, what: &str, ev: &OwnedFd) {
    os::poll(ev.as_raw_fd(), libc::POLLIN, 30);
    cx.note(&format!("{what}: signalled"), counted(ev) > 0);
}

fn async_eventfd(cx: &mut Cx) -> Outcome {
    let (mut ring, ev) = ring_async(cx, 0)?;
    let (r, w) = cx.pipe()?;
    let file = cx.file("f", b"data")?;
    let (ts, mut buf) = (sqe::millis(3), [0; 4]);
    let poll = sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(1);
    let read = sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1);
    for (what, sqe, res) in [
        ("poll", poll, 1),
        ("poll by a worker", poll.with(IOSQE_ASYNC), 1),
        ("read", read, 1),
        ("read by a worker", read.with(IOSQE_ASYNC), 1),
        ("poll, cancelled", poll, -ECANCELED),
    ] {
        cx.start(&mut ring, &[sqe]);
        std::thread::sleep(Duration::from_millis(5));
        if res > 0 {
            rustix::io::write(&w, b"x")?;
            cx.reap(&mut ring, what, &[(1, res)]);
        } else {
            cx.batch(&mut ring, what, &[sqe::cancel(1, 0).ud(2)], &[(1, res), (2, 0)]);
        }
        signalled_by_now(cx, what, &ev);
        if what.starts_with("poll") && res > 0 {
            rustix::io::read(&r, &mut [0; 4])?;
        }
    }
    let timeout = sqe::timeout(&ts, 0, 0).ud(1);
    let linked = sqe::link_timeout(&ts, 0).ud(2);
    let data = sqe::read(file.as_raw_fd(), &mut buf, 0).ud(2);
    let done = [(1, 0), (2, 4)];
    type Row<'a> = (&'a str, &'a [io_uring_sqe], &'a [(u64, i32)]);
    let rows: &[Row<'_>] = &[
        ("timeout", &[timeout], &[(1, -ETIME)]),
        ("timeout by a worker", &[timeout.with(IOSQE_ASYNC)], &[(1, -ETIME)]),
        ("linked timeout", &[poll.link(), linked], &[(1, -ECANCELED), (2, -ETIME)]),
        ("chain", &[sqe::nop().ud(1).link(), data], &done),
        ("chain by a worker", &[sqe::nop().ud(1).link().with(IOSQE_ASYNC), data], &done),
        ("task work", &[sqe::nop().ud(1).op_flags(IORING_NOP_TW)], &[(1, 0)]),
    ];
    for (what, sqes, want) in rows {
        cx.batch(&mut ring, what, sqes, want);
        signalled_by_now(cx, what, &ev);
    }
    messages(cx, &ring, &ev)?;
    cx.holds("taken", ring.pop_all().len() == 2);
    Ok(())
}

/// Checks messages from another ring.
fn messages(cx: &mut Cx, to: &Ring, ev: &OwnedFd) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let message = sqe::op(IORING_OP_MSG_RING, to.fd).ud(1);
    cx.one(&mut ring, "message", message, 0);
    signalled_by_now(cx, "message", ev);
    cx.one(&mut ring, "message by a worker", message.with(IOSQE_ASYNC), 0);
    signalled_by_now(cx, "message by a worker", ev);
    Ok(())
}

fn issue_fails(cx: &mut Cx) -> Outcome {
    let (mut ring, ev) = ring_async(cx, 0)?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 4];
    let (r, w) = (r.as_raw_fd(), w.as_raw_fd());
    let path = cx.path("none")?;
    let send = sqe::rw(IORING_OP_SEND, r, addr(&buf), 4, 0);
    let recv = sqe::rw(IORING_OP_RECV, r, addr(&buf), 4, 0);
    let set = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?;
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 2];
    let at = addr_mut(&mut events);
    let wait = sqe::rw(IORING_OP_EPOLL_WAIT, set.as_raw_fd(), at, 2, 0);
    let open = sqe::rw(IORING_OP_OPENAT, libc::AT_FDCWD, addr(&*path), 0, 0);
    let splice = sqe::rw(IORING_OP_SPLICE, w, 0, 4, u64::MAX);
    let connect = sqe::rw(IORING_OP_CONNECT, r, addr(&[0u8; 16]), 0, 16);
    let rows = [
        ("read of a write end", sqe::read(w, &mut buf, 0), -EBADF),
        ("write to a read end", sqe::write(r, &buf, 0), -EBADF),
        ("send", send, -ENOTSOCK),
        ("receive", recv, -ENOTSOCK),
        ("accept", sqe::op(IORING_OP_ACCEPT, r), -ENOTSOCK),
        ("connect", connect, -ENOTSOCK),
        ("shutdown", sqe::op(IORING_OP_SHUTDOWN, r), -ENOTSOCK),
        ("listen", sqe::op(IORING_OP_LISTEN, r), -ENOTSOCK),
        ("fsync", sqe::op(IORING_OP_FSYNC, r), -EINVAL),
        ("fallocate", sqe::op(IORING_OP_FALLOCATE, r).set(|s| s.addr = 4), -EBADF),
        ("truncate", sqe::op(IORING_OP_FTRUNCATE, r), -EINVAL),
        ("advise", sqe::op(IORING_OP_FADVISE, r).op_flags(99), -ESPIPE),
        ("open", open, -ENOENT),
        ("splice", splice.set(|s| s.file_index = 999), -EBADF),
        ("close", sqe::op(IORING_OP_CLOSE, 999), -EBADF),
        ("cancel", sqe::cancel(77, 0), -ENOENT),
        ("remove a poll", sqe::op(IORING_OP_POLL_REMOVE, -1), -ENOENT),
        ("remove a timeout", sqe::op(IORING_OP_TIMEOUT_REMOVE, -1), -ENOENT),
        ("poll of nothing", sqe::poll_add(999, 1), -EBADF),
        ("wait of a set", sqe::op(IORING_OP_EPOLL_WAIT, r).set(|s| s.len = 1), -EINVAL),
    ];
    each(cx, &mut ring, &ev, &rows)?;
    let dir = std::fs::File::open(cx.dir()?)?;
    let nothing = sqe::op(IORING_OP_READV, dir.as_raw_fd());
    cx.one(&mut ring, "nothing of a directory", nothing, 0);
    signalled_by_now(cx, "nothing of a directory", &ev);
    cx.one(&mut ring, "wait", wait.link(), -EAGAIN);
    signalled_by_now(cx, "wait", &ev);
    Ok(())
}

/// Runs each request by a worker, once by IOSQE_ASYNC and once in an open chain.
fn each(cx: &mut Cx, ring: &mut Ring, ev: &OwnedFd, rows: &[(&str, io_uring_sqe, i32)]) -> Outcome {
    for (what, sqe, want) in rows {
        for (how, sqe) in [("", sqe.with(IOSQE_ASYNC)), (", in a chain", sqe.link())] {
            ring.push(sqe).submit_wait(1);
            let res = ring.take(1)?[0].res;
            cx.is(&format!("{what}{how}"), res, *want);
            signalled_by_now(cx, &format!("{what}{how}"), ev);
        }
    }
    Ok(())
}

/// Creates a file that is on no disk, not even a modelled one.
fn memfd() -> Result<OwnedFd, Stop> {
    let file = rustix::fs::memfd_create(c"f", rustix::fs::MemfdFlags::CLOEXEC)?;
    rustix::io::write(&file, b"data")?;
    Ok(file)
}

fn dontwait_fails(cx: &mut Cx) -> Outcome {
    let (mut ring, ev) = ring_async(cx, 0)?;
    let (a, _b) = UnixStream::pair()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let nonblocking = TcpListener::bind("127.0.0.1:0")?;
    nonblocking.set_nonblocking(true)?;
    let (r, _w) = cx.pipe()?;
    let (mut buf, word) = ([0; 4], 7u32);
    let file = memfd()?;
    let (a, f) = (a.as_raw_fd(), file.as_raw_fd());
    let (l, n) = (listener.as_raw_fd(), nonblocking.as_raw_fd());
    let recv = sqe::rw(IORING_OP_RECV, a, addr(&buf), 4, 0);
    let dontwait = libc::MSG_DONTWAIT.cast_unsigned();
    let msg = super::net_msg::hdr(&[]);
    let recvmsg = sqe::rw(IORING_OP_RECVMSG, a, addr(&msg), 1, 0);
    let select = |s: io_uring_sqe| s.with(IOSQE_BUFFER_SELECT).set(|s| s.buf_index = 3);
    let futex = sqe::op(IORING_OP_FUTEX_WAIT, 2).set(|s| {
        (s.addr, s.off, s.addr3) = (addr(&word) as u64, 8, u64::from(u32::MAX));
    });
    let splice = sqe::rw(IORING_OP_SPLICE, f, 0, 4, u64::MAX).set(|s| {
        (s.addr, s.file_index) = (u64::MAX, r.as_raw_fd().cast_unsigned());
        s.op_flags = libc::SPLICE_F_NONBLOCK;
    });
    let accept = |fd, flags| sqe::op(IORING_OP_ACCEPT, fd).set(|s| s.ioprio = flags);
    let rows = [
        ("receive DONTWAIT", recv.op_flags(dontwait), -EAGAIN),
        ("receive message DONTWAIT", recvmsg.op_flags(dontwait), -EAGAIN),
        ("accept DONTWAIT, nonblocking", accept(n, IORING_ACCEPT_DONTWAIT), -EAGAIN),
        ("splice NONBLOCK", splice, -EAGAIN),
        ("futex", futex, -EAGAIN),
        ("receive, no buffer", select(recv), -ENOBUFS),
        ("receive message, no buffer", select(recvmsg), -ENOBUFS),
        ("read, no buffer", select(sqe::rw(IORING_OP_READ, f, 0, 4, 0)), -ENOBUFS),
        ("send, no buffer", select(sqe::rw(IORING_OP_SEND, a, 0, 4, 0)), -ENOENT),
        ("command of a pipe", sqe::op(IORING_OP_URING_CMD, r.as_raw_fd()), -EOPNOTSUPP),
        ("command of a socket", sqe::op(IORING_OP_URING_CMD, a).set(|s| s.off = 99), -EOPNOTSUPP),
        ("pipe", sqe::op(IORING_OP_PIPE, 0).set(|s| s.addr = BAD as u64), -EFAULT),
        ("socket", sqe::rw(IORING_OP_SOCKET, 77, 0, 0, 1), -EAFNOSUPPORT),
        ("bind", sqe::rw(IORING_OP_BIND, l, addr(&[0u8; 16]), 0, 16), -EINVAL),
        ("send of bad memory", sqe::rw(IORING_OP_SEND, a, BAD, 4, 0), -EFAULT),
        ("read of bad memory", sqe::rw(IORING_OP_READ, f, BAD, 4, 0), -EFAULT),
        ("write of bad memory", sqe::rw(IORING_OP_WRITE, f, BAD, 4, 0), -EFAULT),
        ("message to no ring", sqe::op(IORING_OP_MSG_RING, r.as_raw_fd()), -EBADFD),
        ("read at no position", sqe::read(f, &mut buf, 1 << 63), -EINVAL),
    ];
    each(cx, &mut ring, &ev, &rows)?;
    let first = IORING_ACCEPT_DONTWAIT | IORING_ACCEPT_POLL_FIRST;
    // Another pipe: splice(2) has cleared FMODE_NOWAIT of the first one.
    let (r, _w) = cx.pipe()?;
    let read = sqe::read(r.as_raw_fd(), &mut buf, 0).op_flags(8);
    for (what, sqe) in [
        ("accept, nonblocking, in a chain", accept(n, 0).link()),
        ("accept DONTWAIT", accept(l, IORING_ACCEPT_DONTWAIT).with(IOSQE_ASYNC)),
        ("accept DONTWAIT, POLL_FIRST", accept(l, first).with(IOSQE_ASYNC)),
        ("accept POLL_FIRST, in a chain", accept(l, IORING_ACCEPT_POLL_FIRST).link()),
        ("read NOWAIT", read.with(IOSQE_ASYNC)),
    ] {
        cx.one(&mut ring, what, sqe, -EAGAIN);
        signalled_by_now(cx, what, &ev);
    }
    Ok(())
}

fn continues_chain(cx: &mut Cx) -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let l = listener.as_raw_fd();
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 4];
    let accept = sqe::op(IORING_OP_ACCEPT, l).set(|s| s.ioprio = IORING_ACCEPT_POLL_FIRST).ud(2);
    let (a, b) = UnixStream::pair()?;
    let file = memfd()?;
    let send = sqe::rw(IORING_OP_SEND, r.as_raw_fd(), addr(&buf), 4, 0);
    let rows = [
        ("send to no socket", send, -ENOTSOCK, false),
        ("accept of no socket", sqe::op(IORING_OP_ACCEPT, r.as_raw_fd()), -ENOTSOCK, true),
        ("read of a write end", sqe::read(w.as_raw_fd(), &mut buf, 0), -EBADF, false),
        ("read of a file", sqe::read(file.as_raw_fd(), &mut buf, 0), 4, true),
        ("fsync of a pipe", sqe::op(IORING_OP_FSYNC, r.as_raw_fd()), -EINVAL, true),
        ("read that waits", sqe::read(r.as_raw_fd(), &mut buf, 0), 1, true),
        ("poll that waits", sqe::poll_add(a.as_raw_fd(), libc::POLLIN), 1, false),
    ];
    for (what, sqe, res, stays) in rows {
        for flags in [IOSQE_ASYNC, 0] {
            let mut ring = cx.ring(8, 0)?;
            let sqe = sqe.ud(1).with(flags | IOSQE_IO_HARDLINK);
            cx.start(&mut ring, &[sqe, accept.with(if flags == 0 { IOSQE_IO_LINK } else { 0 })]);
            if what.ends_with("waits") {
                cx.quiet(&ring, what, 50);
                let end = if what.starts_with("read") { w.as_fd() } else { b.as_fd() };
                rustix::io::write(end, b"x")?;
            }
            // Task work polls for the connection instead of the worker, and nobody connects.
            let want = [(1, res), (2, -EAGAIN)];
            cx.reap_in_order(&mut ring, what, &want[..1 + usize::from(stays)]);
            cx.quiet(&ring, "and no more", 5);
            if what == "poll that waits" {
                rustix::io::read(&a, &mut [0; 8])?;
            }
        }
    }
    Ok(())
}

/// Checks accepts that a worker arms without an attempt. A vain attempt ends the accept, and a
/// listener that does not report further connections causes one after each connection.
fn multishot_accept_dontwait(cx: &mut Cx) -> Outcome {
    let path = cx.dir()?.join("listener");
    for (what, unix, nonblocking, flags) in [
        ("TCP", false, false, IORING_ACCEPT_DONTWAIT),
        ("TCP, nonblocking", false, true, IORING_ACCEPT_DONTWAIT),
        ("UNIX", true, false, IORING_ACCEPT_DONTWAIT),
        ("UNIX, nonblocking", true, true, IORING_ACCEPT_DONTWAIT),
        ("UNIX, nonblocking, without DONTWAIT", true, true, 0),
    ] {
        let mut ring = cx.ring(8, 0)?;
        let tcp = TcpListener::bind("127.0.0.1:0")?;
        let _ = std::fs::remove_file(&path);
        let local = UnixListener::bind(&path)?;
        tcp.set_nonblocking(nonblocking)?;
        local.set_nonblocking(nonblocking)?;
        let fd = if unix { local.as_raw_fd() } else { tcp.as_raw_fd() };
        let accept = sqe::op(IORING_OP_ACCEPT, fd).with(IOSQE_ASYNC);
        cx.start(&mut ring, &[accept.set(|s| s.ioprio = IORING_ACCEPT_MULTISHOT | flags)]);
        cx.quiet(&ring, what, 10);
        let _tcp = TcpStream::connect(tcp.local_addr()?)?;
        let _unix = UnixStream::connect(&path)?;
        let got = ring.take(1)?;
        drop(os::own(got[0].res));
        cx.eq("accepted", got[0].flags & IORING_CQE_F_MORE, IORING_CQE_F_MORE);
        if unix && flags != 0 {
            cx.reap(&mut ring, "no more", &[(0, -EAGAIN)]);
        }
        cx.quiet(&ring, "that is all", 10);
    }
    Ok(())
}

fn deferred_eventfd(cx: &mut Cx) -> Outcome {
    let (mut ring, ev) = ring_async(cx, DEFER)?;
    let (r, w) = cx.pipe()?;
    let file = memfd()?;
    let (mut buf, ts) = ([0; 4], sqe::millis(3));
    let read = sqe::read(file.as_raw_fd(), &mut buf, 0);
    let poll = sqe::poll_add(r.as_raw_fd(), libc::POLLIN);
    let null = std::fs::File::open("/dev/null")?;
    let nothing = sqe::read(null.as_raw_fd(), &mut [], 0);
    let rows = [
        ("nop", sqe::nop(), 0),
        ("nop by a worker", sqe::nop().with(IOSQE_ASYNC), 0),
        ("task work", sqe::nop().op_flags(IORING_NOP_TW), 0),
        ("read by a worker", read.with(IOSQE_ASYNC), 4),
        ("read of nothing by a worker", nothing.with(IOSQE_ASYNC), 0),
        ("poll", poll, 1),
        ("timeout", sqe::timeout(&ts, 0, 0), -ETIME),
    ];
    for (what, sqe, want) in rows {
        cx.start(&mut ring, &[sqe.ud(1)]);
        if what == "poll" {
            rustix::io::write(&w, b"x")?;
        }
        signalled_by_now(cx, what, &ev);
        cx.reap(&mut ring, what, &[(1, want)]);
        signalled_by_now(cx, &format!("{what}: posted"), &ev);
    }
    let mut other = cx.ring(8, 0)?;
    let message = sqe::op(IORING_OP_MSG_RING, ring.fd);
    for (what, flags) in [("message", 0), ("message by a worker", IOSQE_ASYNC)] {
        cx.one(&mut other, what, message.with(flags), 0);
        signalled_by_now(cx, what, &ev);
        cx.reap(&mut ring, what, &[(0, 0)]);
        signalled_by_now(cx, &format!("{what}: posted"), &ev);
    }
    Ok(())
}

fn deferred_armed_request(cx: &mut Cx) -> Outcome {
    let (mut ring, ev) = ring_async(cx, DEFER)?;
    let (r, w) = cx.pipe()?;
    let ts = sqe::millis(1);
    let words: [Word; 2] = [Word::new(0), Word::new(0)];
    let entries = [entry(&words[0], 0, 0), entry(&words[1], 0, 0)];
    for (what, sqe) in [
        ("timeout", sqe::timeout(&ts, 0, 0)),
        ("timeout that counts", sqe::timeout(&sqe::millis(1000), 1, 0)),
        ("poll", sqe::poll_add(r.as_raw_fd(), libc::POLLIN)),
        ("futex", wait_on(&words[0], 0)),
        ("futex of another value", wait_on(&words[0], 1)),
        ("futexes", any_of(&entries)),
    ] {
        cx.start(&mut ring, &[sqe.with(IOSQE_ASYNC).ud(1)]);
        signalled_by_now(cx, what, &ev);
        match what {
            "timeout that counts" => cx.start(&mut ring, &[sqe::nop().ud(2)]),
            "poll" => drop(rustix::io::write(&w, b"x")?),
            _ => {}
        }
        os::futex_wake(&words[0], 9, u32::MAX);
        signalled_by_now(cx, &format!("{what}: ended"), &ev);
        cx.is("enter", ring.enter(0, 1, IORING_ENTER_GETEVENTS), 0);
        cx.note_cqes(what, &mut ring);
        signalled_by_now(cx, &format!("{what}: posted"), &ev);
    }
    Ok(())
}

fn deferred_poll_removed(cx: &mut Cx) -> Outcome {
    let (mut ring, ev) = ring_async(cx, DEFER)?;
    let (r, w) = cx.pipe()?;
    rustix::io::write(&w, b"x")?;
    let many =
        sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(1).set(|s| s.len = IORING_POLL_ADD_MULTI);
    let remove = sqe::rw(IORING_OP_POLL_REMOVE, -1, 1, 0, 0).ud(2);
    for (what, flags) in [("at once", 0), ("by a worker", IOSQE_ASYNC)] {
        cx.start(&mut ring, &[many.with(flags)]);
        signalled_by_now(cx, what, &ev);
        cx.start(&mut ring, &[remove]);
        signalled_by_now(cx, what, &ev);
        for _ in 0..2 {
            ring.enter(0, 0, IORING_ENTER_GETEVENTS);
        }
        cx.note_cqes(what, &mut ring);
        signalled_by_now(cx, what, &ev);
    }
    Ok(())
}
