//! Changes after Linux 6.18 to operations that existed before.

use super::net::{pair, recv, send};
use super::net_msg::{hdr, part};
use super::pbuf::{GROUP, reg, register, unregister};
use super::prelude::*;
use libc::{ENOTCONN, ENOTSOCK, sockaddr_in};
use std::net::{TcpListener, UdpSocket};
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    newest!("changed", immediate_timeout, [Op(IORING_OP_TIMEOUT)], "the SQE holds the time of a timeout"),
    newest!("changed", immediate_link_timeout, [Op(IORING_OP_LINK_TIMEOUT)], "the SQE holds the time of a linked timeout"),
    newest!("changed", immediate_timeout_update, [Op(IORING_OP_TIMEOUT_REMOVE)], "the SQE holds the time of a timeout update"),
    newest!("changed", socket_names, [Op(IORING_OP_URING_CMD)], "GETSOCKNAME returns a socket's name, and its peer's name"),
    newest!("changed", fixed_send, [Op(IORING_OP_SEND)], "SEND takes a registered buffer"),
    newest!("changed", fixed_recv, [Op(IORING_OP_RECV)], "RECV takes a registered buffer"),
    newest!("changed", fixed_vector, [Op(IORING_OP_SEND_ZC)], "SEND_ZC takes parts of a registered buffer"),
    newest!("changed", notification_user_data, [
        Op(IORING_OP_SEND_ZC), Op(IORING_OP_SENDMSG_ZC),
    ], "a zero-copy notification has its own user_data"),
    newest!("changed", min_left, [
        Reg(IORING_REGISTER_PBUF_RING),
    ], "a buffer with less than min_left bytes left is used up"),
    newest!("changed", min_left_refusals, [
        Reg(IORING_REGISTER_PBUF_RING), Reg(IORING_UNREGISTER_PBUF_RING),
    ], "only some buffer rings may have min_left"),
    newest!("changed", stricter_field_checks, [
        Op(IORING_OP_UNLINKAT), Op(IORING_OP_RECV),
    ], "words are checked, and a file that is not a socket is refused"),
    newest!("changed", message_cqe32, [Op(IORING_OP_MSG_RING)], "a 32-byte CQE goes only to rings with such CQEs"),
    newest!("changed", command_polled, [Op(IORING_OP_URING_CMD)], "commands on a polled ring"),
];

const NOW: u32 = IORING_TIMEOUT_IMMEDIATE_ARG;

/// Makes a timeout of `ns` nanoseconds.
fn timeout(ns: u64, flags: u32) -> io_uring_sqe {
    sqe::rw(IORING_OP_TIMEOUT, -1, 0, 1, 0).set(|s| s.addr = ns).op_flags(NOW | flags)
}

fn immediate_timeout(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let start = Instant::now();
    cx.one(&mut ring, "20 ms", timeout(20_000_000, 0), -ETIME);
    let took = start.elapsed();
    cx.holds("in time", took >= Duration::from_millis(20) && took < Duration::from_secs(2));
    let boot = IORING_TIMEOUT_ABS | IORING_TIMEOUT_BOOTTIME;
    cx.each(&mut ring, &[
        ("none", timeout(0, 0), -ETIME),
        ("in the past", timeout(1, IORING_TIMEOUT_ABS), -ETIME),
        ("in the past, real", timeout(1, IORING_TIMEOUT_ABS | IORING_TIMEOUT_REALTIME), -ETIME),
        ("in the past, since boot", timeout(1, boot), -ETIME),
        ("negative", timeout(1 << 63, 0), -EINVAL),
        ("all bits", timeout(u64::MAX, 0), -EINVAL),
        ("no length", timeout(1, 0).set(|s| s.len = 0), -EINVAL),
        ("the next flag", timeout(1, 1 << 8), -EINVAL),
        ("a success", timeout(1, IORING_TIMEOUT_ETIME_SUCCESS), -ETIME),
        ("two clocks", timeout(1, IORING_TIMEOUT_BOOTTIME | IORING_TIMEOUT_REALTIME), -EINVAL),
    ]);
    let many = timeout(1_000_000, IORING_TIMEOUT_MULTISHOT).set(|s| s.off = 3).ud(1);
    cx.start(&mut ring, &[many]);
    cx.reap_in_order(&mut ring, "three", &[(1, -ETIME), (1, -ETIME), (1, -ETIME)]);
    Ok(())
}

