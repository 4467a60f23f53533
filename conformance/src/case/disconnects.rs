//! Peers that disturb a server: they reset, close one half, or stop reading.

use super::net::{pair, recv, send};
use super::pbuf::{GROUP, provide};
use super::prelude::*;
use libc::{ECONNRESET, MSG_WAITALL};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

pub const CASES: &[Case] = &[
    any_order!("disconnects", reset_receivers, [Op(IORING_OP_RECV)], "a reset ends requests that wait for data: one-shot, multishot, read and poll"),
    any_order!("disconnects", reset_sender, [Op(IORING_OP_SEND), Op(IORING_OP_SEND_ZC)], "a reset ends requests that wait for room"),
    any_order!("disconnects", reset_before, [Op(IORING_OP_RECV), Op(IORING_OP_SEND)], "requests after a reset get the error once, then end of file"),
    case!("disconnects", reset_reported_once, [Op(IORING_OP_RECV)], "after the error of a reset was returned, only end of file follows"),
    any_order!("disconnects", reset_after_eof, [Op(IORING_OP_RECV)], "a reset after the end of a stream leaves end of file"),
    any_order!("disconnects", half_closed, [Op(IORING_OP_RECV), Op(IORING_OP_SEND)], "a peer that shut down sending still receives"),
    any_order!("disconnects", own_shutdown, [Op(IORING_OP_RECV), Op(IORING_OP_SHUTDOWN)], "a shutdown wakes requests that wait on the same socket"),
    any_order!("disconnects", peer_stops_reading, [Op(IORING_OP_SEND)], "a send waits, then goes on when the peer reads, or is cancelled"),
];

/// Function that makes a receive from a socket, to memory or into a provided buffer.
type Make = fn(i32, &mut [u8]) -> io_uring_sqe;

/// Closes with SO_LINGER of 0: the peer sees a reset.
fn reset(one: TcpStream) -> Outcome {
    let at_once = Some(std::time::Duration::ZERO);
    rustix::net::sockopt::set_socket_linger(&one, at_once)?;
    drop(one);
    Ok(())
}

fn select(fd: i32, ioprio: u16) -> io_uring_sqe {
    let s = sqe::op(IORING_OP_RECV, fd).with(IOSQE_BUFFER_SELECT);
    s.set(|s| (s.buf_index, s.ioprio) = (GROUP, ioprio))
}

