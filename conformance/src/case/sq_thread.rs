//! SQPOLL: how long the SQ thread spins, and which rings it serves.

use super::prelude::*;
use super::sqpoll::{go, spin, threads, until};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    legal!("sq_thread", idle_default, [Setup(IORING_SETUP_SQPOLL)], "an idle time of 0 means the kernel's default of a second"),
    legal!("sq_thread", longest_idle_time, [Setup(IORING_SETUP_ATTACH_WQ)], "a shared thread uses the longest idle time"),
    legal!("sq_thread", attach_to_other_process, [Setup(IORING_SETUP_ATTACH_WQ), Trap("fork")], "who attaches to another process's ring gets a thread of its own"),
    any_order!("sq_thread", other_request_kinds, [Setup(IORING_SETUP_SQPOLL)], "polls, sockets, messages and linked timeouts work without entering"),
];

fn with_idle(cx: &mut Cx, idle: u32, flags: u32, wq_fd: i32) -> Result<Ring, Stop> {
    cx.ring_with(8, io_uring_params {
        flags: IORING_SETUP_SQPOLL | flags,
        sq_thread_idle: idle,
        wq_fd: wq_fd.cast_unsigned(),
        ..Default::default()
    })
}

fn needs_wakeup(ring: &Ring) -> bool {
    ring.sq_flags() & IORING_SQ_NEED_WAKEUP != 0
}

/// Returns whether the thread is asleep `after` ms after a request on `ring`. Tries again if this
/// process was delayed beyond `within` ms, when the thread may sleep rightly; `None` if that
/// persists.
fn sleeps(ring: &mut Ring, seen: impl Fn() -> bool, after: u64, within: u128) -> Option<bool> {
    for _ in 0..50 {
        let start = Instant::now();
        ring.push(sqe::nop());
        go(ring);
        until(|| ring.cq_ready() > 0);
        ring.pop_all();
        std::thread::sleep(Duration::from_millis(after));
        let sleeps = needs_wakeup(ring) || seen();
        if start.elapsed().as_millis() < within {
            return Some(sleeps);
        }
    }
    None
}

fn idle_default(cx: &mut Cx) -> Outcome {
    let mut ring = with_idle(cx, 0, 0, 0)?;
    cx.eq("after 300 ms", sleeps(&mut ring, || false, 300, 900), Some(false));
    let start = Instant::now();
    until(|| needs_wakeup(&ring) || start.elapsed().as_secs() >= 3);
    cx.holds("within 3 s", needs_wakeup(&ring));
    Ok(())
}

fn longest_idle_time(cx: &mut Cx) -> Outcome {
    for (what, first, second) in [("a longer one", 1, 500), ("a shorter one", 500, 1)] {
        let mut first = with_idle(cx, first, 0, 0)?;
        let mut second = with_idle(cx, second, IORING_SETUP_ATTACH_WQ, first.fd)?;
        let other = || needs_wakeup(&second);
        cx.eq(&format!("{what} attaches"), sleeps(&mut first, other, 100, 450), Some(false));
        let other = || needs_wakeup(&first);
        cx.eq("seen by the other", sleeps(&mut second, other, 100, 450), Some(false));
        let mut short = if what == "a longer one" {
            drop(second);
            first
        } else {
            drop(first);
            second
        };
        // A thread with the long idle time would not be asleep so soon.
        let soon = (0..20).any(|_| sleeps(&mut short, || false, 100, 450) == Some(true));
        cx.holds("alone with the short time", soon);
    }
    Ok(())
}

fn attach_to_other_process(cx: &mut Cx) -> Outcome {
    let mut ring = with_idle(cx, 20, 0, 0)?;
    let (entry, fd) = (cx.entry, ring.fd);
    let in_child = |flags: u32| {
        os::in_child(|| {
            let p = io_uring_params {
                flags: flags | IORING_SETUP_ATTACH_WQ,
                sq_thread_idle: 20,
                wq_fd: fd.cast_unsigned(),
                ..Default::default()
            };
            let Ok(mut own) = Ring::with(entry, 4, p) else { return 1 };
            own.push(sqe::nop().ud(5));
            if flags & IORING_SETUP_SQPOLL == 0 {
                own.submit_wait(1);
            } else {
                go(&own);
            }
            let served = until(|| own.cq_ready() == 1);
            let right = own.pop().is_some_and(|c| c.user_data == 5);
            let own_thread = until(|| threads() == 1 || flags & IORING_SETUP_SQPOLL == 0);
            i32::from(!served) << 1 | i32::from(!right) << 2 | i32::from(!own_thread) << 3
        })
    };
    cx.is("a child, with SQPOLL", in_child(IORING_SETUP_SQPOLL), 0);
    cx.is("a child, without", in_child(0), 0);
    cx.holds("the parent's one thread", until(|| threads() == 1));
    ring.push(sqe::nop().ud(6));
    go(&ring);
    spin(cx, &mut ring, "the parent", (6, 0));
    Ok(())
}

fn other_request_kinds(cx: &mut Cx) -> Outcome {
    let mut ring = with_idle(cx, 20, 0, 0)?;
    let (r, w) = cx.pipe()?;
    ring.push(sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(1));
    go(&ring);
    std::thread::sleep(Duration::from_millis(5));
    rustix::io::write(&w, b"x")?;
    spin(cx, &mut ring, "a poll", (1, libc::POLLIN.into()));
    let (a, b) = UnixStream::pair()?;
    let mut buf = [0u8; 8];
    ring.push(sqe::rw(IORING_OP_RECV, b.as_raw_fd(), addr_mut(&mut buf), 8, 0).ud(2));
    go(&ring);
    // Data is received even while the thread sleeps.
    cx.holds("sleeps with a receive in flight", until(|| needs_wakeup(&ring)));
    ring.push(sqe::rw(IORING_OP_SEND, a.as_raw_fd(), addr(b"hello"), 5, 0).ud(3));
    go(&ring);
    until(|| ring.cq_ready() == 2);
    cx.reap(&mut ring, "a socket", &[(2, 5), (3, 5)]);
    cx.eq("bytes", &buf[..5], b"hello");
    let mut plain = cx.ring(4, 0)?;
    let msg = |to: i32, ud| sqe::op(IORING_OP_MSG_RING, to).set(|s| (s.len, s.off) = (7, ud));
    ring.push(msg(plain.fd, 40).ud(4));
    go(&ring);
    spin(cx, &mut ring, "a message", (4, 0));
    spin(cx, &mut plain, "there", (40, 7));
    cx.one(&mut plain, "a message to the ring", msg(ring.fd, 50), 0);
    spin(cx, &mut ring, "there", (50, 7));
    let ts = kernel_timespec { tv_sec: 0, tv_nsec: 5_000_000 };
    let recv = sqe::rw(IORING_OP_RECV, b.as_raw_fd(), addr_mut(&mut buf), 8, 0);
    ring.try_push_hidden(recv.ud(6).link());
    ring.try_push_hidden(sqe::link_timeout(&ts, 0).ud(7));
    ring.show();
    go(&ring);
    until(|| ring.cq_ready() == 2);
    cx.reap(&mut ring, "a linked timeout", &[(6, -ECANCELED), (7, -ETIME)]);
    Ok(())
}
