//! Sends from provided buffers, and bundles: several buffers in one transfer.

use super::net::{arrived, pair, seen};
use super::pbuf::{GROUP, provide, refill, reg, register};
use super::prelude::*;
use libc::ENOBUFS;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    any_order!("net_bundle", send_list, [Op(IORING_OP_SEND), Sqe(IOSQE_BUFFER_SELECT)], "a send picks a buffer of a list"),
    any_order!("net_bundle", send_ring, [Op(IORING_OP_SEND), Sqe(IOSQE_BUFFER_SELECT)], "a send picks a buffer of a ring"),
    legal!("net_bundle", send, [Op(IORING_OP_SEND)], "a bundle sends all available buffers"),
    legal!("net_bundle", send_more, [Op(IORING_OP_SEND)], "a length limits each part of a bundle"),
    any_order!("net_bundle", receive, [Op(IORING_OP_RECV)], "a bundle receives into as many buffers as it needs"),
    any_order!("net_bundle", receive_limited, [Op(IORING_OP_RECV)], "a length limits a received bundle"),
    legal!("net_bundle", receive_multishot, [Op(IORING_OP_RECV)], "a multishot bundle receives until the last buffer is used"),
    legal!("net_bundle", empty_buffer, [Op(IORING_OP_RECV)], "a buffer of length 0 counts as no buffer once more data are known"),
    legal!("net_bundle", waits_before_next_buffer, [Op(IORING_OP_RECV)], "a bundle that has received enough waits for data before it picks a buffer"),
    any_order!("net_bundle", receive_wait_all, [Op(IORING_OP_RECV)], "MSG_WAITALL fills the buffers of a bundle"),
    any_order!("net_bundle", send_waits, [Op(IORING_OP_SEND)], "a send bundle keeps its picked buffers while it waits for room"),
    any_order!("net_bundle", incremental, [Op(IORING_OP_RECV), Op(IORING_OP_SEND)], "a bundle uses incremental buffers"),
    any_order!("net_bundle", receive_list, [Op(IORING_OP_RECV)], "a bundle takes one buffer at a time from a list"),
    any_order!("net_bundle", receive_list_multishot, [Op(IORING_OP_RECV), Op(IORING_OP_PROVIDE_BUFFERS)], "a multishot bundle receives from a list until the list is empty"),
    any_order!("net_bundle", worker_waits, [Op(IORING_OP_RECV), Sqe(IOSQE_IO_LINK)], "a worker waits on a socket that does not block"),
    case!("net_bundle", continues_after_first_buffer, [Op(IORING_OP_RECV), Sqe(IOSQE_ASYNC)], "a worker, or MSG_WAITALL, continues after the first buffer"),
    any_order!("net_bundle", null_in_worker, [Op(IORING_OP_RECV), Sqe(IOSQE_ASYNC)], "in a worker a buffer at address 0 is used up, but counts as no buffer"),
];

fn send_one(fd: i32, len: usize) -> io_uring_sqe {
    let s = sqe::rw(IORING_OP_SEND, fd, 0, len, 0).with(IOSQE_BUFFER_SELECT);
    s.set(|s| s.buf_index = GROUP)
}

fn bundle(opcode: u8, fd: i32, len: usize) -> io_uring_sqe {
    let s = sqe::rw(opcode, fd, 0, len, 0).with(IOSQE_BUFFER_SELECT);
    s.set(|s| (s.buf_index, s.ioprio) = (GROUP, IORING_RECVSEND_BUNDLE))
}

/// Submits a request and checks all CQEs that come within a moment.
fn all(cx: &mut Cx, ring: &mut Ring, what: &str, s: io_uring_sqe, want: &[i32]) -> Outcome {
    cx.start(ring, &[s.ud(1)]);
    let want: Vec<_> = want.iter().map(|res| (1, *res)).collect();
    cx.reap_in_order(ring, what, &want);
    cx.quiet(ring, "no more", 10);
    Ok(())
}

