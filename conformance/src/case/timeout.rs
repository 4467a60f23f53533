//! TIMEOUT in its forms, TIMEOUT_REMOVE and its updates.

use super::prelude::*;
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    case!("timeout", expires, [Op(IORING_OP_TIMEOUT)], "a time-out completes with ETIME, not early"),
    case!("timeout", order, [Op(IORING_OP_TIMEOUT)], "time-outs complete in the order of their times"),
    legal!("timeout", completion_count, [Op(IORING_OP_TIMEOUT)], "a timeout ends with 0 after its number of completions"),
    case!("timeout", overflow_counts_once, [Op(IORING_OP_TIMEOUT)], "an overflowed completion counts once, when it is flushed"),
    case!("timeout", flushed_overflow_counts, [Op(IORING_OP_TIMEOUT), Trap("overflow")], "the flush of what had found no room ends a time-out that counts it"),
    case!("timeout", absolute, [Op(IORING_OP_TIMEOUT)], "absolute timeouts, by each clock"),
    legal!("timeout", etime_success, [Op(IORING_OP_TIMEOUT)], "ETIME_SUCCESS lets the chain go on"),
    any_order!("timeout", multishot, [Op(IORING_OP_TIMEOUT)], "a multishot timeout expires its number of times"),
    case!("timeout", refusals, [Op(IORING_OP_TIMEOUT)], "bad pointers, counts, flags and words"),
    case!("timeout", unusual_times, [Op(IORING_OP_TIMEOUT)], "zero, negative and unnormalised times"),
    legal!("timeout", remove, [Op(IORING_OP_TIMEOUT_REMOVE)], "a time-out is removed by its user_data"),
    case!("timeout", update, [Op(IORING_OP_TIMEOUT_REMOVE)], "a time-out's time is changed"),
    legal!("timeout", update_link, [Op(IORING_OP_TIMEOUT_REMOVE), Op(IORING_OP_LINK_TIMEOUT)], "a linked time-out's time is changed"),
    legal!("timeout", remove_refusals, [Op(IORING_OP_TIMEOUT_REMOVE)], "no match, bad pointers, flags and words"),
    any_order!("timeout", link_cancels_request, [Op(IORING_OP_LINK_TIMEOUT)], "a linked time-out cancels its request"),
    legal!("timeout", request_cancels_link, [Op(IORING_OP_LINK_TIMEOUT)], "a request that ends in time cancels its time-out"),
    case!("timeout", link_too_late, [Op(IORING_OP_LINK_TIMEOUT)], "a linked timeout that expires with its request, or after it, cancels nothing"),
    case!("timeout", link_refusals, [Op(IORING_OP_LINK_TIMEOUT)], "a linked timeout that is first, that follows another, and bad words"),
    legal!("timeout", link_to_chain, [Op(IORING_OP_LINK_TIMEOUT), Sqe(IOSQE_IO_LINK)], "a linked time-out within a longer chain"),
    legal!("timeout", zero_time_with_count, [Op(IORING_OP_TIMEOUT)], "a time of zero expires before a completion counts"),
    case!("timeout", expired_then_removed, [Op(IORING_OP_TIMEOUT), Op(IORING_OP_TIMEOUT_REMOVE)], "an expired timeout ends after the batch that searches for a timeout"),
    case!("timeout", time_stable, [Op(IORING_OP_TIMEOUT)], "the time is read when the SQE is taken"),
];

fn expires(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    for flags in [0, IOSQE_ASYNC] {
        let ts = sqe::millis(15);
        let start = Instant::now();
        cx.one(&mut ring, "15 ms", sqe::timeout(&ts, 0, 0).with(flags), -ETIME);
        cx.holds("not early", start.elapsed() >= Duration::from_millis(15));
        cx.holds("not late", start.elapsed() < Duration::from_secs(2));
    }
    Ok(())
}

