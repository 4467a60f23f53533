//! The completion queue: overflow, its flag and order, 32-byte CQEs, and requests at close.

use super::prelude::*;

pub const CASES: &[Case] = &[
    case!("cq", overflow, [Trap("overflow")], "completions beyond the CQ are kept and flushed in order"),
    case!("cq", overflow_flag, [Trap("overflow")], "CQ_OVERFLOW shows while some are kept"),
    legal!("cq", overflow_submit, [Trap("overflow")], "submission goes on while the CQ is full"),
    legal!("cq", overflow_late, [Trap("overflow")], "late completions overflow, too"),
    case!("cq", overflow_big, [Setup(IORING_SETUP_CQE32), Trap("overflow")], "32-byte completions overflow whole"),
    case!("cq", overflow_deferred, [Setup(IORING_SETUP_DEFER_TASKRUN), Trap("overflow")], "a DEFER_TASKRUN ring overflows, too"),
    legal!("cq", small_cq, [Setup(IORING_SETUP_CQSIZE)], "a CQ of one entry works"),
    case!("cq", head_belongs_to_program, [], "entries stay until the program moves the head"),
    any_order!("cq", close_while_busy, [Trap("close")], "a ring may be closed with requests in flight"),
    legal!("cq", close_releases_files, [Trap("close")], "closing a ring releases its registered files and its requests"),
    case!("cq", reopen, [Trap("close")], "rings made and closed a hundred times leave nothing open"),
    any_order!("cq", dup_of_ring, [], "a ring lives as long as one fd of it"),
];

fn overflow(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    for lap in 0..5 {
        (0..4).for_each(|i| assert!(ring.try_push(sqe::nop().ud(lap * 4 + i))));
        cx.is("submit", ring.submit(), 4);
    }
    cx.is("in the CQ", ring.cq_ready(), 8);
    let want: Vec<_> = (0..20).map(|i| (i, 0)).collect();
    cx.reap_in_order(&mut ring, "all, in order", &want);
    cx.is("lost", ring.cq_overflow(), 0);
    Ok(())
}

fn overflow_flag(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(2, 0)?;
    let flag = |r: &Ring| r.sq_flags() & IORING_SQ_CQ_OVERFLOW;
    for ud in 0..6 {
        cx.start(&mut ring, &[sqe::nop().ud(ud)]);
        cx.note("flag", flag(&ring));
    }
    ring.pop_all();
    cx.is("flag, until flushed", flag(&ring), IORING_SQ_CQ_OVERFLOW);
    cx.is("flush", ring.enter(0, 0, IORING_ENTER_GETEVENTS), 0);
    cx.is("flag", flag(&ring), 0);
    let got = ring.pop_all();
    cx.completions("flushed", &got, &[(4, 0), (5, 0)]);
    Ok(())
}

