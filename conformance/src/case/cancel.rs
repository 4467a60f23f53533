//! Cancelling requests, by SQE and by call.

use super::prelude::*;

pub const CASES: &[Case] = &[
    legal!("cancel", by_user_data, [Op(IORING_OP_ASYNC_CANCEL)], "a request is cancelled by its user_data"),
    any_order!("cancel", kinds, [Op(IORING_OP_ASYNC_CANCEL)], "polls, reads, timeouts and waits of workers can be cancelled"),
    legal!("cancel", all_flag, [Op(IORING_OP_ASYNC_CANCEL)], "ALL cancels every match and returns the number of matches"),
    legal!("cancel", by_fd, [Op(IORING_OP_ASYNC_CANCEL)], "FD matches the file, and the fd number must be open"),
    legal!("cancel", by_slot, [Op(IORING_OP_ASYNC_CANCEL)], "FD_FIXED matches a registered file"),
    legal!("cancel", any, [Op(IORING_OP_ASYNC_CANCEL)], "ANY matches every request"),
    legal!("cancel", by_op, [Op(IORING_OP_ASYNC_CANCEL)], "OP matches the opcode"),
    legal!("cancel", first_match, [Op(IORING_OP_ASYNC_CANCEL)], "of several matches the first is cancelled"),
    legal!("cancel", combined, [Op(IORING_OP_ASYNC_CANCEL)], "USERDATA with FD and OP must all match"),
    legal!("cancel", refusals, [Op(IORING_OP_ASYNC_CANCEL)], "no match, bad flags, fds and words"),
    legal!("cancel", in_worker, [Op(IORING_OP_ASYNC_CANCEL), Sqe(IOSQE_ASYNC)], "a cancel works in a worker"),
    legal!("cancel", chain, [Op(IORING_OP_ASYNC_CANCEL), Sqe(IOSQE_IO_LINK)], "a cancel of the head cancels its chain"),
    legal!("cancel", finished, [Op(IORING_OP_ASYNC_CANCEL)], "a cancel does not find a completed request"),
    legal!("cancel", expired_timeout, [Op(IORING_OP_ASYNC_CANCEL), Op(IORING_OP_TIMEOUT)], "a cancel does not find a timeout that has expired"),
    legal!("cancel", sync_cancel, [Reg(IORING_REGISTER_SYNC_CANCEL)], "a synchronous cancel waits until its requests have ended"),
    any_order!("cancel", sync_cancel_of_worker, [
        Reg(IORING_REGISTER_SYNC_CANCEL), Setup(IORING_SETUP_DEFER_TASKRUN),
    ], "a synchronous cancel interrupts a worker, and waits for the end of its request"),
    case!("cancel", sync_cancel_refusals, [Reg(IORING_REGISTER_SYNC_CANCEL)], "no match, bad flags, pointers and times"),
    any_order!("cancel", poll_wake_pending, [Op(IORING_OP_POLL_REMOVE)], "a cancel does not find a poll whose wake-up is pending"),
];

/// Queues polls of `fd` that do not become ready, with these user_data.
fn polls(cx: &mut Cx, ring: &mut Ring, fd: i32, uds: &[u64]) {
    uds.iter().for_each(|ud| assert!(ring.try_push(sqe::poll_add(fd, libc::POLLIN).ud(*ud))));
    let got = ring.submit();
    cx.is("polls", got, uds.len());
}

fn by_user_data(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, _w) = cx.pipe()?;
    polls(cx, &mut ring, r.as_raw_fd(), &[1, 2, 2]);
    cx.start(&mut ring, &[sqe::cancel(1, 0).ud(10), sqe::cancel(2, 0).ud(11)]);
    let want = [(1, -ECANCELED), (2, -ECANCELED), (10, 0), (11, 0)];
    cx.reap(&mut ring, "one each", &want);
    cx.one(&mut ring, "none", sqe::cancel(99, 0), -ENOENT);
    Ok(())
}

