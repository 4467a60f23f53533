//! Rings: their kinds, many of them, and pollers of rings.

use super::Checked;
use super::checks::{Check, check};
use super::fixture::*;
use super::policy::Policy;
use crate::os;
use crate::ring::{Errno, Ring};
use crate::sqe::{self, SqeExt, addr, millis};
use softring_uapi::*;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

pub const CHECKS: &[Check] = &[
    check!(nops),
    check!(overflow),
    check!(twenty_rings),
    check!(sq_thread),
    check!(deferring),
    check!(own_memory),
    check!(wait_with_time),
    check!(message),
    check!(polled_descriptor),
    check!(watched_descriptor, "epoll_create1", "epoll_ctl", "epoll_wait"),
    check!(forked),
    check!(closed),
    check!(filtered_later, "prctl"),
];

fn nops(f: &Fixture) -> Checked {
    let mut ring = f.ring(64, 0)?;
    for _ in 0..4 {
        batch(&mut ring, "nops", &[(sqe::nop(), 0); 64])?;
    }
    Ok(())
}

fn overflow(f: &Fixture) -> Checked {
    let mut ring = f.ring(4, 0)?;
    for round in 0..5 {
        let all: Vec<_> = (0..4).map(|i| sqe::nop().ud(round * 4 + i)).collect();
        start(&mut ring, &all)?;
    }
    let want: Vec<_> = (0..20).map(|ud| (ud, 0)).collect();
    reap(&mut ring, "completions beyond the queue", &want)
}

fn twenty_rings(f: &Fixture) -> Checked {
    let ((r, mut w), mut buf) = (pipe()?, [0; 1]);
    let mut rings = (0..20).map(|_| f.ring(8, 0)).collect::<Result<Vec<_>, _>>()?;
    for ring in &mut rings {
        expect(ring, "nop", sqe::nop(), 0)?;
        start(ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1)])?;
    }
    fine("write", w.write_all(&[b'x'; 20]))?;
    rings.iter_mut().try_for_each(|ring| reap(ring, "a byte for each", &[(1, 1)]))
}

/// Waits for completions for `ms` at most.
fn wait(ring: &Ring, n: u32, ms: i64) -> Result<usize, Errno> {
    let ts = millis(ms);
    let arg = io_uring_getevents_arg { ts: addr(&ts) as u64, ..Default::default() };
    crate::ring::value(ring.enter_ext(0, n, &arg))
}

fn wait_with_time(f: &Fixture) -> Checked {
    let (ring, began) = (f.ring(8, 0)?, Instant::now());
    same("a wait", wait(&ring, 1, 5), Err(libc::ETIME))?;
    same("not early", began.elapsed() >= Duration::from_millis(5), true)
}

fn sq_thread(f: &Fixture) -> Checked {
    let params =
        io_uring_params { flags: IORING_SETUP_SQPOLL, sq_thread_idle: 20, ..Default::default() };
    let ring = Ring::with(f.entry, 8, params);
    let mut ring = ring.map_err(|e| format!("io_uring_setup: {}", name(e)))?;
    for _ in 0..2 {
        ring.push(sqe::nop().ud(1));
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        if ring.sq_flags() & IORING_SQ_NEED_WAKEUP != 0 {
            ring.enter(1, 0, IORING_ENTER_SQ_WAKEUP);
        }
        let began = Instant::now();
        while ring.cq_ready() == 0 {
            same("no completion", began.elapsed() > Duration::from_secs(5), false)?;
            std::thread::sleep(Duration::from_micros(100));
        }
        same("result", ring.pop().map(|c| c.res), Some(0))?;
        std::thread::sleep(Duration::from_millis(40));
    }
    Ok(())
}

fn deferring(f: &Fixture) -> Checked {
    let flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    let ((r, mut w), mut ring, mut buf) = (pipe()?, f.ring(8, flags)?, [0; 8]);
    start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1)])?;
    fine("write", w.write_all(b"x"))?;
    reap(&mut ring, "a read", &[(1, 1)])
}

