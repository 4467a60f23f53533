//! MSG_RING: data, results and files from one ring to another.

use super::prelude::*;

pub const CASES: &[Case] = &[
    legal!("msg_ring", data, [Op(IORING_OP_MSG_RING)], "a completion is posted to another ring"),
    legal!("msg_ring", flags, [Op(IORING_OP_MSG_RING)], "CQE_SKIP posts nothing on the target; FLAGS_PASS sets the CQE's flags"),
    legal!("msg_ring", wakes, [Op(IORING_OP_MSG_RING)], "a message wakes a thread that waits on the target"),
    legal!("msg_ring", deferred_target, [Op(IORING_OP_MSG_RING)], "a target with DEFER_TASKRUN gets the message by GETEVENTS"),
    any_order!("msg_ring", send_fd, [Op(IORING_OP_MSG_RING)], "a message passes a registered file to the other ring's table"),
    legal!("msg_ring", send_fd_refusals, [Op(IORING_OP_MSG_RING)], "free slots, unknown slots, no tables"),
    legal!("msg_ring", refusals, [Op(IORING_OP_MSG_RING)], "bad targets, commands, flags and words"),
    legal!("msg_ring", own_ring, [Op(IORING_OP_MSG_RING)], "a ring may be its own target"),
    any_order!("msg_ring", own_ring_before_batch, [Op(IORING_OP_MSG_RING)], "a message to the same ring is posted before its batch"),
    legal!("msg_ring", overflow, [Op(IORING_OP_MSG_RING)], "a full target puts the message on its overflow list"),
    legal!("msg_ring", counted_by_timeouts, [Op(IORING_OP_MSG_RING), Op(IORING_OP_TIMEOUT)], "timeouts of the target count the message"),
    case!("msg_ring", without_ring, [Reg(IORING_REGISTER_SEND_MSG_RING)], "a completion is posted by a register call on no ring"),
    case!("msg_ring", without_ring_refusals, [Reg(IORING_REGISTER_SEND_MSG_RING)], "bad words of a message without a ring"),
    legal!("msg_ring", between_threads, [Op(IORING_OP_MSG_RING)], "messages between rings of two threads"),
];

/// Makes a MSG_RING: `len` is the result in the target ring, `off` its user_data.
fn msg(to: i32, res: u32, user_data: u64) -> io_uring_sqe {
    sqe::op(IORING_OP_MSG_RING, to).set(|s| (s.len, s.off) = (res, user_data))
}

/// Makes a MSG_RING of a file: `addr3` is the slot here, `file_index` the slot in the target, plus
/// one.
fn send(to: i32, slot: u64, there: u32, user_data: u64) -> io_uring_sqe {
    msg(to, 0, user_data)
        .set(|s| (s.addr, s.addr3, s.file_index) = (IORING_MSG_SEND_FD, slot, there))
}

fn data(cx: &mut Cx) -> Outcome {
    let (mut a, mut b) = (cx.ring(4, 0)?, cx.ring(4, 0)?);
    cx.one(&mut a, "send", msg(b.fd, 77, 0x1234), 0);
    cx.reap(&mut b, "there", &[(0x1234, 77)]);
    cx.one(&mut a, "a negative result", msg(b.fd, u32::MAX, 1), 0);
    cx.reap(&mut b, "there", &[(1, -1)]);
    cx.one(&mut a, "in a worker", msg(b.fd, 5, 2).with(IOSQE_ASYNC), 0);
    cx.reap(&mut b, "there", &[(2, 5)]);
    let skip = msg(b.fd, 6, 3).with(IOSQE_CQE_SKIP_SUCCESS);
    cx.start(&mut a, &[skip]);
    cx.reap(&mut b, "there", &[(3, 6)]);
    cx.quiet(&a, "none here", 5);
    cx.is("register", a.register_slice(IORING_REGISTER_FILES, &[0]), 0);
    Ok(())
}