fn immediate_link_timeout(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, _w) = cx.pipe()?;
    let mut buf = [0u8; 4];
    let read = sqe::read(r.as_raw_fd(), &mut buf, 0).link().ud(1);
    let link = |ns: u64| timeout(ns, 0).set(|s| s.opcode = IORING_OP_LINK_TIMEOUT).ud(2);
    cx.batch(&mut ring, "20 ms", &[read, link(20_000_000)], &[(1, -ECANCELED), (2, -ETIME)]);
    cx.batch(&mut ring, "negative", &[read, link(1 << 63)], &[(1, -ECANCELED), (2, -EINVAL)]);
    Ok(())
}

fn immediate_timeout_update(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, _w) = cx.pipe()?;
    let update = |user_data: u64, ns: u64, flags: u32| {
        let s = sqe::op(IORING_OP_TIMEOUT_REMOVE, -1).set(|s| (s.addr, s.off) = (user_data, ns));
        s.op_flags(NOW | flags).ud(9)
    };
    const HOUR: u64 = 3_600_000_000_000;
    let plain = IORING_TIMEOUT_UPDATE;
    let linked = IORING_TIMEOUT_UPDATE | IORING_LINK_TIMEOUT_UPDATE;
    cx.start(&mut ring, &[timeout(HOUR, 0).ud(1)]);
    cx.each(&mut ring, &[
        ("negative", update(1, 1 << 63, plain), -EINVAL),
        ("a plain removal", update(1, 0, 0), -EINVAL),
        ("none of that name", update(2, 5, plain), -ENOENT),
        ("to a linked one", update(1, 5, linked), -ENOENT),
        ("without UPDATE", update(2, 5, IORING_LINK_TIMEOUT_UPDATE), -ENOENT),
        ("without UPDATE, negative", update(2, 1 << 63, IORING_LINK_TIMEOUT_UPDATE), -EINVAL),
        ("the next flag", update(1, 5, plain | 1 << 8), -EINVAL),
    ]);
    cx.batch(&mut ring, "5 ms", &[update(1, 5_000_000, plain)], &[(1, -ETIME), (9, 0)]);
    cx.start(&mut ring, &[timeout(HOUR, 0).ud(1)]);
    let past = update(1, 1, plain | IORING_TIMEOUT_ABS);
    cx.batch(&mut ring, "to the past", &[past], &[(1, -ETIME), (9, 0)]);
    let mut buf = [0u8; 4];
    let read = sqe::read(r.as_raw_fd(), &mut buf, 0).link().ud(3);
    let link = timeout(HOUR, 0).set(|s| s.opcode = IORING_OP_LINK_TIMEOUT).ud(4);
    cx.start(&mut ring, &[read, link]);
    let want = [(3, -ECANCELED), (4, -ETIME), (9, 0)];
    cx.batch(&mut ring, "a linked one", &[update(4, 5_000_000, linked)], &want);
    Ok(())
}

fn socket_names(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (one, two) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    one.connect(two.local_addr()?)?;
    let mut name = [0u64; 8];
    let mut len = 0i32;
    let at = (addr_mut(&mut name), addr_mut(&mut len));
    let ask = |fd: i32, peer: u32| {
        let s = sqe::op(IORING_OP_URING_CMD, fd);
        s.set(|s| {
            (s.off, s.file_index) = (SOCKET_URING_OP_GETSOCKNAME.into(), peer);
            (s.addr, s.addr3) = (at.0 as u64, at.1 as u64);
        })
    };
    let (u, l) = (one.as_raw_fd(), listener.as_raw_fd());
    let ports = [one.local_addr()?.port(), two.local_addr()?.port()];
    for (what, port, peer) in [("own", ports[0], 0), ("peer", ports[1], 1)] {
        for room in [64, 16, 4, 0] {
            os::store(at.1, &[room]);
            os::store(at.0, &[0u64; 8]);
            cx.one(&mut ring, &format!("{what}, room of {room}"), ask(u, peer), 0);
            cx.is("length", os::load(at.1), 16u32);
            let told = os::load(at.0) == u32::from(2u16) | u32::from(port.to_be()) << 16;
            cx.eq("its port", told, room >= 4);
        }
    }
    const SIZE: i32 = size_of::<sockaddr_in>() as i32;
    os::store(at.1, &[-1]);
    cx.one(&mut ring, "negative room", ask(u, 0), -EINVAL);
    os::store(at.1, &[SIZE]);
    cx.each(&mut ring, &[
        ("peer of a listener", ask(l, 1), -ENOTCONN),
        ("peer 2", ask(u, 2), -EINVAL),
        ("no place for the name", ask(u, 0).set(|s| s.addr = BAD as u64), -EFAULT),
        ("no length", ask(u, 0).set(|s| s.addr3 = BAD as u64), -EFAULT),
        ("an ioprio", ask(u, 0).set(|s| s.ioprio = 1), -EINVAL),
        ("a len", ask(u, 0).set(|s| s.len = 1), -EINVAL),
        ("a flag", ask(u, 0).op_flags(IORING_URING_CMD_FIXED), -EINVAL),
        ("a buffer", ask(u, 0).set(|s| s.buf_index = 1), 0),
        ("the last word", ask(u, 0).set(|s| s.pad2 = 1), 0),
        ("by a worker", ask(u, 0).with(IOSQE_ASYNC), 0),
        ("the next command", ask(u, 0).set(|s| s.off = 6), -EOPNOTSUPP),
    ]);
    Ok(())
}