fn order(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let times = [30, 10, 40, 20].map(sqe::millis);
    for (ud, ts) in times.iter().enumerate() {
        ring.push(sqe::timeout(ts, 0, 0).ud(ud as u64));
    }
    cx.is("submit", ring.submit(), 4);
    cx.reap_in_order(&mut ring, "by time", &[1, 3, 0, 2].map(|ud| (ud, -ETIME)));
    Ok(())
}

fn completion_count(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let long = sqe::millis(60_000);
    cx.start(&mut ring, &[sqe::timeout(&long, 2, 0).ud(100), sqe::nop().ud(1)]);
    cx.reap(&mut ring, "one of two", &[(1, 0)]);
    cx.quiet(&ring, "waits", 5);
    cx.start(&mut ring, &[sqe::nop().ud(2)]);
    cx.reap(&mut ring, "the second", &[(2, 0), (100, 0)]);
    ring.push(sqe::timeout(&long, 1, 0).ud(200)).push(sqe::timeout(&long, 3, 0).ud(201));
    (3..6).for_each(|ud| assert!(ring.try_push(sqe::nop().ud(ud))));
    cx.is("submit", ring.submit(), 5);
    let want = [(3, 0), (4, 0), (5, 0), (200, 0), (201, 0)];
    cx.reap(&mut ring, "two time-outs", &want);
    Ok(())
}

fn overflow_counts_once(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    for batch in 0..3 {
        (0..6).for_each(|i| assert!(ring.try_push(sqe::nop().ud(batch * 6 + i))));
        cx.is("submit", ring.submit(), 6);
    }
    cx.is("overflowed", ring.sq_flags() & IORING_SQ_CQ_OVERFLOW, IORING_SQ_CQ_OVERFLOW);
    cx.eq("taken", ring.pop_all().len(), 16);
    cx.is("flush", ring.enter(0, 0, IORING_ENTER_GETEVENTS), 0);
    cx.eq("the rest", ring.pop_all().len(), 2);
    let long = sqe::millis(60_000);
    cx.start(&mut ring, &[sqe::timeout(&long, 1, 0).ud(100)]);
    cx.quiet(&ring, "waits for one more", 5);
    cx.start(&mut ring, &[sqe::nop().ud(101)]);
    cx.reap(&mut ring, "which comes", &[(100, 0), (101, 0)]);
    Ok(())
}

fn flushed_overflow_counts(cx: &mut Cx) -> Outcome {
    let long = sqe::millis(60_000);
    for flags in [0, DEFER] {
        let mut ring = cx.ring(4, flags)?;
        for batch in 0..3 {
            (0..3).for_each(|i| assert!(ring.try_push(sqe::nop().ud(batch * 3 + i))));
            cx.is("submit", ring.submit(), 3);
        }
        let two = [sqe::timeout(&long, 1, 0).ud(100), sqe::timeout(&long, 2, 0).ud(101)];
        cx.start(&mut ring, &two);
        cx.eq("taken", ring.pop_all().len(), 8);
        // The first call flushes the overflow; the second runs task work if it must be asked for.
        for _ in 0..2 {
            cx.is("flush", ring.enter(0, 0, IORING_ENTER_GETEVENTS), 0);
            let got = ring.pop_all();
            let list: Vec<_> = got.iter().map(|c| (c.user_data, c.res)).collect();
            cx.note("there", format_args!("{list:?}"));
        }
        cx.start(&mut ring, &[sqe::nop().ud(9)]);
        cx.reap(&mut ring, "one more", &[(9, 0), (101, 0)]);
    }
    Ok(())
}

