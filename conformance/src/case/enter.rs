//! `io_uring_enter(2)`: what it counts, which SQEs it takes, and what it refuses.

use super::prelude::*;

pub const CASES: &[Case] = &[
    case!("enter", bad_fds, [], "a closed fd fails with EBADF, another kind of fd with EOPNOTSUPP"),
    case!("enter", unknown_flags, [], "every flag after NO_IOWAIT fails with EINVAL"),
    case!("enter", closed_ring, [], "the fd of a closed ring fails with EBADF"),
    case!("enter", submit_counts, [], "enter takes as many SQEs as asked for, at most as many as there are"),
    case!("enter", sq_full, [], "a full SQ is submitted at once and then has room again"),
    case!("enter", tail_wraps, [], "head and tail are 32-bit counters that wrap"),
    case!("enter", permuted_array, [Trap("SQ array")], "the index array may name slots in any order"),
    legal!("enter", repeated_index, [Trap("SQ array")], "one slot may be named more than once"),
    case!("enter", dropped_index, [Trap("SQ array")], "an index beyond the SQ counts as dropped"),
    case!("enter", stops_at_bad_sqe, [], "submission stops at the first SQE that fails to be taken"),
    case!("enter", submit_all, [Setup(IORING_SETUP_SUBMIT_ALL)], "SUBMIT_ALL goes on past bad SQEs"),
    case!("enter", unknown_opcodes, [], "opcodes from 63 on complete with EINVAL"),
    case!("enter", unknown_sqe_flag, [], "the eighth SQE flag completes with EINVAL"),
    any_order!("enter", sqe_stable, [], "SQEs and the memory they point to may change once they are taken"),
    any_order!("enter", registered_ring, [
        Enter(IORING_ENTER_REGISTERED_RING), Reg(IORING_REGISTER_RING_FDS),
    ], "the fd may be an index into the task's registered rings"),
    legal!("enter", single_issuer, [
        Setup(IORING_SETUP_SINGLE_ISSUER),
    ], "a task other than the first submitter fails with EEXIST"),
    case!("enter", single_issuer_disabled, [
        Setup(IORING_SETUP_SINGLE_ISSUER), Setup(IORING_SETUP_R_DISABLED),
    ], "the task that enables a disabled ring is its issuer"),
    case!("enter", defer_taskrun, [
        Setup(IORING_SETUP_DEFER_TASKRUN),
    ], "with DEFER_TASKRUN only GETEVENTS of the ring's task posts late completions"),
    legal!("enter", taskrun_flag, [
        Setup(IORING_SETUP_TASKRUN_FLAG), Setup(IORING_SETUP_COOP_TASKRUN),
    ], "the SQ flag TASKRUN shows pending task work"),
    case!("enter", no_iowait, [Enter(IORING_ENTER_NO_IOWAIT)], "NO_IOWAIT waits like any other"),
    legal!("enter", sqpoll_flags_without_sqpoll, [], "SQ_WAKEUP and SQ_WAIT do nothing without SQPOLL"),
    case!("enter", any_thread_submits, [], "threads of a process may all submit to a ring in turn"),
];

fn bad_fds(cx: &mut Cx) -> Outcome {
    let file = cx.file("f", b"")?;
    let (r, _w) = cx.pipe()?;
    let rows = [
        ("-1", -1, -EBADF),
        ("not open", 1234, -EBADF),
        ("a file", file.as_raw_fd(), -EOPNOTSUPP),
        ("a pipe", r.as_raw_fd(), -EOPNOTSUPP),
    ];
    for (what, fd, want) in rows {
        cx.is(what, entry::enter(cx.entry, fd, 0, 0, 0, 0, 0), want);
        let flags = IORING_ENTER_GETEVENTS;
        cx.is(&format!("{what}, waiting"), entry::enter(cx.entry, fd, 1, 1, flags, 0, 0), want);
    }
    Ok(())
}

fn unknown_flags(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    for bit in 8..32 {
        cx.is(&format!("bit {bit}"), ring.enter(0, 0, 1 << bit), -EINVAL);
    }
    cx.is("before the fd", entry::enter(cx.entry, -1, 0, 0, 1 << 20, 0, 0), -EINVAL);
    Ok(())
}

fn closed_ring(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let fd = ring.fd;
    drop(ring);
    cx.is("enter", entry::enter(cx.entry, fd, 0, 0, 0, 0, 0), -EBADF);
    cx.is("register", entry::register(cx.entry, fd, IORING_UNREGISTER_FILES, 0, 0), -EBADF);
    Ok(())
}

