//! Retried requests: an attempt would block, the request waits for readiness, and is issued again.

use super::net::{pair, recv, send};
use super::net_msg::{give, hdr, part, take};
use super::prelude::*;
use libc::MSG_WAITALL;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    case!("reissue", ready_in_batch, [Op(IORING_OP_READ)], "a request that becomes ready in its own batch completes before enter returns"),
    case!("reissue", deferred, [Op(IORING_OP_READ)], "with DEFER_TASKRUN it completes when its task asks for completions"),
    case!("reissue", batch_of_many, [Op(IORING_OP_RECV)], "more ready requests in a batch than one poll returns"),
    any_order!("reissue", nonblocking, [Op(IORING_OP_READ), Op(IORING_OP_RECV)], "O_NONBLOCK still waits; MSG_DONTWAIT does not"),
    any_order!("reissue", accept_order, [Op(IORING_OP_ACCEPT)], "of many waiting ACCEPTs one wakes, in their order"),
    any_order!("reissue", accept_cancelled, [Op(IORING_OP_ACCEPT)], "a cancelled ACCEPT passes its wake-up on"),
    any_order!("reissue", one_socket, [Op(IORING_OP_RECV)], "many requests wait on one socket; each byte ends one of them"),
    any_order!("reissue", closed_while_armed, [Op(IORING_OP_RECV)], "a number is closed while a request waits on it"),
    any_order!("reissue", shut_while_armed, [Op(IORING_OP_SHUTDOWN)], "a socket is shut down while requests wait on it"),
    any_order!("reissue", shut_while_full, [Op(IORING_OP_SHUTDOWN), Op(IORING_OP_SEND)], "a full socket is shut down for sending"),
    any_order!("reissue", timeout_stays, [Op(IORING_OP_LINK_TIMEOUT)], "a linked timeout keeps running while its request is reissued"),
    any_order!("reissue", returns_buffer, [Sqe(IOSQE_BUFFER_SELECT)], "an armed request returns its selected buffer"),
    any_order!("reissue", retry_limit, [Op(IORING_OP_RECV)], "a request that wakes too often without success still ends"),
    any_order!("reissue", retry_limit_of_messages, [Op(IORING_OP_SENDMSG), Op(IORING_OP_RECVMSG)], "a message that wakes too often ends with a part on an O_NONBLOCK socket"),
    case!("reissue", many_sockets, [Op(IORING_OP_RECV)], "more than 10,000 sockets wait, and each gets its data"),
];

fn ready_in_batch(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let (one, two) = pair()?;
    let (mut a, mut b) = ([0; 1], [0; 1]);
    cx.start(&mut ring, &[
        sqe::read(r.as_raw_fd(), &mut a, 0).ud(1),
        recv(two.as_raw_fd(), &mut b).ud(2),
        sqe::write(w.as_raw_fd(), b"x", 0).ud(3),
        send(one.as_raw_fd(), b"x").ud(4),
    ]);
    cx.is("ended, and nobody has waited", ring.cq_ready(), 4);
    cx.reap(&mut ring, "all", &[(1, 1), (2, 1), (3, 1), (4, 1)]);
    Ok(())
}

fn deferred(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, DEFER)?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 1];
    let read = sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1);
    cx.start(&mut ring, &[read, sqe::write(w.as_raw_fd(), b"x", 0).ud(2)]);
    cx.is("only the write has ended", ring.cq_ready(), 1);
    cx.reap_in_order(&mut ring, "then the read", &[(2, 1), (1, 1)]);
    Ok(())
}

fn batch_of_many(cx: &mut Cx) -> Outcome {
    const MANY: u64 = 100;
    let mut ring = cx.ring(256, 0)?;
    let pairs = (0..MANY).map(|_| UnixStream::pair()).collect::<Result<Vec<_>, _>>()?;
    let mut bufs = [[0; 1]; MANY as usize];
    for (ud, ((_, two), buf)) in (1..).zip(pairs.iter().zip(&mut bufs)) {
        ring.push(recv(two.as_raw_fd(), buf).ud(ud));
    }
    for (one, _) in &pairs {
        ring.push(send(one.as_raw_fd(), b"x").ud(1000));
    }
    cx.is("submit", ring.submit(), 2 * MANY as i32);
    cx.is("ended", ring.cq_ready(), 2 * MANY as u32);
    let got = ring.take(2 * MANY as usize)?;
    cx.holds("one byte each", got.iter().all(|c| c.res == 1));
    Ok(())
}

