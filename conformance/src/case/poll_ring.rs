//! POLL_ADD on another ring's descriptor.

use super::prelude::*;
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    case!("poll_ring", each_kind, [
        Op(IORING_OP_POLL_ADD),
    ], "the polled ring's next completion ends it, though nobody enters the poller"),
    case!("poll_ring", enabled_later, [
        Op(IORING_OP_POLL_ADD), Setup(IORING_SETUP_R_DISABLED),
    ], "also where the polled ring was disabled when it began"),
    case!("poll_ring", late, [Op(IORING_OP_POLL_ADD)], "and where the completion comes late"),
    case!("poll_ring", by_thread, [Op(IORING_OP_POLL_ADD)], "and by another thread's call"),
    case!("poll_ring", has_some, [
        Op(IORING_OP_POLL_ADD),
    ], "a ring that has completions is readable at once"),
];

const IN: i32 = libc::POLLIN as i32;
const KINDS: [(&str, u32); 4] = [
    ("plain", 0),
    ("COOP_TASKRUN", IORING_SETUP_COOP_TASKRUN),
    ("SINGLE_ISSUER", IORING_SETUP_SINGLE_ISSUER),
    ("DEFER_TASKRUN", DEFER),
];

/// Looks at a ring, without entering it, until it has a completion; at most two seconds.
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

fn each_kind(cx: &mut Cx) -> Outcome {
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

fn late(cx: &mut Cx) -> Outcome {
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
            // Its completions come when it is entered for them.
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

fn has_some(cx: &mut Cx) -> Outcome {
    for (what, flags) in KINDS {
        let mut poller = cx.ring(4, 0)?;
        let mut polled = cx.ring(4, flags)?;
        cx.is("a NOP", polled.push(sqe::nop()).submit(), 1);
        cx.start(&mut poller, &[poll(&polled)]);
        cx.is(what, poller.cq_ready(), 1);
    }
    Ok(())
}
