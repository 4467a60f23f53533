//! URING_CMD: the times at which a socket's packets were sent.

use super::prelude::*;
use libc::{SO_TIMESTAMPING, SOL_SOCKET};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::{SystemTime, UNIX_EPOCH};

pub const CASES: &[Case] = &[
    legal!("timestamp", cqe_fields, [Op(IORING_OP_URING_CMD)],
        "a 32-byte CQE for each packet: its number, kind and time"),
    case!("timestamp", available_at_submit, [Op(IORING_OP_URING_CMD)],
        "available times are posted at once, after the batch"),
    legal!("timestamp", refusals, [Op(IORING_OP_URING_CMD)],
        "small CQEs, workers, files without an error queue"),
    legal!("timestamp", cancelled, [Op(IORING_OP_URING_CMD), Op(IORING_OP_ASYNC_CANCEL)],
        "a TX_TIMESTAMP is cancelled, in a chain, closed, and without a CQE"),
    legal!("timestamp", stream, [Op(IORING_OP_URING_CMD)],
        "times of a stream: sent and acknowledged, until both sides end"),
    legal!("timestamp", packets, [Op(IORING_OP_URING_CMD)], "times of packets of a device"),
    legal!("timestamp", packets_with_data, [Op(IORING_OP_URING_CMD)],
        "packets with their data stay in the error queue"),
    legal!("timestamp", errors, [Op(IORING_OP_URING_CMD)], "a socket's error is not a time"),
    any_order!("timestamp", recverr, [Op(IORING_OP_URING_CMD)], "errors stay in the error queue"),
    legal!("timestamp", cq_full, [Op(IORING_OP_URING_CMD)], "times wait while the CQ is full"),
];

const WIDE: u32 = IORING_SETUP_CQE32;
/// Software send times, numbered, without the packet.
const TIMES: u32 = libc::SOF_TIMESTAMPING_TX_SOFTWARE
    | libc::SOF_TIMESTAMPING_SOFTWARE
    | libc::SOF_TIMESTAMPING_OPT_ID
    | libc::SOF_TIMESTAMPING_OPT_TSONLY;

fn set(cx: &mut Cx, fd: i32, level: i32, name: i32, value: u32) -> Outcome {
    let mut ring = cx.ring(1, 0)?;
    let option = sqe::op(IORING_OP_URING_CMD, fd).set(|s| {
        s.off = SOCKET_URING_OP_SETSOCKOPT.into();
        s.addr = u64::from(level.cast_unsigned()) | u64::from(name.cast_unsigned()) << 32;
        (s.addr3, s.file_index) = (addr(&value) as u64, 4);
    });
    cx.one(&mut ring, "set", option, 0);
    Ok(())
}

fn times(fd: i32) -> io_uring_sqe {
    sqe::op(IORING_OP_URING_CMD, fd).set(|s| s.off = SOCKET_URING_OP_TX_TIMESTAMP.into())
}

fn pair(cx: &mut Cx, what: u32) -> Result<(UdpSocket, UdpSocket), Stop> {
    let (one, two) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    one.connect(two.local_addr()?)?;
    set(cx, one.as_raw_fd(), SOL_SOCKET, SO_TIMESTAMPING, what)?;
    Ok((one, two))
}

/// Waits for `want` (user_data and result of each), whose times lie in the last two seconds.
fn came(cx: &mut Cx, ring: &mut Ring, what: &str, want: &[(u64, i32)]) {
    let got = cx.reap_in_order(ring, what, want);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos());
    let near = |[s, ns]: [u64; 2]| {
        let at = u128::from(s) * 1_000_000_000 + u128::from(ns);
        at <= now && now - at < 2_000_000_000
    };
    let mores = got.iter().filter(|c| c.flags & IORING_CQE_F_MORE != 0);
    let timely = mores.map(|c| c.big.is_some_and(near)).collect::<Vec<_>>();
    cx.note("timely", format_args!("{timely:?}"));
    let rest: Vec<_> = got.iter().filter(|c| c.flags & IORING_CQE_F_MORE == 0).collect();
    cx.note("the end", format_args!("{:?}", rest.iter().map(|c| c.big).collect::<Vec<_>>()));
}

