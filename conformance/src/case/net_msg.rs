//! SENDMSG and RECVMSG: vectors, names and control data.

use super::net::{arrived, pair, seen};
use super::prelude::*;
use libc::{EDESTADDRREQ, EMSGSIZE, ENOTSOCK, MSG_DONTWAIT, MSG_TRUNC, MSG_WAITALL};
use softring_uapi::{iovec, msghdr};
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::unix::net::{UnixDatagram, UnixStream};

pub const CASES: &[Case] = &[
    any_order!("net_msg", vectors, [Op(IORING_OP_SENDMSG), Op(IORING_OP_RECVMSG)], "messages with many parts are sent and received"),
    any_order!("net_msg", names, [Op(IORING_OP_SENDMSG), Op(IORING_OP_RECVMSG)], "messages with addresses, sent and received"),
    any_order!("net_msg", rights, [Op(IORING_OP_SENDMSG), Op(IORING_OP_RECVMSG)], "control data carry descriptors"),
    any_order!("net_msg", truncation_flags, [Op(IORING_OP_RECVMSG)], "the returned header says what was truncated"),
    any_order!("net_msg", refusals, [Op(IORING_OP_SENDMSG), Op(IORING_OP_RECVMSG)], "bad headers, vectors, names, flags and files"),
    any_order!("net_msg", copied, [Op(IORING_OP_RECVMSG), Op(IORING_OP_SENDMSG)], "the header and the vector may change after submission"),
    any_order!("net_msg", wait_all, [Op(IORING_OP_SENDMSG), Op(IORING_OP_RECVMSG)], "MSG_WAITALL continues across parts"),
    any_order!("net_msg", waits, [Op(IORING_OP_RECVMSG)], "messages wait, are cancelled, do not wait, and run in a worker"),
    any_order!("net_msg", compat, [Op(IORING_OP_SENDMSG), Op(IORING_OP_RECVMSG)], "the flag of 32-bit programs only changes where a receive writes its header"),
    any_order!("net_msg", urgent, [Op(IORING_OP_SEND), Op(IORING_OP_RECV)], "out-of-band data do not count as remaining data"),
];

pub(super) fn part(s: &[u8]) -> iovec {
    iovec { base: addr(s) as u64, len: s.len() as u64 }
}

pub(super) fn hdr(parts: &[iovec]) -> msghdr {
    msghdr { iov: addr(parts) as u64, iovlen: parts.len() as u64, ..msghdr::default() }
}

pub(super) fn give(fd: i32, hdr: &msghdr) -> io_uring_sqe {
    sqe::rw(IORING_OP_SENDMSG, fd, addr(hdr), 1, 0)
}

pub(super) fn take(fd: i32, hdr: &mut msghdr) -> io_uring_sqe {
    sqe::rw(IORING_OP_RECVMSG, fd, addr_mut(hdr), 1, 0)
}

/// Records the fields that a receive wrote to a header.
fn written(cx: &mut Cx, hdr: &msghdr) {
    let hdr = std::hint::black_box(hdr);
    cx.note("name", hdr.namelen);
    cx.note("control", hdr.controllen);
    cx.note("flags", hdr.flags);
}

fn vectors(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = pair()?;
    let parts = [part(b"abc"), part(b""), part(b"defghij")];
    let (a, b) = ([b'-'; 4], [b'-'; 3]);
    let into = [part(&a), part(&b)];
    let mut h = hdr(&into);
    cx.one(&mut ring, "send", give(one.as_raw_fd(), &hdr(&parts)), 10);
    arrived(two.as_raw_fd(), 10);
    cx.one(&mut ring, "receive", take(two.as_raw_fd(), &mut h), 7);
    cx.eq("data", seen(&a) + &seen(&b), "abcdefg".to_owned());
    written(cx, &h);
    cx.one(&mut ring, "the rest", take(two.as_raw_fd(), &mut h), 3);
    cx.one(&mut ring, "nothing", give(one.as_raw_fd(), &hdr(&[])), 0);
    let mut empty = hdr(&[]);
    let nowhere = take(two.as_raw_fd(), &mut empty).op_flags(MSG_DONTWAIT as u32);
    cx.one(&mut ring, "into nothing", nowhere, -EAGAIN);
    let many = [part(b"x"); 1024];
    cx.one(&mut ring, "as many as may be", give(one.as_raw_fd(), &hdr(&many)), 1024);
    drop(one);
    (&two).read_exact(&mut [0u8; 1024])?;
    std::thread::sleep(std::time::Duration::from_millis(20));
    cx.one(&mut ring, "the end", take(two.as_raw_fd(), &mut h), 0);
    Ok(())
}