fn overflow_submit(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(2, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let mut bufs = [[0u8; 1]; 10];
    for (i, buf) in bufs.iter_mut().enumerate() {
        cx.start(&mut ring, &[sqe::read(file.as_raw_fd(), buf, i as u64).ud(i as u64)]);
    }
    let want: Vec<_> = (0..10).map(|i| (i, 1)).collect();
    cx.reap(&mut ring, "all", &want);
    cx.eq("data", std::hint::black_box(&bufs).concat(), b"0123456789".to_vec());
    Ok(())
}

fn overflow_late(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    for lap in 0..3 {
        for i in 0..8 {
            ring.push(sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(lap * 8 + i));
        }
        cx.is("submit", ring.submit(), 8);
    }
    rustix::io::write(&w, b"x")?;
    let want: Vec<_> = (0..24).map(|i| (i, libc::POLLIN.into())).collect();
    cx.reap(&mut ring, "all", &want);
    Ok(())
}

fn overflow_big(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(2, IORING_SETUP_CQE32)?;
    for ud in 0..10 {
        let nop = sqe::nop().op_flags(IORING_NOP_CQE32).ud(ud);
        cx.start(&mut ring, &[nop.set(|s| (s.off, s.addr) = (ud + 100, ud + 200))]);
    }
    let want: Vec<_> = (0..10).map(|i| (i, 0)).collect();
    let got = cx.reap_in_order(&mut ring, "all", &want);
    cx.note("big halves", format_args!("{:?}", got.iter().map(|c| c.big).collect::<Vec<_>>()));
    Ok(())
}

fn overflow_deferred(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(2, DEFER)?;
    for ud in 0..10 {
        cx.start(&mut ring, &[sqe::nop().ud(ud)]);
    }
    let want: Vec<_> = (0..10).map(|i| (i, 0)).collect();
    cx.reap_in_order(&mut ring, "all", &want);
    Ok(())
}

fn small_cq(cx: &mut Cx) -> Outcome {
    let p = io_uring_params { flags: IORING_SETUP_CQSIZE, cq_entries: 1, ..Default::default() };
    let mut ring = cx.ring_with(1, p)?;
    cx.is("entries", ring.cq_entries(), 1);
    for ud in 1..5 {
        cx.one(&mut ring, "nop", sqe::nop().ud(ud), 0);
    }
    Ok(())
}

fn head_belongs_to_program(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    ring.push(sqe::nop().ud(1)).push(sqe::nop().ud(2));
    cx.is("submit", ring.submit_wait(2), 2);
    for _ in 0..3 {
        cx.eq("head", ring.peek().map(|c| c.user_data), Some(1));
        cx.is("enter", ring.enter(0, 1, IORING_ENTER_GETEVENTS), 0);
    }
    cx.is("there", ring.cq_ready(), 2);
    cx.reap_in_order(&mut ring, "both", &[(1, 0), (2, 0)]);
    Ok(())
}

/// Returns a ring with requests of every kind of wait in flight.
fn busy(cx: &mut Cx, r: i32, buf: &mut [u8; 4]) -> Result<Ring, Stop> {
    let mut ring = cx.ring(8, 0)?;
    let ts = sqe::millis(60_000);
    ring.push(sqe::poll_add(r, libc::POLLIN).ud(1));
    ring.push(sqe::read(r, buf, 0).ud(2));
    ring.push(sqe::timeout(&ts, 0, 0).ud(3));
    ring.push(sqe::read(r, buf, 0).ud(4).with(IOSQE_ASYNC));
    ring.push(sqe::poll_add(r, libc::POLLIN).ud(5).link()).push(sqe::nop().ud(6));
    cx.is("submit", ring.submit(), 6);
    Ok(ring)
}

fn close_while_busy(cx: &mut Cx) -> Outcome {
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 4];
    for _ in 0..3 {
        let ring = busy(cx, r.as_raw_fd(), &mut buf)?;
        drop(ring);
    }
    let mut ring = cx.ring(4, 0)?;
    cx.one(&mut ring, "a new ring works", sqe::nop(), 0);
    // The reads of the closed rings take no data.
    std::thread::sleep(std::time::Duration::from_millis(30));
    rustix::io::write(&w, b"data")?;
    cx.one(&mut ring, "the data is there", sqe::read(r.as_raw_fd(), &mut buf, 0), 4);
    Ok(())
}

fn close_releases_files(cx: &mut Cx) -> Outcome {
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 4];
    let ring = busy(cx, r.as_raw_fd(), &mut buf)?;
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[w.as_raw_fd()]), 0);
    drop(w);
    drop(ring);
    // Teardown continues after close(); in the end no writer is left.
    let hup = i32::from(libc::POLLHUP);
    cx.is("hang-up", os::poll(r.as_raw_fd(), libc::POLLIN, 3000), hup);
    Ok(())
}

fn reopen(cx: &mut Cx) -> Outcome {
    let (r, _w) = cx.pipe()?;
    let mut buf = [0; 4];
    let mut first = cx.ring(4, 0)?;
    cx.one(&mut first, "first", sqe::nop(), 0);
    drop(first);
    std::thread::sleep(std::time::Duration::from_millis(20));
    let before = os::open_fds();
    for i in 0..100 {
        let mut ring = cx.ring(4, 0)?;
        if i % 3 == 0 {
            ring.push(sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1));
        }
        ring.push(sqe::nop().ud(2));
        ring.submit();
    }
    let start = std::time::Instant::now();
    while (os::open_fds() > before || os::threads() > 1) && start.elapsed().as_secs() < 3 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    cx.is("fds left open", os::open_fds() - before, 0);
    cx.is("threads", os::threads(), 1);
    Ok(())
}

fn dup_of_ring(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let twin = os::dup(ring.fd);
    cx.holds("dup", twin >= 0);
    ring.push(sqe::nop().ud(1));
    let submitted = entry::enter(cx.entry, twin, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
    cx.is("submit by the twin", submitted, 1);
    cx.reap(&mut ring, "completion", &[(1, 0)]);
    cx.is("close the first", entry::close(cx.entry, ring.fd), 0);
    ring.fd = twin;
    cx.one(&mut ring, "by the twin", sqe::nop(), 0);
    Ok(())
}
