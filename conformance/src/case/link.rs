//! Chains: soft and hard links, faults that break them, drains among them.

use super::prelude::*;

pub const CASES: &[Case] = &[
    case!("link", before_worker, [Op(IORING_OP_POLL_REMOVE), Setup(IORING_SETUP_DEFER_TASKRUN)], "linked requests are issued before a worker takes the batch's unterminated chain"),
    case!("link", after_batch_task_work, [Op(IORING_OP_POLL_REMOVE), Sqe(IOSQE_IO_LINK)], "linked requests run with task work, after work that the batch queued itself"),
    legal!("link", runs_in_order, [Sqe(IOSQE_IO_LINK)], "a chain's requests run one after the other"),
    legal!("link", failure_cancels, [Sqe(IOSQE_IO_LINK)], "a failure cancels the rest of its chain, and no other chain"),
    legal!("link", hard_link_after_failure, [Sqe(IOSQE_IO_HARDLINK)], "a hard link goes on after a failure"),
    legal!("link", hard_then_soft, [Sqe(IOSQE_IO_HARDLINK), Sqe(IOSQE_IO_LINK)], "a soft link after a hard one breaks as usual"),
    any_order!("link", short_read_breaks, [Sqe(IOSQE_IO_LINK)], "a short read breaks a soft chain"),
    legal!("link", bad_sqe_in_chain, [Sqe(IOSQE_IO_LINK)], "an SQE refused at submission cancels its whole chain"),
    legal!("link", ends_at_submit, [Sqe(IOSQE_IO_LINK)], "an unterminated chain ends with its submission"),
    any_order!("link", waits_for_data, [Sqe(IOSQE_IO_LINK)], "a chain waits where its request waits"),
    any_order!("link", write_fsync_read, [Sqe(IOSQE_IO_LINK)], "write, fsync, read back in one chain"),
    case!("link", skip_success, [Sqe(IOSQE_IO_LINK), Sqe(IOSQE_CQE_SKIP_SUCCESS)], "SKIP_SUCCESS in a chain hides success and what it cancels"),
    legal!("link", in_workers, [Sqe(IOSQE_IO_LINK), Sqe(IOSQE_ASYNC)], "a chain through workers keeps its order"),
    legal!("link", long_chain, [Sqe(IOSQE_IO_LINK)], "a chain as long as the SQ"),
    any_order!("link", fixed_file_lookup, [Sqe(IOSQE_IO_LINK)], "a linked request's fixed file is looked up when it runs"),
    legal!("link", drain, [Sqe(IOSQE_IO_DRAIN)], "a drained request waits for all before it, and delays all after it"),
    case!("link", drain_waits_for_slow, [Sqe(IOSQE_IO_DRAIN)], "a drain waits for a read that waits"),
    legal!("link", drain_with_link, [Sqe(IOSQE_IO_DRAIN), Sqe(IOSQE_IO_LINK)], "a drained chain runs as a unit"),
    legal!("link", two_drains, [Sqe(IOSQE_IO_DRAIN)], "drains keep their order"),
    legal!("link", drain_and_failure, [
        Sqe(IOSQE_IO_DRAIN), Setup(IORING_SETUP_DEFER_TASKRUN),
    ], "a failed request stalls no request behind a barrier, and no request overtakes"),
    legal!("link", drain_waits_for_multishot, [Sqe(IOSQE_IO_DRAIN)], "a drain waits for a multishot poll's end"),
];

/// Submits all, and checks completions in exactly this order.
fn chain(cx: &mut Cx, ring: &mut Ring, what: &str, sqes: &[io_uring_sqe], want: &[(u64, i32)]) {
    sqes.iter().for_each(|s| assert!(ring.try_push(*s)));
    let submitted = ring.submit();
    cx.is(&format!("{what}: submitted"), submitted, sqes.len());
    cx.reap_in_order(ring, what, want);
}

