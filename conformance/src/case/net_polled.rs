//! RECV with POLL_FIRST after an event that came before it.

use super::net::{arrived, pair, recv};
use super::prelude::*;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

pub const CASES: &[Case] = &[
    case!("net_polled", told_before, [Op(IORING_OP_RECV)], "POLL_FIRST finds data that came while nobody waited"),
    case!("net_polled", taken_before, [Op(IORING_OP_RECV)], "POLL_FIRST waits if read(2) has taken what came"),
    case!("net_polled", ended_before, [Op(IORING_OP_RECV)], "the end of the stream counts as more, though the data came before"),
    case!("net_polled", how_much_is_left, [Op(IORING_OP_RECV)], "a RECV that fills its buffer tells whether there is more"),
];

/// A ring whose request has waited on a connection, and got its bytes.
fn waited(cx: &mut Cx) -> Result<(Ring, TcpStream, TcpStream), Stop> {
    let mut ring = cx.ring(8, 0)?;
    let (mut one, two) = pair()?;
    let mut buf = [0; 4];
    cx.start(&mut ring, &[recv(two.as_raw_fd(), &mut buf).ud(1)]);
    one.write_all(b"0123")?;
    cx.reap(&mut ring, "waits", &[(1, 4)]);
    Ok((ring, one, two))
}

/// Sends four bytes while nobody waits, and has the ring take the event.
fn send_unawaited(cx: &mut Cx, ring: &mut Ring, one: &mut TcpStream, two: &TcpStream) -> Outcome {
    one.write_all(b"4567")?;
    arrived(two.as_raw_fd(), 4);
    let soon = sqe::millis(1);
    cx.one(ring, "a wait meanwhile", sqe::timeout(&soon, 0, 0), -ETIME);
    Ok(())
}

fn polled(two: &TcpStream, buf: &mut [u8]) -> io_uring_sqe {
    recv(two.as_raw_fd(), buf).set(|s| s.ioprio = IORING_RECVSEND_POLL_FIRST)
}

fn told_before(cx: &mut Cx) -> Outcome {
    let (mut ring, mut one, two) = waited(cx)?;
    let mut buf = [0; 4];
    for _ in 0..2 {
        send_unawaited(cx, &mut ring, &mut one, &two)?;
        cx.one(&mut ring, "told before", polled(&two, &mut buf), 4);
    }
    Ok(())
}

fn taken_before(cx: &mut Cx) -> Outcome {
    let (mut ring, mut one, mut two) = waited(cx)?;
    let mut buf = [0; 4];
    send_unawaited(cx, &mut ring, &mut one, &two)?;
    two.read_exact(&mut buf)?;
    cx.start(&mut ring, &[polled(&two, &mut buf).ud(1)]);
    cx.quiet(&ring, "nothing is left", 20);
    one.write_all(b"89ab")?;
    cx.reap(&mut ring, "then", &[(1, 4)]);
    Ok(())
}

/// Waits for one completion, and returns its result and flags as text.
fn completion(ring: &mut Ring) -> Result<String, Stop> {
    ring.submit_wait(1);
    let got = ring.take(1)?;
    Ok(format!("{} {:#x}", got[0].res, got[0].flags))
}

fn ended_before(cx: &mut Cx) -> Outcome {
    let (mut ring, mut one, two) = waited(cx)?;
    let mut buf = [0; 4];
    send_unawaited(cx, &mut ring, &mut one, &two)?;
    one.shutdown(Shutdown::Write)?;
    os::poll(two.as_raw_fd(), libc::POLLRDHUP, -1);
    for name in ["with the end", "at the end"] {
        ring.push(polled(&two, &mut buf));
        cx.note(name, completion(&mut ring)?);
    }
    Ok(())
}

fn how_much_is_left(cx: &mut Cx) -> Outcome {
    let (mut ring, mut one, two) = waited(cx)?;
    let (mut buf, fd) = ([0; 4], two.as_raw_fd());
    for (sent, name) in [("abcd", "all"), ("abcdef", "two more"), ("ab", "less")] {
        cx.start(&mut ring, &[recv(fd, &mut buf).ud(1)]);
        one.write_all(sent.as_bytes())?;
        cx.note(name, completion(&mut ring)?);
        if sent.len() > 4 {
            ring.push(recv(fd, &mut buf));
            cx.note("the rest", completion(&mut ring)?);
        }
    }
    Ok(())
}
