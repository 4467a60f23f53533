//! Order in which a request's file, its socket, its buffer and its flags are checked.

use super::pbuf::{GROUP, provide, refill, reg, register};
use super::prelude::*;
use libc::{EBADF, EBADFD, ENOBUFS, ENOTSOCK, MSG_DONTWAIT};
use std::os::unix::net::UnixStream;

pub const CASES: &[Case] = &[
    legal!("no_socket", polled_first, [Sqe(IOSQE_BUFFER_SELECT), Op(IORING_OP_RECV)], "a RECV with POLL_FIRST checks for a socket before it picks a buffer"),
    any_order!("no_socket", path, [Sqe(IOSQE_BUFFER_SELECT)], "an O_PATH descriptor, or a closed one, fails before a buffer is picked"),
    legal!("no_socket", flags, [Op(IORING_OP_SENDMSG), Op(IORING_OP_SEND)], "a file that is not a socket fails before a bad flag or an empty vector"),
    any_order!("no_socket", nonblocking, [Op(IORING_OP_RECVMSG)], "in an unterminated chain a RECVMSG of a non-blocking socket does not wait"),
    case!("no_socket", linked_behind_memory_file, [Op(IORING_OP_READ), Reg(IORING_REGISTER_EVENTFD_ASYNC)], "a request linked behind I/O on a file in memory runs in a worker"),
];

fn select(opcode: u8, fd: i32) -> io_uring_sqe {
    sqe::op(opcode, fd).with(IOSQE_BUFFER_SELECT).set(|s| s.buf_index = GROUP)
}

fn polled_first(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let ready = cx.eventfd(1)?;
    let recv = select(IORING_OP_RECV, ready.as_raw_fd());
    let first = recv.set(|s| s.ioprio = IORING_RECVSEND_POLL_FIRST);
    let many = recv.set(|s| s.ioprio = IORING_RECV_MULTISHOT).with(IOSQE_ASYNC);
    let bundle = first.set(|s| s.ioprio |= IORING_RECVSEND_BUNDLE);
    cx.each(&mut ring, &[
        ("polled first", first, -ENOTSOCK),
        ("polled first, a bundle", bundle, -ENOTSOCK),
        ("multishot, by a worker", many, -ENOTSOCK),
    ]);
    let mut mem = [0u8; 8];
    // An epoll set can be polled, but refuses attempts that must not block.
    let set = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?;
    let many = many.set(|s| s.fd = set.as_raw_fd());
    cx.one(&mut ring, "multishot of an epoll set, by a worker", many, -ENOTSOCK);
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
    let cqe = cx.one(&mut ring, "polled first, with a buffer", first, -ENOTSOCK);
    cx.eq("flags", cqe.flags, 0);
    Ok(())
}

fn path(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let dir = cx.dir()?;
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    let path = rustix::fs::open(dir, flags, rustix::fs::Mode::empty())?;
    let dontwait = |s: io_uring_sqe| {
        s.op_flags(MSG_DONTWAIT.cast_unsigned()).set(|s| s.ioprio = IORING_RECVSEND_POLL_FIRST)
    };
    for (name, fd) in [("a path", path.as_raw_fd()), ("not open", 999)] {
        for (what, sqe) in [
            ("receive", select(IORING_OP_RECV, fd)),
            ("send", select(IORING_OP_SEND, fd)),
            ("receive polled first, which may not wait", dontwait(sqe::op(IORING_OP_RECV, fd))),
            ("read many", select(IORING_OP_READ_MULTISHOT, fd)),
        ] {
            cx.one(&mut ring, &format!("{name}: {what}"), sqe, -EBADF);
        }
        let mut mem = [0u8; 8];
        cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
        for what in ["read", "read again"] {
            let read = select(IORING_OP_READ, fd);
            let cqe = cx.one(&mut ring, &format!("{name}: {what}"), read, -EBADF);
            cx.eq("flags", cqe.flags, 0);
        }
        let remove = sqe::op(IORING_OP_REMOVE_BUFFERS, 1).set(|s| s.buf_index = GROUP);
        cx.one(&mut ring, "the buffer is still there", remove, 1);
    }
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    cx.is("a ring of buffers", register(&ring, &reg(page, 4, 0)), 0isize);
    let mut mem = [0u8; 8];
    refill(page, 0, 8, &mut mem);
    let read = select(IORING_OP_READ, path.as_raw_fd());
    cx.one(&mut ring, "read into a ring's", read, -EBADF);
    let mut status = io_uring_buf_status { buf_group: GROUP.into(), ..Default::default() };
    cx.is("status", ring.register_struct(IORING_REGISTER_PBUF_STATUS, &mut status, 1), 0);
    cx.is("head", status.head, 0u32);
    let off = io_uring_buf_reg { bgid: GROUP, ..Default::default() };
    cx.is("no ring", ring.register(IORING_UNREGISTER_PBUF_RING, addr(&off), 1), 0);
    let (_r, w) = cx.pipe()?;
    let read = select(IORING_OP_READ, w.as_raw_fd());
    cx.one(&mut ring, "no buffer, not open for reading", read, -ENOBUFS);
    Ok(())
}