fn kinds(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 4];
    let ts = sqe::millis(60_000);
    let read = sqe::read(r.as_raw_fd(), &mut buf, 0);
    let rows = [
        ("poll", sqe::poll_add(r.as_raw_fd(), libc::POLLIN)),
        ("read", read),
        ("time-out", sqe::timeout(&ts, 0, 0)),
        ("time-out with a count", sqe::timeout(&ts, 3, 0)),
        ("read in a worker", read.with(IOSQE_ASYNC)),
    ];
    for (what, request) in rows {
        cx.start(&mut ring, &[request.ud(1)]);
        cx.quiet(&ring, "waits", 5);
        cx.start(&mut ring, &[sqe::cancel(1, 0).ud(2)]);
        cx.reap(&mut ring, what, &[(1, -ECANCELED), (2, 0)]);
    }
    drop(w);
    Ok(())
}

fn all_flag(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, _w) = cx.pipe()?;
    polls(cx, &mut ring, r.as_raw_fd(), &[1, 1, 1, 2]);
    cx.start(&mut ring, &[sqe::cancel(1, IORING_ASYNC_CANCEL_ALL).ud(10)]);
    let e = -ECANCELED;
    cx.reap(&mut ring, "three", &[(1, e), (1, e), (1, e), (10, 3)]);
    cx.one(&mut ring, "none left", sqe::cancel(1, IORING_ASYNC_CANCEL_ALL), 0);
    Ok(())
}

fn by(fd: i32, flags: u32) -> io_uring_sqe {
    sqe::cancel(0, flags).set(|s| s.fd = fd)
}

fn by_fd(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let ((r, _w), (other, _w2)) = (cx.pipe()?, cx.pipe()?);
    polls(cx, &mut ring, r.as_raw_fd(), &[1, 2]);
    polls(cx, &mut ring, other.as_raw_fd(), &[3]);
    let flags = IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_ALL;
    cx.start(&mut ring, &[by(r.as_raw_fd(), flags).ud(10)]);
    cx.reap(&mut ring, "two of three", &[(1, -ECANCELED), (2, -ECANCELED), (10, 2)]);
    // Another fd of the same open file matches too.
    let twin = rustix::io::dup(&other)?;
    cx.start(&mut ring, &[by(twin.as_raw_fd(), IORING_ASYNC_CANCEL_FD).ud(11)]);
    cx.reap(&mut ring, "by a twin", &[(3, -ECANCELED), (11, 0)]);
    Ok(())
}

fn by_slot(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, _w) = cx.pipe()?;
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[-1, r.as_raw_fd()]), 0);
    ring.push(sqe::poll_add(1, libc::POLLIN).fixed().ud(1));
    ring.push(sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(2));
    cx.is("submit", ring.submit(), 2);
    let flags = IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_FD_FIXED | IORING_ASYNC_CANCEL_ALL;
    cx.one(&mut ring, "a free slot", by(0, flags), -EBADF);
    cx.one(&mut ring, "an unknown slot", by(7, flags), -EBADF);
    cx.start(&mut ring, &[by(1, flags).ud(10)]);
    cx.reap(&mut ring, "both are that file", &[(1, -ECANCELED), (2, -ECANCELED), (10, 2)]);
    Ok(())
}

fn any(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, _w) = cx.pipe()?;
    let ts = sqe::millis(60_000);
    polls(cx, &mut ring, r.as_raw_fd(), &[1, 2]);
    cx.start(&mut ring, &[sqe::timeout(&ts, 0, 0).ud(3)]);
    cx.start(
        &mut ring,
        &[sqe::cancel(0, IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL).ud(10)],
    );
    let e = -ECANCELED;
    cx.reap(&mut ring, "all", &[(1, e), (2, e), (3, e), (10, 3)]);
    cx.note_answer("none left", {
        ring.push(sqe::cancel(0, IORING_ASYNC_CANCEL_ANY).ud(11)).submit_wait(1);
        ring.take(1)?[0].res
    });
    Ok(())
}

fn by_op(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, _w) = cx.pipe()?;
    let ts = sqe::millis(60_000);
    polls(cx, &mut ring, r.as_raw_fd(), &[1]);
    cx.start(&mut ring, &[sqe::timeout(&ts, 0, 0).ud(2)]);
    let op = |op: u8| {
        sqe::cancel(0, IORING_ASYNC_CANCEL_OP).set(|s| s.len = u32::from(op))
    };
    cx.one(&mut ring, "no reads", op(IORING_OP_READ), -ENOENT);
    cx.start(&mut ring, &[op(IORING_OP_POLL_ADD).ud(10)]);
    cx.reap(&mut ring, "the poll", &[(1, -ECANCELED), (10, 0)]);
    cx.start(&mut ring, &[op(IORING_OP_TIMEOUT).ud(11)]);
    cx.reap(&mut ring, "the time-out", &[(2, -ECANCELED), (11, 0)]);
    Ok(())
}