/// Sets up a ring with a buffer ring of eight entries, of which `mem` fills as many as fit.
fn with_buffers(cx: &mut Cx, mem: &mut [u8]) -> Result<(Ring, usize), Stop> {
    let ring = cx.ring(8, 0)?;
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    cx.is("register", register(&ring, &reg(page, 8, 0)), 0isize);
    refill(page, 0, 8, mem);
    Ok((ring, page))
}

/// Records the lengths that are in the buffer ring now.
fn lengths(cx: &mut Cx, page: usize) {
    let lengths: Vec<_> = (0..4).map(|i| os::load(page + 16 * i + 8)).collect();
    cx.note("lengths", format_args!("{lengths:?}"));
}

fn send_list(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, mut two) = UnixStream::pair()?;
    let fd = one.as_raw_fd();
    let mut mem = *b"0123456789abcdefghijklmnopqrstuv";
    cx.one(&mut ring, "no group", send_one(fd, 0), -libc::ENOENT);
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 40), 0);
    cx.one(&mut ring, "all", send_one(fd, 0), 8);
    let some = cx.one(&mut ring, "some", send_one(fd, 4), 8);
    cx.note("some", some.res);
    one.shutdown(std::net::Shutdown::Write)?;
    cx.one(&mut ring, "failed", send_one(fd, 0), -EPIPE);
    cx.one(&mut ring, "failed again", send_one(fd, 0), -EPIPE);
    cx.one(&mut ring, "used up", send_one(fd, 0), -ENOBUFS);
    let mut got = [0u8; 16];
    two.read_exact(&mut got)?;
    cx.eq("data", seen(&got), "0123456789abcdef".to_owned());
    Ok(())
}

fn send_ring(cx: &mut Cx) -> Outcome {
    let mut mem = *b"0123456789abcdefghijklmnopqrstuv";
    let (mut ring, page) = with_buffers(cx, &mut mem)?;
    let (one, mut two) = UnixStream::pair()?;
    let fd = one.as_raw_fd();
    cx.one(&mut ring, "all", send_one(fd, 0), 8);
    cx.one(&mut ring, "some", send_one(fd, 4), 4);
    lengths(cx, page);
    one.shutdown(std::net::Shutdown::Write)?;
    cx.one(&mut ring, "failed", send_one(fd, 0), -EPIPE);
    cx.one(&mut ring, "failed again", send_one(fd, 100), -EPIPE);
    cx.one(&mut ring, "used up", send_one(fd, 0), -ENOBUFS);
    let mut got = [0u8; 12];
    two.read_exact(&mut got)?;
    cx.eq("data", seen(&got), "0123456789ab".to_owned());
    Ok(())
}

fn send(cx: &mut Cx) -> Outcome {
    let mut mem = *b"0123456789abcdefghijklmnopqrstuv";
    let (mut ring, page) = with_buffers(cx, &mut mem)?;
    let (one, mut two) = UnixStream::pair()?;
    let fd = one.as_raw_fd();
    all(cx, &mut ring, "all there is", bundle(IORING_OP_SEND, fd, 0), &[32])?;
    all(cx, &mut ring, "none", bundle(IORING_OP_SEND, fd, 0), &[-ENOBUFS])?;
    refill(page, 4, 8, &mut mem[..8]);
    all(cx, &mut ring, "one", bundle(IORING_OP_SEND, fd, 0), &[8])?;
    let mut got = [0u8; 40];
    two.read_exact(&mut got)?;
    cx.eq("data", seen(&got), "0123456789abcdefghijklmnopqrstuv01234567".to_owned());
    refill(page, 5, 8, &mut mem[..16]);
    one.shutdown(std::net::Shutdown::Write)?;
    all(cx, &mut ring, "failed", bundle(IORING_OP_SEND, fd, 0), &[-EPIPE])?;
    all(cx, &mut ring, "used up", bundle(IORING_OP_SEND, fd, 0), &[-ENOBUFS])
}

