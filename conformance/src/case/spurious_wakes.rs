//! Requests that are woken for another event, or for data that another request has taken.

use super::net::{fill, pair, recv, send};
use super::pbuf::{GROUP, reg, register, supply};
use super::prelude::*;
use crate::show;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::time::Duration;

pub const CASES: &[Case] = &[
    legal!("spurious_wakes", urgent_byte, [Op(IORING_OP_SEND)], "an incoming urgent byte does not end a bundle that waits for room"),
    case!("spurious_wakes", urgent_byte_waiting_send, [Op(IORING_OP_SEND), Op(IORING_OP_ASYNC_CANCEL)], "an urgent byte does not send a waiting send to a worker, and room wakes it"),
    any_order!("spurious_wakes", multishot_accept_shutdown, [Op(IORING_OP_ACCEPT)], "a multishot ACCEPT behind another still waits on a shut-down listener"),
    case!("spurious_wakes", error_already_received, [Op(IORING_OP_POLL_ADD)], "a poll does not report an error that a receive has taken"),
    any_order!("spurious_wakes", urgent_receive_shutdown, [Op(IORING_OP_RECV), Op(IORING_OP_SHUTDOWN)], "shutting down sending wakes a receive of an urgent byte"),
    any_order!("spurious_wakes", unix_send_shutdown, [Op(IORING_OP_SEND), Op(IORING_OP_WRITE)], "shutting down sending ends what waits for room on a unix stream"),
    case!("spurious_wakes", unix_send_shut, [Op(IORING_OP_SEND), Op(IORING_OP_WRITE), Op(IORING_OP_SHUTDOWN)], "what waits for room on a unix stream that is shut for sending ends, whoever shuts it"),
    any_order!("spurious_wakes", eventfd_zero_write, [Op(IORING_OP_POLL_ADD)], "a write of 0 wakes a poll of an eventfd"),
    any_order!("spurious_wakes", datagram_shutdown_in_worker, [Sqe(IOSQE_ASYNC), Op(IORING_OP_RECV), Op(IORING_OP_RECVMSG), Op(IORING_OP_READ)], "in a worker, a receive of datagrams ends with 0 on a socket that is shut down for receiving"),
    case!("spurious_wakes", ready_before_link_timeout, [Op(IORING_OP_POLL_ADD), Op(IORING_OP_LINK_TIMEOUT)], "a poll reports readiness before an expired timer ends it"),
];

/// Records the CQEs that came within a moment.
pub(super) fn note_cqes(cx: &mut Cx, ring: &mut Ring, what: &str) {
    std::thread::sleep(Duration::from_millis(30));
    // With DEFER_TASKRUN the CQE of a request that a timer cancels is posted one call later.
    for _ in 0..2 {
        ring.enter(0, 0, IORING_ENTER_GETEVENTS);
    }
    let got = ring.pop_all();
    let got: Vec<_> =
        got.iter().map(|c| (c.user_data, c.res, show::cqe_flags(c.flags))).collect();
    cx.note(what, format_args!("{got:?}"));
}

fn urgent_byte(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    cx.is("register", register(&ring, &reg(page, 8, 0)), 0isize);
    let mut mem = [7; 32];
    supply(page, 0, 8, &mut mem, 8);
    let (one, two) = UnixStream::pair()?;
    one.set_nonblocking(true)?;
    while (&one).write(&[7; 4096]).is_ok() {}
    one.set_nonblocking(false)?;
    let s = sqe::op(IORING_OP_SEND, one.as_raw_fd()).with(IOSQE_BUFFER_SELECT);
    let bundle = s.set(|s| (s.buf_index, s.ioprio) = (GROUP, IORING_RECVSEND_BUNDLE));
    cx.start(&mut ring, &[bundle.ud(1)]);
    rustix::net::send(&two, b"!", rustix::net::SendFlags::OOB)?;
    note_cqes(cx, &mut ring, "an urgent byte");
    drop(two);
    note_cqes(cx, &mut ring, "the end");
    Ok(())
}

