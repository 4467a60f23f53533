//! Effects of one batch: when its requests end, arm their timeouts, and can be found.

use super::net;
use super::pbuf::{GROUP, provide};
use super::prelude::*;
use std::fs::File;
use std::os::unix::net::UnixStream;

pub const CASES: &[Case] = &[
    case!("batches", reads_cancelled, [Op(IORING_OP_READ_MULTISHOT), Op(IORING_OP_ASYNC_CANCEL)], "a cancel in the same batch finds a read that is still going on"),
    case!("batches", refused_arms_link_timeout, [Op(IORING_OP_LINK_TIMEOUT)], "a request that is refused after its file lookup has armed its linked timeout"),
    any_order!("batches", link_timeout_updated, [Op(IORING_OP_LINK_TIMEOUT), Op(IORING_OP_TIMEOUT_REMOVE)], "a batch can update the linked timeout of a request that completes inline"),
    case!("batches", file_errors_after_batch, [Op(IORING_OP_READ), Op(IORING_OP_WRITE)], "errors of a file itself are posted after the batch"),
    case!("batches", failures_signal_once, [Op(IORING_OP_WRITE), Reg(IORING_REGISTER_EVENTFD)], "the failures of a batch signal the eventfd once"),
    case!("batches", poll_first_without_poll, [Op(IORING_OP_WRITE)], "a write with POLL_FIRST to a file without poll support fails within its batch"),
    any_order!("batches", polls, [Op(IORING_OP_POLL_ADD)], "polls of one batch find what the requests between them have left"),
];

fn reads(fd: i32) -> io_uring_sqe {
    let many = sqe::op(IORING_OP_READ_MULTISHOT, fd).with(IOSQE_BUFFER_SELECT).ud(1);
    many.set(|s| (s.off, s.buf_index) = (u64::MAX, GROUP))
}

fn reads_cancelled(cx: &mut Cx) -> Outcome {
    let any = IORING_ASYNC_CANCEL_ANY;
    let one = sqe::op(IORING_OP_POLL_REMOVE, -1).set(|s| s.addr = 1);
    for (what, found, want) in [
        ("by name", sqe::cancel(1, 0), 0),
        ("any", sqe::cancel(0, any), 1),
        ("all", sqe::cancel(1, IORING_ASYNC_CANCEL_ALL), 1),
        ("as a poll", one, -ENOENT),
    ] {
        for flags in [0, DEFER] {
            let mut ring = cx.ring(8, flags)?;
            let mut mem = [0u8; 32];
            cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
            let (r, w) = cx.pipe()?;
            rustix::io::write(&w, &[b'x'; 24])?;
            cx.start(&mut ring, &[reads(r.as_raw_fd()), found.ud(2)]);
            let end = if want < 0 { 8 } else { -ECANCELED };
            cx.reap_in_order(&mut ring, what, &[(1, 8), (2, want), (1, end)]);
        }
    }
    Ok(())
}

/// Checks linked timeouts of 0 s: does a request that issue completes find its timeout expired?
fn refused_arms_link_timeout(cx: &mut Cx) -> Outcome {
    let unix = UnixStream::pair()?.0;
    let tcp = super::net::pair()?.0;
    let udp = std::net::UdpSocket::bind("127.0.0.1:0")?;
    udp.connect(udp.local_addr()?)?;
    let none = File::open("/dev/null")?;
    let fd = none.as_raw_fd();
    let selects = |op| sqe::op(op, fd).with(IOSQE_BUFFER_SELECT);
    let fixed = |op| sqe::op(op, fd).set(|s| s.ioprio = IORING_RECVSEND_FIXED_BUF);
    for (what, head) in [
        ("many reads", reads(fd)),
        ("a receive that selects", selects(IORING_OP_RECV)),
        ("a message that selects", selects(IORING_OP_RECVMSG)),
        ("a fixed send", fixed(IORING_OP_SEND_ZC)),
        ("a send", sqe::op(IORING_OP_SEND_ZC, fd)),
        ("a send to unix", sqe::op(IORING_OP_SEND_ZC, unix.as_raw_fd())),
        ("a fixed send to unix", fixed(IORING_OP_SEND_ZC).set(|s| s.fd = unix.as_raw_fd())),
        ("an urgent send to UDP", sqe::op(IORING_OP_SEND_ZC, udp.as_raw_fd()).op_flags(1)),
        ("a fixed send to TCP", fixed(IORING_OP_SEND_ZC).set(|s| s.fd = tcp.as_raw_fd())),
        ("a fixed message to unix", fixed(IORING_OP_SENDMSG_ZC).set(|s| s.fd = unix.as_raw_fd())),
        ("a fixed read", sqe::op(IORING_OP_READ_FIXED, fd)),
        ("a read that selects", selects(IORING_OP_READ)),
        ("no file", sqe::op(IORING_OP_READ, 999)),
        ("no file, to send", sqe::op(IORING_OP_SEND, 999)),
        ("a splice", sqe::op(IORING_OP_SPLICE, fd).set(|s| s.file_index = 999)),
    ] {
        for seconds in [0, 3600] {
            let mut ring = cx.ring(8, 0)?;
            let time = kernel_timespec { tv_sec: seconds, tv_nsec: 0 };
            cx.start(&mut ring, &[head.link().ud(1), sqe::link_timeout(&time, 0).ud(2)]);
            let mut got = ring.take(2)?;
            got.extend(ring.pop_all());
            let got: Vec<_> = got.iter().map(|c| (c.user_data, c.res, c.flags)).collect();
            cx.note(what, format_args!("{seconds}: {got:?}"));
        }
    }
    Ok(())
}