/// Records the messages of the error queue.
fn queued(cx: &mut Cx, fd: i32) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let mut got = Vec::new();
    for _ in 0..4 {
        let buf = [0u8; 64];
        let control = [0u64; 64];
        let parts = [super::net_msg::part(&buf)];
        let mut h = super::net_msg::hdr(&parts);
        (h.control, h.controllen) = (addr(&control) as u64, 512);
        let flags = (libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) as u32;
        ring.push(super::net_msg::take(fd, &mut h).op_flags(flags)).submit_wait(1);
        got.push(ring.take(1)?[0].res);
    }
    cx.note("in the error queue", format_args!("{got:?}"));
    Ok(())
}

fn cqe_fields(cx: &mut Cx) -> Outcome {
    for flags in [WIDE, WIDE | DEFER, IORING_SETUP_CQE_MIXED] {
        let mut ring = cx.ring(8, flags)?;
        let (one, _two) = pair(cx, TIMES)?;
        cx.start(&mut ring, &[times(one.as_raw_fd()).ud(7)]);
        cx.quiet(&ring, "waits", 20);
        one.send(b"first")?;
        came(cx, &mut ring, "the first", &[(7, 0)]);
        one.send(b"second")?;
        one.send(b"")?;
        came(cx, &mut ring, "two more", &[(7, 1), (7, 2)]);
        cx.quiet(&ring, "no more", 10);
        cx.one(&mut ring, "the ring works", sqe::nop().ud(1), 0);
        cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[one.as_raw_fd()]), 0);
        cx.start(&mut ring, &[times(0).fixed().ud(9)]);
        one.send(b"third")?;
        let got = ring.take(1)?;
        cx.eq("by either", got[0].res, 3);
        queued(cx, one.as_raw_fd())?;
    }
    Ok(())
}

fn available_at_submit(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, WIDE)?;
    let kinds = TIMES | libc::SOF_TIMESTAMPING_TX_SCHED;
    let (one, _two) = pair(cx, kinds)?;
    for _ in 0..2 {
        one.send(b"x")?;
    }
    std::thread::sleep(std::time::Duration::from_millis(5));
    cx.start(&mut ring, &[times(one.as_raw_fd()).ud(1), sqe::nop().ud(2)]);
    came(cx, &mut ring, "all", &[(2, 0), (1, 0), (1, 0), (1, 1), (1, 1)]);
    queued(cx, one.as_raw_fd())
}

fn refusals(cx: &mut Cx) -> Outcome {
    let (mut small, mut wide) = (cx.ring(8, 0)?, cx.ring(8, WIDE)?);
    let (one, _two) = pair(cx, TIMES)?;
    let fd = one.as_raw_fd();
    let (file, (r, _w)) = (cx.file("f", b"")?, cx.pipe()?);
    cx.one(&mut small, "small CQEs", times(fd), -EINVAL);
    cx.one(&mut small, "small CQEs, a file", times(file.as_raw_fd()), -EOPNOTSUPP);
    let multi = times(fd).op_flags(IORING_URING_CMD_MULTISHOT);
    cx.each(&mut wide, &[
        ("a file", times(file.as_raw_fd()), -EOPNOTSUPP),
        ("a pipe", times(r.as_raw_fd()), -EOPNOTSUPP),
        ("closed", times(999), -EBADF),
        ("multishot without buffers", multi, -EINVAL),
    ]);
    let mut got = wide.push(times(fd).with(IOSQE_ASYNC).ud(5)).submit();
    cx.is("in a worker", got, 1);
    std::thread::sleep(std::time::Duration::from_millis(20));
    cx.note("ends", format_args!("{:?}", wide.pop_all()));
    let selects = multi.with(IOSQE_BUFFER_SELECT).set(|s| s.buf_index = 3);
    got = wide.push(selects.ud(6)).submit();
    cx.is("multishot with buffers", got, 1);
    std::thread::sleep(std::time::Duration::from_millis(20));
    cx.note("ends", format_args!("{:?}", wide.pop_all()));
    Ok(())
}