fn submit_counts(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    cx.is("of none", ring.enter(5, 0, 0), 0);
    for ud in 0..6 {
        ring.push(sqe::nop().ud(ud));
    }
    cx.is("none of 6", ring.enter(0, 0, 0), 0);
    cx.is("2 of 6", ring.enter(2, 0, 0), 2);
    cx.is("left", ring.sq_ready(), 4);
    cx.is("100 of 4", ring.enter(100, 0, 0), 4);
    cx.is("left", ring.sq_ready(), 0);
    cx.reap_in_order(&mut ring, "completions", &[0, 1, 2, 3, 4, 5].map(|ud| (ud, 0)));
    Ok(())
}

fn sq_full(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    for lap in 0..3 {
        let sqes: Vec<_> = (0..4).map(|i| sqe::nop().ud(lap * 4 + i)).collect();
        sqes.iter().for_each(|s| assert!(ring.try_push(*s)));
        cx.holds("full", !ring.try_push(sqe::nop()));
        cx.is("submitted", ring.submit(), 4);
        let want: Vec<_> = sqes.iter().map(|s| (s.user_data, 0)).collect();
        cx.reap_in_order(&mut ring, "completions", &want);
    }
    Ok(())
}

fn tail_wraps(cx: &mut Cx) -> Outcome {
    // Three entries at a time through rings of four and eight: every position, many laps.
    let mut ring = cx.ring(4, 0)?;
    let mut good = 0;
    for lap in 0..200 {
        for i in 0..3 {
            ring.push(sqe::nop().ud(lap * 3 + i));
        }
        let submitted = ring.submit_wait(3);
        let got = ring.pop_all();
        let right = got.iter().map(|c| c.user_data).eq(lap * 3..lap * 3 + 3);
        good += u32::from(submitted == 3 && right);
    }
    cx.is("good laps", good, 200);
    cx.is("SQ head", ring.sq_head(), 600);
    cx.is("CQ tail", ring.cq_tail(), 600);
    Ok(())
}

fn permuted_array(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    for slot in 0..4 {
        ring.write_sqe(slot, &sqe::nop().ud(slot.into()));
    }
    for (i, slot) in [2, 0, 3, 1].into_iter().enumerate() {
        ring.set_array(i as u32, slot);
    }
    ring.set_sq_tail(4);
    cx.is("submitted", ring.submit(), 4);
    cx.reap_in_order(&mut ring, "by the array", &[(2, 0), (0, 0), (3, 0), (1, 0)]);
    Ok(())
}

fn repeated_index(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    ring.write_sqe(3, &sqe::nop().ud(33));
    (0..4).for_each(|i| ring.set_array(i, 3));
    ring.set_sq_tail(4);
    cx.is("submitted", ring.submit(), 4);
    cx.reap_in_order(&mut ring, "the same four times", &[(33, 0); 4]);
    Ok(())
}

fn dropped_index(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    for (i, slot) in [0, 4, 1, u32::MAX].into_iter().enumerate() {
        ring.write_sqe(i as u32, &sqe::nop().ud(i as u64));
        ring.set_array(i as u32, slot);
    }
    ring.set_sq_tail(4);
    for _ in 0..4 {
        let got = ring.enter(4, 0, 0);
        cx.note_answer("submitted", got);
        cx.note("dropped, head", format_args!("{} {}", ring.sq_dropped(), ring.sq_head()));
    }
    cx.is("dropped", ring.sq_dropped(), 2);
    cx.reap_in_order(&mut ring, "the good ones", &[(0, 0), (1, 0)]);
    Ok(())
}

/// Submits a good, a bad and a good SQE; records how many are consumed and which complete.
fn with_bad_sqes(cx: &mut Cx, setup: u32, bad: io_uring_sqe, taken: u32) -> Outcome {
    let mut ring = cx.ring(8, setup)?;
    ring.push(sqe::nop().ud(1)).push(bad.ud(2)).push(sqe::nop().ud(3));
    cx.is("taken", ring.submit(), taken);
    cx.is("left", ring.sq_ready(), 3 - taken);
    let got = ring.take(taken as usize)?;
    cx.completions("so far", &got, &[(1, 0), (2, -EINVAL), (3, 0)][..taken as usize]);
    if taken < 3 {
        cx.is("then", ring.submit(), 1);
        cx.reap(&mut ring, "the last", &[(3, 0)]);
    }
    Ok(())
}