fn names(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    let to = [os::loopback(two.local_addr()?.port()); 8];
    let parts = [part(b"hello")];
    let plain = hdr(&parts);
    let named = msghdr { name: addr(&to) as u64, namelen: 16, ..plain };
    let fd = one.as_raw_fd();
    cx.one(&mut ring, "to nobody", give(fd, &plain), -EDESTADDRREQ);
    cx.one(&mut ring, "to an address", give(fd, &named), 5);
    cx.one(&mut ring, "again", give(fd, &named), 5);
    let short = msghdr { namelen: 4, ..named };
    cx.one(&mut ring, "too short", give(fd, &short), -EINVAL);
    let long = msghdr { namelen: 4096, ..named };
    cx.one(&mut ring, "long, and cut", give(fd, &long), 5);
    let none = msghdr { name: 0, ..named };
    cx.one(&mut ring, "a length, no name", give(fd, &none), -EDESTADDRREQ);
    let buf = [b'-'; 8];
    let into = [part(&buf)];
    let mut from = [0u8; 32];
    let fd = two.as_raw_fd();
    for len in [32, 8, 0] {
        let mut h = msghdr { name: addr_mut(&mut from) as u64, namelen: len, ..hdr(&into) };
        cx.one(&mut ring, "with a name", take(fd, &mut h), 5);
        written(cx, &h);
    }
    let port = u16::from_be_bytes([from[2], from[3]]);
    cx.holds("its port", std::hint::black_box(port) == one.local_addr()?.port());
    Ok(())
}

/// Returns control data with one descriptor.
fn cmsg(fd: i32) -> [u32; 6] {
    [20, 0, libc::SOL_SOCKET as u32, libc::SCM_RIGHTS as u32, fd.cast_unsigned(), 0]
}

fn rights(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = UnixStream::pair()?;
    let (r, mut w) = std::io::pipe()?;
    let (parts, buf) = ([part(b"x")], [b'-'; 4]);
    let into = [part(&buf)];
    let control = cmsg(r.as_raw_fd());
    let sent = msghdr { control: addr(&control) as u64, controllen: 24, ..hdr(&parts) };
    cx.one(&mut ring, "send", give(one.as_raw_fd(), &sent), 1);
    let mut got = [0u32; 6];
    let mut h = msghdr { control: addr_mut(&mut got) as u64, controllen: 24, ..hdr(&into) };
    let closes = take(two.as_raw_fd(), &mut h).op_flags(libc::MSG_CMSG_CLOEXEC as u32);
    cx.one(&mut ring, "receive", closes, 1);
    written(cx, &h);
    cx.eq("kind", std::hint::black_box(got)[..4].to_vec(), control[..4].to_vec());
    let fd = cx.fd("the descriptor", got[4].cast_signed())?;
    w.write_all(b"through")?;
    let mut text = [0u8; 7];
    cx.eq("which works", rustix::io::read(&fd, &mut text)?, 7);
    let set = os::fcntl(fd.as_raw_fd(), libc::F_GETFD, 0);
    cx.eq("closed on exec", set, libc::FD_CLOEXEC);
    cx.one(&mut ring, "send", give(one.as_raw_fd(), &sent), 1);
    let fds = os::open_fds();
    let mut h = hdr(&into);
    cx.one(&mut ring, "not wanted", take(two.as_raw_fd(), &mut h), 1);
    written(cx, &h);
    cx.eq("and none left over", os::open_fds() - fds, 0);
    let bad = cmsg(999);
    let sent = msghdr { control: addr(&bad) as u64, ..sent };
    cx.one(&mut ring, "a closed one", give(one.as_raw_fd(), &sent), -EBADF);
    let sent = msghdr { control: BAD as u64, ..sent };
    cx.one(&mut ring, "a bad pointer", give(one.as_raw_fd(), &sent), -EFAULT);
    Ok(())
}