fn cancelled(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, WIDE)?;
    let (one, _two) = pair(cx, TIMES)?;
    let fd = one.as_raw_fd();
    cx.start(&mut ring, &[times(fd).link().ud(1), sqe::nop().ud(2)]);
    one.send(b"x")?;
    came(cx, &mut ring, "one", &[(1, 0)]);
    ring.push(sqe::cancel(1, 0).ud(3));
    cx.is("cancel", ring.submit(), 1);
    cx.reap(&mut ring, "cancelled", &[(1, -ECANCELED), (2, -ECANCELED), (3, 0)]);
    cx.start(&mut ring, &[times(fd).with(IOSQE_CQE_SKIP_SUCCESS).ud(1)]);
    one.send(b"x")?;
    came(cx, &mut ring, "still told", &[(1, 1)]);
    let by_fd = sqe::cancel(0, IORING_ASYNC_CANCEL_FD).set(|s| s.fd = fd);
    cx.batch(&mut ring, "by its file", &[by_fd.ud(3)], &[(1, -ECANCELED), (3, 0)]);
    let ts = sqe::millis(20);
    let chain = [times(fd).link().ud(1), sqe::link_timeout(&ts, 0).ud(2)];
    cx.batch(&mut ring, "timed out", &chain, &[(1, -ECANCELED), (2, -ETIME)]);
    cx.start(&mut ring, &[times(fd).ud(1)]);
    one.send(b"x")?;
    drop(one);
    came(cx, &mut ring, "after its close", &[(1, 2)]);
    cx.quiet(&ring, "no more", 10);
    let (a, b) = UnixStream::pair()?;
    cx.start(&mut ring, &[times(a.as_raw_fd()).ud(4)]);
    drop(b);
    cx.quiet(&ring, "a family without times", 20);
    cx.batch(&mut ring, "cancelled", &[sqe::cancel(4, 0).ud(5)], &[(4, -ECANCELED), (5, 0)]);
    Ok(())
}

fn stream(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, WIDE)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    let two = listener.accept()?.0;
    let kinds = TIMES | libc::SOF_TIMESTAMPING_TX_ACK;
    set(cx, one.as_raw_fd(), SOL_SOCKET, SO_TIMESTAMPING, kinds)?;
    cx.start(&mut ring, &[times(one.as_raw_fd()).ud(1)]);
    std::io::Write::write_all(&mut (&one), b"ten bytes.")?;
    came(cx, &mut ring, "sent, acknowledged", &[(1, 9), (1, 9)]);
    std::io::Write::write_all(&mut (&one), b"five.")?;
    came(cx, &mut ring, "sent, acknowledged", &[(1, 14), (1, 14)]);
    two.shutdown(Shutdown::Write)?;
    cx.quiet(&ring, "one side ends", 20);
    std::io::Write::write_all(&mut (&one), b"last")?;
    came(cx, &mut ring, "and the other goes on", &[(1, 18), (1, 18)]);
    one.shutdown(Shutdown::Write)?;
    cx.quiet(&ring, "both end", 20);
    cx.batch(&mut ring, "cancelled", &[sqe::cancel(1, 0).ud(5)], &[(1, -ECANCELED), (5, 0)]);
    Ok(())
}

/// Checks the times of packets on the loopback device, whose number is 1.
fn packets(cx: &mut Cx) -> Outcome {
    const PROTOCOL: u16 = 0x88b5;
    let mut ring = cx.ring(8, WIDE)?;
    for (what, kind) in [("without headers", libc::SOCK_DGRAM), ("with headers", libc::SOCK_RAW)] {
        cx.note("packets", what);
        let socket = sqe::op(IORING_OP_SOCKET, libc::AF_PACKET).set(|s| s.off = kind as u64);
        cx.is("submit", ring.push(socket).submit_wait(1), 1);
        let fd = ring.take(1)?[0].res;
        if fd == -EPERM {
            return Err(Stop::Skip("it takes a privilege to make packets".into()));
        }
        let one = cx.fd("a socket", fd)?;
        set(cx, fd, SOL_SOCKET, SO_TIMESTAMPING, TIMES)?;
        // A `struct sockaddr_ll`.
        let mut name = [0u8; 20];
        name[..2].copy_from_slice(&(libc::AF_PACKET as u16).to_ne_bytes());
        name[2..4].copy_from_slice(&PROTOCOL.to_be_bytes());
        name[4..8].copy_from_slice(&1u32.to_ne_bytes());
        let bind = sqe::rw(IORING_OP_BIND, fd, addr(&name), 0, name.len() as u64);
        cx.one(&mut ring, "bind", bind, 0);
        cx.start(&mut ring, &[times(fd).ud(1)]);
        let packet = [0u8; 60];
        for key in [0, 1] {
            rustix::io::write(&one, &packet)?;
            came(cx, &mut ring, "sent", &[(1, key)]);
        }
        cx.batch(&mut ring, "cancelled", &[sqe::cancel(1, 0).ud(5)], &[(1, -ECANCELED), (5, 0)]);
    }
    Ok(())
}

