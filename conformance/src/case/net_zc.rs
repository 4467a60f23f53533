//! SEND_ZC and SENDMSG_ZC: a result, and a notification that the buffer is free.

use super::net::pair;
use super::net_msg::{hdr, part};
use super::prelude::*;
use libc::{ENOTSOCK, MSG_DONTWAIT, MSG_WAITALL};
use std::io::Read;
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;

pub const CASES: &[Case] = &[
    any_order!("net_zc", send, [Op(IORING_OP_SEND_ZC)], "SEND_ZC posts a result with F_MORE, then a notification"),
    any_order!("net_zc", message, [Op(IORING_OP_SENDMSG_ZC)], "SENDMSG_ZC posts a result with F_MORE, then a notification"),
    any_order!("net_zc", usage, [Op(IORING_OP_SEND_ZC), Op(IORING_OP_SENDMSG_ZC)], "the notification reports a copy"),
    any_order!("net_zc", fixed, [Op(IORING_OP_SEND_ZC), Op(IORING_OP_SENDMSG_ZC)], "SEND_ZC from a registered buffer"),
    any_order!("net_zc", fixed_parts, [Op(IORING_OP_SEND_ZC), Op(IORING_OP_SENDMSG_ZC)], "SEND_ZC of parts of a registered buffer, of length 0, and of none"),
    any_order!("net_zc", fixed_polled_first, [Op(IORING_OP_SEND_ZC), Op(IORING_OP_SENDMSG_ZC)], "POLL_FIRST delays the lookup of the registered buffer"),
    any_order!("net_zc", refusals, [Op(IORING_OP_SEND_ZC)], "some refused sends post a notification, others do not"),
    any_order!("net_zc", message_refusals, [Op(IORING_OP_SENDMSG_ZC)], "some refused messages post a notification, others do not"),
    any_order!("net_zc", datagram, [Op(IORING_OP_SEND_ZC)], "SEND_ZC to an address"),
    any_order!("net_zc", chains, [Op(IORING_OP_SEND_ZC)], "SEND_ZC in broken and whole chains"),
    case!("net_zc", waits, [Op(IORING_OP_SEND_ZC)], "SEND_ZC with MSG_WAITALL sends all over several waits"),
];

fn zc(fd: i32, buf: &[u8]) -> io_uring_sqe {
    sqe::rw(IORING_OP_SEND_ZC, fd, addr(buf), buf.len(), 0)
}

fn msg(fd: i32, h: &softring_uapi::msghdr) -> io_uring_sqe {
    sqe::rw(IORING_OP_SENDMSG_ZC, fd, addr(h), 1, 0)
}

/// Checks one request and its CQEs: its own, then, if that has F_MORE, the notification.
fn both(cx: &mut Cx, ring: &mut Ring, what: &str, s: io_uring_sqe, want: i32) -> Outcome {
    let got = cx.one(ring, what, s.ud(5), want);
    if got.flags & IORING_CQE_F_MORE != 0 {
        let got = ring.take(1)?[0];
        let (own, flags) = (got.user_data == 5, got.flags == IORING_CQE_F_NOTIF);
        cx.note("notified", format_args!("{} {}", got.res, own && flags));
    }
    Ok(())
}

fn send(cx: &mut Cx) -> Outcome {
    for flags in [0, DEFER] {
        let mut ring = cx.ring(8, flags)?;
        let (one, mut two) = pair()?;
        let fd = one.as_raw_fd();
        both(cx, &mut ring, "send", zc(fd, b"hello"), 5)?;
        both(cx, &mut ring, "by a worker", zc(fd, b"hello").with(IOSQE_ASYNC), 5)?;
        let first = zc(fd, b"hello").set(|s| s.ioprio = IORING_RECVSEND_POLL_FIRST);
        both(cx, &mut ring, "polled first", first, 5)?;
        both(cx, &mut ring, "nothing", zc(fd, b""), 0)?;
        let parts = [part(b"abc"), part(b"de")];
        let vector = zc(fd, b"").set(|s| (s.addr, s.len) = (addr(&parts) as u64, 2));
        let vector = vector.set(|s| s.ioprio = IORING_SEND_VECTORIZED);
        both(cx, &mut ring, "a vector", vector, 5)?;
        let mut buf = [0u8; 20];
        two.read_exact(&mut buf)?;
        cx.holds("data", &buf == b"hellohellohelloabcde");
    }
    Ok(())
}

