//! MSG_WAITALL of SEND and RECV: the whole, in several steps.

use super::net::{arrived, pair, recv, seen, send};
use super::prelude::*;
use libc::{MSG_DONTWAIT, MSG_WAITALL};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

pub const CASES: &[Case] = &[
    case!("net_all", received, [Op(IORING_OP_RECV)], "MSG_WAITALL takes the rest, over several waits"),
    case!("net_all", sent, [Op(IORING_OP_SEND)], "MSG_WAITALL sends the rest"),
    case!("net_all", ended_early, [Op(IORING_OP_RECV)], "MSG_WAITALL ended early: by the peer, by a cancel, by MSG_DONTWAIT"),
];

fn received(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (mut one, two) = pair()?;
    let mut buf = [b'-'; 9];
    let all = recv(two.as_raw_fd(), &mut buf).op_flags(MSG_WAITALL as u32);
    let chain = [all.link().ud(1), sqe::nop().ud(2)];
    cx.start(&mut ring, &chain);
    for part in ["abc", "def"] {
        one.write_all(part.as_bytes())?;
        cx.quiet(&ring, "not yet", 20);
    }
    one.write_all(b"ghi")?;
    cx.reap(&mut ring, "all", &[(1, 9), (2, 0)]);
    cx.eq("data", seen(&buf), "abcdefghi".to_owned());
    let (mut one, two) = UnixStream::pair()?;
    let all = all.set(|s| s.fd = two.as_raw_fd());
    one.write_all(b"first")?;
    cx.start(&mut ring, &[all.ud(3)]);
    one.write_all(b"2345 and more")?;
    cx.reap(&mut ring, "all of a unix stream", &[(3, 9)]);
    one.write_all(b"1")?;
    cx.one(&mut ring, "by a worker", all.with(IOSQE_ASYNC), 9);
    Ok(())
}

fn sent(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = UnixStream::pair()?;
    let big: Vec<u8> = (0..2_000_000u32).map(|i| i as u8).collect();
    let some = send(one.as_raw_fd(), &big);
    cx.start(&mut ring, &[some.op_flags(MSG_WAITALL as u32).link().ud(1), sqe::nop().ud(2)]);
    cx.quiet(&ring, "not all fits", 20);
    let mut got = vec![0u8; big.len()];
    (&two).read_exact(&mut got)?;
    cx.reap(&mut ring, "all of it", &[(1, 2_000_000), (2, 0)]);
    cx.holds("data", got == big);
    let res = ring.push(some.link().ud(1)).push(sqe::nop().ud(2)).submit_wait(2);
    cx.is("without MSG_WAITALL", res, 2);
    let got = ring.take(2)?;
    cx.holds("some of it", got[0].res > 0 && got[0].res < 2_000_000);
    cx.eq("which breaks no chain", got[1].res, 0);
    Ok(())
}

fn ended_early(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut buf = [b'-'; 9];
    for how in 0..3 {
        let (mut one, two) = pair()?;
        let all = recv(two.as_raw_fd(), &mut buf).op_flags(MSG_WAITALL as u32);
        let now = all.op_flags((MSG_WAITALL | MSG_DONTWAIT) as u32);
        let first = if how == 2 { now } else { all };
        one.write_all(b"abc")?;
        arrived(two.as_raw_fd(), 3);
        cx.start(&mut ring, &[first.link().ud(1), sqe::nop().ud(2)]);
        match how {
            0 => drop(one),
            1 => {
                cx.quiet(&ring, "waits for the rest", 20);
                cx.start(&mut ring, &[sqe::cancel(1, 0).ud(3)]);
                cx.reap(&mut ring, "cancelled", &[(1, 3), (2, -ECANCELED), (3, 0)]);
                continue;
            }
            _ => {}
        }
        cx.reap(&mut ring, "what came", &[(1, 3), (2, -ECANCELED)]);
    }
    Ok(())
}
