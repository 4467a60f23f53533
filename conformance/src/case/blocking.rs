//! Reads and writes that wait: pipes, eventfds, sockets, terminals.

use super::prelude::*;

pub const CASES: &[Case] = &[
    any_order!("blocking", pipe_read_waits, [Op(IORING_OP_READ), Trap("blocking descriptors")], "a read of an empty pipe completes when data comes"),
    any_order!("blocking", pipe_write_waits, [Op(IORING_OP_WRITE), Trap("blocking descriptors")], "a write to a full pipe completes when there is room"),
    any_order!("blocking", o_nonblock_unchanged, [Trap("blocking descriptors")], "O_NONBLOCK of the file is never touched"),
    any_order!("blocking", nonblocking_fd, [Op(IORING_OP_READ)], "a request on an O_NONBLOCK pipe still waits"),
    any_order!("blocking", nowait, [Op(IORING_OP_READ)], "RWF_NOWAIT fails with EAGAIN at once"),
    any_order!("blocking", direct_write_would_block, [Op(IORING_OP_WRITEV)], "kernel aio cannot take an O_DIRECT write that would block"),
    case!("blocking", eventfd, [Op(IORING_OP_READ)], "a read of an eventfd waits for its count"),
    case!("blocking", socket, [Op(IORING_OP_READ), Op(IORING_OP_WRITE)], "reads and writes of a socket wait"),
    any_order!("blocking", end_of_pipe, [Op(IORING_OP_READ)], "closing the other end completes a waiting read with 0"),
    case!("blocking", broken_pipe, [Op(IORING_OP_WRITE)], "a write without a reader fails with EPIPE and sends no signal"),
    any_order!("blocking", reads_delay_no_others, [Op(IORING_OP_READ)], "waiting reads do not delay other requests"),
    any_order!("blocking", many_waiting, [Op(IORING_OP_READ)], "a hundred waiting reads complete, each with its data"),
    any_order!("blocking", in_worker, [Sqe(IOSQE_ASYNC)], "a read sent to a worker waits there"),
    any_order!("blocking", offsets_ignored, [Op(IORING_OP_READ)], "reads and writes of a pipe ignore the offset"),
    case!("blocking", terminal, [Op(IORING_OP_READ), Op(IORING_OP_WRITE)], "a read of a terminal completes when a line is ready"),
    legal!("blocking", timerfd, [Op(IORING_OP_READ)], "a read of a timerfd waits for its expiry"),
    case!("blocking", last_page, [Op(IORING_OP_WRITE)], "a pipe without a free page takes as many bytes as fit into its last page"),
];

fn pipe_read_waits(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 8];
    cx.start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1)]);
    cx.quiet(&ring, "waits", 10);
    rustix::io::write(&w, b"data")?;
    cx.reap(&mut ring, "read", &[(1, 4)]);
    cx.eq("data", buf[..4].to_vec(), b"data".to_vec());
    rustix::io::write(&w, b"more")?;
    cx.one(&mut ring, "what is there", sqe::read(r.as_raw_fd(), &mut buf, 0), 4);
    Ok(())
}

/// Fills a pipe until it takes no more; returns the number of bytes.
fn fill(w: &std::os::fd::OwnedFd) -> Result<usize, Stop> {
    let was = rustix::fs::fcntl_getfl(w)?;
    rustix::fs::fcntl_setfl(w, was | rustix::fs::OFlags::NONBLOCK)?;
    let mut all = 0;
    while let Ok(n) = rustix::io::write(w, &[0; 4096]) {
        all += n;
    }
    rustix::fs::fcntl_setfl(w, was)?;
    Ok(all)
}

fn pipe_write_waits(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    let mut left = fill(&w)?;
    cx.start(&mut ring, &[sqe::write(w.as_raw_fd(), b"data", 0).ud(1)]);
    cx.quiet(&ring, "waits", 10);
    let mut sink = [0; 65536];
    while left > 0 {
        left -= rustix::io::read(&r, &mut sink[..left.min(65536)])?;
    }
    cx.reap(&mut ring, "write", &[(1, 4)]);
    cx.is("read back", rustix::io::read(&r, &mut sink)?, 4);
    Ok(())
}

fn o_nonblock_unchanged(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 4];
    let flags = |what: &str, cx: &mut Cx| {
        let nonblock = os::fcntl(r.as_raw_fd(), libc::F_GETFL, 0) & libc::O_NONBLOCK;
        cx.is(what, nonblock, 0);
    };
    cx.start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1)]);
    flags("while it waits", cx);
    rustix::io::write(&w, b"data")?;
    cx.reap(&mut ring, "read", &[(1, 4)]);
    flags("afterwards", cx);
    Ok(())
}

