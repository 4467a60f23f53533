//! Rings of provided buffers that a program wrote nonsense into.

use super::net::{arrived, pair, seen};
use super::pbuf::{GROUP, reg, register};
use super::prelude::*;
use std::io::Write;

pub const CASES: &[Case] = &[
    case!("hostile", addresses, [Reg(IORING_REGISTER_PBUF_RING)], "buffers that are not mapped, the kernel's, at the end of all memory"),
    case!("hostile", tails, [Reg(IORING_REGISTER_PBUF_RING)], "a tail far ahead of the head, one that moves back"),
    case!("hostile", lengths, [Reg(IORING_REGISTER_PBUF_RING)], "buffers of no length, or longer than what is mapped"),
    case!("hostile", ids, [Reg(IORING_REGISTER_PBUF_RING)], "ids are the program's own: any, and the same twice"),
    case!("hostile", changed, [Reg(IORING_REGISTER_PBUF_RING)], "what a request picks is what lies there when data come"),
];

/// An entry, and the tail behind it.
fn put(page: usize, slot: usize, at: u64, len: u32, bid: u16) {
    os::store(page + slot * 16, &[at]);
    os::store(page + slot * 16 + 8, &[len]);
    os::store(page + slot * 16 + 12, &[bid]);
}

fn tail(page: usize, tail: u16) {
    os::store(page + 14, &[tail]);
}

fn select(fd: i32, len: usize) -> io_uring_sqe {
    let s = sqe::rw(IORING_OP_RECV, fd, 0, len, 0).with(IOSQE_BUFFER_SELECT);
    s.set(|s| s.buf_index = GROUP)
}

/// A ring with a ring of eight buffers.
fn with_ring(cx: &mut Cx, flags: u16) -> Result<(Ring, usize), Stop> {
    let ring = cx.ring(8, 0)?;
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    cx.is("register", register(&ring, &reg(page, 8, flags)), 0isize);
    Ok((ring, page))
}

fn head(cx: &mut Cx, ring: &Ring) {
    let mut status = io_uring_buf_status { buf_group: GROUP.into(), ..Default::default() };
    let at = addr_mut(std::slice::from_mut(&mut status));
    cx.is("status", ring.register(IORING_REGISTER_PBUF_STATUS, at, 1), 0);
    cx.note("head", std::hint::black_box(&status).head);
}

/// What a request answers, whatever it is: the kernel decides.
fn told(cx: &mut Cx, ring: &mut Ring, what: &str, sqe: io_uring_sqe) -> Outcome {
    ring.push(sqe.ud(1)).submit_wait(1);
    let got = ring.take(1)?;
    let want = got[0].res;
    cx.completions(what, &got, &[(1, want)]);
    Ok(())
}

fn addresses(cx: &mut Cx) -> Outcome {
    for flags in [0, IOU_PBUF_RING_INC] {
        let (mut ring, page) = with_ring(cx, flags)?;
        let (mut one, two) = pair()?;
        let fd = two.as_raw_fd();
        one.write_all(b"0123456789")?;
        arrived(fd, 10);
        let end = u64::MAX - 4;
        let bad = [BAD as u64, KERNEL as u64, end, 0, 1 << 63, 0x7fff_ffff_f000 - 4];
        for (i, at) in (0..).zip(bad) {
            put(page, usize::from(i), at, 8, i);
            tail(page, i + 1);
            told(cx, &mut ring, "a receive", select(fd, 0))?;
            told(cx, &mut ring, "and again", select(fd, 0))?;
            head(cx, &ring);
        }
    }
    Ok(())
}

fn tails(cx: &mut Cx) -> Outcome {
    let (mut ring, page) = with_ring(cx, 0)?;
    let mut mem = [b'-'; 64];
    let (mut one, two) = pair()?;
    let fd = two.as_raw_fd();
    for i in 0..8 {
        put(page, i, (addr_mut(&mut mem) + 8 * i) as u64, 8, i as u16);
    }
    one.write_all(&[b'x'; 80])?;
    arrived(fd, 80);
    for ahead in [8, 9, 1000, 0x7fff, 0x8000, 0xffff] {
        tail(page, ahead);
        told(cx, &mut ring, "far ahead", select(fd, 0))?;
        head(cx, &ring);
    }
    tail(page, 2);
    told(cx, &mut ring, "behind the head", select(fd, 0))?;
    head(cx, &ring);
    tail(page, 7);
    told(cx, &mut ring, "at the head", select(fd, 4))?;
    head(cx, &ring);
    cx.note("data", seen(&mem));
    Ok(())
}

fn lengths(cx: &mut Cx) -> Outcome {
    let (mut ring, page) = with_ring(cx, 0)?;
    let border = os::border();
    let (mut one, two) = pair()?;
    let fd = two.as_raw_fd();
    one.write_all(b"0123456789abcdef")?;
    arrived(fd, 16);
    let mut mem = [b'-'; 16];
    let at = addr_mut(&mut mem) as u64;
    for (i, (what, at, len)) in (0..).zip([
        ("of no length", at, 0),
        ("a gigabyte", at, 1 << 30),
        ("ends in what is not mapped", border as u64 - 2, 64),
    ]) {
        put(page, usize::from(i), at, len, i);
        tail(page, i + 1);
        told(cx, &mut ring, what, select(fd, 4))?;
        head(cx, &ring);
    }
    cx.note("data", seen(&mem));
    // One that failed before it was used up is still there.
    told(cx, &mut ring, "what is left", select(fd, 0))?;
    Ok(())
}

fn ids(cx: &mut Cx) -> Outcome {
    let (mut ring, page) = with_ring(cx, 0)?;
    let mut mem = [b'-'; 16];
    let (mut one, two) = pair()?;
    let fd = two.as_raw_fd();
    one.write_all(&[b'x'; 40])?;
    arrived(fd, 40);
    for (i, bid) in [65535, 9, 9, 0].into_iter().enumerate() {
        put(page, i, addr_mut(&mut mem) as u64, 4, bid);
        tail(page, i as u16 + 1);
        told(cx, &mut ring, "any id", select(fd, 0))?;
    }
    cx.note("data", seen(&mem));
    Ok(())
}

fn changed(cx: &mut Cx) -> Outcome {
    for flags in [0, IOU_PBUF_RING_INC] {
        let (mut ring, page) = with_ring(cx, flags)?;
        let mut mem = [b'-'; 32];
        let at = addr_mut(&mut mem) as u64;
        let (mut one, two) = pair()?;
        let fd = two.as_raw_fd();
        put(page, 0, at, 8, 1);
        tail(page, 1);
        cx.start(&mut ring, &[select(fd, 0).ud(1)]);
        cx.quiet(&ring, "waits", 10);
        put(page, 0, at + 16, 4, 2);
        tail(page, 1);
        one.write_all(b"0123456789")?;
        let got = ring.take(1)?;
        let want = got[0].res;
        cx.completions("came", &got, &[(1, want)]);
        // Used up in part, then given another length by the program.
        os::store(page + 8, &[2u32]);
        arrived(fd, 6);
        tail(page, 2);
        put(page, 1, at + 24, 8, 3);
        told(cx, &mut ring, "the next", select(fd, 3))?;
        head(cx, &ring);
        cx.note("data", seen(&mem));
    }
    Ok(())
}