fn truncation_flags(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = UnixDatagram::pair()?;
    let buf = [b'-'; 4];
    let into = [part(&buf)];
    for _ in 0..4 {
        one.send(b"abcdefgh")?;
    }
    let mut h = msghdr { controllen: 99, flags: 77, ..hdr(&into) };
    let get = take(two.as_raw_fd(), &mut h);
    cx.one(&mut ring, "cut", get, 4);
    written(cx, &h);
    cx.one(&mut ring, "with its length", get.op_flags(MSG_TRUNC as u32), 8);
    let all = [get.op_flags(MSG_WAITALL as u32).link().ud(1), sqe::nop().ud(2)];
    cx.batch(&mut ring, "cut, all wanted", &all, &[(1, 4), (2, -ECANCELED)]);
    let chain = [get.link().ud(1), sqe::nop().ud(2)];
    cx.batch(&mut ring, "in a chain", &chain, &[(1, 4), (2, 0)]);
    Ok(())
}

fn refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = UnixStream::pair()?;
    let file = cx.file("f", b"")?;
    let buf = [0u8; 8];
    let parts = [part(&buf)];
    let good = hdr(&parts);
    let many = msghdr { iovlen: 1025, ..good };
    let bad = msghdr { iov: BAD as u64, ..good };
    let negative = msghdr { name: addr(&buf) as u64, namelen: u32::MAX, ..good };
    let name = msghdr { name: BAD as u64, namelen: 16, ..good };
    let long = [iovec { base: 8, len: u64::MAX }];
    let long = hdr(&long);
    for (what, op, fd) in [
        ("send", IORING_OP_SENDMSG, one.as_raw_fd()),
        ("receive", IORING_OP_RECVMSG, two.as_raw_fd()),
    ] {
        cx.note("now", what);
        let s = sqe::rw(op, fd, addr(&good), 1, 0);
        let with = |h: &msghdr| s.set(|s| s.addr = addr(h) as u64);
        cx.each(&mut ring, &[
            ("to a file", s.set(|s| s.fd = file.as_raw_fd()), -ENOTSOCK),
            ("closed", s.set(|s| s.fd = 999), -EBADF),
            ("a bad header", s.set(|s| s.addr = BAD as u64), -EFAULT),
            ("an offset", s.set(|s| s.off = 8), -EINVAL),
            ("a file index", s.set(|s| s.file_index = 1), -EINVAL),
            ("unknown priority", s.set(|s| s.ioprio = 1 << 6), -EINVAL),
            ("a bundle", s.set(|s| s.ioprio = IORING_RECVSEND_BUNDLE), -EINVAL),
            ("a fixed buffer", s.set(|s| s.ioprio = IORING_RECVSEND_FIXED_BUF), -EINVAL),
            ("too many parts", with(&many), -EMSGSIZE),
            ("a bad vector", with(&bad), -EFAULT),
            ("a negative name", with(&negative), -EINVAL),
            ("a negative part", with(&long), -EINVAL),
            ("a negative length", s.set(|s| s.len = u32::MAX), -EINVAL),
        ]);
    }
    cx.one(&mut ring, "a bad name", give(one.as_raw_fd(), &name), -EFAULT);
    let select = give(one.as_raw_fd(), &good).with(IOSQE_BUFFER_SELECT);
    cx.one(&mut ring, "selected buffers", select, -EOPNOTSUPP);
    let vector = give(one.as_raw_fd(), &good).set(|s| s.ioprio = IORING_SEND_VECTORIZED);
    cx.one(&mut ring, "vectorized", vector, 8);
    let mut h = name;
    cx.one(&mut ring, "a name that cannot be told", take(two.as_raw_fd(), &mut h), 8);
    Ok(())
}