fn nonblocking(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    os::fcntl(r.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK);
    let (mut one, two) = UnixStream::pair()?;
    two.set_nonblocking(true)?;
    let (mut a, mut b, mut c) = ([0; 1], [0; 1], [0; 1]);
    let sqes = [
        sqe::read(r.as_raw_fd(), &mut a, 0).ud(1),
        recv(two.as_raw_fd(), &mut b).ud(2),
        recv(two.as_raw_fd(), &mut c).op_flags(libc::MSG_DONTWAIT as u32).ud(3),
    ];
    cx.batch(&mut ring, "one does not wait", &sqes, &[(3, -EAGAIN)]);
    cx.quiet(&ring, "two do", 5);
    rustix::io::write(&w, b"x")?;
    one.write_all(b"x")?;
    cx.reap(&mut ring, "ready", &[(1, 1), (2, 1)]);
    Ok(())
}

fn accept(fd: i32, ud: u64) -> io_uring_sqe {
    sqe::op(IORING_OP_ACCEPT, fd).ud(ud)
}

/// Connects, and records which request takes the connection.
fn connect(cx: &mut Cx, ring: &mut Ring, to: &TcpListener, want: u64) -> Outcome {
    let client = TcpStream::connect(to.local_addr()?)?;
    let got = ring.take(1)?[0];
    cx.eq("taken by", (got.user_data, got.res >= 0), (want, true));
    if got.res >= 0 {
        drop(os::own(got.res));
    }
    drop(client);
    cx.quiet(ring, "and by nobody else", 5);
    Ok(())
}

fn accept_order(cx: &mut Cx) -> Outcome {
    for flags in [0, DEFER] {
        let mut ring = cx.ring(256, flags)?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let fd = listener.as_raw_fd();
        cx.start(&mut ring, &[1, 2, 3, 4].map(|ud| accept(fd, ud)));
        for want in 1..=3 {
            connect(cx, &mut ring, &listener, want)?;
        }
        cx.start(&mut ring, &[accept(fd, 5)]);
        connect(cx, &mut ring, &listener, 4)?;
        connect(cx, &mut ring, &listener, 5)?;
        // The engine issues more than one request per wake-up, but does not try requests that are
        // not woken.
        for ud in 1..=200 {
            ring.push(accept(fd, ud));
        }
        cx.is("many", ring.submit(), 200);
        for ud in 1..=200 {
            let client = TcpStream::connect(listener.local_addr()?)?;
            let got = ring.take(1)?[0];
            if got.user_data != ud || got.res < 0 {
                cx.eq("out of turn", (got.user_data, got.res), (ud, 0));
                return Ok(());
            }
            drop((os::own(got.res), client));
        }
    }
    Ok(())
}

fn accept_cancelled(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let fd = listener.as_raw_fd();
    cx.start(&mut ring, &[1, 2, 3, 4].map(|ud| accept(fd, ud)));
    for gone in [2, 1] {
        let cancel = sqe::cancel(gone, 0).ud(9);
        cx.batch(&mut ring, "cancel", &[cancel], &[(gone, -ECANCELED), (9, 0)]);
    }
    connect(cx, &mut ring, &listener, 3)?;
    drop(listener);
    let cancel = sqe::cancel(4, 0).ud(9);
    cx.batch(&mut ring, "the last", &[cancel], &[(4, -ECANCELED), (9, 0)]);
    Ok(())
}

fn one_socket(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = pair()?;
    let (r, w) = cx.pipe()?;
    let files = [r.as_raw_fd(), two.as_raw_fd()];
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &files), 0);
    let mut buf = [0; 1];
    for (what, sqe, from) in [
        ("a socket", recv(files[1], &mut buf), one.as_fd()),
        ("registered", recv(1, &mut buf).fixed(), one.as_fd()),
        ("a pipe", sqe::read(files[0], &mut buf, 0), w.as_fd()),
    ] {
        cx.start(&mut ring, &[1, 2, 3, 4].map(|ud| sqe.ud(ud)));
        let mut ended = Vec::new();
        for _ in 0..4 {
            rustix::io::write(from, b"x")?;
            let got = ring.take(1)?[0];
            cx.eq("a byte", got.res, 1);
            cx.quiet(&ring, "the others wait", 5);
            ended.push(got.user_data);
        }
        // Each byte wakes all reads, the last armed first; a read that finds no byte is armed
        // again.
        cx.eq(what, ended, vec![4, 1, 3, 2]);
    }
    Ok(())
}

fn closed_while_armed(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (mut one, two) = pair()?;
    let mut buf = [0; 4];
    cx.start(&mut ring, &[recv(two.as_raw_fd(), &mut buf).ud(1)]);
    drop(two);
    cx.quiet(&ring, "it still waits", 5);
    one.write_all(b"data")?;
    cx.reap(&mut ring, "the file lives on with its request", &[(1, 4)]);
    let (one, two) = pair()?;
    cx.start(&mut ring, &[recv(two.as_raw_fd(), &mut buf).ud(2)]);
    drop(two);
    drop(one);
    cx.reap(&mut ring, "and so does the end of its stream", &[(2, 0)]);
    Ok(())
}

