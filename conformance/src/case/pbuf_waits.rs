//! Provided buffers of requests that wait: the buffers change before data comes.

use super::net::seen;
use super::pbuf::{GROUP, provide, reg, register, supply};
use super::prelude::*;
use crate::show;
use softring_uapi::{iovec, msghdr};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};

pub const CASES: &[Case] = &[
    case!("pbuf_waits", first_ring_buffer_limits, [
        Op(IORING_OP_READ), Op(IORING_OP_READ_MULTISHOT), Op(IORING_OP_RECV),
        Op(IORING_OP_RECVMSG), Reg(IORING_REGISTER_PBUF_RING),
    ], "the first picked buffer of a ring limits later attempts"),
    case!("pbuf_waits", first_list_buffer_limits, [
        Op(IORING_OP_READ), Op(IORING_OP_READ_MULTISHOT), Op(IORING_OP_RECV),
        Op(IORING_OP_RECVMSG), Op(IORING_OP_PROVIDE_BUFFERS),
    ], "the first picked buffer of a list limits later attempts"),
    any_order!("pbuf_waits", bundle_ends_at_last, [Op(IORING_OP_RECV)], "a waiting bundle ends with its last buffer"),
    legal!("pbuf_waits", terminal_hangup, [Op(IORING_OP_READ_MULTISHOT)], "reads of a terminal whose other end is closed"),
    legal!("pbuf_waits", worker_read_fails, [Op(IORING_OP_READ_MULTISHOT)], "a failed read of a worker names no buffer"),
    any_order!("pbuf_waits", failed_read_names_buffer, [Op(IORING_OP_READ), Op(IORING_OP_READV)], "a read that fails, or finds the end, names its buffer"),
    any_order!("pbuf_waits", message_bad_memory, [Op(IORING_OP_RECVMSG)], "a message checks the memory of its buffer only when it writes there"),
    any_order!("pbuf_waits", eof_behind_data, [Op(IORING_OP_RECV)], "the end of a stream comes after the data of a receive with POLL_FIRST"),
];

/// Returns ways to wait for data: a name, and a request.
fn ways(h: &msghdr) -> Vec<(&'static str, io_uring_sqe)> {
    let select = |op| sqe::op(op, 0).with(IOSQE_BUFFER_SELECT).set(|s| s.buf_index = GROUP);
    let how = |s: io_uring_sqe, how: u16| s.set(|s| s.ioprio = how);
    let recv = select(IORING_OP_RECV);
    let h = core::ptr::from_ref(h) as u64;
    let message = select(IORING_OP_RECVMSG).set(|s| (s.addr, s.len) = (h, 1));
    vec![
        ("READ", select(IORING_OP_READ)),
        ("READ of 6", select(IORING_OP_READ).set(|s| s.len = 6)),
        ("READ_MULTISHOT", select(IORING_OP_READ_MULTISHOT)),
        ("RECV", recv),
        ("RECV of 6", recv.set(|s| s.len = 6)),
        ("RECV, polled first", how(recv, IORING_RECVSEND_POLL_FIRST)),
        ("RECV, many", how(recv, IORING_RECV_MULTISHOT)),
        ("RECV, a bundle", how(recv, IORING_RECVSEND_BUNDLE)),
        ("RECV, many bundles", how(recv, IORING_RECVSEND_BUNDLE | IORING_RECV_MULTISHOT)),
        ("RECVMSG", message),
    ]
}

/// Records the CQEs that came, and the data in memory.
fn note_cqes_and_data(cx: &mut Cx, ring: &mut Ring, what: &str, mem: &mut [u8]) {
    ring.submit_wait(0);
    let got = ring.pop_all();
    let got: Vec<_> = got.iter().map(|c| (c.res, show::cqe_flags(c.flags))).collect();
    cx.note(what, format_args!("{got:?} {}", seen(mem).escape_default()));
    mem.fill(b'-');
}