fn packets_with_data(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, WIDE)?;
    let (one, _two) = pair(cx, TIMES & !libc::SOF_TIMESTAMPING_OPT_TSONLY)?;
    cx.start(&mut ring, &[times(one.as_raw_fd()).ud(1)]);
    one.send(b"abc")?;
    cx.quiet(&ring, "not told", 20);
    queued(cx, one.as_raw_fd())?;
    set(cx, one.as_raw_fd(), SOL_SOCKET, SO_TIMESTAMPING, TIMES)?;
    one.send(b"abc")?;
    came(cx, &mut ring, "told", &[(1, 1)]);
    let unwanted = TIMES & !libc::SOF_TIMESTAMPING_SOFTWARE;
    set(cx, one.as_raw_fd(), SOL_SOCKET, SO_TIMESTAMPING, unwanted)?;
    one.send(b"abc")?;
    cx.quiet(&ring, "not wanted", 20);
    queued(cx, one.as_raw_fd())
}

fn errors(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, WIDE)?;
    let (one, two) = pair(cx, TIMES)?;
    cx.start(&mut ring, &[times(one.as_raw_fd()).ud(1)]);
    drop(two);
    one.send(b"to nobody")?;
    came(cx, &mut ring, "sent", &[(1, 0)]);
    cx.quiet(&ring, "refused", 20);
    cx.note("the error", one.send(b"again").map_or_else(|e| e.raw_os_error().unwrap_or(0), |_| 0));
    one.send(b"again")?;
    came(cx, &mut ring, "sent", &[(1, 1)]);
    queued(cx, one.as_raw_fd())
}

fn recverr(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, WIDE)?;
    let (one, two) = pair(cx, TIMES)?;
    set(cx, one.as_raw_fd(), libc::IPPROTO_IP, libc::IP_RECVERR, 1)?;
    cx.start(&mut ring, &[times(one.as_raw_fd()).ud(1)]);
    drop(two);
    one.send(b"to nobody")?;
    std::thread::sleep(std::time::Duration::from_millis(20));
    cx.note("told", format_args!("{:?}", ring.pop_all().iter().map(|c| c.res).collect::<Vec<_>>()));
    queued(cx, one.as_raw_fd())
}

pub(super) fn cq_full(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(2, WIDE)?;
    let (one, _two) = pair(cx, TIMES)?;
    cx.start(&mut ring, &[times(one.as_raw_fd()).ud(1)]);
    for _ in 0..6 {
        one.send(b"x")?;
    }
    std::thread::sleep(std::time::Duration::from_millis(20));
    let told = |got: &[Cqe]| got.iter().map(|c| (c.user_data, c.res)).collect::<Vec<_>>();
    cx.note("as many as fit", format_args!("{:?}", told(&ring.pop_all())));
    cx.is("enter", ring.enter(0, 0, IORING_ENTER_GETEVENTS), 0);
    cx.note("after entering", format_args!("{:?}", told(&ring.pop_all())));
    one.send(b"x")?;
    std::thread::sleep(std::time::Duration::from_millis(20));
    cx.note("after another", format_args!("{:?}", told(&ring.pop_all())));
    one.send(b"x")?;
    std::thread::sleep(std::time::Duration::from_millis(20));
    cx.note("and another", format_args!("{:?}", told(&ring.pop_all())));
    queued(cx, one.as_raw_fd())
}