fn stops_at_bad_sqe(cx: &mut Cx) -> Outcome {
    with_bad_sqes(cx, 0, sqe::op(200, -1), 2)?;
    with_bad_sqes(cx, 0, sqe::nop().with(0x80), 2)?;
    // A fault in an opcode's own fields stops submission too.
    with_bad_sqes(cx, 0, sqe::op(IORING_OP_FSYNC, 0).op_flags(1 << 31), 2)
}

fn submit_all(cx: &mut Cx) -> Outcome {
    with_bad_sqes(cx, IORING_SETUP_SUBMIT_ALL, sqe::op(200, -1), 3)?;
    with_bad_sqes(cx, IORING_SETUP_SUBMIT_ALL, sqe::op(IORING_OP_FSYNC, 0).op_flags(1 << 31), 3)
}

fn unknown_opcodes(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    for opcode in [cx.abi().ops, 66, 100, 127, 128, 255] {
        cx.one(&mut ring, &format!("opcode {opcode}"), sqe::op(opcode, -1), -EINVAL);
    }
    Ok(())
}

fn unknown_sqe_flag(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    cx.one(&mut ring, "flag 0x80", sqe::nop().with(0x80), -EINVAL);
    cx.one(&mut ring, "flag 0x80 on a bad fd", sqe::op(IORING_OP_READ, -1).with(0x80), -EINVAL);
    // Only reads and receives can have a buffer chosen for them.
    let select = sqe::nop().with(IOSQE_BUFFER_SELECT);
    cx.one(&mut ring, "buffer select on nop", select, -EOPNOTSUPP);
    cx.one(
        &mut ring,
        "a personality that is not there",
        sqe::nop().set(|s| s.personality = 9),
        -EINVAL,
    );
    Ok(())
}

fn sqe_stable(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0u8; 4];
    let mut iov = [libc::iovec { iov_base: std::ptr::from_mut(&mut buf).cast(), iov_len: 4 }];
    ring.push(sqe::rw(IORING_OP_READV, r.as_raw_fd(), addr(&iov), 1, 0).ud(1));
    cx.is("submitted", ring.submit(), 1);
    // The read waits for data; neither its SQE nor its iovec is read again.
    ring.write_sqe(0, &sqe::op(200, -1).ud(99));
    iov[0].iov_base = std::ptr::with_exposed_provenance_mut(BAD);
    std::hint::black_box(&mut iov);
    rustix::io::write(&w, b"data")?;
    cx.reap(&mut ring, "read", &[(1, 4)]);
    cx.eq("data", std::hint::black_box(&buf), b"data");
    Ok(())
}

fn registered_ring(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let mut up = [io_uring_rsrc_update {
        offset: u32::MAX,
        resv: 0,
        data: u64::from(ring.fd.cast_unsigned()),
    }];
    let got = ring.register(IORING_REGISTER_RING_FDS, addr_mut(&mut up), 1);
    cx.is("register", got, 1);
    let index = std::hint::black_box(&up)[0].offset;
    cx.is("index", index, 0);
    ring.push(sqe::nop().ud(4));
    let reg = IORING_ENTER_REGISTERED_RING;
    let enter = |fd: i32, submit| entry::enter(cx.entry, fd, submit, 0, reg, 0, 0);
    let rows = [
        ("submit", enter(0, 1), 1),
        ("free index", enter(1, 0), -EBADF as isize),
        ("beyond the table", enter(16, 0), -EINVAL as isize),
        ("negative", enter(-1, 0), -EINVAL as isize),
    ];
    rows.into_iter().for_each(|(what, got, want)| cx.is(what, got, want));
    cx.reap(&mut ring, "completion", &[(4, 0)]);
    let got = ring.register_slice(IORING_UNREGISTER_RING_FDS, &up);
    cx.is("unregister with an fd", got, -EINVAL);
    up[0].data = 0;
    let got = ring.register_slice(IORING_UNREGISTER_RING_FDS, &up);
    cx.is("unregister", got, 1);
    cx.is("after it", entry::enter(cx.entry, 0, 0, 0, reg, 0, 0), -EBADF);
    Ok(())
}

/// Returns the result of a raw enter of `fd` on another thread.
fn enter_elsewhere(entry: EntryPoint, fd: i32, submit: u32, flags: u32) -> isize {
    std::thread::spawn(move || entry::enter(entry, fd, submit, 0, flags, 0, 0)).join().unwrap_or(1)
}