fn send_more(cx: &mut Cx) -> Outcome {
    for len in [8, 16, 20, 32, 100] {
        let mut mem = *b"0123456789abcdefghijklmnopqrstuv";
        let (mut ring, page) = with_buffers(cx, &mut mem)?;
        let (one, two) = UnixStream::pair()?;
        cx.note("length", len);
        cx.start(&mut ring, &[bundle(IORING_OP_SEND, one.as_raw_fd(), len).ud(1)]);
        std::thread::sleep(Duration::from_millis(10));
        let got = ring.pop_all();
        let want: Vec<_> = got.iter().map(|c| (c.user_data, c.res)).collect();
        cx.completions("sent", &got, &want);
        drop(one);
        let mut text = String::new();
        (&two).read_to_string(&mut text)?;
        cx.note("data", text);
        lengths(cx, page);
    }
    Ok(())
}

fn receive(cx: &mut Cx) -> Outcome {
    for (text, want) in [("abc", 3), ("01234567", 8), ("0123456789abcdef", 16)] {
        let mut mem = [b'-'; 32];
        let (mut ring, _) = with_buffers(cx, &mut mem)?;
        let (mut one, two) = pair()?;
        let fd = two.as_raw_fd();
        one.write_all(text.as_bytes())?;
        arrived(fd, text.len());
        all(cx, &mut ring, "there", bundle(IORING_OP_RECV, fd, 0), &[want])?;
        cx.eq("data", seen(&mem[..text.len()]), text.to_owned());
    }
    let mut mem = [b'-'; 32];
    let (mut ring, _) = with_buffers(cx, &mut mem)?;
    let (mut one, two) = pair()?;
    let fd = two.as_raw_fd();
    one.write_all(b"0123456789abcdefghij")?;
    arrived(fd, 20);
    all(cx, &mut ring, "a part left", bundle(IORING_OP_RECV, fd, 0), &[16])?;
    one.write_all(b"klmnopqrstuv and more")?;
    arrived(fd, 25);
    all(cx, &mut ring, "all buffers", bundle(IORING_OP_RECV, fd, 0), &[16])?;
    cx.eq("data", seen(&mem), "0123456789abcdefghijklmnopqrstuv".to_owned());
    all(cx, &mut ring, "none left", bundle(IORING_OP_RECV, fd, 0), &[-ENOBUFS])?;
    let none = bundle(IORING_OP_RECV, fd, 0).set(|s| s.buf_index = 77);
    all(cx, &mut ring, "no group", none, &[-ENOENT])
}

fn receive_limited(cx: &mut Cx) -> Outcome {
    for (len, want) in [(4, 4), (8, 24), (16, 24), (100, 30)] {
        let mut mem = [b'-'; 32];
        let (mut ring, page) = with_buffers(cx, &mut mem)?;
        let (mut one, two) = pair()?;
        one.write_all(b"0123456789abcdefghijklmnopqrst")?;
        arrived(two.as_raw_fd(), 30);
        cx.note("length", len);
        all(cx, &mut ring, "received", bundle(IORING_OP_RECV, two.as_raw_fd(), len), &[want])?;
        lengths(cx, page);
    }
    let mut mem = [b'-'; 32];
    let (mut ring, page) = with_buffers(cx, &mut mem)?;
    let (mut one, two) = pair()?;
    one.write_all(b"0123456789")?;
    arrived(two.as_raw_fd(), 10);
    all(cx, &mut ring, "a little more", bundle(IORING_OP_RECV, two.as_raw_fd(), 0), &[10])?;
    lengths(cx, page);
    Ok(())
}

fn receive_multishot(cx: &mut Cx) -> Outcome {
    let mut mem = [b'-'; 64];
    let (mut ring, _) = with_buffers(cx, &mut mem)?;
    let (mut one, two) = pair()?;
    let many = bundle(IORING_OP_RECV, two.as_raw_fd(), 0);
    let many = many.set(|s| s.ioprio |= IORING_RECV_MULTISHOT);
    cx.start(&mut ring, &[many.ud(1)]);
    for text in ["abc", "01234567", "0123456789abcdef"] {
        one.write_all(text.as_bytes())?;
        cx.reap_in_order(&mut ring, "came", &[(1, text.len() as i32)]);
    }
    drop(one);
    cx.reap_in_order(&mut ring, "the end", &[(1, 0)]);
    Ok(())
}