fn flags(cx: &mut Cx) -> Outcome {
    let (mut a, mut b) = (cx.ring(4, 0)?, cx.ring(4, 0)?);
    let pass = msg(b.fd, 7, 1)
        .op_flags(IORING_MSG_RING_FLAGS_PASS)
        .set(|s| s.file_index = 0x5a);
    cx.one(&mut a, "pass", pass, 0);
    let got = b.take(1)?[0];
    cx.cqe("there", got, 7);
    cx.eq("flags", format!("{:#x}", got.flags), "0x5a".into());
    let skip = msg(b.fd, 7, 2).op_flags(IORING_MSG_RING_CQE_SKIP);
    cx.one(&mut a, "skip, of data", skip, -EINVAL);
    cx.one(&mut a, "unknown", msg(b.fd, 7, 3).op_flags(4), -EINVAL);
    cx.quiet(&b, "none there", 5);
    Ok(())
}

fn wakes(cx: &mut Cx) -> Outcome {
    let (mut a, mut b) = (cx.ring(4, 0)?, cx.ring(4, 0)?);
    let to = b.fd;
    let sender = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        a.push(msg(to, 3, 9)).submit_wait(1);
        a.pop().map(|c| c.res)
    });
    cx.is("wait", b.enter(0, 1, IORING_ENTER_GETEVENTS), 0);
    cx.reap(&mut b, "there", &[(9, 3)]);
    cx.eq("sent", sender.join().ok().flatten(), Some(0));
    Ok(())
}

fn deferred_target(cx: &mut Cx) -> Outcome {
    let (mut a, mut b) = (cx.ring(4, 0)?, cx.ring(4, DEFER)?);
    cx.one(&mut a, "send", msg(b.fd, 5, 1), 0);
    cx.quiet(&b, "not yet", 5);
    cx.is("GETEVENTS", b.enter(0, 0, IORING_ENTER_GETEVENTS), 0);
    let got = b.pop_all();
    cx.completions("there", &got, &[(1, 5)]);
    let disabled = cx.ring(4, IORING_SETUP_R_DISABLED)?;
    cx.one(&mut a, "a disabled target", msg(disabled.fd, 5, 1), -EBADFD);
    Ok(())
}

fn send_fd(cx: &mut Cx) -> Outcome {
    let (mut a, mut b) = (cx.ring(4, 0)?, cx.ring(4, 0)?);
    let file = cx.file("f", b"data")?;
    let mut buf = [0; 8];
    cx.is("register", a.register_slice(IORING_REGISTER_FILES, &[file.as_raw_fd()]), 0);
    cx.sparse_files(&b, 4);
    cx.one(&mut a, "to slot 2", send(b.fd, 0, 3, 11), 0);
    let got = b.take(1)?;
    cx.completions("there", &got, &[(11, 0)]);
    cx.one(&mut b, "read", sqe::read(2, &mut buf, 0).fixed(), 4);
    let quiet = send(b.fd, 0, 2, 12).op_flags(IORING_MSG_RING_CQE_SKIP);
    cx.one(&mut a, "to slot 1, quietly", quiet, 0);
    cx.quiet(&b, "none there", 5);
    cx.one(&mut b, "read", sqe::read(1, &mut buf, 0).fixed(), 4);
    cx.one(&mut a, "to any", send(b.fd, 0, IORING_FILE_INDEX_ALLOC, 13), 3);
    let res = b.take(1)?[0].res;
    cx.note_answer("slot there", res);
    Ok(())
}

