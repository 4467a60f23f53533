//! Ends of bundles and of multishot receives: limits, peers that send no more, and retry limits.

use super::pbuf::{GROUP, provide, reg, register, supply};
use super::prelude::*;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

pub const CASES: &[Case] = &[
    any_order!("bundle_ends", limit_per_receive, [Op(IORING_OP_RECV)], "the bytes of a bundle's first receive count again with its second receive"),
    case!("bundle_ends", worker_after_peer_shutdown, [Op(IORING_OP_SEND)], "a worker ends a bundle whose peer sends no more"),
    any_order!("bundle_ends", dontwait_ends_early, [Op(IORING_OP_RECV)], "a request that must not wait ends with its first turn"),
    any_order!("bundle_ends", second_receive_no_buffer, [Op(IORING_OP_RECV)], "if the second receive of a bundle finds no buffer, the CQE still tells whether room was left"),
    any_order!("bundle_ends", buffers_named_again, [Op(IORING_OP_RECV)], "buffers that the tail names again are used again, or are used up"),
    any_order!("bundle_ends", wait_all_memory_end, [Op(IORING_OP_RECV)], "a bundle with MSG_WAITALL repeats its second receive where memory ends, and fails"),
];

fn limit_per_receive(cx: &mut Cx) -> Outcome {
    for (limit, n) in [(50, 90), (25, 90), (30, 90), (31, 90), (60, 90), (50, 24), (20, 20)] {
        for listed in [true, false] {
            let mut ring = cx.ring(8, 0)?;
            let mut mem = [0u8; 200];
            if listed {
                cx.one(&mut ring, "provide", provide(&mut mem, 10, 0), 0);
            } else {
                let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
                cx.is("register", register(&ring, &reg(page, 16, 0)), 0isize);
                supply(page, 0, 16, &mut mem[..160], 10);
            }
            let (mut one, two) = UnixStream::pair()?;
            one.write_all(&vec![b'x'; n])?;
            let many = sqe::op(IORING_OP_RECV, two.as_raw_fd()).with(IOSQE_BUFFER_SELECT);
            let many = many.set(|s| {
                (s.buf_index, s.file_index) = (GROUP, limit);
                s.ioprio = IORING_RECVSEND_BUNDLE | IORING_RECV_MULTISHOT;
            });
            cx.start(&mut ring, &[many.ud(1)]);
            std::thread::sleep(std::time::Duration::from_millis(20));
            let got: Vec<_> = ring.pop_all().iter().map(|c| (c.res, c.flags)).collect();
            cx.note("brought", format_args!("{limit} {n} {listed}: {got:x?}"));
        }
    }
    Ok(())
}

fn worker_after_peer_shutdown(cx: &mut Cx) -> Outcome {
    let (one, two) = UnixStream::pair()?;
    one.set_nonblocking(true)?;
    two.shutdown(Shutdown::Write)?;
    gives_up(cx, &one)?;
    let (one, two) = super::net::pair()?;
    one.set_nonblocking(true)?;
    two.shutdown(Shutdown::Write)?;
    gives_up(cx, &one)
}

/// Checks a worker's bundle to a non-blocking socket that has no room.
fn gives_up<S: AsRawFd>(cx: &mut Cx, socket: &S) -> Outcome
where
    for<'a> &'a S: Write,
{
    let (mut ring, mut to) = (cx.ring(8, 0)?, socket);
    while to.write(&[b'x'; 65536]).is_ok() {}
    let bundle = sqe::op(IORING_OP_SEND, socket.as_raw_fd()).with(IOSQE_ASYNC).ud(1);
    cx.start(&mut ring, &[bundle.set(|s| s.ioprio = IORING_RECVSEND_BUNDLE)]);
    cx.reap(&mut ring, "given up", &[(1, -ECANCELED)]);
    Ok(())
}

fn dontwait_ends_early(cx: &mut Cx) -> Outcome {
    let both = IORING_RECV_MULTISHOT | IORING_RECVSEND_BUNDLE;
    for (what, ioprio, len) in [("capped", both, 8), ("one by one", IORING_RECV_MULTISHOT, 0)] {
        for setup in [0, DEFER] {
            for n in [4, 100] {
                let mut ring = cx.ring(8, setup)?;
                let mut mem = [0u8; 256];
                let each = if len == 0 { 1 } else { 16 };
                let list = provide(&mut mem, each, 0);
                cx.one(&mut ring, "provide", list, 0);
                let (mut one, two) = UnixStream::pair()?;
                one.write_all(&vec![b'x'; n])?;
                let many = sqe::rw(IORING_OP_RECV, two.as_raw_fd(), 0, len, 0);
                let many = many.with(IOSQE_BUFFER_SELECT).op_flags(libc::MSG_DONTWAIT as u32);
                let many = many.set(|s| (s.buf_index, s.ioprio) = (GROUP, ioprio)).ud(1);
                cx.start(&mut ring, &[many]);
                std::thread::sleep(std::time::Duration::from_millis(5));
                ring.enter(0, 0, IORING_ENTER_GETEVENTS);
                let got: Vec<_> = ring.pop_all().iter().map(|c| (c.res, c.flags & 7)).collect();
                let last = got.last().copied().unwrap_or_default();
                cx.note(what, format_args!("{n}: {} of them, then {last:?}", got.len()));
            }
        }
    }
    Ok(())
}