fn nop(ud: u64) -> io_uring_sqe {
    sqe::nop().ud(ud)
}

/// Makes a NOP that completes with `res`.
fn result(ud: u64, res: i32) -> io_uring_sqe {
    nop(ud).op_flags(IORING_NOP_INJECT_RESULT).set(|s| s.len = res.cast_unsigned())
}

fn runs_in_order(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let sqes = [nop(1).link(), nop(2).link(), nop(3)];
    chain(cx, &mut ring, "chain", &sqes, &[(1, 0), (2, 0), (3, 0)]);
    Ok(())
}

fn failure_cancels(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(16, 0)?;
    let sqes = [
        nop(1).link(),
        result(2, -EPERM).link(),
        nop(3).link(),
        nop(4),
        nop(5).link(),
        nop(6),
    ];
    let e = -ECANCELED;
    for s in sqes {
        ring.push(s);
    }
    cx.is("submit", ring.submit(), 6);
    let want = [(1, 0), (2, -EPERM), (3, e), (4, e), (5, 0), (6, 0)];
    cx.reap(&mut ring, "two chains", &want);
    let last = [nop(1).link(), result(2, -EPERM), nop(3)];
    cx.batch(&mut ring, "the last fails", &last, &[(1, 0), (2, -EPERM), (3, 0)]);
    Ok(())
}

fn hard(s: io_uring_sqe) -> io_uring_sqe {
    s.with(IOSQE_IO_HARDLINK)
}

fn hard_link_after_failure(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let sqes = [hard(result(1, -EPERM)), hard(result(2, -EPERM)), nop(3)];
    chain(cx, &mut ring, "chain", &sqes, &[(1, -EPERM), (2, -EPERM), (3, 0)]);
    let both = result(1, -EPERM).with(IOSQE_IO_HARDLINK | IOSQE_IO_LINK);
    chain(cx, &mut ring, "both flags", &[both, nop(2)], &[(1, -EPERM), (2, 0)]);
    Ok(())
}

fn hard_then_soft(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let sqes = [hard(result(1, -EPERM)), result(2, -EPERM).link(), hard(nop(3)), nop(4)];
    let e = -ECANCELED;
    chain(cx, &mut ring, "chain", &sqes, &[(1, -EPERM), (2, -EPERM), (3, e), (4, e)]);
    Ok(())
}

fn short_read_breaks(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let fd = file.as_raw_fd();
    let mut buf = [0; 8];
    let read = |buf: &mut [u8], off, ud| sqe::read(fd, buf, off).ud(ud).link();
    let full = [read(&mut buf, 0, 1), nop(2)];
    chain(cx, &mut ring, "whole", &full, &[(1, 8), (2, 0)]);
    let short = [read(&mut buf, 6, 1), nop(2)];
    chain(cx, &mut ring, "short", &short, &[(1, 4), (2, -ECANCELED)]);
    let hard_short = [hard(sqe::read(fd, &mut buf, 6).ud(1)), nop(2)];
    chain(cx, &mut ring, "short, hard link", &hard_short, &[(1, 4), (2, 0)]);
    Ok(())
}

fn bad_sqe_in_chain(cx: &mut Cx) -> Outcome {
    let e = -ECANCELED;
    let bad = sqe::op(200, -1);
    for (what, setup) in [("plain", 0), ("SUBMIT_ALL", IORING_SETUP_SUBMIT_ALL)] {
        let mut ring = cx.ring(8, setup)?;
        let sqes = [nop(1).link(), nop(2).link(), bad.ud(3).link(), nop(4), nop(5)];
        sqes.iter().for_each(|s| assert!(ring.try_push(*s)));
        let mut taken = 0;
        while ring.sq_ready() > 0 && taken < 5 {
            let got = ring.submit();
            cx.note_answer(&format!("{what}: submitted"), got);
            taken += got.max(1);
        }
        let want = [(1, e), (2, e), (3, -EINVAL), (4, e), (5, 0)];
        let mut got = ring.take(5)?;
        got.sort();
        let plain: Vec<_> = got.iter().map(|c| (c.user_data, c.res)).collect();
        cx.note(what, format_args!("{plain:?}"));
        cx.holds("refused", plain[2] == want[2]);
        cx.holds("head cancelled", plain[0] == want[0]);
    }
    let mut ring = cx.ring(8, IORING_SETUP_SUBMIT_ALL)?;
    // The head itself is refused.
    let sqes = [bad.ud(1).link(), nop(2), nop(3)];
    for s in sqes {
        ring.push(s);
    }
    cx.is("bad head: submitted", ring.submit(), 3);
    cx.reap(&mut ring, "bad head", &[(1, -EINVAL), (2, e), (3, 0)]);
    Ok(())
}