fn first_ring_buffer_limits(cx: &mut Cx) -> Outcome {
    let parts = iovec { base: 0, len: 0 };
    let h = msghdr { iov: &raw const parts as u64, iovlen: 0, ..msghdr::default() };
    for (name, request) in ways(&h) {
        let mut ring = cx.ring(8, 0)?;
        let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
        cx.is("register", register(&ring, &reg(page, 8, 0)), 0isize);
        let mut mem = [b'-'; 48];
        let place = |slot: usize, from: usize, len: u32, bid: u16| {
            os::store(page + slot * 16, &[(addr(&mem) + from) as u64]);
            os::store(page + slot * 16 + 8, &[len]);
            os::store(page + slot * 16 + 12, &[bid]);
        };
        place(0, 0, 4, 5);
        os::store(page + 14, &[1u16]);
        let (a, b) = UnixDatagram::pair()?;
        ring.push(request.set(|s| s.fd = a.as_raw_fd())).submit();
        place(0, 0, 16, 6);
        place(1, 16, 16, 7);
        os::store(page + 14, &[2u16]);
        for n in [10, 12] {
            b.send(&vec![b'0' + n as u8 - 10; n])?;
            note_cqes_and_data(cx, &mut ring, &format!("{name}, {n} bytes"), &mut mem);
        }
    }
    Ok(())
}

/// Checks that a bundle which has waited for its last buffer ends with that buffer, however much
/// data there is.
fn bundle_ends_at_last(cx: &mut Cx) -> Outcome {
    use std::io::Write;
    for how in [IORING_RECVSEND_BUNDLE, IORING_RECVSEND_BUNDLE | IORING_RECV_MULTISHOT] {
        let mut ring = cx.ring(8, 0)?;
        let mut mem = [b'-'; 48];
        two(cx, &ring, &mut mem);
        let (a, mut b) = std::os::unix::net::UnixStream::pair()?;
        let recv = sqe::op(IORING_OP_RECV, a.as_raw_fd()).with(IOSQE_BUFFER_SELECT);
        let recv = recv.set(|s| (s.buf_index, s.ioprio) = (GROUP, how));
        // Another request takes the first buffer.
        b.write_all(b"first")?;
        let one = recv.set(|s| s.ioprio = 0);
        cx.one(&mut ring, "the first buffer", one, 5);
        ring.push(recv).submit();
        b.write_all(&[b'x'; 64])?;
        note_cqes_and_data(cx, &mut ring, &format!("{how:#x}"), &mut mem);
    }
    Ok(())
}

fn first_list_buffer_limits(cx: &mut Cx) -> Outcome {
    let parts = iovec { base: 0, len: 0 };
    let h = msghdr { iov: &raw const parts as u64, iovlen: 0, ..msghdr::default() };
    for (name, request) in ways(&h) {
        let mut ring = cx.ring(8, 0)?;
        let mut mem = [b'-'; 48];
        cx.one(&mut ring, "provide", provide(&mut mem[..4], 4, 5), 0);
        let (a, b) = UnixDatagram::pair()?;
        ring.push(request.set(|s| s.fd = a.as_raw_fd())).submit();
        let take = sqe::op(IORING_OP_REMOVE_BUFFERS, 1).set(|s| s.buf_index = GROUP);
        ring.push(take.ud(9)).submit_wait(0);
        note_cqes_and_data(cx, &mut ring, &format!("{name}, removed"), &mut mem);
        cx.one(&mut ring, "provide", provide(&mut mem[16..], 16, 6), 0);
        for n in [10, 12] {
            b.send(&vec![b'0' + n as u8 - 10; n])?;
            note_cqes_and_data(cx, &mut ring, &format!("{name}, {n} bytes"), &mut mem);
        }
    }
    Ok(())
}

/// Registers a buffer ring of two buffers.
fn two(cx: &mut Cx, ring: &Ring, mem: &mut [u8; 48]) {
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    cx.is("register", register(ring, &reg(page, 8, 0)), 0isize);
    supply(page, 0, 8, mem, 24);
}

