//! Corners of connections that random programs have found: each was once otherwise on softring.

use super::pbuf::{GROUP, provide, refill, reg, register};
use super::prelude::*;

pub const CASES: &[Case] = &[
    case!("corners_conn", ring_before_buffer, [Op(IORING_OP_READ), Sqe(IOSQE_BUFFER_SELECT)], "a buffer is picked before a ring says that it cannot be read"),
];

fn ring_before_buffer(cx: &mut Cx) -> Outcome {
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