fn message(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, mut two) = pair()?;
    let parts = [part(b"abc"), part(b"defg")];
    let h = hdr(&parts);
    both(cx, &mut ring, "send", msg(one.as_raw_fd(), &h), 7)?;
    both(cx, &mut ring, "by a worker", msg(one.as_raw_fd(), &h).with(IOSQE_ASYNC), 7)?;
    let mut buf = [0u8; 14];
    two.read_exact(&mut buf)?;
    cx.holds("data", &buf == b"abcdefgabcdefg");
    Ok(())
}

fn fixed_polled_first(cx: &mut Cx) -> Outcome {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let (ready, _two) = pair()?;
    let parts = [part(b"abc")];
    let h = hdr(&parts);
    let first = IORING_RECVSEND_POLL_FIRST | IORING_RECVSEND_FIXED_BUF;
    for (what, fd) in [("ready", ready.as_raw_fd()), ("never ready", listener.as_raw_fd())] {
        for flags in [0, IOSQE_ASYNC] {
            for sqe in [zc(fd, b"abc"), msg(fd, &h)] {
                let mut ring = cx.ring(8, 0)?;
                let sqe = sqe.set(|s| s.ioprio = first).with(flags).ud(1);
                cx.start(&mut ring, &[sqe]);
                std::thread::sleep(std::time::Duration::from_millis(10));
                let got: Vec<_> = ring.pop_all().iter().map(|c| (c.res, c.flags)).collect();
                cx.note(what, format_args!("{} {flags}: {got:?}", sqe.opcode));
            }
        }
    }
    Ok(())
}

fn usage(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, _two) = pair()?;
    let parts = [part(b"abc")];
    let report = |s: io_uring_sqe| s.set(|s| s.ioprio = IORING_SEND_ZC_REPORT_USAGE);
    both(cx, &mut ring, "send", report(zc(one.as_raw_fd(), b"hello")), 5)?;
    both(cx, &mut ring, "message", report(msg(one.as_raw_fd(), &hdr(&parts))), 3)?;
    both(cx, &mut ring, "nothing", report(zc(one.as_raw_fd(), b"")), 0)?;
    Ok(())
}

fn fixed(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, mut two) = pair()?;
    let fd = one.as_raw_fd();
    let mem = *b"registered";
    let from = |s: io_uring_sqe| s.set(|s| s.ioprio = IORING_RECVSEND_FIXED_BUF);
    both(cx, &mut ring, "no table", from(zc(fd, &mem)), -EFAULT)?;
    let table = [part(&mem)];
    cx.is("register", ring.register_slice(IORING_REGISTER_BUFFERS, &table), 0);
    both(cx, &mut ring, "all", from(zc(fd, &mem)), 10)?;
    both(cx, &mut ring, "some", from(zc(fd, &mem[2..5])), 3)?;
    both(cx, &mut ring, "past it", from(zc(fd, &mem)).set(|s| s.len = 11), -EFAULT)?;
    both(cx, &mut ring, "no such", from(zc(fd, &mem)).set(|s| s.buf_index = 1), -EFAULT)?;
    let parts = [part(&mem[..3]), part(&mem[5..])];
    both(cx, &mut ring, "message", from(msg(fd, &hdr(&parts))), 8)?;
    let other = *b"elsewhere";
    let parts = [part(&other)];
    both(cx, &mut ring, "elsewhere", from(msg(fd, &hdr(&parts))), -EFAULT)?;
    let mut buf = [0u8; 21];
    two.read_exact(&mut buf)?;
    cx.holds("data", &buf == b"registeredgisregtered");
    Ok(())
}