fn shut_while_armed(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (_one, two) = pair()?;
    let fd = two.as_raw_fd();
    let (mut a, mut b) = ([0; 4], [0; 4]);
    cx.start(&mut ring, &[recv(fd, &mut a).ud(1), recv(fd, &mut b).ud(2)]);
    let shut = sqe::op(IORING_OP_SHUTDOWN, fd).set(|s| s.len = libc::SHUT_RD as u32).ud(3);
    cx.batch(&mut ring, "nothing more to receive", &[shut], &[(1, 0), (2, 0), (3, 0)]);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let fd = listener.as_raw_fd();
    cx.start(&mut ring, &[accept(fd, 1), accept(fd, 2)]);
    let shut = sqe::op(IORING_OP_SHUTDOWN, fd).set(|s| s.len = libc::SHUT_RDWR as u32).ud(3);
    cx.batch(&mut ring, "nobody more to accept", &[shut], &[(1, -EINVAL), (2, -EINVAL), (3, 0)]);
    Ok(())
}

/// Checks a write that waits when its socket is shut down: the kernel retries a waiting request
/// whenever the socket wakes it, ready or not.
fn shut_while_full(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, _two) = UnixStream::pair()?;
    one.set_nonblocking(true)?;
    while (&one).write(&[7; 4096]).is_ok() {}
    one.set_nonblocking(false)?;
    let data = [8; 64];
    cx.start(&mut ring, &[sqe::write(one.as_raw_fd(), &data, 0).ud(1)]);
    cx.is("shut", i32::from(one.shutdown(std::net::Shutdown::Write).is_err()), 0);
    std::thread::sleep(Duration::from_millis(20));
    let seen: Vec<_> = ring.pop_all().into_iter().map(|c| (c.user_data, c.res)).collect();
    cx.note("told", format_args!("{seen:?}"));
    Ok(())
}

fn timeout_stays(cx: &mut Cx) -> Outcome {
    for flags in [0, DEFER] {
        let mut ring = cx.ring(8, flags)?;
        let (mut one, two) = pair()?;
        let mut buf = [0; 64];
        let limit = sqe::millis(150);
        let all = recv(two.as_raw_fd(), &mut buf).op_flags(MSG_WAITALL as u32);
        cx.start(&mut ring, &[all.link().ud(1), sqe::link_timeout(&limit, 0).ud(2)]);
        let start = Instant::now();
        let mut sent = 0;
        while ring.cq_ready() == 0 && sent < 40 {
            one.write_all(b"x")?;
            sent += 1;
            std::thread::sleep(Duration::from_millis(10));
            ring.enter(0, 0, IORING_ENTER_GETEVENTS);
        }
        let got = ring.take(2)?;
        let took = start.elapsed();
        let about = Duration::from_millis(140)..Duration::from_millis(350);
        cx.holds("in time", about.contains(&took));
        let of = |ud| got.iter().find(|c| c.user_data == ud).map_or(0, |c| c.res);
        cx.holds("what has come by then", of(1) > 0 && of(1) <= sent);
        cx.is("timeout", of(2), -ETIME);
    }
    Ok(())
}

fn returns_buffer(cx: &mut Cx) -> Outcome {
    const GROUP: u16 = 7;
    let mut ring = cx.ring(8, 0)?;
    let store = [0u8; 16];
    let give = sqe::rw(IORING_OP_PROVIDE_BUFFERS, 1, addr(&store), store.len(), 0);
    cx.one(&mut ring, "one buffer", give.set(|s| s.buf_index = GROUP), 0);
    let (mut one, two) = pair()?;
    let (mut three, four) = pair()?;
    let pick = |fd: i32| {
        let any = sqe::rw(IORING_OP_RECV, fd, 0, 0, 0).with(IOSQE_BUFFER_SELECT);
        any.set(|s| s.buf_index = GROUP)
    };
    // A wake-up without data: both requests wait on one socket, and one of them takes the byte.
    let mut rest = [0; 1];
    let (fd, other) = (two.as_raw_fd(), four.as_raw_fd());
    cx.start(&mut ring, &[pick(fd).ud(1), pick(other).ud(2), recv(fd, &mut rest).ud(3)]);
    three.write_all(b"first")?;
    cx.reap(&mut ring, "the other one takes it", &[(2, 5)]);
    one.write_all(b"xy")?;
    let got = ring.take(2)?;
    let picked = |c: &Cqe| (c.user_data, c.flags & IORING_CQE_F_BUFFER);
    let mut all: Vec<_> = got.iter().map(picked).collect();
    all.sort_unstable();
    cx.note("who got what", format_args!("{all:?}"));
    Ok(())
}

