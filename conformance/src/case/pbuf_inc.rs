//! Incremental buffer rings (IOU_PBUF_RING_INC) with messages.

use super::net::seen;
use super::net_msg::take;
use super::pbuf::{GROUP, reg, register, supply};
use super::prelude::*;
use crate::show;
use softring_uapi::msghdr;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};

pub const CASES: &[Case] = &[
    any_order!("pbuf_inc", messages, [
        Op(IORING_OP_RECVMSG),
    ], "messages lie one after the other in one buffer, each with its header"),
    case!("pbuf_inc", messages_no_header_room, [
        Op(IORING_OP_RECVMSG),
    ], "the request ends if the rest is too small for a header"),
    case!("pbuf_inc", messages_truncated, [
        Op(IORING_OP_RECVMSG),
    ], "a message that does not fit is truncated, and uses up the rest"),
    case!("pbuf_inc", messages_names_and_control, [
        Op(IORING_OP_RECVMSG),
    ], "the buffer holds names and control data, too"),
    case!("pbuf_inc", messages_stream, [
        Op(IORING_OP_RECVMSG),
    ], "parts of a stream continue from buffer to buffer"),
    legal!("pbuf_inc", messages_empty, [
        Op(IORING_OP_RECVMSG),
    ], "an empty message uses up the room of its header"),
    any_order!("pbuf_inc", messages_full, [Op(IORING_OP_RECVMSG)], "a message with a full CQ"),
    any_order!("pbuf_inc", single_shot_message, [
        Op(IORING_OP_RECVMSG),
    ], "a single-shot message uses up the bytes that it fills"),
    any_order!("pbuf_inc", buffer_without_address, [
        Op(IORING_OP_RECVMSG), Op(IORING_OP_RECV), Op(IORING_OP_READ),
    ], "a buffer without an address, of length 0 and longer"),
];

/// Registers a ring of buffers of `each` bytes in `mem`, all provided at once.
fn buffers(cx: &mut Cx, ring: &Ring, mem: &mut [u8], each: usize) -> usize {
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    cx.is("register", register(ring, &reg(page, 8, IOU_PBUF_RING_INC)), 0isize);
    supply(page, 0, 8, mem, each);
    page
}

/// Records for each buffer of the ring how far it is used up, and how much is left.
fn rest(cx: &mut Cx, page: usize, mem: &[u8], n: usize) {
    for i in 0..n {
        let from = os::load(page + i * 16).wrapping_sub(addr(mem) as u32);
        let left = os::load(page + i * 16 + 8);
        cx.note(&format!("buffer {i}"), format_args!("from {from}, {left} left"));
    }
    cx.note("memory", seen(mem).escape_default());
}

/// Records the completions that are posted.
fn note_cqes(cx: &mut Cx, ring: &mut Ring, what: &str) {
    let got = ring.pop_all();
    let got: Vec<_> = got.iter().map(|c| (c.res, show::cqe_flags(c.flags))).collect();
    cx.note(what, format_args!("{got:?}"));
}

fn multi(fd: i32, h: &mut msghdr) -> io_uring_sqe {
    let s = take(fd, h).with(IOSQE_BUFFER_SELECT);
    s.set(|s| (s.buf_index, s.ioprio) = (GROUP, IORING_RECV_MULTISHOT)).ud(1)
}

/// Sends each message, and records the CQEs after each.
fn tell(cx: &mut Cx, ring: &mut Ring, to: BorrowedFd<'_>, sizes: &[usize]) -> Outcome {
    for (letter, n) in (b'a'..).zip(sizes) {
        rustix::net::send(to, &vec![letter; *n], rustix::net::SendFlags::empty())?;
        ring.enter(0, 0, IORING_ENTER_GETEVENTS);
        note_cqes(cx, ring, &format!("{n} bytes"));
    }
    Ok(())
}

/// Receives messages of `sizes` into `n` buffers of `each` bytes, by a request that waits, then by
/// one that finds the messages there.
fn run(cx: &mut Cx, (n, each): (usize, usize), sizes: &[usize], mut h: msghdr) -> Outcome {
    for waits in [true, false] {
        let (one, two) = UnixDatagram::pair()?;
        into(cx, (n, each), sizes, &mut h, waits, one.as_fd(), two.as_fd())?;
    }
    Ok(())
}

fn into(
    cx: &mut Cx,
    (n, each): (usize, usize),
    sizes: &[usize],
    h: &mut msghdr,
    waits: bool,
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut mem = vec![b'-'; each * n];
    let page = buffers(cx, &ring, &mut mem, each);
    let sqe = multi(to.as_raw_fd(), h);
    if waits {
        cx.start(&mut ring, &[sqe]);
        tell(cx, &mut ring, from, sizes)?;
    } else {
        for (letter, n) in (b'a'..).zip(sizes) {
            rustix::net::send(from, &vec![letter; *n], rustix::net::SendFlags::empty())?;
        }
        cx.start(&mut ring, &[sqe]);
        note_cqes(cx, &mut ring, "what was there");
    }
    rest(cx, page, &mem, n);
    Ok(())
}

