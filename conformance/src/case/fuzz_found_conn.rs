//! Answers of connections that random programs have found: each was once different on softring.

use super::pbuf::{GROUP, provide, refill, reg, register};
use super::prelude::*;
use libc::{ECONNABORTED, ECONNREFUSED, SHUT_RD};
use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::IntoRawFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

pub const CASES: &[Case] = &[
    any_order!("fuzz_found_conn", accept_on_shut_listener, [Op(IORING_OP_ACCEPT)], "a waiting ACCEPT learns that a local listener is shut down, an attempt does not"),
    legal!("fuzz_found_conn", second_connect_fails, [Op(IORING_OP_CONNECT)], "a second connect of a worker that fails leaves the socket unconnected"),
    legal!("fuzz_found_conn", connect_in_chain, [Op(IORING_OP_CONNECT), Sqe(IOSQE_IO_LINK)], "a worker that continues a chain tries once on a socket whose last connect failed"),
    case!("fuzz_found_conn", peer_close_after_batch, [Op(IORING_OP_CLOSE), Op(IORING_OP_SEND)], "a closed peer goes away after the batch"),
    case!("fuzz_found_conn", cancel_by_path_fd, [Reg(IORING_REGISTER_SYNC_CANCEL)], "an O_PATH descriptor names no file to cancel by"),
    any_order!("fuzz_found_conn", poll_first_before_buffer, [Op(IORING_OP_SEND_ZC)], "in a worker, POLL_FIRST fails before the buffer is looked up"),
    legal!("fuzz_found_conn", read_of_ring, [Op(IORING_OP_READ), Sqe(IOSQE_BUFFER_SELECT)], "a read of a ring picks a buffer before it fails"),
    any_order!("fuzz_found_conn", cancel_in_worker, [Op(IORING_OP_ASYNC_CANCEL)], "a cancel in a worker runs after ready requests have ended"),
    any_order!("fuzz_found_conn", unix_error_queue, [Op(IORING_OP_RECV)], "a read of the error queue of a local socket waits for data in a worker"),
    case!("fuzz_found_conn", poll_remove_behind_wake, [Op(IORING_OP_POLL_REMOVE), Sqe(IOSQE_IO_LINK)], "a POLL_REMOVE linked behind a wake-up finds that the poll has completed"),
    legal!("fuzz_found_conn", chain_behind_ring, [Op(IORING_OP_FTRUNCATE), Sqe(IOSQE_IO_LINK)], "a chain goes on after a request that a ring refuses, if it would go on for a file"),
];

fn poll_remove_behind_wake(cx: &mut Cx) -> Outcome {
    for many in [0, IORING_POLL_ADD_MULTI] {
        let (one, two) = UnixDatagram::pair()?;
        let mut ring = cx.ring(8, 0)?;
        let poll = sqe::poll_add(one.as_raw_fd(), libc::POLLIN).set(|s| s.len = many).ud(1);
        cx.start(&mut ring, &[poll]);
        let send = sqe::rw(IORING_OP_SEND, two.as_raw_fd(), addr(b"data"), 4, 0).link().ud(2);
        let remove = sqe::rw(IORING_OP_POLL_REMOVE, -1, 1, 0, 0).ud(3);
        cx.start(&mut ring, &[send, remove]);
        std::thread::sleep(std::time::Duration::from_millis(5));
        for got in ring.pop_all() {
            cx.note("told", format_args!("{} {} {:#x}", got.user_data, got.res, got.flags));
        }
    }
    Ok(())
}

fn chain_behind_ring(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let buf = [0u8; 8];
    let next = sqe::nop().ud(2);
    let cut = sqe::op(IORING_OP_FTRUNCATE, ring.fd).link().ud(1);
    cx.batch(&mut ring, "cut short", &[cut, next], &[(1, -EINVAL), (2, 0)]);
    let write = sqe::rw(IORING_OP_WRITE, ring.fd, addr(&buf), 8, 0).link().ud(1);
    cx.batch(&mut ring, "written", &[write, next], &[(1, -EINVAL), (2, -ECANCELED)]);
    let extend = sqe::op(IORING_OP_FALLOCATE, ring.fd).set(|s| s.addr = 8).link().ud(1);
    cx.start(&mut ring, &[extend, next]);
    for got in ring.take(2)? {
        cx.note("extended", format_args!("{} {}", got.user_data, got.res));
    }
    Ok(())
}