/// Fills the buffers between the two ends; returns the number of bytes.
pub(super) fn fill(one: &mut TcpStream) -> Result<usize, Stop> {
    one.set_nonblocking(true)?;
    let mut full = 0;
    // A late acknowledgement of the peer makes room again.
    for _ in 0..20 {
        while let Ok(n) = one.write(&[7u8; 65536]) {
            full += n;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    one.set_nonblocking(false)?;
    Ok(full)
}

fn reset_receivers(cx: &mut Cx) -> Outcome {
    for flags in [0, DEFER] {
        let mut ring = cx.ring(8, flags)?;
        let mut mem = [b'-'; 32];
        cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
        let mut buf = [0u8; 8];
        let rows: [(&str, Make); 6] = [
            ("one shot", |fd, buf| recv(fd, buf)),
            ("all of it", |fd, buf| recv(fd, buf).op_flags(MSG_WAITALL as u32)),
            ("a read", |fd, buf| sqe::read(fd, buf, 0)),
            ("a buffer to be picked", |fd, _| select(fd, 0)),
            ("multishot", |fd, _| select(fd, IORING_RECV_MULTISHOT)),
            ("by a worker", |fd, buf| recv(fd, buf).with(IOSQE_ASYNC)),
        ];
        for (what, make) in rows {
            let (one, two) = pair()?;
            let get = make(two.as_raw_fd(), &mut buf).link().ud(1);
            cx.start(&mut ring, &[get, sqe::nop().ud(2)]);
            cx.quiet(&ring, "waits", 10);
            reset(one)?;
            cx.reap(&mut ring, what, &[(1, -ECONNRESET), (2, -ECANCELED)]);
        }
        let (one, two) = pair()?;
        let events = libc::POLLIN | libc::POLLRDHUP;
        cx.start(&mut ring, &[sqe::poll_add(two.as_raw_fd(), events).ud(1)]);
        reset(one)?;
        let all = events | libc::POLLERR | libc::POLLHUP;
        cx.reap(&mut ring, "a poll", &[(1, all.into())]);
    }
    Ok(())
}

fn reset_sender(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let data = vec![1u8; 1 << 16];
    for opcode in [IORING_OP_SEND, IORING_OP_SEND_ZC, IORING_OP_WRITE] {
        let (one, mut two) = pair()?;
        fill(&mut two)?;
        let give = send(two.as_raw_fd(), &data).set(|s| s.opcode = opcode).ud(1);
        cx.start(&mut ring, &[give]);
        cx.quiet(&ring, "waits", 20);
        reset(one)?;
        let zc = opcode == IORING_OP_SEND_ZC;
        let got = ring.take(1 + usize::from(zc))?;
        let pairs: Vec<_> = got.iter().map(|c| (c.res, c.flags)).collect();
        cx.note("ended", format_args!("{pairs:?}"));
        cx.one(&mut ring, "after that", send(two.as_raw_fd(), &data), -EPIPE);
    }
    Ok(())
}

fn reset_before(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut buf = [0u8; 8];
    for first_sends in [false, true] {
        let (mut one, two) = pair()?;
        let fd = two.as_raw_fd();
        one.write_all(b"unread")?;
        super::net::arrived(fd, 6);
        reset(one)?;
        while os::poll(fd, 0, 0) == 0 {
            std::thread::yield_now();
        }
        if first_sends {
            cx.one(&mut ring, "a send hears of it", send(fd, b"x"), -ECONNRESET);
        }
        for what in ["first", "second", "third"] {
            let sqe = recv(fd, &mut buf).ud(5);
            ring.push(sqe).submit_wait(1);
            let got = ring.take(1)?;
            cx.note_answer(what, got[0].res);
            if got[0].res > 0 && !first_sends {
                cx.note("more", got[0].flags & IORING_CQE_F_SOCK_NONEMPTY);
            }
        }
        cx.one(&mut ring, "and a send", send(fd, b"x"), -EPIPE);
    }
    Ok(())
}

fn reset_reported_once(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut buf = [0u8; 8];
    let (mut one, two) = pair()?;
    let fd = two.as_raw_fd();
    one.write_all(b"data")?;
    cx.one(&mut ring, "data", recv(fd, &mut buf), 4);
    reset(one)?;
    cx.one(&mut ring, "the error", recv(fd, &mut buf), -ECONNRESET);
    let end = cx.one(&mut ring, "the end", recv(fd, &mut buf), 0);
    cx.eq("more", end.flags & IORING_CQE_F_SOCK_NONEMPTY, 0);
    Ok(())
}

fn reset_after_eof(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut buf = [0u8; 8];
    for len in [8, 0] {
        let (one, mut two) = pair()?;
        drop(one);
        two.write_all(b"to nobody")?;
        let fd = two.as_raw_fd();
        while os::poll(fd, 0, 0) & i32::from(libc::POLLERR) == 0 {
            std::thread::yield_now();
        }
        for what in ["first", "second"] {
            let end = cx.one(&mut ring, what, recv(fd, &mut buf[..len]), 0);
            cx.eq("more", end.flags, IORING_CQE_F_SOCK_NONEMPTY);
        }
    }
    Ok(())
}

fn half_closed(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut mem = [b'-'; 32];
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
    let (mut one, two) = pair()?;
    let fd = two.as_raw_fd();
    cx.start(&mut ring, &[select(fd, IORING_RECV_MULTISHOT).ud(1)]);
    one.write_all(b"ask")?;
    cx.reap(&mut ring, "came", &[(1, 3)]);
    one.shutdown(Shutdown::Write)?;
    cx.reap(&mut ring, "the end", &[(1, 0)]);
    cx.one(&mut ring, "an answer", send(fd, b"answer"), 6);
    cx.one(&mut ring, "one more", send(fd, b"answer").with(IOSQE_ASYNC), 6);
    let end = sqe::op(IORING_OP_SHUTDOWN, fd).set(|s| s.len = libc::SHUT_WR as u32);
    cx.one(&mut ring, "the other half", end, 0);
    let mut text = String::new();
    one.read_to_string(&mut text)?;
    cx.eq("both arrived", text, "answeranswer".to_owned());
    cx.one(&mut ring, "no more", send(fd, b"x"), -EPIPE);
    Ok(())
}

fn own_shutdown(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut mem = [b'-'; 32];
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
    let mut buf = [0u8; 8];
    let (_one, two) = pair()?;
    let fd = two.as_raw_fd();
    let many = select(fd, IORING_RECV_MULTISHOT).ud(1);
    cx.start(&mut ring, &[many, recv(fd, &mut buf).ud(2)]);
    cx.quiet(&ring, "both wait", 10);
    let end = |how: i32| sqe::op(IORING_OP_SHUTDOWN, fd).set(|s| s.len = how as u32).ud(3);
    cx.batch(&mut ring, "reading", &[end(libc::SHUT_RD)], &[(1, 0), (2, 0), (3, 0)]);
    for how in [libc::SHUT_RDWR, libc::SHUT_WR] {
        let (one, two) = pair()?;
        let get = |buf| recv(two.as_raw_fd(), buf);
        let end = end(how).set(|s| s.fd = two.as_raw_fd());
        cx.one(&mut ring, "one way or both", end, 0);
        if how == libc::SHUT_WR {
            cx.start(&mut ring, &[get(&mut buf)]);
            cx.quiet(&ring, "reads on", 5);
            drop(one);
        } else {
            cx.start(&mut ring, &[get(&mut buf)]);
        }
        let got = ring.take(1)?;
        cx.note("the end", format_args!("{} {}", got[0].res, got[0].flags));
    }
    let (one, mut two) = pair()?;
    fill(&mut two)?;
    let data = [1u8; 4096];
    cx.start(&mut ring, &[send(two.as_raw_fd(), &data).ud(1)]);
    cx.quiet(&ring, "waits for room", 10);
    two.shutdown(Shutdown::Write)?;
    cx.reap(&mut ring, "writing", &[(1, -EPIPE)]);
    drop(one);
    Ok(())
}

fn peer_stops_reading(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let data = vec![1u8; 200_000];
    let whole = |fd: i32| send(fd, &data).op_flags(MSG_WAITALL as u32);
    let (mut one, mut two) = pair()?;
    let full = fill(&mut two)?;
    let fd = two.as_raw_fd();
    cx.start(&mut ring, &[whole(fd).ud(1)]);
    cx.quiet(&ring, "held up", 30);
    let cancel = [sqe::cancel(1, 0).ud(2)];
    cx.batch(&mut ring, "cancelled", &cancel, &[(1, -ECANCELED), (2, 0)]);
    cx.start(&mut ring, &[whole(fd).ud(3)]);
    cx.quiet(&ring, "held up again", 30);
    let mut sink = vec![0u8; full + data.len()];
    one.read_exact(&mut sink)?;
    cx.reap(&mut ring, "goes on", &[(3, data.len() as i32)]);
    cx.holds("all arrived", sink[full..] == data);
    one.set_nonblocking(true)?;
    let more = one.read(&mut sink).map_err(|e| e.kind());
    cx.holds("and no more", more == Err(std::io::ErrorKind::WouldBlock));
    Ok(())
}