fn ends_at_submit(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    cx.start(&mut ring, &[result(1, -EPERM).link()]);
    cx.start(&mut ring, &[nop(2)]);
    cx.reap(&mut ring, "apart", &[(1, -EPERM), (2, 0)]);
    Ok(())
}

fn waits_for_data(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 4];
    ring.push(nop(1).link()).push(sqe::read(r.as_raw_fd(), &mut buf, 0).ud(2).link());
    ring.push(nop(3)).push(nop(4));
    cx.is("submit", ring.submit(), 4);
    cx.reap(&mut ring, "before it, and others", &[(1, 0), (4, 0)]);
    cx.quiet(&ring, "the rest waits", 10);
    rustix::io::write(&w, b"data")?;
    cx.reap_in_order(&mut ring, "then", &[(2, 4), (3, 0)]);
    Ok(())
}

fn write_fsync_read(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let file = cx.file("f", b"")?;
    let fd = file.as_raw_fd();
    let mut buf = [0; 4];
    let sqes = [
        sqe::write(fd, b"data", 0).ud(1).link(),
        sqe::op(IORING_OP_FSYNC, fd).ud(2).link(),
        sqe::read(fd, &mut buf, 0).ud(3),
    ];
    chain(cx, &mut ring, "chain", &sqes, &[(1, 4), (2, 0), (3, 4)]);
    cx.eq("data", *std::hint::black_box(&buf), *b"data");
    Ok(())
}

fn skip_success(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let skip = |s: io_uring_sqe| s.with(IOSQE_CQE_SKIP_SUCCESS);
    let sqes = [skip(nop(1)).link(), skip(nop(2)).link(), nop(3)];
    chain(cx, &mut ring, "success", &sqes, &[(3, 0)]);
    let sqes = [skip(result(4, -EPERM)).link(), skip(nop(5)).link(), nop(6), nop(7)];
    for s in sqes {
        ring.push(s);
    }
    cx.is("submit", ring.submit(), 4);
    std::thread::sleep(std::time::Duration::from_millis(5));
    let mut got = ring.pop_all();
    got.sort();
    let all: Vec<_> = got.iter().map(|c| (c.user_data, c.res)).collect();
    cx.note("failure", format_args!("{all:?}"));
    Ok(())
}

fn in_workers(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let sqes: Vec<_> = (0..6).map(|i| nop(i).with(IOSQE_ASYNC).link()).chain([nop(6)]).collect();
    let want: Vec<_> = (0..7).map(|i| (i, 0)).collect();
    chain(cx, &mut ring, "chain", &sqes, &want);
    Ok(())
}

fn long_chain(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(256, 0)?;
    let sqes: Vec<_> = (0..255).map(|i| nop(i).link()).chain([nop(255)]).collect();
    let want: Vec<_> = (0..256).map(|i| (i, 0)).collect();
    chain(cx, &mut ring, "all", &sqes, &want);
    Ok(())
}