fn unix_error_queue(cx: &mut Cx) -> Outcome {
    for blocks in [true, false] {
        let (one, mut two) = UnixStream::pair()?;
        one.set_nonblocking(!blocks)?;
        let (mut ring, mut mem) = (cx.ring(8, 0)?, [0u8; 8]);
        let recv = sqe::rw(IORING_OP_RECV, one.as_raw_fd(), addr_mut(&mut mem), 8, 0);
        let recv = recv.op_flags(libc::MSG_ERRQUEUE as u32).ud(2);
        cx.start(&mut ring, &[sqe::nop().with(IOSQE_ASYNC | IOSQE_IO_LINK).ud(1), recv]);
        std::thread::sleep(std::time::Duration::from_millis(5));
        two.write_all(b"data")?;
        cx.reap(&mut ring, "data", &[(1, 0), (2, 4)]);
    }
    Ok(())
}

fn cancel_in_worker(cx: &mut Cx) -> Outcome {
    let cancel = sqe::rw(IORING_OP_ASYNC_CANCEL, -1, 1, 0, 0).ud(4);
    let any = cancel.op_flags(IORING_ASYNC_CANCEL_ANY);
    for (what, cancel, want) in [("one", cancel, -ENOENT), ("any", any, 0)] {
        let (one, two) = UnixDatagram::pair()?;
        let mut ring = cx.ring(8, 0)?;
        let mut mem = [0u8; 8];
        let into = addr_mut(&mut mem);
        let recv = sqe::rw(IORING_OP_RECV, one.as_raw_fd(), into, 8, 0).ud(1);
        cx.start(&mut ring, &[recv]);
        let send = sqe::rw(IORING_OP_SEND, two.as_raw_fd(), addr(b"data"), 4, 0).link().ud(2);
        let chain = [send, sqe::nop().with(IOSQE_ASYNC).link().ud(3), cancel];
        cx.batch(&mut ring, what, &chain, &[(1, 4), (2, 4), (3, 0), (4, want)]);
    }
    Ok(())
}

fn accept_on_shut_listener(cx: &mut Cx) -> Outcome {
    let poll_first = IORING_ACCEPT_POLL_FIRST;
    for blocks in [true, false] {
        for many in [0, IORING_ACCEPT_MULTISHOT, IORING_ACCEPT_MULTISHOT | poll_first, poll_first] {
            let mut ring = cx.ring(8, 0)?;
            let listener = UnixListener::bind(cx.dir()?.join(format!("l{blocks}{many}")))?;
            listener.set_nonblocking(!blocks)?;
            let shut = sqe::rw(IORING_OP_SHUTDOWN, listener.as_raw_fd(), 0, SHUT_RD as usize, 0);
            cx.one(&mut ring, "shut", shut, 0);
            let accept = sqe::op(IORING_OP_ACCEPT, listener.as_raw_fd());
            cx.start(&mut ring, &[accept.set(|s| s.ioprio = many).ud(1)]);
            std::thread::sleep(std::time::Duration::from_millis(40));
            let got: Vec<_> = ring.pop_all().iter().map(|c| c.res).collect();
            cx.note("accept", format_args!("{blocks} {many}: {got:?}"));
        }
    }
    Ok(())
}

fn second_connect_fails(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let at = os::loopback(listener.local_addr()?.port());
    drop(listener);
    for second in [0, IOSQE_ASYNC] {
        let make = sqe::op(IORING_OP_SOCKET, libc::AF_INET).set(|s| s.off = 1);
        let sock = cx.one_fd(&mut ring, "socket", make)?;
        let connect = sqe::rw(IORING_OP_CONNECT, sock.as_raw_fd(), addr(&at), 0, 16);
        for flags in [0, second, IOSQE_ASYNC] {
            cx.one(&mut ring, "refused", connect.with(flags), -ECONNREFUSED);
            cx.note("ready", format_args!("{:#x}", os::poll(sock.as_raw_fd(), libc::POLLIN, 0)));
        }
    }
    Ok(())
}