fn absolute(cx: &mut Cx) -> Outcome {
    use rustix::time::ClockId;
    let mut ring = cx.ring(4, 0)?;
    let clocks = [
        ("monotonic", ClockId::Monotonic, 0),
        ("boottime", ClockId::Boottime, IORING_TIMEOUT_BOOTTIME),
        ("realtime", ClockId::Realtime, IORING_TIMEOUT_REALTIME),
    ];
    for (what, clock, flag) in clocks {
        let soon = sqe::in_millis(clock, 10);
        let past = kernel_timespec { tv_sec: 1, tv_nsec: 0 };
        let start = Instant::now();
        let flags = flag | IORING_TIMEOUT_ABS;
        cx.one(&mut ring, what, sqe::timeout(&soon, 0, flags), -ETIME);
        cx.holds("waited", start.elapsed() >= Duration::from_millis(5));
        cx.one(&mut ring, "in the past", sqe::timeout(&past, 0, flags), -ETIME);
        let short = sqe::millis(5);
        cx.one(&mut ring, "relative", sqe::timeout(&short, 0, flag), -ETIME);
    }
    Ok(())
}

fn etime_success(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let ts = sqe::millis(5);
    for (flags, second) in [(0, -ECANCELED), (IORING_TIMEOUT_ETIME_SUCCESS, 0)] {
        cx.start(&mut ring, &[sqe::timeout(&ts, 0, flags).ud(1).link(), sqe::nop().ud(2)]);
        cx.reap_in_order(&mut ring, "chain", &[(1, -ETIME), (2, second)]);
    }
    Ok(())
}

fn multishot(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let ts = sqe::millis(5);
    cx.start(&mut ring, &[sqe::timeout(&ts, 3, IORING_TIMEOUT_MULTISHOT).ud(1)]);
    cx.reap_in_order(&mut ring, "three", &[(1, -ETIME); 3]);
    cx.quiet(&ring, "no fourth", 15);
    cx.start(&mut ring, &[sqe::timeout(&ts, 0, IORING_TIMEOUT_MULTISHOT).ud(2)]);
    cx.reap_in_order(&mut ring, "without end", &[(2, -ETIME); 4]);
    let remove = sqe::op(IORING_OP_TIMEOUT_REMOVE, -1).set(|s| s.addr = 2).ud(3);
    cx.start(&mut ring, &[remove]);
    let mut last = ring.take(2)?;
    last.retain(|c| c.user_data == 3 || c.res == -ECANCELED);
    while last.len() < 2 {
        last.extend(ring.take(1)?.into_iter().filter(|c| c.res != -ETIME));
    }
    last.sort();
    cx.completions("removed", &last, &[(2, -ECANCELED), (3, 0)]);
    Ok(())
}

fn refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let ts = sqe::millis(1);
    let good = sqe::timeout(&ts, 0, 0);
    let two_clocks = IORING_TIMEOUT_BOOTTIME | IORING_TIMEOUT_REALTIME;
    cx.each(&mut ring, &[
        ("null", good.set(|s| s.addr = 0), -EFAULT),
        ("unmapped", good.set(|s| s.addr = BAD as u64), -EFAULT),
        ("two times", good.set(|s| s.len = 2), -EINVAL),
        ("no time", good.set(|s| s.len = 0), -EINVAL),
        ("unknown flag", good.op_flags(1 << 10), -EINVAL),
        ("two clocks", good.op_flags(two_clocks), -EINVAL),
        ("update", good.op_flags(IORING_TIMEOUT_UPDATE), -EINVAL),
        (
            "multishot, absolute",
            good.op_flags(IORING_TIMEOUT_MULTISHOT | IORING_TIMEOUT_ABS),
            -EINVAL,
        ),
        ("a buffer index", good.set(|s| s.buf_index = 1), -EINVAL),
        ("a file index", good.set(|s| s.file_index = 1), -EINVAL),
        ("a priority", good.set(|s| s.ioprio = 1), -EINVAL),
    ]);
    Ok(())
}

fn unusual_times(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let ts = |tv_sec, tv_nsec| kernel_timespec { tv_sec, tv_nsec };
    let (zero, neg, neg_nsec, odd) = (ts(0, 0), ts(-1, 0), ts(0, -1), ts(0, 1_000_000_001));
    cx.each(&mut ring, &[
        ("zero", sqe::timeout(&zero, 0, 0), -ETIME),
        ("negative seconds", sqe::timeout(&neg, 0, 0), -EINVAL),
        ("negative nanoseconds", sqe::timeout(&neg_nsec, 0, 0), -EINVAL),
        ("more than a second of nanoseconds", sqe::timeout(&odd, 0, 0), -ETIME),
    ]);
    let ages = ts(i64::MAX, 0);
    cx.start(&mut ring, &[sqe::timeout(&ages, 0, 0).ud(1)]);
    cx.quiet(&ring, "for ages", 10);
    Ok(())
}