/// Sets up a ring with one registered buffer.
fn with_buffer(cx: &mut Cx, mem: &mut [u8]) -> Result<Ring, Stop> {
    let ring = cx.ring(8, 0)?;
    let vec = [softring_uapi::iovec { base: addr_mut(mem) as u64, len: mem.len() as u64 }];
    cx.is("register", ring.register_slice(IORING_REGISTER_BUFFERS, &vec), 0);
    Ok(ring)
}

fn in_buffer(s: io_uring_sqe) -> io_uring_sqe {
    s.set(|s| s.ioprio |= IORING_RECVSEND_FIXED_BUF)
}

fn fixed_send(cx: &mut Cx) -> Outcome {
    let mut mem = *b"registered";
    let mut ring = with_buffer(cx, &mut mem)?;
    let (one, two) = pair()?;
    let file = cx.file("f", b"x")?;
    let fd = one.as_raw_fd();
    let s = in_buffer(send(fd, &mem[..5]));
    let more = |bits: u16| s.set(|s| s.ioprio |= bits);
    let nowhere = s.set(|s| s.fd = file.as_raw_fd());
    let parts = [part(&mem)];
    let message = hdr(&parts);
    let msg = sqe::rw(IORING_OP_SENDMSG, fd, addr(&message), 1, 0);
    cx.each(&mut ring, &[
        ("from the buffer", s, 5),
        ("by a worker", s.with(IOSQE_ASYNC), 5),
        ("polled first", more(IORING_RECVSEND_POLL_FIRST), 5),
        ("its middle", in_buffer(send(fd, &mem[3..6])), 3),
        ("no such buffer", s.set(|s| s.buf_index = 1), -EFAULT),
        ("beyond it", s.set(|s| s.len = 11), -EFAULT),
        ("before it", s.set(|s| s.addr -= 1), -EFAULT),
        ("nothing of it", s.set(|s| s.len = 0), 0),
        ("a bundle", more(IORING_RECVSEND_BUNDLE), -EINVAL),
        ("a vector", more(IORING_SEND_VECTORIZED), -EINVAL),
        ("a provided buffer", s.with(IOSQE_BUFFER_SELECT), -EINVAL),
        ("without the flag", send(fd, b"any").set(|s| s.buf_index = 1), 3),
        ("a message", in_buffer(msg), -EINVAL),
        ("to a file", nowhere, -ENOTSOCK),
        ("no such buffer, to a file", nowhere.set(|s| s.buf_index = 1), -ENOTSOCK),
        ("to nothing", s.set(|s| s.fd = -1), -EBADF),
    ]);
    let mut got = [0u8; 64];
    let n = cx.one(&mut ring, "what came", recv(two.as_raw_fd(), &mut got), 21).res;
    cx.note("bytes", super::net::seen(&got[..n.max(0) as usize]));
    Ok(())
}

fn fixed_vector(cx: &mut Cx) -> Outcome {
    super::net_zc::fixed_parts(cx)
}