fn first_match(cx: &mut Cx) -> Outcome {
    let (r, _w) = cx.pipe()?;
    let word = 7u32;
    let futex = sqe::op(IORING_OP_FUTEX_WAIT, 2).set(|s| {
        (s.addr, s.off, s.addr3) = (addr(&word) as u64, 7, u64::from(u32::MAX));
    });
    let poll = sqe::poll_add(r.as_raw_fd(), libc::POLLIN);
    let by_op = |op: u8| sqe::cancel(0, IORING_ASYNC_CANCEL_OP).set(|s| s.len = op.into());
    let by_file = by(r.as_raw_fd(), IORING_ASYNC_CANCEL_FD);
    for entries in [8, 64, 512] {
        for (what, sqe, cancel) in [
            ("polls, by opcode", poll, by_op(IORING_OP_POLL_ADD)),
            ("polls, by file", poll, by_file),
            ("futexes", futex, by_op(IORING_OP_FUTEX_WAIT)),
        ] {
            let mut ring = cx.ring(entries, 0)?;
            let all: Vec<_> = (0..8).map(|i| sqe.ud(11 + i * i)).collect();
            cx.start(&mut ring, &all);
            let mut names = Vec::new();
            for _ in &all {
                ring.push(cancel.ud(1)).submit();
                names.extend(ring.take(2)?.iter().map(|c| c.user_data).filter(|ud| *ud != 1));
            }
            cx.note(what, format_args!("{names:?}"));
        }
    }
    Ok(())
}

fn combined(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let ((a, _w), (b, _w2)) = (cx.pipe()?, cx.pipe()?);
    polls(cx, &mut ring, a.as_raw_fd(), &[1, 2]);
    polls(cx, &mut ring, b.as_raw_fd(), &[1]);
    let (a, b) = (a.as_raw_fd(), b.as_raw_fd());
    let flags = IORING_ASYNC_CANCEL_USERDATA | IORING_ASYNC_CANCEL_FD;
    let both = |fd: i32, ud: u64| by(fd, flags).set(|s| s.addr = ud);
    cx.one(&mut ring, "no such pair", both(b, 2), -ENOENT);
    cx.start(&mut ring, &[both(a, 1).ud(10)]);
    cx.reap(&mut ring, "the pair", &[(1, -ECANCELED), (10, 0)]);
    cx.one(&mut ring, "again", both(a, 1), -ENOENT);
    let with_op = flags | IORING_ASYNC_CANCEL_OP;
    let three = |op: u8| both(b, 1).op_flags(with_op).set(|s| s.len = u32::from(op));
    cx.one(&mut ring, "another opcode", three(IORING_OP_READ), -ENOENT);
    cx.start(&mut ring, &[three(IORING_OP_POLL_ADD).ud(11)]);
    cx.reap(&mut ring, "all three", &[(1, -ECANCELED), (11, 0)]);
    Ok(())
}

fn refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let good = sqe::cancel(5, 0);
    let any_op = IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_OP;
    cx.each(&mut ring, &[
        ("no match", good, -ENOENT),
        ("no match, all", sqe::cancel(5, IORING_ASYNC_CANCEL_ALL), 0),
        ("unknown flag", good.op_flags(1 << 6), -EINVAL),
        ("an offset", good.set(|s| s.off = 1), -EINVAL),
        ("a length without OP", good.set(|s| s.len = 1), -ENOENT),
        ("a file index", good.set(|s| s.file_index = 1), -EINVAL),
        ("ANY and FD", by(0, IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_FD), -EINVAL),
        ("ANY and OP", sqe::cancel(0, any_op), -EINVAL),
        ("bad fd", by(1234, IORING_ASYNC_CANCEL_FD), -EBADF),
        (
            "slot without a table",
            by(0, IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_FD_FIXED),
            -EBADF,
        ),
        ("a priority", good.set(|s| s.ioprio = 1), -EINVAL),
    ]);
    Ok(())
}