fn nonblocking_fd(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 4];
    rustix::fs::fcntl_setfl(&r, rustix::fs::OFlags::NONBLOCK)?;
    let read = sqe::read(r.as_raw_fd(), &mut buf, 0);
    for flags in [0, IOSQE_ASYNC] {
        cx.start(&mut ring, &[read.ud(1).with(flags)]);
        cx.quiet(&ring, "waits", 10);
        rustix::io::write(&w, b"data")?;
        cx.reap(&mut ring, "read", &[(1, 4)]);
    }
    Ok(())
}

fn nowait(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 4];
    let read = sqe::read(r.as_raw_fd(), &mut buf, 0).op_flags(libc::RWF_NOWAIT.cast_unsigned());
    cx.one(&mut ring, "empty", read, -EAGAIN);
    rustix::io::write(&w, b"data")?;
    cx.one(&mut ring, "with data", read, 4);
    Ok(())
}

fn eventfd(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let ev = cx.eventfd(0)?;
    let mut buf = [0; 8];
    let read = sqe::read(ev.as_raw_fd(), &mut buf, 0);
    cx.start(&mut ring, &[read.ud(1)]);
    cx.quiet(&ring, "waits", 10);
    cx.one(
        &mut ring,
        "write by the ring",
        sqe::write(ev.as_raw_fd(), &5u64.to_ne_bytes(), 0).ud(2),
        8,
    );
    cx.reap(&mut ring, "read", &[(1, 8)]);
    cx.eq("count", u64::from_ne_bytes(*std::hint::black_box(&buf)), 5);
    cx.one(
        &mut ring,
        "too small",
        sqe::rw(IORING_OP_READ, ev.as_raw_fd(), addr(&buf), 4, 0),
        -EINVAL,
    );
    Ok(())
}

fn socket(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (a, b) = std::os::unix::net::UnixStream::pair()?;
    let mut buf = [0; 8];
    let read = sqe::read(a.as_raw_fd(), &mut buf, 0);
    cx.start(&mut ring, &[read.ud(1)]);
    cx.quiet(&ring, "waits", 10);
    cx.one(&mut ring, "write", sqe::write(b.as_raw_fd(), b"data", 0).ud(2), 4);
    cx.reap(&mut ring, "read", &[(1, 4)]);
    cx.eq("data", std::hint::black_box(&buf)[..4].to_vec(), b"data".to_vec());
    cx.start(&mut ring, &[read.ud(3)]);
    drop(b);
    cx.reap(&mut ring, "the other end closed", &[(3, 0)]);
    Ok(())
}

fn end_of_pipe(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 8];
    cx.start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1)]);
    drop(w);
    cx.reap(&mut ring, "read", &[(1, 0)]);
    Ok(())
}

fn broken_pipe(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    os::catch(libc::SIGPIPE, 0);
    let left = fill(&w)?;
    cx.start(&mut ring, &[sqe::write(w.as_raw_fd(), b"data", 0).ud(1)]);
    cx.holds("was full", left > 0);
    drop(r);
    cx.reap(&mut ring, "waiting write", &[(1, -EPIPE)]);
    cx.one(&mut ring, "write", sqe::write(w.as_raw_fd(), b"data", 0), -EPIPE);
    cx.note("signals", os::caught() > 0);
    Ok(())
}

fn reads_delay_no_others(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 4];
    ring.push(sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1));
    ring.push(sqe::nop().ud(2));
    cx.is("submit and wait", ring.submit_wait(1), 2);
    cx.reap(&mut ring, "the nop", &[(2, 0)]);
    rustix::io::write(&w, b"data")?;
    cx.reap(&mut ring, "the read", &[(1, 4)]);
    Ok(())
}

fn many_waiting(cx: &mut Cx) -> Outcome {
    const N: usize = 100;
    let mut ring = cx.ring(128, 0)?;
    let pipes = (0..N).map(|_| cx.pipe()).collect::<Result<Vec<_>, _>>()?;
    let mut bufs = vec![[0u8; 4]; N];
    for (i, ((r, _), buf)) in pipes.iter().zip(&mut bufs).enumerate() {
        ring.push(sqe::read(r.as_raw_fd(), buf, 0).ud(i as u64));
    }
    cx.is("submit", ring.submit(), N);
    cx.is("none yet", ring.cq_ready(), 0);
    for (i, (_, w)) in pipes.iter().enumerate().rev() {
        rustix::io::write(w, &(i as u32).to_ne_bytes())?;
    }
    let want: Vec<_> = (0..N as u64).map(|i| (i, 4)).collect();
    cx.reap(&mut ring, "all", &want);
    let right = std::hint::black_box(&bufs).iter().enumerate();
    cx.is("right data", right.filter(|(i, b)| u32::from_ne_bytes(**b) == *i as u32).count(), N);
    Ok(())
}