fn own_memory(f: &Fixture) -> Checked {
    let mut ring = f.ring(8, IORING_SETUP_NO_MMAP | IORING_SETUP_NO_SQARRAY)?;
    expect(&mut ring, "nop", sqe::nop(), 0)
}

fn message(f: &Fixture) -> Checked {
    let (mut a, mut b) = (f.ring(8, 0)?, f.ring(8, 0)?);
    let msg = sqe::op(IORING_OP_MSG_RING, b.fd).set(|s| (s.len, s.off) = (77, 5));
    expect(&mut a, "message", msg, 0)?;
    reap(&mut b, "there", &[(5, 77)])
}

fn polled_descriptor(f: &Fixture) -> Checked {
    let ((r, mut w), mut ring, mut buf) = (pipe()?, f.ring(8, 0)?, [0; 8]);
    same("not yet", os::poll(ring.fd, libc::POLLIN, 0), 0)?;
    start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1)])?;
    fine("write", w.write_all(b"x"))?;
    same("told", os::poll(ring.fd, libc::POLLIN, 5000), libc::POLLIN.into())?;
    reap(&mut ring, "a read", &[(1, 1)])
}

fn watched_descriptor(f: &Fixture) -> Checked {
    let ((r, mut w), mut ring, mut buf) = (pipe()?, f.ring(8, 0)?, [0; 8]);
    let set = os::edge_set(ring.fd);
    start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1)])?;
    fine("write", w.write_all(b"x"))?;
    let began = Instant::now();
    while os::events_now(&set) & libc::EPOLLIN as u32 == 0 {
        same("not told", began.elapsed() > Duration::from_secs(5), false)?;
        std::thread::sleep(Duration::from_micros(200));
    }
    reap(&mut ring, "a read", &[(1, 1)])
}

fn forked(f: &Fixture) -> Checked {
    let mut ring = f.ring(8, 0)?;
    let code = os::in_child(|| {
        let inherited = expect(&mut ring, "nop", sqe::nop(), 0);
        let own = f.ring(8, 0).and_then(|mut ring| expect(&mut ring, "nop", sqe::nop(), 0));
        i32::from(inherited.is_err()) + 2 * i32::from(own.is_err())
    });
    same("the child: 1 its parent's ring, 2 its own", code, 0)?;
    expect(&mut ring, "nop", sqe::nop(), 0)
}

/// Checks a filter that the process installs after it has set up rings.
fn filtered_later(f: &Fixture) -> Checked {
    let words = ["preadv2=EPERM", "pwritev2=EPERM", "epoll_pwait2=EPERM", "io_submit=EPERM"];
    let policy = Policy::parse(&words.map(str::to_owned))?;
    expect(&mut f.ring(8, 0)?, "nop", sqe::nop(), 0)?;
    let code = os::in_child(|| {
        let done = || {
            let (file, mut ring, mut buf) = (f.file("later", b"softring")?, f.ring(8, 0)?, [0; 8]);
            policy.install()?;
            expect(&mut ring, "read", sqe::read(file.as_raw_fd(), &mut buf, 0), 8)?;
            expect(&mut ring, "write", sqe::write(file.as_raw_fd(), &buf, 8), 8)?;
            let (r, mut w) = pipe()?;
            start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1)])?;
            fine("write", w.write_all(b"x"))?;
            reap(&mut ring, "a read of a pipe", &[(1, 1)])
        };
        let why = done().err();
        why.iter().for_each(|why| println!("filtered_later, in the child: {why}"));
        i32::from(why.is_some())
    });
    same("the child", code, 0)
}

/// Checks a ring that is closed with requests in flight.
fn closed(f: &Fixture) -> Checked {
    let ((r, _w), mut buf) = (pipe()?, [0; 8]);
    for _ in 0..5 {
        let mut ring = f.ring(8, 0)?;
        let read = sqe::read(r.as_raw_fd(), &mut buf, 0);
        start(&mut ring, &[read, sqe::timeout(&millis(60_000), 0, 0)])?;
    }
    Ok(())
}