fn copied(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (mut one, two) = pair()?;
    let buf = [b'-'; 8];
    let mut parts = [part(&buf)];
    let mut h = hdr(&parts);
    cx.start(&mut ring, &[take(two.as_raw_fd(), &mut h).ud(1)]);
    let at = addr_mut(&mut h);
    parts[0] = iovec { base: BAD as u64, len: 1 };
    (h.iov, h.iovlen, h.flags) = (BAD as u64, 99, 99);
    std::hint::black_box((at, &parts, &h));
    one.write_all(b"arrived")?;
    cx.reap(&mut ring, "received", &[(1, 7)]);
    cx.eq("data", seen(&buf[..7]), "arrived".to_owned());
    written(cx, &h);
    cx.eq("the vector stays", h.iovlen, 99);
    Ok(())
}

fn wait_all(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = UnixStream::pair()?;
    let big = vec![5u8; 900_000];
    let parts = [part(&big), part(b"abc"), part(&big)];
    let h = hdr(&parts);
    let sqe = give(one.as_raw_fd(), &h).op_flags(MSG_WAITALL as u32);
    cx.start(&mut ring, &[sqe.link().ud(1), sqe::nop().ud(2)]);
    cx.quiet(&ring, "not all fits", 20);
    let mut got = vec![0u8; 1_800_003];
    (&two).read_exact(&mut got)?;
    cx.reap(&mut ring, "all sent", &[(1, 1_800_003), (2, 0)]);
    cx.holds("in order", &got[900_000..900_003] == b"abc" && got[900_003] == 5);
    let (a, b) = ([b'-'; 4], [b'-'; 5]);
    let into = [part(&a), part(&b)];
    let mut h = hdr(&into);
    let get = take(two.as_raw_fd(), &mut h).op_flags(MSG_WAITALL as u32);
    cx.start(&mut ring, &[get.link().ud(1), sqe::nop().ud(2)]);
    for text in ["ab", "cdef"] {
        (&one).write_all(text.as_bytes())?;
        cx.quiet(&ring, "not yet", 20);
    }
    (&one).write_all(b"ghi")?;
    cx.reap(&mut ring, "all received", &[(1, 9), (2, 0)]);
    cx.eq("data", seen(&a) + &seen(&b), "abcdefghi".to_owned());
    let control = [0u32; 8];
    let mut h = msghdr { control: addr(&control) as u64, controllen: 32, ..hdr(&into) };
    let get = take(two.as_raw_fd(), &mut h).op_flags(MSG_WAITALL as u32);
    (&one).write_all(b"ab")?;
    let chain = [get.link().ud(1), sqe::nop().ud(2)];
    cx.batch(&mut ring, "with room for control", &chain, &[(1, 2), (2, 0)]);
    Ok(())
}