fn flags(cx: &mut Cx) -> Outcome {
    const MSG_CMSG_COMPAT: u32 = 0x8000_0000;
    let mut ring = cx.ring(8, 0)?;
    let file = cx.file("f", b"")?;
    let msg = super::net_msg::hdr(&[]);
    let message = |opcode, fd| sqe::rw(opcode, fd, addr(&msg), 1, 0).op_flags(MSG_CMSG_COMPAT);
    for (what, opcode) in [("send", IORING_OP_SENDMSG), ("receive", IORING_OP_RECVMSG)] {
        cx.one(&mut ring, what, message(opcode, file.as_raw_fd()), -ENOTSOCK);
    }
    let read = sqe::rw(IORING_OP_READV, file.as_raw_fd(), KERNEL, 0, 0);
    cx.one(&mut ring, "a read into no parts", read, 0);
    Ok(())
}

fn nonblocking(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (socket, _peer) = UnixStream::pair()?;
    socket.set_nonblocking(true)?;
    let msg = super::net_msg::hdr(&[]);
    let recv = sqe::rw(IORING_OP_RECVMSG, socket.as_raw_fd(), addr(&msg), 1, 0);
    cx.one(&mut ring, "in an open chain", recv.link(), -libc::EAGAIN);
    cx.start(&mut ring, &[recv.with(IOSQE_ASYNC).ud(1)]);
    cx.quiet(&ring, "asked to be a worker's", 20);
    cx.batch(&mut ring, "cancelled", &[sqe::cancel(1, 0).ud(2)], &[(1, -ECANCELED), (2, 0)]);
    Ok(())
}

fn linked_behind_memory_file(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let memory = rustix::fs::memfd_create(c"f", rustix::fs::MemfdFlags::CLOEXEC)?;
    let null = std::fs::File::open("/dev/null")?;
    let (socket, _peer) = UnixStream::pair()?;
    socket.set_nonblocking(true)?;
    let (msg, mut buf) = (super::net_msg::hdr(&[]), [0; 4]);
    let many = select(IORING_OP_RECV, null.as_raw_fd()).set(|s| s.ioprio = IORING_RECV_MULTISHOT);
    let message = sqe::rw(IORING_OP_RECVMSG, socket.as_raw_fd(), addr(&msg), 1, 0);
    let write = sqe::write(memory.as_raw_fd(), b"data", 0).ud(1).link();
    let read = sqe::read(memory.as_raw_fd(), &mut buf, 0).ud(1).link();
    for (what, before) in [("a write", write), ("a read", read)] {
        for (next, sqe, want) in
            [("no file to poll", many, -EBADFD), ("nonblocking", message, -libc::EAGAIN)]
        {
            let both = [before, sqe.ud(2)];
            cx.batch(&mut ring, &format!("{what}, then {next}"), &both, &[(1, 4), (2, want)]);
        }
    }
    let count = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK)?;
    let fd = [count.as_raw_fd()];
    cx.is("register", ring.register_slice(IORING_REGISTER_EVENTFD_ASYNC, &fd), 0);
    let alone = sqe::read(memory.as_raw_fd(), &mut buf, 0);
    cx.one(&mut ring, "a read alone", alone, 4);
    std::thread::sleep(std::time::Duration::from_millis(5));
    cx.note("told of by a worker", rustix::io::read(&count, &mut [0; 8]).is_ok());
    Ok(())
}