fn empty_buffer(cx: &mut Cx) -> Outcome {
    for empty in [0, 1, 2] {
        let mut mem = [b'-'; 32];
        let (mut ring, page) = with_buffers(cx, &mut mem)?;
        os::store(page + 16 * empty + 8, &[0u32]);
        let (mut one, two) = pair()?;
        one.write_all(b"0123456789abcdefghij")?;
        arrived(two.as_raw_fd(), 20);
        let many = bundle(IORING_OP_RECV, two.as_raw_fd(), 0);
        cx.start(&mut ring, &[many.set(|s| s.ioprio |= IORING_RECV_MULTISHOT).ud(1)]);
        std::thread::sleep(Duration::from_millis(10));
        let seen: Vec<_> = ring.pop_all().iter().map(|c| (c.res, c.flags)).collect();
        cx.note("seen", format_args!("{empty}: {seen:x?}"));
    }
    Ok(())
}

fn waits_before_next_buffer(cx: &mut Cx) -> Outcome {
    let mut mem = [b'-'; 8];
    let (mut ring, _) = with_buffers(cx, &mut mem)?;
    let (one, two) = std::os::unix::net::UnixDatagram::pair()?;
    let many = bundle(IORING_OP_RECV, two.as_raw_fd(), 1);
    cx.start(&mut ring, &[many.set(|s| s.ioprio |= IORING_RECV_MULTISHOT).ud(1)]);
    one.send(b"0123")?;
    cx.reap(&mut ring, "as many as it takes", &[(1, 1)]);
    cx.quiet(&ring, "no more", 10);
    one.send(b"0123")?;
    cx.reap(&mut ring, "no buffer", &[(1, -ENOBUFS)]);
    Ok(())
}

fn receive_list(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (mut one, two) = pair()?;
    let fd = two.as_raw_fd();
    let mut mem = [b'-'; 32];
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
    one.write_all(b"0123456789abcdefghij")?;
    arrived(fd, 20);
    all(cx, &mut ring, "one", bundle(IORING_OP_RECV, fd, 0), &[16])?;
    cx.note("data", seen(&mem));
    Ok(())
}

fn receive_wait_all(cx: &mut Cx) -> Outcome {
    let mut mem = [b'-'; 32];
    let (mut ring, _) = with_buffers(cx, &mut mem)?;
    let (mut one, two) = pair()?;
    let get = bundle(IORING_OP_RECV, two.as_raw_fd(), 16).op_flags(libc::MSG_WAITALL as u32);
    cx.start(&mut ring, &[get.link().ud(1), sqe::nop().ud(2)]);
    one.write_all(b"0123")?;
    cx.quiet(&ring, "not yet", 20);
    one.write_all(b"456789abcdef")?;
    cx.reap_in_order(&mut ring, "all", &[(1, 16), (2, 0)]);
    cx.eq("data", seen(&mem), "0123456789abcdef----------------".to_owned());
    Ok(())
}

fn send_waits(cx: &mut Cx) -> Outcome {
    let mut mem = *b"0123456789abcdefghijklmnopqrstuv";
    let (mut ring, _) = with_buffers(cx, &mut mem)?;
    let (mut one, mut two) = UnixStream::pair()?;
    one.set_nonblocking(true)?;
    let mut full = 0;
    while let Ok(n) = one.write(&[7u8; 4096]) {
        full += n;
    }
    let fd = one.as_raw_fd();
    cx.start(&mut ring, &[send_one(fd, 0).ud(1)]);
    cx.quiet(&ring, "waits", 20);
    // A send that has waited ends with one step, though there are more buffers.
    cx.start(&mut ring, &[bundle(IORING_OP_SEND, fd, 8).ud(2)]);
    cx.start(&mut ring, &[bundle(IORING_OP_SEND, fd, 0).ud(3)]);
    cx.quiet(&ring, "wait behind", 20);
    cx.one(&mut ring, "none left", send_one(fd, 0), -ENOBUFS);
    two.read_exact(&mut vec![0u8; full])?;
    cx.reap(&mut ring, "room", &[(1, 8), (2, 8), (3, 16)]);
    let mut got = [0u8; 32];
    two.read_exact(&mut got)?;
    got.sort_unstable();
    cx.holds("data", got == mem);
    Ok(())
}