/// Receives into a ring of a 4-byte buffer and an empty one, whose tail names both again and again.
fn second_receive_no_buffer(cx: &mut Cx) -> Outcome {
    for (n, len) in [(4, 10), (12, 10), (13, 10), (40, 10), (40, 8), (40, 0)] {
        for how in [0, IORING_RECV_MULTISHOT] {
            let mut ring = cx.ring(8, 0)?;
            let mut mem = [0u8; 8];
            let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
            cx.is("register", register(&ring, &reg(page, 2, IOU_PBUF_RING_INC)), 0isize);
            supply(page, 0, 2, &mut mem, 4);
            os::store(page + 24, &[0u32]);
            os::store(page + 14, &[100u16]);
            let (mut one, two) = UnixStream::pair()?;
            one.write_all(&vec![b'x'; n])?;
            let recv = sqe::op(IORING_OP_RECV, two.as_raw_fd()).with(IOSQE_BUFFER_SELECT);
            let how = IORING_RECVSEND_BUNDLE | how;
            let recv = recv.set(|s| (s.buf_index, s.ioprio, s.len) = (GROUP, how, len));
            cx.start(&mut ring, &[recv.ud(1)]);
            std::thread::sleep(std::time::Duration::from_millis(20));
            let got: Vec<_> = ring.pop_all().iter().map(|c| (c.res, c.flags)).collect();
            cx.note("brought", format_args!("{n} {len} {how}: {got:x?}"));
        }
    }
    Ok(())
}

/// Flags, distance of the tail from the entries, bytes available, bytes asked for.
const AGAIN: [(u16, u16, usize, u32); 6] = [
    (0, 3, 200, 0),
    (IOU_PBUF_RING_INC, 1, 200, 0),
    (IOU_PBUF_RING_INC, 1, 200, 4),
    (IOU_PBUF_RING_INC, 3, 200, 4),
    (IOU_PBUF_RING_INC, 3, 90, 0),
    (IOU_PBUF_RING_INC, 100, 900, 4),
];

fn buffers_named_again(cx: &mut Cx) -> Outcome {
    for (flags, ahead, n, len) in AGAIN {
        for how in [0, IORING_RECV_MULTISHOT] {
            let mut ring = cx.ring(8, 0)?;
            let mut mem = [0u8; 80];
            let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
            cx.is("register", register(&ring, &reg(page, 8, flags)), 0isize);
            supply(page, 0, 8, &mut mem, 10);
            os::store(page + 14, &[8 + ahead]);
            let (mut one, two) = UnixStream::pair()?;
            one.write_all(&vec![b'x'; n])?;
            let how = IORING_RECVSEND_BUNDLE | how;
            let recv = sqe::op(IORING_OP_RECV, two.as_raw_fd()).with(IOSQE_BUFFER_SELECT);
            let recv = recv.set(|s| (s.buf_index, s.ioprio, s.len) = (GROUP, how, len));
            cx.start(&mut ring, &[recv.ud(1)]);
            std::thread::sleep(std::time::Duration::from_millis(20));
            let got: Vec<_> = ring.pop_all().iter().map(|c| (c.res, c.flags)).collect();
            cx.note("brought", format_args!("{flags} {ahead} {n} {len} {how}: {got:x?}"));
        }
    }
    Ok(())
}

fn wait_all_memory_end(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    cx.is("register", register(&ring, &reg(page, 8, IOU_PBUF_RING_INC)), 0isize);
    let border = os::border();
    for (i, (at, len)) in [(border - 200, 20u32), (border - 100, 1 << 20)].into_iter().enumerate() {
        os::store(page + 16 * i, &[at as u64]);
        os::store(page + 16 * i + 8, &[len]);
        os::store(page + 16 * i + 12, &[i as u16]);
    }
    os::store(page + 14, &[2u16]);
    let (mut one, two) = UnixStream::pair()?;
    for _ in 0..4 {
        one.write_all(&[b'x'; 60])?;
    }
    let all = sqe::op(IORING_OP_RECV, two.as_raw_fd()).with(IOSQE_BUFFER_SELECT);
    let all = all.set(|s| {
        (s.buf_index, s.ioprio) = (GROUP, IORING_RECVSEND_BUNDLE);
        s.op_flags = libc::MSG_WAITALL.cast_unsigned();
    });
    cx.start(&mut ring, &[all.ud(1)]);
    std::thread::sleep(std::time::Duration::from_millis(20));
    let got: Vec<_> = ring.pop_all().iter().map(|c| (c.res, c.flags)).collect();
    cx.note("brought", format_args!("{got:x?}"));
    Ok(())
}