fn in_worker(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 4];
    cx.start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1).with(IOSQE_ASYNC)]);
    cx.quiet(&ring, "waits", 10);
    cx.one(&mut ring, "a nop meanwhile", sqe::nop().with(IOSQE_ASYNC), 0);
    rustix::io::write(&w, b"data")?;
    cx.reap(&mut ring, "read", &[(1, 4)]);
    Ok(())
}

fn offsets_ignored(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    rustix::io::write(&w, b"0123456789abcdef")?;
    let mut buf = [0; 4];
    let mut read = |off| sqe::read(r.as_raw_fd(), &mut buf, off);
    cx.each(&mut ring, &[
        ("at 0", read(0), 4),
        ("at -1", read(u64::MAX), 4),
        ("at 5", read(5), 4),
        ("at -2", read(u64::MAX - 1), -EINVAL),
    ]);
    Ok(())
}

fn terminal(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (master, slave) = os::terminal()?;
    let mut buf = [0; 16];
    cx.start(&mut ring, &[sqe::read(slave.as_raw_fd(), &mut buf, 0).ud(1)]);
    cx.quiet(&ring, "waits", 10);
    cx.one(&mut ring, "type", sqe::write(master.as_raw_fd(), b"li", 0).ud(2), 2);
    cx.quiet(&ring, "half a line is none", 10);
    cx.one(&mut ring, "type", sqe::write(master.as_raw_fd(), b"ne\n", 0).ud(3), 3);
    cx.reap(&mut ring, "the line", &[(1, 5)]);
    cx.eq("data", std::hint::black_box(&buf)[..5].to_vec(), b"line\n".to_vec());
    Ok(())
}

fn timerfd(cx: &mut Cx) -> Outcome {
    use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
    let mut ring = cx.ring(4, 0)?;
    let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::empty())?;
    let mut buf = [0; 8];
    cx.start(&mut ring, &[sqe::read(timer.as_raw_fd(), &mut buf, 0).ud(1)]);
    let value = Itimerspec {
        it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: Timespec { tv_sec: 0, tv_nsec: 5_000_000 },
    };
    rustix::time::timerfd_settime(&timer, TimerfdTimerFlags::empty(), &value)?;
    cx.reap(&mut ring, "read", &[(1, 8)]);
    cx.eq("expirations", u64::from_ne_bytes(*std::hint::black_box(&buf)), 1);
    Ok(())
}

fn direct_write_would_block(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let file = cx.direct_file("f", &[7; 8192])?;
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    let iov = [libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(page), iov_len: 9 }];
    let odd = sqe::rw(IORING_OP_WRITEV, file.as_raw_fd(), addr(&iov), 1, sqe::HERE);
    cx.one(&mut ring, "odd, at the file's position", odd, -EINVAL);
    rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))?;
    let at_once = odd.op_flags(libc::RWF_NOWAIT.cast_unsigned());
    for (what, sqe) in [("may wait", odd), ("may not", at_once)] {
        ring.push(sqe).submit_wait(1);
        let res = ring.take(1)?[0].res;
        cx.note_answer(what, res);
    }
    Ok(())
}

fn last_page(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut mem = [b'x'; 4096];
    for (how, flags, splices) in
        [("inline", 0, false), ("in a worker", IOSQE_ASYNC, false), ("behind a splice", 0, true)]
    {
        let ((_r, w), (from, to)) = (cx.pipe()?, cx.pipe()?);
        let fill = if splices { &to } else { &w };
        for _ in 0..15 {
            rustix::io::write(fill, &mem)?;
        }
        if splices {
            let splice = sqe::op(IORING_OP_SPLICE, w.as_raw_fd()).set(|s| {
                (s.addr, s.off, s.len) = (u64::MAX, u64::MAX, 15 * 4096);
                s.file_index = from.as_raw_fd().cast_unsigned();
            });
            cx.one(&mut ring, "splice", splice, 15 * 4096);
        }
        rustix::io::write(&w, b"first")?;
        cx.is("full", os::poll(w.as_raw_fd(), libc::POLLOUT, 0), 0);
        let write = |n: usize, mem: &[u8]| sqe::write(w.as_raw_fd(), &mem[..n], 0).with(flags);
        cx.one(&mut ring, how, write(46, &mem), 46);
        let bad = write(1, &mem).set(|s| s.addr = BAD as u64);
        cx.one(&mut ring, "from nowhere", bad, -EFAULT);
        let all = write(4096, &mem);
        cx.start(&mut ring, &[all.ud(1)]);
        cx.quiet(&ring, "too much", 10);
        cx.one(&mut ring, "cancel", sqe::op(IORING_OP_ASYNC_CANCEL, 0).set(|s| s.addr = 1), 0);
        ring.pop_all();
        mem[0] = b'y';
    }
    Ok(())
}