fn incremental(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    cx.is("register", register(&ring, &reg(page, 8, IOU_PBUF_RING_INC)), 0isize);
    let mut mem = *b"0123456789abcdefghijklmnopqrstuv";
    refill(page, 0, 8, &mut mem);
    let (mut one, two) = pair()?;
    let give = send_one(one.as_raw_fd(), 0);
    cx.one(&mut ring, "send some", give.set(|s| s.len = 3), 3);
    cx.one(&mut ring, "send the rest", give, 5);
    arrived(two.as_raw_fd(), 8);
    let take = sqe::rw(IORING_OP_RECV, two.as_raw_fd(), 0, 0, 0).with(IOSQE_BUFFER_SELECT);
    let take = take.set(|s| s.buf_index = GROUP);
    cx.one(&mut ring, "receive some", take.set(|s| s.len = 3), 3);
    cx.one(&mut ring, "receive the rest", take, 5);
    one.write_all(b"ABCDEFGHIJ")?;
    arrived(two.as_raw_fd(), 10);
    all(cx, &mut ring, "a bundle", bundle(IORING_OP_RECV, two.as_raw_fd(), 0), &[10])?;
    cx.eq("data", seen(&mem), "0123456701234567ABCDEFGHIJqrstuv".to_owned());
    Ok(())
}

fn receive_list_multishot(cx: &mut Cx) -> Outcome {
    for (bytes, len, nbufs) in [(3, 0, 3), (9, 0, 3), (9, 0, 6), (9, 3, 6), (5, 3, 3), (4, 1, 4)] {
        cx.note("case", format_args!("{bytes} {len} {nbufs}"));
        let (mut ring, mut mem) = (cx.ring(8, 0)?, [0u8; 12]);
        let mem = &mut mem[..2 * nbufs];
        cx.one(&mut ring, "provide", provide(mem, 2, 0), 0);
        let (mut one, two) = UnixStream::pair()?;
        one.write_all(&b"0123456789"[..bytes])?;
        let recv = bundle(IORING_OP_RECV, two.as_raw_fd(), len);
        cx.start(&mut ring, &[recv.set(|s| s.ioprio |= IORING_RECV_MULTISHOT).ud(1)]);
        std::thread::sleep(Duration::from_millis(5));
        for got in ring.pop_all() {
            cx.note("received", format_args!("{} {:#x}", got.res, got.flags));
        }
        drop(one);
        std::thread::sleep(Duration::from_millis(5));
        for got in ring.pop_all() {
            cx.note("at the end", format_args!("{} {:#x}", got.res, got.flags));
        }
        cx.note("memory", format_args!("{:?}", std::hint::black_box(&mem)));
    }
    Ok(())
}

fn worker_waits(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut mem = [0u8; 16];
    let (mut one, two) = UnixStream::pair()?;
    two.set_nonblocking(true)?;
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
    // A worker runs a chain that its batch leaves open.
    let recv = bundle(IORING_OP_RECV, two.as_raw_fd(), 0).with(IOSQE_IO_LINK);
    cx.start(&mut ring, &[recv.ud(1)]);
    cx.quiet(&ring, "waits", 20);
    one.write_all(b"data")?;
    cx.reap(&mut ring, "received", &[(1, 4)]);
    Ok(())
}