fn in_worker(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, _w) = cx.pipe()?;
    polls(cx, &mut ring, r.as_raw_fd(), &[1]);
    cx.start(&mut ring, &[sqe::cancel(1, 0).ud(2).with(IOSQE_ASYNC)]);
    cx.reap(&mut ring, "cancelled", &[(1, -ECANCELED), (2, 0)]);
    Ok(())
}

fn chain(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, _w) = cx.pipe()?;
    ring.push(sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(1).link());
    ring.push(sqe::nop().ud(2).link()).push(sqe::nop().ud(3));
    cx.is("submit", ring.submit(), 3);
    cx.one(&mut ring, "not yet started", sqe::cancel(2, 0).ud(10), -ENOENT);
    cx.start(&mut ring, &[sqe::cancel(1, 0).ud(11)]);
    let e = -ECANCELED;
    cx.reap(&mut ring, "all", &[(1, e), (2, e), (3, e), (11, 0)]);
    Ok(())
}

fn finished(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    cx.start(&mut ring, &[sqe::nop().ud(1), sqe::cancel(1, 0).ud(2)]);
    cx.reap(&mut ring, "too late", &[(1, 0), (2, -ENOENT)]);
    Ok(())
}

fn expired_timeout(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let now = sqe::millis(0);
    for flags in [0, IORING_ASYNC_CANCEL_ALL] {
        let timeout = sqe::timeout(&now, 0, 0).ud(1);
        let none = if flags == 0 { -ENOENT } else { 0 };
        let sqes = [timeout, sqe::cancel(1, flags).ud(2)];
        cx.batch(&mut ring, "too late", &sqes, &[(1, -ETIME), (2, none)]);
    }
    Ok(())
}

fn forever() -> kernel_timespec {
    kernel_timespec { tv_sec: -1, tv_nsec: -1 }
}

fn sync_cancel(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, _w) = cx.pipe()?;
    for ud in [1, 2, 3] {
        ring.push(sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(ud));
    }
    cx.is("submit", ring.submit(), 3);
    let call = |ring: &Ring, c: io_uring_sync_cancel_reg| {
        ring.register(IORING_REGISTER_SYNC_CANCEL, addr(&c), 1)
    };
    let timeout = forever();
    let one = io_uring_sync_cancel_reg { addr: 1, timeout, ..Default::default() };
    let all = IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_ALL;
    let by_fd = io_uring_sync_cancel_reg { fd: r.as_raw_fd(), flags: all, ..one };
    let results = [call(&ring, one), call(&ring, by_fd), call(&ring, by_fd)];
    cx.is("one by user_data", results[0], 0);
    cx.is("the rest by fd", results[1], 2);
    cx.note_answer("none left", results[2]);
    cx.reap(&mut ring, "cancelled", &[(1, -ECANCELED), (2, -ECANCELED), (3, -ECANCELED)]);
    // With ANY neither the opcode nor the file matters, except that timeouts have no file.
    let (other, _w) = cx.pipe()?;
    let ts = sqe::millis(60_000);
    for (what, narrow) in [("opcode", IORING_ASYNC_CANCEL_OP), ("file", IORING_ASYNC_CANCEL_FD)] {
        let poll = sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(4);
        cx.start(&mut ring, &[poll, sqe::timeout(&ts, 0, 0).ud(5)]);
        let flags = IORING_ASYNC_CANCEL_ANY | narrow;
        let (fd, opcode) = (other.as_raw_fd(), IORING_OP_READ);
        let any = io_uring_sync_cancel_reg { fd, flags, opcode, timeout, ..Default::default() };
        let by_op = narrow == IORING_ASYNC_CANCEL_OP;
        cx.is(&format!("any, another {what}"), call(&ring, any), if by_op { 2 } else { 1 });
        cx.start(&mut ring, &[sqe::cancel(5, 0).ud(6)]);
        let left = if by_op { -ENOENT } else { 0 };
        cx.reap(&mut ring, what, &[(4, -ECANCELED), (5, -ECANCELED), (6, left)]);
    }
    Ok(())
}