fn urgent_byte_waiting_send(cx: &mut Cx) -> Outcome {
    for flags in [0, DEFER] {
        let mut ring = cx.ring(8, flags)?;
        let (one, mut two) = UnixStream::pair()?;
        one.set_nonblocking(true)?;
        let mut filled = 0;
        while let Ok(n) = (&one).write(&[7; 4096]) {
            filled += n;
        }
        let fd = one.as_raw_fd();
        cx.start(&mut ring, &[send(fd, b"a").ud(1), send(fd, b"b").ud(2)]);
        rustix::net::send(&two, b"!", rustix::net::SendFlags::OOB)?;
        note_cqes(cx, &mut ring, "an urgent byte");
        ring.push(sqe::cancel(1, 0).ud(3)).submit();
        note_cqes(cx, &mut ring, "cancelled");
        two.read_exact(&mut vec![0; filled])?;
        note_cqes(cx, &mut ring, "room");
    }
    Ok(())
}

fn multishot_accept_shutdown(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let path = cx.dir()?.join("listener");
    let listener = UnixListener::bind(path)?;
    let fd = listener.as_raw_fd();
    let accept = |how: u16| sqe::op(IORING_OP_ACCEPT, fd).set(|s| s.ioprio = how);
    let many = IORING_ACCEPT_MULTISHOT | IORING_ACCEPT_POLL_FIRST;
    let shut = sqe::op(IORING_OP_SHUTDOWN, fd).ud(3);
    cx.start(&mut ring, &[accept(0).ud(1), accept(many).ud(2), shut]);
    note_cqes(cx, &mut ring, "shut");
    cx.one(&mut ring, "cancel", sqe::cancel(2, 0).ud(4), 0);
    note_cqes(cx, &mut ring, "cancelled");
    Ok(())
}

fn error_already_received(cx: &mut Cx) -> Outcome {
    for events in [0, libc::POLLIN] {
        let mut ring = cx.ring(8, 0)?;
        let (one, mut two) = pair()?;
        let mut buf = [0; 4];
        let poll = sqe::poll_add(two.as_raw_fd(), events).ud(1);
        cx.start(&mut ring, &[poll, recv(two.as_raw_fd(), &mut buf).ud(2)]);
        two.write_all(b"never read")?;
        super::net::arrived(one.as_raw_fd(), 10);
        drop(one);
        note_cqes(cx, &mut ring, &format!("reset, {events}"));
    }
    Ok(())
}

fn ready_before_link_timeout(cx: &mut Cx) -> Outcome {
    for (many, flags) in [(0, 0), (IORING_POLL_ADD_MULTI, 0), (IORING_POLL_ADD_MULTI, DEFER)] {
        let mut ring = cx.ring(8, flags)?;
        let (r, w) = cx.pipe()?;
        rustix::io::write(&w, b"x")?;
        let past = sqe::millis(1000);
        let poll = sqe::poll_add(r.as_raw_fd(), libc::POLLIN).set(|s| s.len = many);
        let due = sqe::link_timeout(&past, IORING_TIMEOUT_ABS).ud(2);
        cx.start(&mut ring, &[poll.link().ud(1), due]);
        note_cqes(cx, &mut ring, "both");
    }
    Ok(())
}

fn urgent_receive_shutdown(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, _two) = pair()?;
    let mut buf = [0; 4];
    let urgent = recv(one.as_raw_fd(), &mut buf)
        .set(|s| (s.op_flags, s.ioprio) = (libc::MSG_OOB as u32, IORING_RECVSEND_POLL_FIRST));
    cx.start(&mut ring, &[urgent.ud(1)]);
    cx.quiet(&ring, "waits", 5);
    one.shutdown(std::net::Shutdown::Write)?;
    note_cqes(cx, &mut ring, "shut");
    Ok(())
}

/// Fills a unix stream, and starts `n` requests that wait for room there; their `user_data` is 1.
fn waiting_for_room(
    cx: &mut Cx,
    (setup, opcode, n): (u32, u8, usize),
) -> Result<(Ring, UnixStream, UnixStream), Stop> {
    static DATA: [u8; 4096] = [b'x'; 4096];
    let mut ring = cx.ring(8, setup)?;
    let (one, two) = UnixStream::pair()?;
    fill(&one)?;
    let waits = sqe::rw(opcode, one.as_raw_fd(), addr(&DATA), DATA.len(), 0);
    cx.start(&mut ring, &vec![waits.ud(1); n]);
    cx.quiet(&ring, "waits", 5);
    Ok((ring, one, two))
}