/// Checks bundles that the batch issues, and bundles that a worker runs, because of IOSQE_ASYNC or
/// of an open chain. `there` bytes are in the socket before, twelve more come later.
fn continues_after_first_buffer(cx: &mut Cx) -> Outcome {
    let (first, whole) = (IORING_RECVSEND_POLL_FIRST, libc::MSG_WAITALL as u32);
    for (what, how, ioprio, flags) in [
        ("here", 0, 0, 0),
        ("here, whole", 0, 0, whole),
        ("in a worker", IOSQE_ASYNC, 0, 0),
        ("in a worker, once ready", IOSQE_ASYNC, first, 0),
        ("in a worker, whole", IOSQE_ASYNC, 0, whole),
        ("in a worker, once ready, whole", IOSQE_ASYNC, first, whole),
        ("left open", IOSQE_IO_LINK, 0, 0),
        ("left open, once ready", IOSQE_IO_LINK, first, 0),
        ("left open, whole", IOSQE_IO_LINK, 0, whole),
    ] {
        for (there, len) in [(20, 0), (20, 3), (20, 12), (12, 0), (8, 0), (3, 0), (5, 12), (0, 0)] {
            for kind in ["a ring", "bit by bit", "a list"] {
                cx.note("case", format_args!("{what}, {there} there, {len} wanted, {kind}"));
                let recv = bundle(IORING_OP_RECV, -1, len).with(how).op_flags(flags);
                two_steps(cx, recv.set(|s| s.ioprio |= ioprio), there, kind)?;
            }
        }
    }
    Ok(())
}

fn two_steps(cx: &mut Cx, recv: io_uring_sqe, there: usize, kind: &str) -> Outcome {
    let (mut ring, mut mem) = (cx.ring(8, 0)?, [b'-'; 32]);
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    if kind == "a list" {
        cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
    } else {
        let flags = if kind == "a ring" { 0 } else { IOU_PBUF_RING_INC };
        cx.is("register", register(&ring, &reg(page, 8, flags)), 0isize);
        refill(page, 0, 8, &mut mem);
    }
    let (mut one, two) = UnixStream::pair()?;
    one.write_all(&b"0123456789abcdefghij"[..there])?;
    cx.start(&mut ring, &[recv.set(|s| s.fd = two.as_raw_fd()).ud(1)]);
    let end = Instant::now() + Duration::from_millis(30);
    while ring.cq_ready() == 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_micros(200));
    }
    one.write_all(b"klmnopqrstuv")?;
    let got = ring.take(1)?[0];
    cx.note("received", format_args!("{} {:#x} {}", got.res, got.flags, seen(&mem)));
    // The next receive shows which buffer is left.
    let next = sqe::rw(IORING_OP_RECV, two.as_raw_fd(), 0, 1, 0).with(IOSQE_BUFFER_SELECT);
    one.write_all(b"wx")?;
    ring.push(next.set(|s| s.buf_index = GROUP)).submit_wait(1);
    let got = ring.take(1)?[0];
    cx.note("then", format_args!("{} {:#x}", got.res, got.flags));
    lengths(cx, page);
    Ok(())
}

pub(super) fn null_in_worker(cx: &mut Cx) -> Outcome {
    let mut mem = [0u8; 8];
    // Address 0 is that of the first or of the second buffer, with and without a length.
    for (flags, len) in [(0, 0), (0, 8), (IOU_PBUF_RING_INC, 0), (IOU_PBUF_RING_INC, 8)] {
        for (at, null) in [("first", 0), ("second", 1)] {
            for (what, how) in [("in a worker", IOSQE_ASYNC), ("here", 0)] {
                let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
                let mut ring = cx.ring(8, 0)?;
                cx.is("register", register(&ring, &reg(page, 4, flags)), 0isize);
                for (i, addr, len) in [(1 - null, addr_mut(&mut mem) as u64, 8), (null, 0, len)] {
                    os::store(page + i * 16, &[addr]);
                    os::store(page + i * 16 + 8, &[len, 5 + i as u32]);
                }
                os::store(page + 14, &[2u16]);
                let (mut one, two) = UnixStream::pair()?;
                one.write_all(b"0123456789abcdef")?;
                let recv = bundle(IORING_OP_RECV, two.as_raw_fd(), 0).with(how);
                cx.start(&mut ring, &[recv.ud(1)]);
                let got = ring.take(1)?[0];
                let told = format_args!("{} {:#x}", got.res, got.flags).to_string();
                cx.note(&format!("{at}, {what}"), told);
            }
        }
    }
    Ok(())
}