fn remove_sqe(user_data: u64) -> io_uring_sqe {
    sqe::op(IORING_OP_TIMEOUT_REMOVE, -1).set(|s| s.addr = user_data)
}

fn remove(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let long = sqe::millis(60_000);
    cx.start(&mut ring, &[sqe::timeout(&long, 0, 0).ud(1), sqe::timeout(&long, 5, 0).ud(2)]);
    cx.start(&mut ring, &[remove_sqe(1).ud(10), remove_sqe(2).ud(11)]);
    let want = [(1, -ECANCELED), (2, -ECANCELED), (10, 0), (11, 0)];
    cx.reap(&mut ring, "both", &want);
    cx.one(&mut ring, "again", remove_sqe(1), -ENOENT);
    Ok(())
}

/// Makes an update: `off` is the new time.
fn update_sqe(user_data: u64, ts: &kernel_timespec, flags: u32) -> io_uring_sqe {
    remove_sqe(user_data).op_flags(flags | IORING_TIMEOUT_UPDATE).set(|s| s.off = addr(ts) as u64)
}

fn update(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (long, short) = (sqe::millis(60_000), sqe::millis(5));
    cx.start(&mut ring, &[sqe::timeout(&long, 0, 0).ud(1)]);
    cx.one(&mut ring, "sooner", update_sqe(1, &short, 0).ud(2), 0);
    cx.reap(&mut ring, "runs out", &[(1, -ETIME)]);
    cx.one(&mut ring, "gone", update_sqe(1, &short, 0), -ENOENT);
    cx.start(&mut ring, &[sqe::timeout(&long, 0, 0).ud(3)]);
    let past = kernel_timespec { tv_sec: 1, tv_nsec: 0 };
    cx.one(&mut ring, "absolute", update_sqe(3, &past, IORING_TIMEOUT_ABS).ud(4), 0);
    cx.reap(&mut ring, "runs out", &[(3, -ETIME)]);
    Ok(())
}

fn update_link(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, _w) = cx.pipe()?;
    let (long, short) = (sqe::millis(60_000), sqe::millis(5));
    ring.push(sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(1).link());
    ring.push(sqe::link_timeout(&long, 0).ud(2));
    cx.is("submit", ring.submit(), 2);
    cx.one(&mut ring, "not by the plain form", update_sqe(2, &short, 0).ud(3), -ENOENT);
    let linked = update_sqe(2, &short, IORING_LINK_TIMEOUT_UPDATE);
    let half = linked.op_flags(IORING_LINK_TIMEOUT_UPDATE).ud(4);
    cx.one(&mut ring, "nor by half of its own", half, -ENOENT);
    // It may run out before the completion of its change comes.
    cx.start(&mut ring, &[linked.ud(5)]);
    cx.reap(&mut ring, "by its own, and runs out", &[(1, -ECANCELED), (2, -ETIME), (5, 0)]);
    Ok(())
}

fn remove_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let ts = sqe::millis(1);
    let good = remove_sqe(1);
    let update = update_sqe(1, &ts, 0);
    let clocks = IORING_TIMEOUT_BOOTTIME | IORING_TIMEOUT_REALTIME;
    cx.each(&mut ring, &[
        ("no match", good, -ENOENT),
        ("flags without update", good.op_flags(IORING_TIMEOUT_ABS), -EINVAL),
        ("unknown flag", update.op_flags(IORING_TIMEOUT_UPDATE | 1 << 12), -EINVAL),
        ("two clocks", update_sqe(1, &ts, clocks), -EINVAL),
        ("null time", update.set(|s| s.off = 0), -EFAULT),
        ("unmapped time", update.set(|s| s.off = BAD as u64), -EFAULT),
        ("a length", good.set(|s| s.len = 1), -EINVAL),
        ("a buffer index", good.set(|s| s.buf_index = 1), -EINVAL),
        ("a file index", good.set(|s| s.file_index = 1), -EINVAL),
        ("fixed file", good.fixed(), -EINVAL),
    ]);
    let neg = kernel_timespec { tv_sec: -1, tv_nsec: 0 };
    cx.one(&mut ring, "negative time", update_sqe(1, &neg, 0), -EINVAL);
    Ok(())
}