/// Records the CQEs of a request, whatever they are.
fn answer(cx: &mut Cx, ring: &mut Ring, what: &str, s: io_uring_sqe) -> Outcome {
    ring.push(s).submit_wait(1);
    let got = ring.take(1)?[0];
    cx.note_answer(what, got.res);
    ring.take(usize::from(got.flags & IORING_CQE_F_MORE != 0))?;
    Ok(())
}

pub fn fixed_parts(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, mut two) = pair()?;
    let file = cx.file("f", b"")?;
    let mem = *b"registered";
    let (none, some) = (part(&mem[..0]), part(&mem[..3]));
    for table in [false, true] {
        if table {
            cx.is("register", ring.register_slice(IORING_REGISTER_BUFFERS, &[part(&mem)]), 0);
        }
        for (what, parts) in [
            ("none", &[][..]),
            ("one of no length", &[none]),
            ("one", &[some]),
            ("one of no length first", &[none, some]),
            ("one of no length last", &[some, none]),
            ("one of no length elsewhere", &[part(b"")]),
        ] {
            cx.note("parts", format_args!("{what}, with a table: {table}"));
            let (h, len) = (hdr(parts), parts.len() as u32);
            for (to, fd) in [("a socket", one.as_raw_fd()), ("a file", file.as_raw_fd())] {
                let vector = zc(fd, b"").set(|s| (s.addr, s.len) = (addr(parts) as u64, len));
                let vector = vector.set(|s| s.ioprio = IORING_SEND_VECTORIZED);
                for (how, s) in [("message", msg(fd, &h)), ("vector", vector)] {
                    let s = s.set(|s| s.ioprio |= IORING_RECVSEND_FIXED_BUF);
                    answer(cx, &mut ring, &format!("{how} to {to}"), s)?;
                    answer(cx, &mut ring, "in a worker", s.with(IOSQE_ASYNC))?;
                }
            }
        }
    }
    let refused = zc(one.as_raw_fd(), &mem).set(|s| {
        s.ioprio = IORING_RECVSEND_FIXED_BUF | IORING_SEND_VECTORIZED;
    });
    for (what, s) in [
        ("address nowhere", refused.set(|s| (s.off, s.file_index) = (KERNEL as u64, 16))),
        ("address too long", refused.set(|s| (s.off, s.file_index) = (8, 129))),
        ("vector nowhere", refused.set(|s| (s.addr, s.len) = (KERNEL as u64, 1))),
        ("vector too long", refused.set(|s| s.len = 1025)),
    ] {
        answer(cx, &mut ring, what, s)?;
    }
    drop(one);
    let mut all = String::new();
    two.read_to_string(&mut all)?;
    cx.note("data", all);
    Ok(())
}

fn refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, _two) = pair()?;
    let (unix, _peer) = UnixStream::pair()?;
    let file = cx.file("f", b"")?;
    let good = zc(one.as_raw_fd(), b"hello");
    // The notification's user_data since Linux 7.2.
    let addr3 = if cx.is_newest() { 5 } else { -EINVAL };
    for (what, s, want) in [
        ("addr3", good.set(|s| s.addr3 = 1), addr3),
        ("padding", good.set(|s| s.pad2 = 1), -EINVAL),
        ("unseen", good.with(IOSQE_CQE_SKIP_SUCCESS), -EINVAL),
        ("unknown priority", good.set(|s| s.ioprio = 1 << 9), -EINVAL),
        ("a bundle", good.set(|s| s.ioprio = IORING_RECVSEND_BUNDLE), -EINVAL),
        ("the kernel's", good.set(|s| s.addr = KERNEL as u64), -EFAULT),
        ("a bad buffer", good.set(|s| s.addr = BAD as u64), -EFAULT),
        ("a long address", good.set(|s| (s.off, s.file_index) = (8, 129)), -EINVAL),
        ("address's padding", good.set(|s| s.file_index = 1 << 16), -EINVAL),
        ("a unix socket", good.set(|s| s.fd = unix.as_raw_fd()), -EOPNOTSUPP),
        ("a file", good.set(|s| s.fd = file.as_raw_fd()), -ENOTSOCK),
        ("closed", good.set(|s| s.fd = 999), -EBADF),
        ("buffers to pick", good.with(IOSQE_BUFFER_SELECT), -EOPNOTSUPP),
    ] {
        both(cx, &mut ring, what, s, want)?;
    }
    one.shutdown(std::net::Shutdown::Write)?;
    both(cx, &mut ring, "shut down", good, -EPIPE)
}