/// Checks a cancel of a worker's request. On a DEFER_TASKRUN ring the request's end is task work,
/// which wakes no thread that waits in this call: the call then ends at its timeout, unless the
/// worker was quicker than the caller.
fn sync_cancel_of_worker(cx: &mut Cx) -> Outcome {
    const TIMES: usize = 6;
    let (one, _two) = super::net::pair()?;
    let mut buf = [0; 1];
    let one_issuer = (IORING_SETUP_SINGLE_ISSUER, "one issuer");
    for (flags, how) in [(0, "plain"), one_issuer, (DEFER, "defer")] {
        let mut late = false;
        for _ in 0..TIMES {
            let mut ring = cx.ring(4, flags)?;
            let read = sqe::read(one.as_raw_fd(), &mut buf, 0).with(IOSQE_IO_LINK);
            cx.start(&mut ring, &[read.ud(1)]);
            // A worker has begun by now, even under valgrind.
            std::thread::sleep(std::time::Duration::from_millis(80));
            let timeout = sqe::millis(if flags == DEFER { 30 } else { 2000 });
            let c = io_uring_sync_cancel_reg { addr: 1, timeout, ..Default::default() };
            let got = ring.register(IORING_REGISTER_SYNC_CANCEL, addr(&c), 1);
            late |= got == -(ETIME as isize);
            cx.reap(&mut ring, how, &[(1, -EINTR)]);
        }
        cx.note(&format!("{how}: to the end of its time"), late);
    }
    Ok(())
}

fn sync_cancel_refusals(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(8, 0)?;
    let good = io_uring_sync_cancel_reg { addr: 5, timeout: forever(), ..Default::default() };
    let mut call = |what: &str, c: io_uring_sync_cancel_reg, want: i32| {
        let got = ring.register(IORING_REGISTER_SYNC_CANCEL, addr(&c), 1);
        cx.is(what, got, want);
    };
    call("no match", good, -ENOENT);
    call("unknown flag", io_uring_sync_cancel_reg { flags: 1 << 6, ..good }, -EINVAL);
    call("reserved", io_uring_sync_cancel_reg { pad2: [0, 1, 0], ..good }, -EINVAL);
    call("reserved bytes", io_uring_sync_cancel_reg { pad: [1; 7], ..good }, -EINVAL);
    let fixed = IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_FD_FIXED;
    call("fixed fd without a table", io_uring_sync_cancel_reg { flags: fixed, ..good }, -EBADF);
    let fd = io_uring_sync_cancel_reg { flags: IORING_ASYNC_CANCEL_FD, fd: 1234, ..good };
    call("bad fd", fd, -EBADF);
    let op = IORING_REGISTER_SYNC_CANCEL;
    cx.registers(&ring, &[
        ("null", op, 0, 1, -EINVAL),
        ("unmapped", op, BAD, 1, -EFAULT),
        ("count 0", op, addr(&good), 0, -EINVAL),
        ("count 2", op, addr(&good), 2, -EINVAL),
    ]);
    Ok(())
}

fn poll_wake_pending(cx: &mut Cx) -> Outcome {
    for flags in [0, DEFER] {
        let mut ring = cx.ring(8, flags)?;
        let (r, w) = cx.pipe()?;
        let (one, two) = super::net::pair()?;
        let remove = |ud: u64| sqe::op(IORING_OP_POLL_REMOVE, -1).set(|s| s.addr = ud);
        for (what, from, write) in [
            ("a pipe", r.as_raw_fd(), sqe::write(w.as_raw_fd(), b"x", 0)),
            ("a socket", two.as_raw_fd(), super::net::send(one.as_raw_fd(), b"x")),
        ] {
            let poll = sqe::poll_add(from, libc::POLLIN).ud(1);
            cx.start(&mut ring, &[poll]);
            let update = remove(1).set(|s| {
                s.len = IORING_POLL_UPDATE_EVENTS;
                s.op_flags = libc::POLLOUT as u32;
            });
            let all = [write.ud(2), update.ud(3), remove(1).ud(4)];
            let ended = [(1, libc::POLLIN.into()), (2, 1), (3, -EALREADY), (4, -EALREADY)];
            cx.batch(&mut ring, what, &all, &ended);
        }
    }
    Ok(())
}