fn send_fd_refusals(cx: &mut Cx) -> Outcome {
    let (mut a, b) = (cx.ring(4, 0)?, cx.ring(4, 0)?);
    cx.one(&mut a, "no table here", send(b.fd, 0, 1, 1), -EBADF);
    cx.is("register", a.register_slice(IORING_REGISTER_FILES, &[0, -1]), 0);
    cx.one(&mut a, "no table there", send(b.fd, 0, 1, 1), -ENXIO);
    cx.sparse_files(&b, 2);
    let own = a.fd;
    cx.each(&mut a, &[
        ("a free slot", send(b.fd, 1, 1, 1), -EBADF),
        ("an unknown slot", send(b.fd, 9, 1, 1), -EBADF),
        ("an unknown slot there", send(b.fd, 0, 3, 1), -EINVAL),
        ("a result", send(b.fd, 0, 1, 1).set(|s| s.len = 5), -EINVAL),
        ("to itself", send(own, 0, 1, 1), -EINVAL),
    ]);
    Ok(())
}

fn refusals(cx: &mut Cx) -> Outcome {
    let (mut a, b) = (cx.ring(4, 0)?, cx.ring(4, 0)?);
    let file = cx.file("f", b"")?;
    let path = cx.path("f")?;
    let path = rustix::fs::open(path, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty())?;
    let good = msg(b.fd, 1, 1);
    cx.each(&mut a, &[
        ("open for its path only", msg(path.as_raw_fd(), 1, 1), -EBADF),
        ("-1", msg(-1, 1, 1), -EBADF),
        ("a file", msg(file.as_raw_fd(), 1, 1), -libc::EBADFD),
        ("unknown command", good.set(|s| s.addr = 2), -EINVAL),
        ("a buffer index", good.set(|s| s.buf_index = 1), -EINVAL),
        ("a personality", good.set(|s| s.personality = 1), -EINVAL),
        ("a file index without PASS", good.set(|s| s.file_index = 1), -EINVAL),
        ("a priority", good.set(|s| s.ioprio = 1), -EINVAL),
    ]);
    Ok(())
}

fn own_ring(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let own = ring.fd;
    cx.start(&mut ring, &[msg(own, 5, 1).ud(2)]);
    cx.reap(&mut ring, "both", &[(1, 5), (2, 0)]);
    Ok(())
}

fn overflow(cx: &mut Cx) -> Outcome {
    let (mut a, mut b) = (cx.ring(4, 0)?, cx.ring(2, 0)?);
    for i in 0..7 {
        cx.one(&mut a, "send", msg(b.fd, 1, i), 0);
    }
    let want: Vec<_> = (0..7).map(|i| (i, 1)).collect();
    cx.reap_in_order(&mut b, "all, in order", &want);
    Ok(())
}

fn between_threads(cx: &mut Cx) -> Outcome {
    const N: u64 = 500;
    let (mut a, mut b) = (cx.ring(8, 0)?, cx.ring(8, 0)?);
    let to = b.fd;
    let sender = std::thread::spawn(move || {
        (0..N).filter(|i| {
            a.push(msg(to, 0, *i)).submit_wait(1);
            a.pop().is_some_and(|c| c.res == 0)
        }).count()
    });
    let got = b.take(N as usize)?;
    cx.is("sent", sender.join().unwrap_or(0), N);
    cx.holds("in order", got.iter().map(|c| c.user_data).eq(0..N));
    Ok(())
}

fn own_ring_before_batch(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let own = ring.fd;
    cx.start(&mut ring, &[sqe::nop().ud(1), msg(own, 5, 7).ud(2)]);
    let order: Vec<_> = ring.take(3)?.iter().map(|c| c.user_data).collect();
    cx.note("order", format_args!("{order:?}"));
    Ok(())
}

/// Sends an SQE by the register call on fd -1.
fn ringless(cx: &Cx, sqe: &io_uring_sqe) -> isize {
    entry::register(cx.entry, -1, IORING_REGISTER_SEND_MSG_RING, addr(sqe), 1)
}