fn messages(cx: &mut Cx) -> Outcome {
    run(cx, (2, 128), &[5, 10, 1], msghdr::default())?;
    // These sizes fill the buffer exactly.
    run(cx, (2, 64), &[16, 16, 20], msghdr::default())
}

fn messages_no_header_room(cx: &mut Cx) -> Outcome {
    // The last buffer is full.
    run(cx, (1, 64), &[16, 16, 4], msghdr::default())?;
    run(cx, (3, 64), &[16, 20, 4, 4], msghdr::default())?;
    run(cx, (3, 64), &[40, 4, 4], msghdr::default())?;
    run(cx, (2, 40), &[8, 4, 4], msghdr { namelen: 4, ..msghdr::default() })
}

fn messages_truncated(cx: &mut Cx) -> Outcome {
    run(cx, (2, 64), &[10, 100, 7, 100], msghdr::default())
}

fn messages_names_and_control(cx: &mut Cx) -> Outcome {
    let h = msghdr { namelen: 8, controllen: 24, ..msghdr::default() };
    run(cx, (2, 128), &[5, 7, 60, 3], h)?;
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    one.connect(two.local_addr()?)?;
    let mut mem = vec![b'-'; 256];
    let page = buffers(cx, &ring, &mut mem, 128);
    let mut h = msghdr { namelen: 16, ..msghdr::default() };
    cx.start(&mut ring, &[multi(two.as_raw_fd(), &mut h)]);
    tell(cx, &mut ring, one.as_fd(), &[5, 9, 30, 2, 2])?;
    // The port varies and is not recorded.
    for at in (0..256).filter(|at| mem[*at..].starts_with(&[2, 0])).collect::<Vec<_>>() {
        mem[at + 2..at + 4].fill(b'p');
    }
    rest(cx, page, &mem, 2);
    Ok(())
}

fn messages_stream(cx: &mut Cx) -> Outcome {
    for (size, sizes) in [((3, 64), &[10, 60, 60]), ((8, 32), &[40, 1, 16])] {
        for waits in [true, false] {
            let (one, two) = UnixStream::pair()?;
            into(cx, size, sizes, &mut msghdr::default(), waits, one.as_fd(), two.as_fd())?;
        }
    }
    Ok(())
}

fn messages_empty(cx: &mut Cx) -> Outcome {
    run(cx, (2, 64), &[0, 3, 0, 1], msghdr::default())
}

fn messages_full(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(2, 0)?;
    let mut mem = vec![b'-'; 256];
    let page = buffers(cx, &ring, &mut mem, 128);
    let (one, two) = UnixDatagram::pair()?;
    for letter in b'a'..b'g' {
        one.send(&[letter; 3])?;
    }
    let mut h = msghdr::default();
    cx.start(&mut ring, &[multi(two.as_raw_fd(), &mut h)]);
    for _ in 0..2 {
        ring.enter(0, 0, IORING_ENTER_GETEVENTS);
        note_cqes(cx, &mut ring, "there");
    }
    rest(cx, page, &mem, 2);
    Ok(())
}

fn single_shot_message(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut mem = vec![b'-'; 128];
    let page = buffers(cx, &ring, &mut mem, 64);
    let (one, two) = UnixDatagram::pair()?;
    for n in [5, 0, 20, 100, 7] {
        one.send(&[b'x'; 128][..n])?;
        let mut h = msghdr::default();
        let s = take(two.as_raw_fd(), &mut h).with(IOSQE_BUFFER_SELECT);
        ring.push(s.set(|s| s.buf_index = GROUP).ud(1)).submit_wait(1);
        note_cqes(cx, &mut ring, &format!("{n} bytes"));
    }
    rest(cx, page, &mem, 2);
    Ok(())
}

fn buffer_without_address(cx: &mut Cx) -> Outcome {
    let h = &mut msghdr::default();
    for inc in [0, IOU_PBUF_RING_INC] {
        for len in [0u32, 16] {
            for op in [IORING_OP_RECVMSG, IORING_OP_RECV, IORING_OP_READ] {
                for flags in [0, IOSQE_IO_LINK, IOSQE_ASYNC] {
                    let mut ring = cx.ring(8, 0)?;
                    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
                    cx.is("register", register(&ring, &reg(page, 8, inc)), 0isize);
                    os::store(page + 8, &[len]);
                    os::store(page + 14, &[2u16]);
                    let (_one, two) = UnixDatagram::pair()?;
                    let fd = two.as_raw_fd();
                    let sqe = match op {
                        IORING_OP_RECVMSG => take(fd, h),
                        _ => sqe::op(op, fd),
                    };
                    let sqe = sqe.with(IOSQE_BUFFER_SELECT | flags).set(|s| s.buf_index = GROUP);
                    cx.start(&mut ring, &[sqe.ud(1)]);
                    ring.enter(0, 1, IORING_ENTER_GETEVENTS);
                    note_cqes(cx, &mut ring, &format!("{inc} {len} {op} {flags}"));
                    cx.note("left", os::load(page + 8));
                }
            }
        }
    }
    Ok(())
}