fn fixed_recv(cx: &mut Cx) -> Outcome {
    let mut mem = [0u8; 8];
    let mut ring = with_buffer(cx, &mut mem)?;
    let (one, two) = pair()?;
    let file = cx.file("f", b"x")?;
    let (from, to) = (one.as_raw_fd(), two.as_raw_fd());
    let at = addr_mut(&mut mem) as u64;
    let r = in_buffer(sqe::op(IORING_OP_RECV, to).set(|s| (s.addr, s.len) = (at, 4)));
    let more = |bits: u16| r.set(|s| s.ioprio |= bits);
    cx.one(&mut ring, "send", send(from, b"abcdefgh"), 8);
    let mut message = hdr(&[]);
    let msg = sqe::rw(IORING_OP_RECVMSG, to, addr_mut(&mut message), 1, 0);
    cx.each(&mut ring, &[
        ("into the buffer", r, 4),
        ("by a worker", r.with(IOSQE_ASYNC).set(|s| (s.addr, s.len) = (at + 4, 2)), 2),
        ("no such buffer", r.set(|s| s.buf_index = 1), -EFAULT),
        ("beyond it", r.set(|s| s.len = 9), -EFAULT),
        ("a bundle", more(IORING_RECVSEND_BUNDLE), -EINVAL),
        ("multishot", more(IORING_RECV_MULTISHOT), -EINVAL),
        ("a provided buffer", r.with(IOSQE_BUFFER_SELECT), -EINVAL),
        ("a message", in_buffer(msg), -EINVAL),
        ("of a file", r.set(|s| s.fd = file.as_raw_fd()), -ENOTSOCK),
        ("the rest", r.set(|s| (s.addr, s.len) = (at + 6, 2)), 2),
    ]);
    cx.note("bytes", super::net::seen(std::hint::black_box(&mem)));
    ring.push(r.ud(7)).submit();
    cx.one(&mut ring, "send", send(from, b"late"), 4);
    cx.reap(&mut ring, "one that waited", &[(7, 4)]);
    Ok(())
}

fn notification_user_data(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, _two) = pair()?;
    let fd = one.as_raw_fd();
    let parts = [part(b"data")];
    let message = hdr(&parts);
    let zc = sqe::rw(IORING_OP_SEND_ZC, fd, addr(b"data"), 4, 0);
    let msg = sqe::rw(IORING_OP_SENDMSG_ZC, fd, addr(&message), 1, 0);
    for (what, s) in [("send", zc), ("message", msg)] {
        for own in [77, 0] {
            cx.start(&mut ring, &[s.set(|s| s.addr3 = own).ud(1)]);
            let name = if own == 0 { 1 } else { own };
            cx.reap_in_order(&mut ring, &format!("{what}, {own}"), &[(1, 4), (name, 0)]);
        }
        let bad = s.set(|s| (s.addr3, s.fd) = (77, -1)).ud(1);
        cx.start(&mut ring, &[bad]);
        cx.reap(&mut ring, &format!("{what} to nothing"), &[(1, -EBADF), (77, 0)]);
        cx.one(&mut ring, "the last word", s.set(|s| s.pad2 = 1), -EINVAL);
        cx.one(&mut ring, "no CQE", s.with(IOSQE_CQE_SKIP_SUCCESS), -EINVAL);
    }
    Ok(())
}

/// Registers a ring of `n` incremental buffers of 256 bytes.
fn incremental(cx: &mut Cx, ring: &Ring, mem: &mut [u8], min_left: u32) -> usize {
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    let reg = io_uring_buf_reg { min_left, ..reg(page, 4, IOU_PBUF_RING_INC) };
    cx.is("register", register(ring, &reg), 0isize);
    for i in 0..mem.len() / 256 {
        os::store(page + i * 16, &[(addr_mut(mem) + i * 256) as u64]);
        os::store(page + i * 16 + 8, &[256u32]);
        os::store(page + i * 16 + 12, &[i as u16]);
    }
    os::store(page + 14, &[(mem.len() / 256) as u16]);
    page
}

fn min_left(cx: &mut Cx) -> Outcome {
    let rows: [(u32, &[usize]); 4] =
        [(64, &[192, 10, 100, 93, 200]), (1, &[255, 1, 256]), (256, &[1, 1]), (1000, &[10, 10])];
    for (min, bytes) in rows {
        let mut ring = cx.ring(8, 0)?;
        let mut mem = [0u8; 1024];
        let at = addr_mut(&mut mem) as u64;
        let page = incremental(cx, &ring, &mut mem, min);
        let (r, w) = cx.pipe()?;
        for n in bytes {
            rustix::io::write(&w, &vec![b'x'; *n])?;
            let read = sqe::op(IORING_OP_READ, r.as_raw_fd()).with(IOSQE_BUFFER_SELECT);
            let read = read.set(|s| (s.buf_index, s.off) = (GROUP, u64::MAX));
            cx.one(&mut ring, &format!("{n} bytes, {min} to be left"), read, *n as i32);
            for i in 0..4 {
                let word = |n: usize| u64::from(os::load(page + i * 16 + n * 4));
                let entry = ((word(0) | word(1) << 32).wrapping_sub(at), word(2));
                cx.note("entry", format_args!("{entry:?}"));
            }
        }
        cx.is("unregister", unregister(&ring), 0isize);
    }
    Ok(())
}