fn unix_send_shutdown(cx: &mut Cx) -> Outcome {
    os::catch(libc::SIGPIPE, 0);
    for opcode in [IORING_OP_SEND, IORING_OP_WRITE] {
        let (mut ring, one, _two) = waiting_for_room(cx, (0, opcode, 1))?;
        one.shutdown(std::net::Shutdown::Write)?;
        note_cqes(cx, &mut ring, "shut");
    }
    Ok(())
}

fn unix_send_shut(cx: &mut Cx) -> Outcome {
    os::catch(libc::SIGPIPE, 0);
    for setup in [0, DEFER] {
        for opcode in [IORING_OP_SEND, IORING_OP_WRITE] {
            for by_ring in [false, true] {
                let (mut ring, one, _two) = waiting_for_room(cx, (setup, opcode, 2))?;
                if by_ring {
                    let end = sqe::op(IORING_OP_SHUTDOWN, one.as_raw_fd()).set(|s| s.len = 1);
                    cx.start(&mut ring, &[end.with(IOSQE_CQE_SKIP_SUCCESS)]);
                } else {
                    one.shutdown(std::net::Shutdown::Write)?;
                }
                cx.reap(&mut ring, "shut", &[(1, -libc::EPIPE), (1, -libc::EPIPE)]);
            }
        }
    }
    Ok(())
}

fn eventfd_zero_write(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let ev = cx.eventfd(0)?;
    let poll = sqe::op(IORING_OP_POLL_ADD, ev.as_raw_fd()).op_flags(libc::POLLIN as u32);
    cx.start(&mut ring, &[poll.ud(1)]);
    rustix::io::write(&ev, &0u64.to_ne_bytes())?;
    note_cqes(cx, &mut ring, "nothing");
    Ok(())
}

/// Checks receives of a datagram socket that is shut down. The kernel's worker waits in recv(2)
/// after a vain wake-up, and recv(2) of a shut socket ends at once.
fn datagram_shutdown_in_worker(cx: &mut Cx) -> Outcome {
    for setup in [0, DEFER] {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(socket.local_addr()?)?;
        shut_datagrams_of(cx, setup, socket.into())?;
        let (one, _two) = UnixDatagram::pair()?;
        shut_datagrams_of(cx, setup, one.into())?;
    }
    Ok(())
}

fn shut_datagrams_of(cx: &mut Cx, setup: u32, socket: OwnedFd) -> Outcome {
    let fd = socket.as_raw_fd();
    let (mut buf, msg) = ([0; 4], super::net_msg::hdr(&[]));
    let receive = recv(fd, &mut buf);
    let first = receive.set(|s| s.ioprio = IORING_RECVSEND_POLL_FIRST);
    let message = sqe::rw(IORING_OP_RECVMSG, fd, addr(&msg), 1, 0);
    let dontwait = receive.op_flags(libc::MSG_DONTWAIT as u32);
    let parts = [libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: 4 }];
    let both = [receive.ud(1), receive.with(IOSQE_ASYNC).ud(2)];
    let mut ring = cx.ring(8, setup)?;
    cx.start(&mut ring, &both);
    cx.quiet(&ring, "nothing is there", 10);
    rustix::net::shutdown(&socket, rustix::net::Shutdown::Read)?;
    cx.reap(&mut ring, "shut meanwhile", &[(1, 0), (2, 0)]);
    for (what, sqe, res) in [
        ("receive", receive, 0),
        ("receive all", receive.op_flags(libc::MSG_WAITALL as u32), 0),
        ("receive, polled first", first, 0),
        ("receive without waiting", dontwait, -libc::EAGAIN),
        ("receive a message", message, 0),
        ("read", sqe::read(fd, &mut buf, 0), 0),
        ("read parts", sqe::rw(IORING_OP_READV, fd, addr(&parts), 1, 0), 0),
    ] {
        for (how, flags) in [("", 0), (" by a worker", IOSQE_ASYNC)] {
            let mut ring = cx.ring(8, setup)?;
            cx.one(&mut ring, &format!("{what}{how}"), sqe.with(flags), res);
        }
    }
    Ok(())
}
