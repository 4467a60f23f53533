//! POLL_ADD on another ring's descriptor.

use super::prelude::*;
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    case!("poll_ring", each_completion_kind, [
        Op(IORING_OP_POLL_ADD),
    ], "the next completion of a polled ring ends the poll, although no thread enters the poller"),
    legal!("poll_ring", enabled_later, [
        Op(IORING_OP_POLL_ADD), Setup(IORING_SETUP_R_DISABLED),
    ], "a poll ends although the polled ring was disabled at its start"),
    any_order!("poll_ring", late_completion, [Op(IORING_OP_POLL_ADD)], "a late completion of the polled ring ends the poll"),
    legal!("poll_ring", by_thread, [Op(IORING_OP_POLL_ADD)], "a completion by another thread's call ends the poll"),
    case!("poll_ring", ready_at_once, [
        Op(IORING_OP_POLL_ADD),
    ], "a ring with completions is readable at once"),
    any_order!("poll_ring", pending_task_work, [
        Setup(IORING_SETUP_DEFER_TASKRUN), Op(IORING_OP_POLL_ADD), Op(IORING_OP_MSG_RING),
    ], "a ring is readable while its task has pending work, before completions are posted"),
    case!("poll_ring", sq_full, [
        Op(IORING_OP_POLL_ADD), Op(IORING_OP_READ), Op(IORING_OP_WRITE),
    ], "polls, reads and writes of a ring wait for completions, or for room in the SQ"),
];

const IN: i32 = libc::POLLIN as i32;
const KINDS: [(&str, u32); 4] = [
    ("plain", 0),
    ("COOP_TASKRUN", IORING_SETUP_COOP_TASKRUN),
    ("SINGLE_ISSUER", IORING_SETUP_SINGLE_ISSUER),
    ("DEFER_TASKRUN", DEFER),
];

/// Peeks at a ring, without entering it, until it has a completion; at most two seconds.
fn ends(cx: &mut Cx, poller: &mut Ring, what: &str) {
    let end = Instant::now() + Duration::from_secs(2);
    while poller.cq_ready() == 0 && Instant::now() < end {
        std::thread::yield_now();
    }
    let got = poller.pop().map(|c| (c.user_data, c.res));
    cx.eq(what, got, Some((1, IN)));
}

fn poll(ring: &Ring) -> io_uring_sqe {
    sqe::poll_add(ring.fd, libc::POLLIN).ud(1)
}

fn each_completion_kind(cx: &mut Cx) -> Outcome {
    for (what, flags) in KINDS {
        let mut poller = cx.ring(4, 0)?;
        let mut polled = cx.ring(4, flags)?;
        for _ in 0..3 {
            cx.start(&mut poller, &[poll(&polled)]);
            cx.quiet(&poller, "waits", 5);
            cx.is("a NOP", polled.push(sqe::nop()).submit(), 1);
            ends(cx, &mut poller, what);
            polled.pop_all();
        }
    }
    Ok(())
}

/// Checks that a poll of a DEFER_TASKRUN ring is woken by task work that its task has not run yet,
/// again and again.
fn pending_task_work(cx: &mut Cx) -> Outcome {
    const SOON: Duration = Duration::from_millis(20);
    let file = rustix::fs::memfd_create(c"f", rustix::fs::MemfdFlags::CLOEXEC)?;
    rustix::io::write(&file, b"data")?;
    for flags in [DEFER, DEFER | IORING_SETUP_TASKRUN_FLAG] {
        for what in ["a NOP by a worker", "a read by a worker", "a read that waited", "a message"] {
            let (mut poller, mut from) = (cx.ring(4, 0)?, cx.ring(4, 0)?);
            let mut ring = cx.ring(4, flags)?;
            let ((r, w), mut buf) = (cx.pipe()?, [0; 4]);
            let sqe = match what {
                "a NOP by a worker" => Some(sqe::nop().with(IOSQE_ASYNC)),
                "a read by a worker" => {
                    Some(sqe::read(file.as_raw_fd(), &mut buf, 0).with(IOSQE_ASYNC))
                }
                "a read that waited" => Some(sqe::read(r.as_raw_fd(), &mut buf, 0)),
                _ => None,
            };
            if let Some(sqe) = sqe {
                cx.start(&mut ring, &[sqe]);
            }
            std::thread::sleep(SOON);
            if what == "a message" {
                let message = sqe::op(IORING_OP_MSG_RING, ring.fd);
                cx.start(&mut from, &[message]);
            }
            rustix::io::write(&w, b"x")?;
            std::thread::sleep(SOON);
            for _ in 0..2 {
                cx.is(what, os::poll(ring.fd, libc::POLLIN, 0), IN);
            }
            cx.start(&mut poller, &[poll(&ring)]);
            ends(cx, &mut poller, what);
            cx.is("nothing is posted", ring.cq_ready(), 0);
        }
    }
    Ok(())
}

fn enabled_later(cx: &mut Cx) -> Outcome {
    for (what, flags) in KINDS {
        let mut poller = cx.ring(4, 0)?;
        let mut polled = cx.ring(4, flags | IORING_SETUP_R_DISABLED)?;
        cx.start(&mut poller, &[poll(&polled)]);
        cx.quiet(&poller, "waits", 5);
        cx.is("enable", polled.register(IORING_REGISTER_ENABLE_RINGS, 0, 0), 0);
        cx.quiet(&poller, "waits on", 5);
        cx.is("a NOP", polled.push(sqe::nop()).submit(), 1);
        ends(cx, &mut poller, what);
    }
    Ok(())
}