fn single_issuer(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, IORING_SETUP_SINGLE_ISSUER)?;
    cx.one(&mut ring, "here", sqe::nop(), 0);
    ring.push(sqe::nop().ud(2));
    let (entry, fd) = (cx.entry, ring.fd);
    cx.is("submit elsewhere", enter_elsewhere(entry, fd, 1, 0), -EEXIST);
    cx.is("wait elsewhere", enter_elsewhere(entry, fd, 0, IORING_ENTER_GETEVENTS), 0);
    let files = move || entry::register(entry, fd, IORING_UNREGISTER_FILES, 0, 0);
    cx.is("register elsewhere", std::thread::spawn(files).join().unwrap_or(1), -EEXIST);
    cx.is("here again", ring.submit(), 1);
    cx.reap(&mut ring, "completion", &[(2, 0)]);
    Ok(())
}

fn single_issuer_disabled(cx: &mut Cx) -> Outcome {
    let setup = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_R_DISABLED;
    let ring = cx.ring(4, setup)?;
    let (entry, fd) = (cx.entry, ring.fd);
    let enable = move || entry::register(entry, fd, IORING_REGISTER_ENABLE_RINGS, 0, 0);
    cx.is("enabled elsewhere", std::thread::spawn(enable).join().unwrap_or(1), 0);
    cx.is("submit here", ring.enter(1, 0, 0), -EEXIST);
    Ok(())
}

fn defer_taskrun(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, DEFER)?;
    let (r, w) = cx.pipe()?;
    ring.push(sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(1));
    cx.is("submitted", ring.submit(), 1);
    rustix::io::write(&w, b"x")?;
    cx.quiet(&ring, "not posted by itself", 20);
    cx.is("nor by an enter without GETEVENTS", ring.enter(0, 0, 0), 0);
    cx.quiet(&ring, "so", 5);
    let (entry, fd) = (cx.entry, ring.fd);
    let flags = IORING_ENTER_GETEVENTS;
    cx.is("GETEVENTS elsewhere", enter_elsewhere(entry, fd, 0, flags), -EEXIST);
    cx.is("GETEVENTS here", ring.enter(0, 0, flags), 0);
    let got = ring.pop_all();
    cx.completions("posted", &got, &[(1, libc::POLLIN.into())]);
    Ok(())
}

fn taskrun_flag(cx: &mut Cx) -> Outcome {
    for setup in [
        IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
    ] {
        let mut ring = cx.ring(4, setup)?;
        let (r, w) = cx.pipe()?;
        ring.push(sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(1));
        cx.is("submitted", ring.submit(), 1);
        cx.is("flag before", ring.sq_flags() & IORING_SQ_TASKRUN, 0);
        rustix::io::write(&w, b"x")?;
        // On a ring without DEFER_TASKRUN the CQE may be posted before the flag is seen.
        let start = std::time::Instant::now();
        let flagged = || ring.sq_flags() & IORING_SQ_TASKRUN != 0;
        let posted = || !ring.has(IORING_SETUP_DEFER_TASKRUN) && ring.cq_ready() == 1;
        while !flagged() && !posted() && start.elapsed().as_secs() < 2 {
            std::thread::yield_now();
        }
        cx.holds("flag set, or posted", flagged() || posted());
        cx.is("enter", ring.enter(0, 1, IORING_ENTER_GETEVENTS), 0);
        cx.is("flag after", ring.sq_flags() & IORING_SQ_TASKRUN, 0);
        cx.reap(&mut ring, "completion", &[(1, libc::POLLIN.into())]);
    }
    Ok(())
}

fn no_iowait(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let ts = sqe::millis(5);
    ring.push(sqe::timeout(&ts, 0, 0).ud(1));
    cx.is("submit and wait", ring.enter(1, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_NO_IOWAIT), 1);
    cx.is("there", ring.cq_ready(), 1);
    cx.reap(&mut ring, "timeout", &[(1, -ETIME)]);
    Ok(())
}

fn sqpoll_flags_without_sqpoll(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    ring.push(sqe::nop().ud(1));
    cx.is("SQ_WAKEUP", ring.enter(0, 0, IORING_ENTER_SQ_WAKEUP), 0);
    cx.is("SQ_WAIT", ring.enter(0, 0, IORING_ENTER_SQ_WAIT), 0);
    cx.is("left", ring.sq_ready(), 1);
    cx.is("both and one to submit", ring.enter(1, 0, 6), 1);
    cx.reap(&mut ring, "nop", &[(1, 0)]);
    Ok(())
}

fn any_thread_submits(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    for ud in 0..3 {
        ring.push(sqe::nop().ud(ud));
        cx.is("elsewhere", enter_elsewhere(cx.entry, ring.fd, 1, 0), 1);
    }
    cx.reap_in_order(&mut ring, "completions", &[(0, 0), (1, 0), (2, 0)]);
    Ok(())
}