fn retry_limit(cx: &mut Cx) -> Outcome {
    const LEN: usize = 300;
    for flags in [0, DEFER] {
        let mut ring = cx.ring(8, flags)?;
        let (mut one, two) = pair()?;
        let mut buf = [0; LEN];
        let all = recv(two.as_raw_fd(), &mut buf).op_flags(MSG_WAITALL as u32);
        cx.start(&mut ring, &[all.ud(1)]);
        for i in 0..LEN {
            one.write_all(&[i as u8])?;
            ring.enter(0, 0, IORING_ENTER_GETEVENTS);
        }
        cx.reap(&mut ring, "all of it", &[(1, LEN as i32)]);
        let got = std::hint::black_box(&buf);
        cx.holds("in order", got.iter().enumerate().all(|(i, b)| *b == i as u8));
    }
    Ok(())
}

/// Receives a byte at a time, and sends what there is room for. Behind the last of these waits the
/// kernel's worker makes an attempt, for which a message asks the file whether it waits.
fn retry_limit_of_messages(cx: &mut Cx) -> Outcome {
    const WAITS: usize = 127;
    let (big, mut room) = (vec![0; 2 << 20], vec![0; 1 << 16]);
    for (flags, blocks) in [(0, false), (DEFER, false), (0, true)] {
        for sends in [false, true] {
            let mut ring = cx.ring(8, flags)?;
            let (mut one, two) = UnixStream::pair()?;
            two.set_nonblocking(!blocks)?;
            cx.is("room", os::set_socket(two.as_raw_fd(), libc::SO_SNDBUF, 4096), 0);
            let parts = [part(if sends { &big } else { &room[..WAITS + 10] })];
            let mut header = hdr(&parts);
            let message = match sends {
                true => give(two.as_raw_fd(), &header),
                false => take(two.as_raw_fd(), &mut header),
            };
            let message = message.op_flags(MSG_WAITALL as u32).link().ud(1);
            cx.start(&mut ring, &[message, sqe::nop().ud(2)]);
            let mut step = |ring: &mut Ring| -> Outcome {
                let _ = if sends { one.read(&mut room)? } else { one.write(b"x")? };
                ring.enter(0, 0, IORING_ENTER_GETEVENTS);
                Ok(())
            };
            for _ in 1..WAITS {
                step(&mut ring)?;
            }
            cx.quiet(&ring, "still waits", 5);
            step(&mut ring)?;
            if blocks {
                cx.quiet(&ring, "a worker waits", 5);
                continue;
            }
            ring.submit_wait(2);
            let got = ring.take(2)?;
            cx.holds("a part", got[0].res > 0 && got[0].res < big.len() as i32);
            if !sends {
                cx.is("which is", got[0].res, WAITS);
            }
            cx.is("the chain", got[1].res, -ECANCELED);
            two.shutdown(std::net::Shutdown::Both)?;
        }
    }
    Ok(())
}

fn many_sockets(cx: &mut Cx) -> Outcome {
    const MANY: usize = 10_240;
    os::set_limit(libc::RLIMIT_NOFILE, 4 * MANY as u64);
    let sockets: Result<Vec<_>, _> = (0..MANY).map(|_| UdpSocket::bind("127.0.0.1:0")).collect();
    let Ok(sockets) = sockets else {
        return Err(Stop::Skip("RLIMIT_NOFILE does not go that far".into()));
    };
    let mut ring = cx.ring(MANY as u32, IORING_SETUP_CLAMP)?;
    let mut bufs = vec![[0u8; 8]; MANY];
    for (ud, (socket, buf)) in (0..).zip(sockets.iter().zip(&mut bufs)) {
        ring.push(recv(socket.as_raw_fd(), buf).ud(ud));
    }
    cx.is("submit", ring.submit(), MANY as i32);
    cx.is("all wait", ring.cq_ready(), 0);
    let from = &sockets[0];
    for (i, to) in (0u64..).zip(&sockets) {
        from.send_to(&i.to_ne_bytes(), to.local_addr()?)?;
    }
    let got = ring.take(MANY)?;
    let mut seen: Vec<u64> = got.iter().filter(|c| c.res == 8).map(|c| c.user_data).collect();
    seen.sort_unstable();
    cx.holds("each once", seen.iter().copied().eq(0..MANY as u64));
    let bufs = std::hint::black_box(&bufs);
    cx.holds("its own data", (0u64..).zip(bufs).all(|(i, b)| *b == i.to_ne_bytes()));
    Ok(())
}