fn late_completion(cx: &mut Cx) -> Outcome {
    for (what, flags) in KINDS {
        let mut poller = cx.ring(4, 0)?;
        let mut polled = cx.ring(4, flags)?;
        let (r, w) = cx.pipe()?;
        let mut buf = [0; 1];
        cx.start(&mut polled, &[sqe::read(r.as_raw_fd(), &mut buf, 0)]);
        cx.start(&mut poller, &[poll(&polled)]);
        cx.quiet(&poller, "waits", 5);
        rustix::io::write(&w, b"x")?;
        if flags == DEFER {
            // Its completions are posted when it is entered with GETEVENTS.
            polled.take(1)?;
        }
        ends(cx, &mut poller, what);
    }
    Ok(())
}

fn by_thread(cx: &mut Cx) -> Outcome {
    let mut poller = cx.ring(4, 0)?;
    let mut polled = cx.ring(4, 0)?;
    cx.start(&mut poller, &[poll(&polled)]);
    cx.quiet(&poller, "waits", 5);
    std::thread::scope(|s| {
        s.spawn(|| polled.push(sqe::nop()).submit());
    });
    ends(cx, &mut poller, "ended");
    Ok(())
}

fn ready_at_once(cx: &mut Cx) -> Outcome {
    for (what, flags) in KINDS {
        let mut poller = cx.ring(4, 0)?;
        let mut polled = cx.ring(4, flags)?;
        cx.is("a NOP", polled.push(sqe::nop()).submit(), 1);
        cx.start(&mut poller, &[poll(&polled)]);
        cx.is(what, poller.cq_ready(), 1);
    }
    Ok(())
}

/// Returns requests that read, write and poll a ring.
fn asked(fd: i32, mem: &mut [u8]) -> Vec<(&'static str, io_uring_sqe)> {
    let at = addr_mut(mem);
    let read = |op| sqe::rw(op, fd, at, 8, 0);
    let poll = |events| sqe::poll_add(fd, events);
    let many = |s: io_uring_sqe| s.set(|s| s.len = IORING_POLL_ADD_MULTI);
    vec![
        ("READ", read(IORING_OP_READ)),
        ("WRITE", read(IORING_OP_WRITE)),
        ("READV", read(IORING_OP_READV).set(|s| s.len = 0)),
        ("WRITEV", read(IORING_OP_WRITEV).set(|s| s.len = 0)),
        ("READ, not to wait", read(IORING_OP_READ).op_flags(libc::RWF_NOWAIT as u32)),
        ("READ, no buffer", read(IORING_OP_READ).with(IOSQE_BUFFER_SELECT)),
        ("READ_FIXED", read(IORING_OP_READ_FIXED)),
        ("IN", poll(libc::POLLIN)),
        ("OUT", poll(libc::POLLOUT)),
        ("both", poll(libc::POLLIN | libc::POLLOUT)),
        ("both, many", many(poll(libc::POLLIN | libc::POLLOUT))),
    ]
}

/// Waits a moment for a CQE; returns it and the CQEs that follow at once.
fn comes(ring: &mut Ring) -> String {
    let end = Instant::now() + Duration::from_millis(60);
    while ring.cq_ready() == 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_micros(500));
    }
    std::thread::sleep(Duration::from_millis(5));
    let told: Vec<_> = ring.pop_all().iter().map(|c| (c.user_data, c.res)).collect();
    format!("{told:?}")
}

fn sq_full(cx: &mut Cx) -> Outcome {
    let (idle, mut mem) = (cx.pipe()?, [0u8; 8]);
    let waits = sqe::poll_add(idle.0.as_raw_fd(), libc::POLLIN).ud(9);
    for i in 0..asked(-1, &mut mem).len() {
        for (whose, own) in [("its own", true), ("another", false)] {
            for fills in [true, false] {
                for flags in [0, IOSQE_ASYNC] {
                    let (mut ring, mut other) = (cx.ring(2, 0)?, cx.ring(2, 0)?);
                    let fd = if own { ring.fd } else { other.fd };
                    let (what, s) = asked(fd, &mut mem)[i];
                    cx.note("case", format_args!("{what} of {whose}, full {fills}, {flags}"));
                    ring.push(s.ud(1).with(flags));
                    match own {
                        true if fills => drop(ring.push(waits)),
                        false if fills => drop(other.push(waits).push(waits)),
                        _ => {}
                    }
                    cx.note("submitted", ring.submit());
                    cx.note("at first", comes(&mut ring));
                    let polled = if own { &mut ring } else { &mut other };
                    if polled.sq_ready() == 0 {
                        polled.push(sqe::nop().ud(7));
                    }
                    polled.submit();
                    cx.note("with a completion", comes(&mut ring));
                    ring.push(sqe::cancel(1, 0).ud(8)).submit();
                    cx.note("cancelled", comes(&mut ring));
                }
            }
        }
    }
    Ok(())
}