/// Checks a pty whose peer has closed. A read fails with EIO, but only an attempt shows that: the
/// kernel makes one if the file is readable or non-blocking.
fn terminal_hangup(cx: &mut Cx) -> Outcome {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    for blocks in [true, false] {
        let mut ring = cx.ring(8, 0)?;
        let mut mem = [b'-'; 48];
        two(cx, &ring, &mut mem);
        let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        rustix::io::ioctl_fionbio(&main, !blocks)?;
        grantpt(&main)?;
        unlockpt(&main)?;
        let name = ptsname(&main, Vec::new())?;
        let how = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
        let user = rustix::fs::open(&name, how, rustix::fs::Mode::empty())?;
        let read = sqe::op(IORING_OP_READ_MULTISHOT, main.as_raw_fd()).with(IOSQE_BUFFER_SELECT);
        ring.push(read.set(|s| s.buf_index = GROUP)).submit();
        // A kernel thread moves data from one end of a terminal to the other.
        let comes = || std::thread::sleep(std::time::Duration::from_millis(50));
        rustix::io::write(&user, b"hello\n")?;
        comes();
        note_cqes_and_data(cx, &mut ring, "written", &mut mem);
        drop(user);
        comes();
        note_cqes_and_data(cx, &mut ring, &format!("closed, blocks {blocks}"), &mut mem);
        if blocks {
            let user = rustix::fs::open(&name, how, rustix::fs::Mode::empty())?;
            rustix::io::write(&user, b"x\n")?;
            comes();
            note_cqes_and_data(cx, &mut ring, "opened again and written", &mut mem);
        }
    }
    Ok(())
}

fn worker_read_fails(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut mem = [b'-'; 48];
    two(cx, &ring, &mut mem);
    let file = cx.file("f", b"x")?;
    let set = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?;
    let ready = cx.eventfd(1)?;
    let data = rustix::event::epoll::EventData::new_u64(0);
    rustix::event::epoll::add(&set, &ready, data, rustix::event::epoll::EventFlags::IN)?;
    let sync = sqe::op(IORING_OP_FSYNC, file.as_raw_fd()).with(IOSQE_IO_LINK).ud(1);
    let read = sqe::op(IORING_OP_READ_MULTISHOT, set.as_raw_fd()).with(IOSQE_BUFFER_SELECT);
    ring.push(sync).push(read.set(|s| s.buf_index = GROUP).ud(2)).submit_wait(2);
    let got = ring.take(2)?;
    let got: Vec<_> = got.iter().map(|c| (c.res, show::cqe_flags(c.flags))).collect();
    cx.note("answers", format_args!("{got:?}"));
    Ok(())
}

fn eof_behind_data(cx: &mut Cx) -> Outcome {
    use std::io::Write;
    for first in [0, IORING_RECVSEND_POLL_FIRST] {
        let mut ring = cx.ring(8, 0)?;
        let mut mem = [b'-'; 48];
        two(cx, &ring, &mut mem);
        let (a, mut b) = std::os::unix::net::UnixStream::pair()?;
        b.write_all(b"data")?;
        drop(b);
        let recv = sqe::op(IORING_OP_RECV, a.as_raw_fd()).with(IOSQE_BUFFER_SELECT);
        let how = IORING_RECV_MULTISHOT | first;
        ring.push(recv.set(|s| (s.buf_index, s.ioprio) = (GROUP, how))).submit();
        std::thread::sleep(std::time::Duration::from_millis(20));
        note_cqes_and_data(cx, &mut ring, &format!("polled first: {}", first != 0), &mut mem);
    }
    Ok(())
}

/// Rows: true if data is there before the request; flags of the call; `ioprio` of the request.
const NOWHERE: [(bool, i32, u16); 7] = [
    (true, 0, 0),
    (false, 0, 0),
    (true, libc::MSG_OOB, 0),
    (false, libc::MSG_OOB, 0),
    (true, libc::MSG_PEEK, 0),
    (true, 0, IORING_RECV_MULTISHOT),
    (false, 0, IORING_RECV_MULTISHOT),
];