fn fixed_file_lookup(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let path = cx.path("f")?;
    cx.file("f", b"data")?;
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[-1]), 0);
    let mut buf = [0; 4];
    let open = sqe::rw(IORING_OP_OPENAT, libc::AT_FDCWD, addr(&*path), 0, 0);
    let sqes = [
        open.set(|s| s.file_index = 1).ud(1).link(),
        sqe::read(0, &mut buf, 0).fixed().ud(2).link(),
        sqe::op(IORING_OP_CLOSE, 0).set(|s| s.file_index = 1).ud(3).link(),
        sqe::read(0, &mut buf, 0).fixed().ud(4),
    ];
    chain(cx, &mut ring, "open, read, close, read", &sqes, &[(1, 0), (2, 4), (3, 0), (4, -EBADF)]);
    Ok(())
}

fn drained(s: io_uring_sqe) -> io_uring_sqe {
    s.with(IOSQE_IO_DRAIN)
}

fn drain(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(16, 0)?;
    let ts = [10, 5].map(sqe::millis);
    let sqes = [
        sqe::timeout(&ts[0], 0, 0).ud(1),
        sqe::timeout(&ts[1], 0, 0).ud(2),
        drained(nop(3)),
        nop(4),
    ];
    let want = [(2, -ETIME), (1, -ETIME), (3, 0), (4, 0)];
    chain(cx, &mut ring, "drained", &sqes, &want);
    chain(cx, &mut ring, "nothing to wait for", &[drained(nop(5)), nop(6)], &[(5, 0), (6, 0)]);
    Ok(())
}

fn drain_waits_for_slow(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(16, 0)?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 4];
    ring.push(sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1));
    ring.push(drained(nop(2))).push(nop(3));
    cx.is("submit", ring.submit(), 3);
    cx.quiet(&ring, "all wait", 10);
    cx.start(&mut ring, &[nop(4)]);
    cx.quiet(&ring, "what comes later waits, too", 10);
    rustix::io::write(&w, b"data")?;
    cx.reap_in_order(&mut ring, "in order", &[(1, 4), (2, 0), (3, 0), (4, 0)]);
    Ok(())
}

fn drain_and_failure(cx: &mut Cx) -> Outcome {
    let count = cx.eventfd(0)?;
    let mut buf = [0; 8];
    for flags in [0, IORING_SETUP_COOP_TASKRUN, DEFER] {
        let mut ring = cx.ring(8, IORING_SETUP_SUBMIT_ALL | flags)?;
        cx.one(&mut ring, "a barrier", drained(nop(1)), 0);
        let fails = sqe::op(IORING_OP_MSG_RING, 0).set(|s| s.op_flags = 4).ud(2);
        cx.start(&mut ring, &[fails, sqe::read(count.as_raw_fd(), &mut buf, 0).ud(3)]);
        cx.start(&mut ring, &[nop(4)]);
        cx.is("task work", ring.enter(0, 0, IORING_ENTER_GETEVENTS), 0);
        cx.reap_in_order(&mut ring, "it fails", &[(2, -EINVAL)]);
        cx.quiet(&ring, &format!("{flags:#x}: the last one waits"), 10);
        rustix::io::write(&count, &1u64.to_ne_bytes())?;
        cx.reap_in_order(&mut ring, "in order", &[(3, 8), (4, 0)]);
    }
    Ok(())
}

fn drain_with_link(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(16, 0)?;
    let ts = sqe::millis(5);
    let sqes = [
        sqe::timeout(&ts, 0, 0).ud(1),
        drained(nop(2)).link(),
        nop(3).link(),
        nop(4),
    ];
    let want = [(1, -ETIME), (2, 0), (3, 0), (4, 0)];
    chain(cx, &mut ring, "drained head", &sqes, &want);
    let sqes = [
        sqe::timeout(&ts, 0, 0).ud(1),
        nop(2).link(),
        drained(nop(3)),
        nop(4),
    ];
    for s in sqes {
        ring.push(s);
    }
    cx.is("submit", ring.submit(), 4);
    cx.reap(&mut ring, "drain within", &[(1, -ETIME), (2, 0), (3, 0), (4, 0)]);
    Ok(())
}