fn message_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, _two) = pair()?;
    let (unix, _peer) = UnixStream::pair()?;
    let parts = [part(b"abc")];
    let h = hdr(&parts);
    let good = msg(one.as_raw_fd(), &h);
    let addr3 = if cx.is_newest() { 3 } else { -EINVAL };
    for (what, s, want) in [
        ("an offset", good.set(|s| s.off = 1), -EINVAL),
        ("a file index", good.set(|s| s.file_index = 1), -EINVAL),
        ("addr3", good.set(|s| s.addr3 = 1), addr3),
        ("a bad header", good.set(|s| s.addr = BAD as u64), -EFAULT),
        ("a unix socket", good.set(|s| s.fd = unix.as_raw_fd()), -EOPNOTSUPP),
        ("closed", good.set(|s| s.fd = 999), -EBADF),
    ] {
        both(cx, &mut ring, what, s, want)?;
    }
    Ok(())
}

fn datagram(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    let to = os::loopback(two.local_addr()?.port());
    let named = zc(one.as_raw_fd(), b"hello");
    let named = named.set(|s| (s.off, s.file_index) = (addr(&to) as u64, 16));
    cx.start(&mut ring, &[named.ud(1)]);
    let mut buf = [0u8; 8];
    cx.eq("received", two.recv(&mut buf)?, 5);
    cx.reap_in_order(&mut ring, "both", &[(1, 5), (1, 0)]);
    both(cx, &mut ring, "to nobody", zc(one.as_raw_fd(), b"x"), -libc::EDESTADDRREQ)
}

fn chains(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = pair()?;
    let good = zc(one.as_raw_fd(), b"hello");
    cx.start(&mut ring, &[good.link().ud(1), sqe::nop().ud(2)]);
    cx.reap(&mut ring, "whole", &[(1, 0), (1, 5), (2, 0)]);
    let bad = good.set(|s| s.fd = 999);
    cx.start(&mut ring, &[bad.link().ud(1), sqe::nop().ud(2)]);
    cx.reap(&mut ring, "failed", &[(1, -EBADF), (1, 0), (2, -ECANCELED)]);
    cx.start(&mut ring, &[sqe::op(IORING_OP_READ, 999).link().ud(1), good.ud(2)]);
    cx.reap(&mut ring, "cancelled", &[(1, -EBADF), (2, -ECANCELED), (2, 0)]);
    let wrong = good.set(|s| s.ioprio = 1 << 9);
    cx.start(&mut ring, &[wrong.link().ud(1), sqe::nop().ud(2)]);
    let got = ring.take(3)?;
    cx.completions("refused", &got, &[(1, -EINVAL), (2, -ECANCELED), (1, 0)]);
    drop(two);
    Ok(())
}

fn waits(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, mut two) = pair()?;
    let big: Vec<u8> = (0..8_000_000u32).map(|i| (i >> 8) as u8).collect();
    let all = zc(one.as_raw_fd(), &big).op_flags(MSG_WAITALL as u32);
    cx.start(&mut ring, &[all.ud(1)]);
    cx.quiet(&ring, "not all fits", 20);
    let mut got = vec![0u8; big.len()];
    two.read_exact(&mut got)?;
    cx.reap_in_order(&mut ring, "all", &[(1, 8_000_000), (1, 0)]);
    cx.holds("data", got == big);
    let now = all.op_flags((MSG_WAITALL | MSG_DONTWAIT) as u32);
    let got = ring.push(now.ud(2)).submit_wait(1);
    cx.is("not waiting", got, 1);
    let got = ring.take(1)?[0];
    cx.holds("some of it", got.res > 0 && got.res < 8_000_000);
    cx.holds("and more to come", got.flags & IORING_CQE_F_MORE != 0);
    Ok(())
}