fn link_cancels_request(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, _w) = cx.pipe()?;
    let ts = sqe::millis(5);
    let mut buf = [0; 4];
    let read = sqe::read(r.as_raw_fd(), &mut buf, 0);
    let poll = sqe::poll_add(r.as_raw_fd(), libc::POLLIN);
    let rows = [
        ("poll", poll, -ECANCELED),
        ("read", read, -ECANCELED),
        ("read in a worker", read.with(IOSQE_ASYNC), -ECANCELED),
    ];
    for (what, request, want) in rows {
        cx.start(&mut ring, &[request.ud(1).link(), sqe::link_timeout(&ts, 0).ud(2)]);
        let mut got = ring.take(2)?;
        got.sort();
        // A worker may be interrupted in its wait, and reports EINTR or ECANCELED.
        cx.completions(what, &got, &[(1, want), (2, -ETIME)]);
    }
    Ok(())
}

fn request_cancels_link(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let long = sqe::millis(60_000);
    cx.start(&mut ring, &[sqe::nop().ud(1).link(), sqe::link_timeout(&long, 0).ud(2)]);
    cx.reap(&mut ring, "done at once", &[(1, 0), (2, -ECANCELED)]);
    ring.push(sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(3).link());
    ring.push(sqe::link_timeout(&long, 0).ud(4));
    cx.is("submit", ring.submit(), 2);
    rustix::io::write(&w, b"x")?;
    cx.reap(&mut ring, "done in time", &[(3, libc::POLLIN.into()), (4, -ECANCELED)]);
    Ok(())
}

fn link_too_late(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let ns = |tv_nsec| kernel_timespec { tv_sec: 0, tv_nsec };
    let (none, short, long) = (ns(0), ns(5_000_000), sqe::millis(60_000));
    let past = kernel_timespec { tv_sec: 1, tv_nsec: 0 };
    let first = |ts| sqe::timeout(ts, 0, 0).ud(1).link();
    let rows = [
        ("both at once", first(&none), sqe::link_timeout(&none, 0), -ETIME, -ENOENT),
        ("past", first(&none), sqe::link_timeout(&past, IORING_TIMEOUT_ABS), -ETIME, -ENOENT),
        ("long", first(&none), sqe::link_timeout(&long, 0), -ETIME, -ECANCELED),
        ("both in time", first(&short), sqe::link_timeout(&long, 0), -ETIME, -ECANCELED),
        ("before it", first(&short), sqe::link_timeout(&none, 0), -ECANCELED, -ETIME),
    ];
    for (what, head, linked, first, second) in rows {
        cx.batch(&mut ring, what, &[head, linked.ud(2)], &[(1, first), (2, second)]);
    }
    Ok(())
}