fn without_ring(cx: &mut Cx) -> Outcome {
    let (mut a, mut b) = (cx.ring(4, 0)?, cx.ring(4, DEFER)?);
    cx.is("send", ringless(cx, &msg(a.fd, 77, 0x1234)), 0);
    cx.reap(&mut a, "there", &[(0x1234, 77)]);
    let pass = msg(a.fd, 7, 1).op_flags(IORING_MSG_RING_FLAGS_PASS).set(|s| s.file_index = 0x5a);
    cx.is("with flags", ringless(cx, &pass), 0);
    let got = a.take(1)?[0];
    cx.eq("flags there", (got.res, got.flags), (7, 0x5a));
    cx.is("to a deferring ring", ringless(cx, &msg(b.fd, 5, 2)), 0);
    cx.quiet(&b, "not yet", 5);
    cx.reap(&mut b, "there", &[(2, 5)]);
    let to = a.fd;
    let entry = cx.entry;
    let sender = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        entry::register(entry, -1, IORING_REGISTER_SEND_MSG_RING, addr(&msg(to, 3, 9)), 1)
    });
    cx.reap(&mut a, "it wakes who waits", &[(9, 3)]);
    cx.eq("sent", sender.join().ok(), Some(0));
    Ok(())
}

fn without_ring_refusals(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let disabled = cx.ring(4, IORING_SETUP_R_DISABLED)?;
    let file = cx.file("f", b"")?;
    let path = cx.path("f")?;
    let path = rustix::fs::open(path, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty())?;
    let good = msg(ring.fd, 1, 1);
    let rows = [
        ("open for its path only", msg(path.as_raw_fd(), 1, 1), -EBADF),
        ("SQE flags", good.with(IOSQE_ASYNC), -EINVAL),
        ("another operation", good.set(|s| s.opcode = IORING_OP_NOP), -EINVAL),
        ("a file", msg(file.as_raw_fd(), 1, 1), -EBADFD),
        ("closed", msg(999, 1, 1), -EBADF),
        ("-1", msg(-1, 1, 1), -EBADF),
        ("a disabled ring", msg(disabled.fd, 1, 1), -EBADFD),
        ("SEND_FD", send(ring.fd, 0, 1, 1), -EINVAL),
        ("unknown command", good.set(|s| s.addr = 2), -EINVAL),
        ("CQE_SKIP", good.op_flags(IORING_MSG_RING_CQE_SKIP), -EINVAL),
        ("unknown flags", good.op_flags(4), -EINVAL),
        ("a buffer index", good.set(|s| s.buf_index = 1), -EINVAL),
        ("a personality", good.set(|s| s.personality = 1), -EINVAL),
        ("a slot here", good.set(|s| s.addr3 = 1), -EINVAL),
        ("flags without PASS", good.set(|s| s.file_index = 1), -EINVAL),
        ("a priority is not looked at", good.set(|s| s.ioprio = 1), 0),
    ];
    for (what, sqe, want) in rows {
        cx.is(what, ringless(cx, &sqe), want);
    }
    let entry = cx.entry;
    let call = |fd, at, nr| entry::register(entry, fd, IORING_REGISTER_SEND_MSG_RING, at, nr);
    let got = [call(-1, 0, 1), call(-1, addr(&good), 0), call(-1, addr(&good), 2)];
    cx.eq("no pointer, no count, two", got, [-22; 3]);
    let got = [call(-1, BAD, 1), call(-2, addr(&good), 1), call(ring.fd, addr(&good), 1)];
    cx.note("a bad pointer, another fd, a ring", format_args!("{got:?}"));
    Ok(())
}

fn counted_by_timeouts(cx: &mut Cx) -> Outcome {
    for flags in [0, DEFER] {
        let (mut ring, mut other) = (cx.ring(8, flags)?, cx.ring(8, 0)?);
        let ts = sqe::millis(5000);
        cx.start(&mut ring, &[sqe::timeout(&ts, 2, 0).ud(1), sqe::nop().ud(2)]);
        let message = sqe::op(IORING_OP_MSG_RING, ring.fd).set(|s| s.off = 3);
        cx.one(&mut other, "message", message, 0);
        cx.reap(&mut ring, "two have come", &[(1, 0), (2, 0), (3, 0)]);
    }
    Ok(())
}