fn two_drains(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(16, 0)?;
    let ts = [5, 5].map(sqe::millis);
    let sqes = [
        sqe::timeout(&ts[0], 0, 0).ud(1),
        drained(sqe::timeout(&ts[1], 0, 0).ud(2)),
        drained(nop(3)),
        nop(4),
    ];
    let want = [(1, -ETIME), (2, -ETIME), (3, 0), (4, 0)];
    chain(cx, &mut ring, "in order", &sqes, &want);
    Ok(())
}

fn drain_waits_for_multishot(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(16, 0)?;
    let (r, w) = cx.pipe()?;
    let multi = sqe::poll_add(r.as_raw_fd(), libc::POLLIN).set(|s| s.len = IORING_POLL_ADD_MULTI);
    cx.start(&mut ring, &[multi.ud(1), drained(nop(2))]);
    rustix::io::write(&w, b"x")?;
    let first = ring.take(1)?[0];
    cx.cqe("a shot", first, libc::POLLIN.into());
    cx.quiet(&ring, "the drain waits on", 10);
    // A cancel SQE would wait behind the drain, so a register call cancels the poll.
    let ended = ring.register_slice(
        IORING_REGISTER_SYNC_CANCEL,
        &[io_uring_sync_cancel_reg { addr: 1, timeout: sqe::millis(1000), ..Default::default() }],
    );
    cx.is("cancel", ended, 0);
    cx.reap_in_order(&mut ring, "its end, then the drained", &[(1, -ECANCELED), (2, 0)]);
    Ok(())
}

fn after_batch_task_work(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, _w) = cx.pipe()?;
    let (one, _two) = std::os::unix::net::UnixDatagram::pair()?;
    let poll = sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(1);
    let remove = sqe::rw(IORING_OP_POLL_REMOVE, -1, 1, 0, 0).ud(2);
    let cancel = sqe::cancel(1, 0);
    let mut byte = [0];
    let read = sqe::read(r.as_raw_fd(), &mut byte, 0).ud(1);
    let none = sqe::write(one.as_raw_fd(), &[], u64::MAX).ud(5);
    for (what, waits, linked, last) in [
        ("a poll, removed", poll, remove.ud(3), remove),
        ("a poll, removed and cancelled", poll, remove.ud(3), cancel.ud(2)),
        ("a poll, cancelled and removed", poll, cancel.ud(3), remove),
        ("a read, cancelled", read, cancel.ud(3), cancel.ud(2)),
    ] {
        for first in [sqe::nop().ud(5), none] {
            cx.start(&mut ring, &[waits]);
            cx.quiet(&ring, "waits", 5);
            let chain = [first.link(), linked.link(), sqe::nop().ud(4)];
            cx.start(&mut ring, &[chain[0], chain[1], chain[2], last]);
            std::thread::sleep(std::time::Duration::from_millis(5));
            cx.note_cqes(what, &mut ring);
        }
    }
    Ok(())
}

fn before_worker(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, DEFER)?;
    let (r, w) = cx.pipe()?;
    rustix::io::write(&w, b"x")?;
    let many = sqe::poll_add(r.as_raw_fd(), libc::POLLIN)
        .set(|s| s.len = IORING_POLL_ADD_MULTI)
        .ud(1);
    let remove = sqe::rw(IORING_OP_POLL_REMOVE, -1, 1, 0, 0).ud(2);
    // The chain of the removal is open when its batch ends.
    for sqe in [sqe::nop().link().ud(3), many, remove.link()] {
        ring.push(sqe);
    }
    cx.is("enter", ring.enter(3, 3, IORING_ENTER_GETEVENTS), 3);
    std::thread::sleep(std::time::Duration::from_millis(5));
    ring.enter(0, 0, IORING_ENTER_GETEVENTS);
    super::futex::sorted(cx, &mut ring, "all", 4)
}