fn min_left_refusals(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    let of = |flags: u16, min_left: u32| io_uring_buf_reg { min_left, ..reg(page, 4, flags) };
    cx.is("plain", register(&ring, &of(0, 1)), -(EINVAL as isize));
    cx.is("mapped", register(&ring, &of(IOU_PBUF_RING_MMAP, 1)), -(EINVAL as isize));
    cx.is("unknown flag", register(&ring, &of(4, 0)), -(EINVAL as isize));
    let mut dirty = of(IOU_PBUF_RING_INC, 1);
    dirty.resv[0] = 1;
    cx.is("reserved", register(&ring, &dirty), -(EINVAL as isize));
    cx.is("incremental", register(&ring, &of(IOU_PBUF_RING_INC, u32::MAX)), 0isize);
    let gone = io_uring_buf_reg { bgid: GROUP, min_left: 7, ..Default::default() };
    let got = ring.register(IORING_UNREGISTER_PBUF_RING, addr(&gone), 1);
    cx.is("unregister", got, 0);
    Ok(())
}

fn stricter_field_checks(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let path = cx.path("f")?;
    let file = cx.file("f", b"x")?;
    let event = cx.eventfd(1)?;
    let unlink = sqe::rw(IORING_OP_UNLINKAT, libc::AT_FDCWD, addr(&*path), 0, 0);
    let mut buf = [0u8; 4];
    let polled = recv(file.as_raw_fd(), &mut buf).set(|s| s.ioprio = IORING_RECVSEND_POLL_FIRST);
    cx.each(&mut ring, &[
        ("addr3", unlink.set(|s| s.addr3 = 1), -EINVAL),
        ("the word behind it", unlink.set(|s| s.pad2 = 1), -EINVAL),
        ("RECV of a file, polled first", polled, -ENOTSOCK),
        ("by a worker", polled.with(IOSQE_ASYNC), -ENOTSOCK),
        ("of an eventfd", polled.set(|s| s.fd = event.as_raw_fd()), -ENOTSOCK),
        ("with a buffer", polled.with(IOSQE_BUFFER_SELECT), -ENOTSOCK),
        ("neither", unlink, 0),
    ]);
    Ok(())
}

fn message_cqe32(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    for flags in [0, DEFER, IORING_SETUP_CQE32, IORING_SETUP_CQE_MIXED] {
        let mut to = cx.ring(8, flags)?;
        let msg = sqe::op(IORING_OP_MSG_RING, to.fd).set(|s| {
            (s.off, s.len, s.file_index) = (5, 7, IORING_CQE_F_32);
        });
        let msg = msg.op_flags(IORING_MSG_RING_FLAGS_PASS);
        let narrow = flags & (IORING_SETUP_CQE32 | IORING_SETUP_CQE_MIXED) == 0;
        let want = if narrow { -EINVAL } else { 0 };
        cx.one(&mut ring, &format!("to a ring of {flags:#x}"), msg, want);
        let slots = if flags == IORING_SETUP_CQE32 { 1 } else { 2 };
        cx.is("tail", to.cq_tail(), if narrow { 0 } else { slots });
        let cqe = to.pop();
        cx.note("CQE", format_args!("{cqe:?}"));
    }
    Ok(())
}

fn command_polled(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, IORING_SETUP_IOPOLL)?;
    let udp = UdpSocket::bind("127.0.0.1:0")?;
    let file = cx.file("f", b"x")?;
    let inq = sqe::op(IORING_OP_URING_CMD, udp.as_raw_fd());
    cx.each(&mut ring, &[
        ("SIOCINQ", inq, 0),
        ("of a file", inq.set(|s| s.fd = file.as_raw_fd()), -EOPNOTSUPP),
    ]);
    Ok(())
}