fn connect_in_chain(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let at = os::loopback(listener.local_addr()?.port());
    drop(listener);
    let make = sqe::op(IORING_OP_SOCKET, libc::AF_INET).set(|s| s.off = 1);
    let sock = cx.one_fd(&mut ring, "socket", make)?;
    let connect = sqe::rw(IORING_OP_CONNECT, sock.as_raw_fd(), addr(&at), 0, 16);
    cx.one(&mut ring, "refused", connect, -ECONNREFUSED);
    cx.one(&mut ring, "the last one has failed", connect.link(), -ECONNABORTED);
    cx.one(&mut ring, "refused again", connect.link(), -ECONNREFUSED);
    Ok(())
}

fn peer_close_after_batch(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = std::os::unix::net::UnixStream::pair()?;
    let closes = sqe::op(IORING_OP_CLOSE, one.into_raw_fd()).ud(1);
    let send = sqe::rw(IORING_OP_SEND, two.as_raw_fd(), addr(b"x"), 1, 0).ud(2);
    cx.batch(&mut ring, "still there", &[closes, send], &[(1, 0), (2, 1)]);
    cx.one(&mut ring, "gone", send, -EPIPE);
    Ok(())
}

fn cancel_by_path_fd(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let flags = rustix::fs::OFlags::PATH;
    let path = rustix::fs::open("/", flags, rustix::fs::Mode::empty())?;
    let mut reg = io_uring_sync_cancel_reg {
        fd: path.as_raw_fd(),
        flags: IORING_ASYNC_CANCEL_FD,
        ..Default::default()
    };
    cx.is("cancel", ring.register_struct(IORING_REGISTER_SYNC_CANCEL, &mut reg, 1), -EBADF);
    let fd = [path.as_raw_fd()];
    cx.is("files", ring.register_slice(IORING_REGISTER_FILES, &fd), -EBADF);
    cx.is("eventfd", ring.register_slice(IORING_REGISTER_EVENTFD, &fd), -EBADF);
    Ok(())
}

fn poll_first_before_buffer(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let udp = UdpSocket::bind("127.0.0.1:0")?;
    let first = IORING_RECVSEND_POLL_FIRST | IORING_RECVSEND_FIXED_BUF;
    let send = sqe::op(IORING_OP_SEND_ZC, udp.as_raw_fd()).set(|s| s.ioprio = first).ud(1);
    for (what, flags, want) in [
        ("alone", 0, -EFAULT),
        ("an open chain", IOSQE_IO_LINK, -EAGAIN),
        ("in a worker", IOSQE_ASYNC, -EFAULT),
    ] {
        cx.start(&mut ring, &[send.with(flags)]);
        cx.reap(&mut ring, what, &[(1, want), (1, 0)]);
    }
    Ok(())
}

fn read_of_ring(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let read = sqe::op(IORING_OP_READ, ring.fd).with(IOSQE_BUFFER_SELECT);
    let read = read.set(|s| (s.buf_index, s.op_flags) = (GROUP, 8));
    cx.one(&mut ring, "no group", read, -libc::ENOBUFS);
    let mut mem = [0u8; 16];
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
    for what in ["a list", "the rest of it"] {
        let got = cx.one(&mut ring, what, read, -EOPNOTSUPP);
        cx.note("it names its buffer", format_args!("{:#x}", got.flags));
    }
    cx.one(&mut ring, "used up", read, -libc::ENOBUFS);
    let mut ring = cx.ring(8, 0)?;
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    let read = read.set(|s| s.fd = ring.fd);
    cx.is("register", register(&ring, &reg(page, 4, 0)), 0isize);
    refill(page, 0, 4, &mut mem);
    for what in ["a ring of buffers", "again"] {
        let got = cx.one(&mut ring, what, read, -EOPNOTSUPP);
        cx.note("it names its buffer", format_args!("{:#x}", got.flags));
    }
    Ok(())
}