fn waits(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (mut one, two) = UnixStream::pair()?;
    let buf = [b'-'; 8];
    let parts = [part(&buf)];
    let mut h = hdr(&parts);
    let get = take(two.as_raw_fd(), &mut h);
    cx.one(&mut ring, "not at all", get.op_flags(MSG_DONTWAIT as u32), -EAGAIN);
    cx.start(&mut ring, &[get.ud(1)]);
    cx.batch(&mut ring, "cancelled", &[sqe::cancel(1, 0).ud(2)], &[(1, -ECANCELED), (2, 0)]);
    for flags in [0, IOSQE_ASYNC] {
        cx.start(&mut ring, &[get.with(flags).ud(1)]);
        cx.quiet(&ring, "waits", 20);
        one.write_all(b"came")?;
        cx.reap(&mut ring, "came", &[(1, 4)]);
    }
    cx.start(&mut ring, &[get.set(|s| s.ioprio = IORING_RECVSEND_POLL_FIRST).ud(1)]);
    one.write_all(b"first")?;
    cx.reap(&mut ring, "polled first", &[(1, 5)]);
    let text = [part(b"abc")];
    let text = hdr(&text);
    let first = give(one.as_raw_fd(), &text).set(|s| s.ioprio = IORING_RECVSEND_POLL_FIRST);
    cx.one(&mut ring, "to send as well", first, 3);
    drop(one);
    cx.one(&mut ring, "the last", get, 3);
    let chain = [get.link().ud(1), sqe::nop().ud(2)];
    cx.batch(&mut ring, "the end", &chain, &[(1, 0), (2, 0)]);
    let udp = UdpSocket::bind("127.0.0.1:0")?;
    let errors = take(udp.as_raw_fd(), &mut h).op_flags(libc::MSG_ERRQUEUE as u32);
    cx.start(&mut ring, &[errors.ud(1)]);
    cx.quiet(&ring, "no error", 20);
    cx.batch(&mut ring, "cancelled", &[sqe::cancel(1, 0).ud(2)], &[(1, -ECANCELED), (2, 0)]);
    cx.one(&mut ring, "nobody to send to", give(two.as_raw_fd(), &text), -EPIPE);
    Ok(())
}

fn compat(cx: &mut Cx) -> Outcome {
    const MSG_CMSG_COMPAT: u32 = 0x8000_0000;
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = UnixStream::pair()?;
    let mut buf = [0u8; 4];
    let parts = [iovec { base: addr(b"data") as u64, len: 4 }];
    let into = [iovec { base: addr_mut(&mut buf) as u64, len: 4 }];
    let (from, mut to) = (hdr(&parts), hdr(&into));
    (to.flags, to.controllen) = (0x1234, 0);
    let send = give(one.as_raw_fd(), &from).op_flags(MSG_CMSG_COMPAT);
    cx.one(&mut ring, "send", send, 4);
    cx.one(&mut ring, "receive", take(two.as_raw_fd(), &mut to).op_flags(MSG_CMSG_COMPAT), 4);
    cx.eq("flags", to.flags, 0x1234);
    cx.is("upper half of the vector's length", (to.iovlen >> 32) as i32, 0);
    cx.is("flags are in the vector's length", to.iovlen as u32, 0u32);
    let plain = super::net::send(one.as_raw_fd(), b"data").op_flags(MSG_CMSG_COMPAT);
    cx.one(&mut ring, "a plain send", plain, 4);
    let plain = super::net::recv(two.as_raw_fd(), &mut buf).op_flags(MSG_CMSG_COMPAT);
    cx.one(&mut ring, "a plain receive", plain, 4);
    Ok(())
}

/// Skips where AF_UNIX sockets have no urgent data, before Linux 5.15.
pub fn knows_urgent() -> Result<(), Stop> {
    let (one, _two) = UnixStream::pair()?;
    let oob = rustix::net::SendFlags::OOB;
    match rustix::net::send(&one, b"x", oob) {
        Ok(_) => Ok(()),
        Err(e) => Err(Stop::Skip(format!("MSG_OOB of AF_UNIX: {e}"))),
    }
}

fn urgent(cx: &mut Cx) -> Outcome {
    knows_urgent()?;
    let oob = libc::MSG_OOB.cast_unsigned();
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = UnixStream::pair()?;
    let mut buf = [0u8; 4];
    cx.one(&mut ring, "send", super::net::send(one.as_raw_fd(), b"datax").op_flags(oob), 5);
    let recv = super::net::recv(two.as_raw_fd(), &mut buf);
    cx.one(&mut ring, "out of line", recv.op_flags(oob), 1);
    cx.one(&mut ring, "in line", recv, 4);
    Ok(())
}