fn link_timeout_updated(cx: &mut Cx) -> Outcome {
    let file = cx.file("f", b"data")?;
    let mut buf = [0u8; 4];
    let read = sqe::op(IORING_OP_READ, file.as_raw_fd());
    let read = read.set(|s| (s.addr, s.len) = (addr_mut(&mut buf) as u64, 4));
    let hour = kernel_timespec { tv_sec: 3600, tv_nsec: 0 };
    let none = kernel_timespec::default();
    let linked = IORING_TIMEOUT_UPDATE | IORING_LINK_TIMEOUT_UPDATE;
    let by_clock = linked | IORING_TIMEOUT_ABS;
    let change = |time: &kernel_timespec, flags| {
        let remove = sqe::op(IORING_OP_TIMEOUT_REMOVE, -1).op_flags(flags);
        let at = if flags & IORING_TIMEOUT_UPDATE == 0 { 0 } else { addr(time) as u64 };
        remove.set(|s| (s.addr, s.off) = (2, at))
    };
    for (what, head) in [
        ("a NOP", sqe::op(IORING_OP_NOP, -1)),
        ("a read", read),
        ("a failing read", sqe::op(IORING_OP_READ, -1)),
        ("a NOP for a worker", sqe::op(IORING_OP_NOP, -1).with(IOSQE_ASYNC)),
    ] {
        for (how, changes) in [
            ("removed", [change(&hour, 0); 2]),
            ("as another timeout", [change(&hour, IORING_TIMEOUT_UPDATE); 2]),
            ("updated twice", [change(&hour, linked); 2]),
            ("over, then updated", [change(&none, linked), change(&hour, linked)]),
            ("updated, then over", [change(&hour, linked), change(&none, linked)]),
            ("over by a clock", [change(&none, by_clock), change(&hour, linked)]),
        ] {
            for setup in [0, DEFER] {
                let mut ring = cx.ring(8, setup)?;
                let [first, second] = changes;
                let timeout = sqe::link_timeout(&hour, 0).ud(2);
                cx.start(&mut ring, &[head.link().ud(1), timeout, first.ud(3), second.ud(4)]);
                let mut got = ring.take(4)?;
                got.sort_by_key(|c| c.user_data);
                let got: Vec<_> = got.iter().map(|c| (c.user_data, c.res)).collect();
                cx.note(what, format_args!("{how}, {setup:#x}: {got:?}"));
            }
        }
    }
    Ok(())
}

fn file_errors_after_batch(cx: &mut Cx) -> Outcome {
    let ((r, w), (closed, broken)) = (cx.pipe()?, cx.pipe()?);
    drop(closed);
    let (one, _two) = UnixStream::pair()?;
    let (tcp, _peer) = super::net::pair()?;
    let ev = cx.eventfd(0)?;
    let file = cx.file("f", b"data")?;
    let full = File::options().read(true).write(true).open("/dev/full")?;
    let dir = File::open("/")?;
    let zero = File::options().read(true).write(true).open("/dev/zero")?;
    rustix::io::write(&w, b"xx")?;
    let (read, write) = (IORING_OP_READ, IORING_OP_WRITE);
    let mut buf = [0u8; 8];
    let good = addr_mut(&mut buf);
    for (what, op, fd, at, len, off) in [
        ("a pipe from nowhere", write, w.as_raw_fd(), BAD, 1, 0),
        ("a pipe to nowhere", read, r.as_raw_fd(), BAD, 1, 0),
        ("a broken pipe", write, broken.as_raw_fd(), good, 1, 0),
        ("a socket with a position", write, one.as_raw_fd(), good, 1, 5),
        ("a socket read with a position", read, one.as_raw_fd(), good, 1, 5),
        ("a socket from nowhere", write, one.as_raw_fd(), BAD, 1, 0),
        ("a TCP socket from nowhere", write, tcp.as_raw_fd(), BAD, 1, 0),
        ("an eventfd", write, ev.as_raw_fd(), good, 7, 0),
        ("an eventfd read", read, ev.as_raw_fd(), good, 7, 0),
        ("a full device", write, full.as_raw_fd(), good, 4, 0),
        ("a directory", read, dir.as_raw_fd(), good, 4, 0),
        ("a file to nowhere", read, file.as_raw_fd(), BAD, 4, 0),
        ("a file from nowhere", write, file.as_raw_fd(), BAD, 4, 0),
        ("zeroes to nowhere", read, zero.as_raw_fd(), BAD, 4, 0),
        ("a wrong end", write, r.as_raw_fd(), good, 1, 0),
        ("a bad position", write, file.as_raw_fd(), good, 1, usize::MAX - 1),
        ("a bad position in a pipe", write, w.as_raw_fd(), good, 1, usize::MAX - 1),
        ("a bad position in a socket", write, one.as_raw_fd(), good, 1, usize::MAX - 1),
        ("a bad position in an eventfd", write, ev.as_raw_fd(), good, 8, usize::MAX - 1),
        ("a position too large", write, w.as_raw_fd(), good, 8, i64::MAX as usize),
    ] {
        for (flags, setup) in [(0, 0), (IOSQE_IO_LINK, 0), (IOSQE_IO_HARDLINK, 0), (0, DEFER)] {
            let mut ring = cx.ring(8, setup)?;
            let sqe = sqe::rw(op, fd, at, len, off as u64).with(flags).ud(1);
            cx.start(&mut ring, &[sqe, sqe::nop().ud(2), sqe::nop().ud(3)]);
            let got: Vec<_> = ring.take(3)?.iter().map(|c| (c.user_data, c.res)).collect();
            cx.note(what, format_args!("{flags}: {got:?}"));
        }
    }
    Ok(())
}