fn message_bad_memory(cx: &mut Cx) -> Outcome {
    const OUTSIDE: u64 = 0xffff_8000_0000_0000;
    for at in [OUTSIDE, BAD as u64] {
        for (there, flags, how) in NOWHERE {
            let (tcp, stream, datagram) =
                (super::net::pair()?, UnixStream::pair()?, UnixDatagram::pair()?);
            let pairs: [(&str, OwnedFd, OwnedFd); 3] = [
                ("TCP", tcp.0.into(), tcp.1.into()),
                ("stream", stream.0.into(), stream.1.into()),
                ("datagram", datagram.0.into(), datagram.1.into()),
            ];
            for (name, from, to) in &pairs {
                let got = nowhere(cx, at, from, to, (there, flags, how))?;
                cx.note(&format!("{name} at {at:#x}, {there} {flags} {how}"), got);
            }
        }
    }
    Ok(())
}

/// Returns the CQEs of a message for a buffer at `at`, and the bytes left in its socket.
fn nowhere(
    cx: &mut Cx,
    at: u64,
    from: &OwnedFd,
    to: &OwnedFd,
    (there, flags, how): (bool, i32, u16),
) -> Result<String, Stop> {
    let mut ring = cx.ring(8, 0)?;
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    cx.is("register", register(&ring, &reg(page, 8, 0)), 0isize);
    os::store(page, &[at]);
    os::store(page + 8, &[100u32, 9]);
    os::store(page + 14, &[1u16]);
    let tell = || rustix::net::send(from, b"0123456789", rustix::net::SendFlags::empty());
    if there {
        tell()?;
        super::net::arrived(to.as_raw_fd(), 10);
    }
    let mut h = msghdr::default();
    let s = sqe::rw(IORING_OP_RECVMSG, to.as_raw_fd(), addr_mut(&mut h), 1, 0);
    let s = s.with(IOSQE_BUFFER_SELECT).op_flags(flags as u32);
    ring.push(s.set(|s| (s.buf_index, s.ioprio) = (GROUP, how))).submit();
    if !there {
        tell()?;
    }
    std::thread::sleep(std::time::Duration::from_millis(10));
    ring.submit_wait(0);
    let got: Vec<_> = ring.pop_all().iter().map(|c| (c.res, show::cqe_flags(c.flags))).collect();
    Ok(format!("{got:?}, {} left", rustix::io::ioctl_fionread(to)?))
}

/// Checks READ and READV from a buffer ring, and from a list.
fn failed_read_names_buffer(cx: &mut Cx) -> Outcome {
    let (socket, _peer) = UnixDatagram::pair()?;
    let (empty, (_r, w)) = (cx.file("f", b"")?, cx.pipe()?);
    let fds = [socket.as_raw_fd(), empty.as_raw_fd(), w.as_raw_fd()];
    let part = iovec { base: 0, len: 8 };
    let read = sqe::op(IORING_OP_READ, 0).set(|s| s.len = 8);
    let readv = sqe::rw(IORING_OP_READV, 0, addr(&part), 1, 0);
    for listed in [false, true] {
        let mut ring = cx.ring(8, 0)?;
        let mut mem = [b'-'; 128];
        if listed {
            cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
        } else {
            let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
            cx.is("register", register(&ring, &reg(page, 16, 0)), 0isize);
            supply(page, 0, 16, &mut mem, 8);
        }
        for (name, request) in [("READ", read), ("READV", readv)] {
            for (fd, off) in fds.into_iter().zip([9, 0, 0]) {
                let request = request.with(IOSQE_BUFFER_SELECT);
                ring.push(request.set(|s| (s.fd, s.off, s.buf_index) = (fd, off, GROUP)));
                ring.submit_wait(1);
                let got = ring.pop_all();
                let got: Vec<_> = got.iter().map(|c| (c.res, c.flags)).collect();
                cx.note(name, format_args!("{got:x?}"));
            }
        }
    }
    Ok(())
}