fn link_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, IORING_SETUP_SUBMIT_ALL)?;
    let ts = sqe::millis(60_000);
    let good = sqe::link_timeout(&ts, 0);
    cx.one(&mut ring, "without a request", good, -EINVAL);
    type Want = [(u64, i32); 2];
    let pair = |what: &str, second: io_uring_sqe, want: Want, cx: &mut Cx, ring: &mut Ring| {
        ring.push(sqe::nop().ud(1).link()).push(second.ud(2));
        cx.is(&format!("{what}: submit"), ring.submit(), 2);
        cx.reap(ring, what, &want);
    };
    let refused = [(1, -ECANCELED), (2, -EINVAL)];
    pair("unknown flag", good.op_flags(1 << 10), refused, cx, &mut ring);
    pair("a count", good.set(|s| s.off = 1), refused, cx, &mut ring);
    pair("two times", good.set(|s| s.len = 2), refused, cx, &mut ring);
    pair("null", good.set(|s| s.addr = 0), [(1, -ECANCELED), (2, -EFAULT)], cx, &mut ring);
    ring.push(sqe::nop().ud(1).link()).push(good.ud(2).link()).push(good.ud(3));
    cx.is("twice: submit", ring.submit(), 3);
    cx.reap(&mut ring, "twice", &[(1, -ECANCELED), (2, -ECANCELED), (3, -EINVAL)]);
    Ok(())
}

fn link_to_chain(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, _w) = cx.pipe()?;
    let (long, short) = (sqe::millis(60_000), sqe::millis(5));
    ring.push(sqe::nop().ud(1).link());
    ring.push(sqe::link_timeout(&long, 0).ud(2).link());
    ring.push(sqe::nop().ud(3));
    cx.is("submit", ring.submit(), 3);
    cx.reap(&mut ring, "goes on", &[(1, 0), (2, -ECANCELED), (3, 0)]);
    ring.push(sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(4).link());
    ring.push(sqe::link_timeout(&short, 0).ud(5).link());
    ring.push(sqe::nop().ud(6));
    cx.is("submit", ring.submit(), 3);
    cx.reap(&mut ring, "breaks", &[(4, -ECANCELED), (5, -ETIME), (6, -ECANCELED)]);
    Ok(())
}

fn zero_time_with_count(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (none, long) = (sqe::millis(0), sqe::millis(60_000));
    for (what, ts, res) in [("no time", none, -ETIME), ("a long one", long, 0)] {
        let both = [sqe::nop().ud(1), sqe::timeout(&ts, 1, 0).ud(2)];
        cx.batch(&mut ring, what, &both, &[(1, 0), (2, res)]);
    }
    Ok(())
}

fn expired_then_removed(cx: &mut Cx) -> Outcome {
    let (none, long) = (sqe::millis(0), sqe::millis(60_000));
    let update = |s: io_uring_sqe| {
        s.op_flags(IORING_TIMEOUT_UPDATE).set(|s| s.off = addr(&long) as u64)
    };
    let name = |op: u8, of: u64| sqe::op(op, -1).set(|s| s.addr = of).ud(2);
    let remove = |of| name(IORING_OP_TIMEOUT_REMOVE, of);
    for (what, searches) in [
        ("removes another", remove(9)),
        ("removes it", remove(1)),
        ("moves another", update(remove(9))),
        ("moves it", update(remove(1))),
        ("cancels another", name(IORING_OP_ASYNC_CANCEL, 9)),
        ("cancels it", name(IORING_OP_ASYNC_CANCEL, 1)),
    ] {
        let mut ring = cx.ring(8, 0)?;
        let event = cx.eventfd(0)?;
        let fds = [event.as_raw_fd()];
        cx.is("register", ring.register_slice(IORING_REGISTER_EVENTFD, &fds), 0);
        // A NOP in between lets the timer expire.
        cx.start(&mut ring, &[sqe::timeout(&none, 0, 0).ud(1), sqe::nop().ud(3), searches]);
        cx.reap_in_order(&mut ring, what, &[(3, 0), (2, -ENOENT), (1, -ETIME)]);
        let mut count = [0u8; 8];
        rustix::io::read(&event, &mut count)?;
        cx.is("signalled for each", u64::from_ne_bytes(count) as i32, 2);
    }
    Ok(())
}

fn time_stable(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let mut ts = sqe::millis(10);
    cx.start(&mut ring, &[sqe::timeout(&ts, 0, 0).ud(1)]);
    ts.tv_sec = 3600;
    std::hint::black_box(&mut ts);
    cx.reap(&mut ring, "by the first time", &[(1, -ETIME)]);
    Ok(())
}