fn failures_signal_once(cx: &mut Cx) -> Outcome {
    // docs/LIMITATIONS.md covers DEFER_TASKRUN.
    for setup in [0, IORING_SETUP_COOP_TASKRUN] {
        for (n, behind) in [(1, 0), (3, 0), (9, 0), (3, 2)] {
            let (r, w) = cx.pipe()?;
            drop(r);
            let mut ring = cx.ring(16, setup)?;
            let ev = cx.eventfd(0)?;
            let (fd, mut count) = (ev.as_raw_fd(), [0u8; 8]);
            cx.is("eventfd", ring.register_slice(IORING_REGISTER_EVENTFD, &[fd]), 0);
            let failing = (0..n).map(|_| sqe::write(w.as_raw_fd(), b"x", 0));
            let all: Vec<_> = failing.chain((0..behind).map(|_| sqe::nop())).collect();
            cx.start(&mut ring, &all);
            ring.take(all.len())?;
            rustix::io::read(&ev, &mut count)?;
            cx.note("signals", format_args!("{setup} {n} {behind}: {}", u64::from_ne_bytes(count)));
        }
    }
    Ok(())
}

fn poll_first_without_poll(cx: &mut Cx) -> Outcome {
    const RWF_HIPRI: u32 = 1;
    let (_r, w) = cx.pipe()?;
    let (one, _two) = UnixStream::pair()?;
    let ev = cx.eventfd(0)?;
    for (what, fd) in
        [("a pipe", w.as_raw_fd()), ("a socket", one.as_raw_fd()), ("an eventfd", ev.as_raw_fd())]
    {
        let mut ring = cx.ring(8, 0)?;
        let write = sqe::write(fd, b"12345678", 0).op_flags(RWF_HIPRI).ud(1);
        cx.start(&mut ring, &[write, sqe::nop().ud(2)]);
        let got: Vec<_> = ring.take(2)?.iter().map(|c| (c.user_data, c.res)).collect();
        cx.note(what, format_args!("{got:?}"));
    }
    Ok(())
}

const IN: i32 = libc::POLLIN as i32;
const OUT: i32 = libc::POLLOUT as i32;

fn polls(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(16, 0)?;
    let (r, w) = cx.pipe()?;
    let (a, b) = UnixStream::pair()?;
    let [r_in, a_in] =
        [&r as &dyn AsRawFd, &a].map(|fd| sqe::poll_add(fd.as_raw_fd(), libc::POLLIN));
    let [mut taken, mut left] = [[0u8; 1]; 2];
    // From the second time on, the files are known.
    for _ in 0..3 {
        rustix::io::write(&w, b"x")?;
        ring.push(r_in.ud(1));
        ring.push(a_in.ud(2));
        ring.push(sqe::poll_add(b.as_raw_fd(), libc::POLLOUT).ud(3));
        ring.push(r_in.ud(4));
        ring.push(sqe::read(r.as_raw_fd(), &mut taken, 0).ud(5));
        ring.push(r_in.ud(6));
        ring.push(net::recv(a.as_raw_fd(), &mut left).ud(7));
        ring.push(net::send(b.as_raw_fd(), b"y").ud(8));
        ring.push(a_in.ud(9));
        cx.is("submit", ring.submit(), 9);
        let data = [(1, IN), (2, IN), (3, OUT), (4, IN), (5, 1), (7, 1), (8, 1), (9, IN)];
        cx.reap(&mut ring, "one byte each", &data);
        cx.quiet(&ring, "nothing left", 10);
        rustix::io::write(&w, b"x")?;
        cx.reap(&mut ring, "told", &[(6, IN)]);
        cx.is("read", rustix::io::read(&r, &mut taken)? as i32, 1);
    }
    Ok(())
}
