//! MSG_WAITALL of SEND and RECV: the whole length in several steps.

use super::net::{arrived, pair, recv, seen, send};
use super::net_msg::{hdr, part, take};
use super::prelude::*;
use libc::{MSG_DONTWAIT, MSG_WAITALL};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

pub const CASES: &[Case] = &[
    any_order!("net_all", received, [Op(IORING_OP_RECV)], "MSG_WAITALL receives the rest over several waits"),
    any_order!("net_all", sent, [Op(IORING_OP_SEND)], "MSG_WAITALL sends the rest over several waits"),
    any_order!("net_all", sent_alone, [Op(IORING_OP_SEND)], "MSG_WAITALL sends the rest without a chain behind it, unless the peer goes or it may not wait"),
    any_order!("net_all", open_chain, [Op(IORING_OP_SEND), Op(IORING_OP_SENDMSG), Sqe(IOSQE_IO_LINK)], "a send at the head of a chain that its batch leaves open sends all, as a worker's blocking send does, unless it may not wait"),
    any_order!("net_all", ended_early, [Op(IORING_OP_RECV)], "MSG_WAITALL ends early: by the peer, by a cancel, by MSG_DONTWAIT"),
    any_order!("net_all", messages, [Op(IORING_OP_RECV), Op(IORING_OP_RECVMSG), Sqe(IOSQE_ASYNC)], "a RECVMSG with MSG_WAITALL in a worker takes the data that are there"),
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

fn sent_alone(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let big: Vec<u8> = (0..2_000_000u32).map(|i| i as u8).collect();
    for how in ["all", "now", "peer goes"] {
        let (one, two) = UnixStream::pair()?;
        let some = send(one.as_raw_fd(), &big).ud(1);
        let little = some.set(|s| s.len = 3).op_flags(MSG_WAITALL as u32);
        for at in ["first", "known"] {
            cx.one(&mut ring, at, little, 3);
        }
        cx.holds("drained", (&two).read_exact(&mut [0; 6]).is_ok());
        let flags = MSG_WAITALL | if how == "now" { MSG_DONTWAIT } else { 0 };
        cx.start(&mut ring, &[some.op_flags(flags as u32)]);
        if how != "now" {
            cx.quiet(&ring, "not all fits", 20);
        }
        if how == "all" {
            let mut got = vec![0u8; big.len()];
            (&two).read_exact(&mut got)?;
            cx.reap(&mut ring, how, &[(1, 2_000_000)]);
            cx.holds("data", got == big);
            continue;
        }
        drop(two);
        ring.submit_wait(1);
        let got = ring.take(1)?;
        cx.holds(how, got[0].res > 0 && got[0].res < 2_000_000);
    }
    Ok(())
}

fn open_chain(cx: &mut Cx) -> Outcome {
    let big: Vec<u8> = (0..1_000_000u32).map(|i| i as u8).collect();
    let parts = [part(&big)];
    for setup in [0, DEFER] {
        let mut ring = cx.ring(8, setup)?;
        for (what, waits) in [("SEND", true), ("SEND", false), ("SENDMSG", true)] {
            let (one, two) = UnixStream::pair()?;
            let header = hdr(&parts);
            let send = match what {
                "SEND" => send(one.as_raw_fd(), &big),
                _ => sqe::rw(IORING_OP_SENDMSG, one.as_raw_fd(), addr(&header), 1, 0),
            };
            let flags = if waits { 0 } else { MSG_DONTWAIT as u32 };
            ring.push(send.op_flags(flags).link().ud(1)).submit();
            if !waits {
                ring.submit_wait(1);
                let got = ring.take(1)?;
                cx.holds("what fits", got[0].res > 0 && got[0].res < 1_000_000);
                continue;
            }
            cx.quiet(&ring, "not all fits", 20);
            let mut got = vec![0u8; big.len()];
            (&two).read_exact(&mut got)?;
            cx.reap(&mut ring, what, &[(1, 1_000_000)]);
            cx.holds("data", got == big);
        }
    }
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

/// Creates a SOCK_SEQPACKET socket with messages of three bytes in it, and its peer.
fn messages_in(count: i32) -> Result<(OwnedFd, OwnedFd), Stop> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    let seq = SocketType::SEQPACKET;
    let (one, two) = socketpair(AddressFamily::UNIX, seq, SocketFlags::CLOEXEC, None)?;
    for _ in 0..count {
        rustix::io::write(&one, b"abc")?;
    }
    Ok((one, two))
}

fn messages(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (mut buf, text) = ([b'-'; 30], [b'-'; 30]);
    for count in 0..4 {
        for flags in [0, IOSQE_ASYNC] {
            for first in [0, IORING_RECVSEND_POLL_FIRST] {
                for message in [false, true] {
                    let (one, two) = messages_in(count)?;
                    let parts = [part(&text)];
                    let mut header = hdr(&parts);
                    let all = match message {
                        true => take(two.as_raw_fd(), &mut header),
                        false => recv(two.as_raw_fd(), &mut buf),
                    };
                    let all = all.op_flags(MSG_WAITALL as u32).set(|s| s.ioprio = first);
                    let what = format!("{count}, flags {flags:#x}, first {first}, {message}");
                    cx.start(&mut ring, &[all.with(flags).link().ud(1), sqe::nop().ud(2)]);
                    // A worker's second attempt blocks if the first found data.
                    let at_first = 1 + i32::from(first == 0);
                    if flags != 0 && count >= at_first {
                        cx.reap(&mut ring, &what, &[(1, 3 * at_first), (2, -ECANCELED)]);
                        continue;
                    }
                    cx.quiet(&ring, &what, 2);
                    rustix::io::write(&one, b"abc")?;
                    cx.quiet(&ring, "one more", 2);
                    drop(one);
                    cx.reap(&mut ring, "its end", &[(1, 3 * (count + 1)), (2, -ECANCELED)]);
                }
            }
        }
    }
    Ok(())
}
