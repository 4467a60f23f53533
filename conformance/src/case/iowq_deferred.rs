//! DEFER_TASKRUN: a worker acts at once; only its CQE waits for the ring's task.

use super::futex::{Word, wait_on, wake_of};
use super::iowq::OneCpu;
use super::net::{pair, recv, send};
use super::pbuf::{GROUP, provide};
use super::prelude::*;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

pub const CASES: &[Case] = &[
    case!("iowq", deferred_runs_before_wait, [
        Sqe(IOSQE_ASYNC), Setup(IORING_SETUP_DEFER_TASKRUN), Op(IORING_OP_MSG_RING),
        Op(IORING_OP_FUTEX_WAKE), Op(IORING_OP_EPOLL_CTL), Op(IORING_OP_FILES_UPDATE),
        Op(IORING_OP_PROVIDE_BUFFERS), Op(IORING_OP_REMOVE_BUFFERS), Op(IORING_OP_PIPE),
    ], "with DEFER_TASKRUN a worker runs requests before the program waits"),
    case!("iowq", deferred_cancels_before_wait, [
        Sqe(IOSQE_ASYNC), Setup(IORING_SETUP_DEFER_TASKRUN), Op(IORING_OP_ASYNC_CANCEL),
        Op(IORING_OP_POLL_REMOVE), Op(IORING_OP_TIMEOUT_REMOVE), Op(IORING_OP_POLL_ADD),
    ], "with DEFER_TASKRUN a worker cancels before the program waits; a poll keeps its events"),
    case!("iowq", cancel_misses_unposted, [
        Sqe(IOSQE_ASYNC), Setup(IORING_SETUP_DEFER_TASKRUN), Op(IORING_OP_ASYNC_CANCEL),
        Reg(IORING_REGISTER_SYNC_CANCEL),
    ], "a cancel does not find a request that a worker has ended but not posted"),
    case!("iowq", link_timeout_until_posted, [
        Sqe(IOSQE_ASYNC), Setup(IORING_SETUP_DEFER_TASKRUN), Op(IORING_OP_LINK_TIMEOUT),
    ], "the linked timeout of a request that a worker ended runs until the ring's task posts it"),
    legal!("iowq", multishot_poll_two_wakes, [
        Setup(IORING_SETUP_DEFER_TASKRUN), Op(IORING_OP_POLL_ADD), Reg(IORING_REGISTER_EVENTFD),
    ], "a multishot poll that wakes twice before the program waits reports once"),
    case!("iowq", ready_cqes_before_cancel, [
        Sqe(IOSQE_ASYNC), Setup(IORING_SETUP_DEFER_TASKRUN), Op(IORING_OP_ASYNC_CANCEL),
    ], "a wait takes its ready completions before a worker's cancel runs"),
];

/// Sleeps as long as a worker needs.
fn meanwhile() {
    std::thread::sleep(Duration::from_millis(10));
}

/// Sets up a ring with DEFER_TASKRUN, and its eventfd.
fn deferring(cx: &mut Cx) -> Result<(Ring, OwnedFd), Stop> {
    let ring = cx.ring(16, DEFER)?;
    let ev = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK)?;
    let fd = [ev.as_raw_fd()];
    cx.is("register", ring.register_slice(IORING_REGISTER_EVENTFD, &fd), 0);
    Ok((ring, ev))
}

/// Submits with IOSQE_ASYNC, and gives a worker time to act.
fn begin(cx: &mut Cx, ring: &mut Ring, sqe: io_uring_sqe) {
    cx.start(ring, &[sqe.with(IOSQE_ASYNC).ud(1)]);
    meanwhile();
}

/// Records the CQEs of a request whose worker ended before: the CQE comes now, and the eventfd was
/// signalled at that end.
fn ended(cx: &mut Cx, (ring, ev): (&mut Ring, &OwnedFd), what: &str) {
    cx.note_cqes(&format!("{what}: before"), ring);
    let told = rustix::io::read(ev, &mut [0; 8]).is_ok();
    cx.note(&format!("{what}: told"), told);
    // The second call handles requests that the first has cancelled.
    for _ in 0..2 {
        ring.enter(0, 0, IORING_ENTER_GETEVENTS);
    }
    cx.note_cqes(what, ring);
    let _ = rustix::io::read(ev, &mut [0; 8]);
}

/// Records the events that a poll of `fd` reports now.
fn polled(cx: &mut Cx, what: &str, fd: &OwnedFd) {
    let told = os::poll(fd.as_raw_fd(), libc::POLLIN, 0);
    cx.note(what, told);
}

fn cancel_misses_unposted(cx: &mut Cx) -> Outcome {
    let file = rustix::fs::memfd_create(c"f", rustix::fs::MemfdFlags::CLOEXEC)?;
    rustix::io::write(&file, b"data")?;
    let mut buf = [0; 4];
    let (r, _w) = cx.pipe()?;
    let waiting = r.as_raw_fd();
    for (what, sqe, forced) in [
        ("a read", sqe::read(file.as_raw_fd(), &mut buf, 0), IOSQE_ASYNC),
        ("a write", sqe::rw(IORING_OP_WRITE, file.as_raw_fd(), addr(b"more"), 4, 0), IOSQE_ASYNC),
        ("a NOP", sqe::nop(), IOSQE_ASYNC),
        ("a poll that waits", sqe::poll_add(waiting, libc::POLLIN), 0),
    ] {
        let forever = kernel_timespec { tv_sec: -1, tv_nsec: -1 };
        let sync = io_uring_sync_cancel_reg {
            addr: 1,
            fd: -1,
            timeout: forever,
            ..Default::default()
        };
        let mut ring = cx.ring(8, DEFER)?;
        cx.start(&mut ring, &[sqe.with(forced).ud(1)]);
        meanwhile();
        let done = ring.register(IORING_REGISTER_SYNC_CANCEL, addr(&sync), 1);
        cx.note(&format!("{what}: sync"), done);
        cx.note_cqes(&format!("{what}: not posted"), &mut ring);
        cx.start(&mut ring, &[sqe::cancel(1, 0).ud(2)]);
        ring.enter(0, 0, IORING_ENTER_GETEVENTS);
        cx.note_cqes(what, &mut ring);
    }
    Ok(())
}

fn link_timeout_until_posted(cx: &mut Cx) -> Outcome {
    let hour = kernel_timespec { tv_sec: 3600, tv_nsec: 0 };
    let soon = sqe::millis(2);
    let linked = IORING_TIMEOUT_UPDATE | IORING_LINK_TIMEOUT_UPDATE;
    let update = sqe::op(IORING_OP_TIMEOUT_REMOVE, -1).op_flags(linked);
    let update = update.set(|s| (s.addr, s.off) = (2, addr(&hour) as u64));
    for (what, time, change) in [("updated", &hour, Some(update)), ("over", &soon, None)] {
        let mut ring = cx.ring(8, DEFER)?;
        let head = sqe::nop().with(IOSQE_ASYNC).link().ud(1);
        cx.start(&mut ring, &[head, sqe::link_timeout(time, 0).ud(2)]);
        meanwhile();
        if let Some(change) = change {
            cx.start(&mut ring, &[change.ud(3)]);
        }
        for _ in 0..2 {
            ring.enter(0, 0, IORING_ENTER_GETEVENTS);
        }
        cx.note_cqes(what, &mut ring);
    }
    Ok(())
}

fn multishot_poll_two_wakes(cx: &mut Cx) -> Outcome {
    let (mut ring, _ev) = deferring(cx)?;
    let other = cx.eventfd(0)?;
    let many = sqe::poll_add(other.as_raw_fd(), libc::POLLIN);
    cx.start(&mut ring, &[many.set(|s| s.len = IORING_POLL_ADD_MULTI).ud(1)]);
    for wakes in 1..4 {
        for _ in 0..wakes {
            rustix::io::write(&other, &1u64.to_ne_bytes())?;
            meanwhile();
        }
        ring.enter(0, 0, IORING_ENTER_GETEVENTS);
        cx.note_cqes(&format!("{wakes} wake-ups"), &mut ring);
    }
    Ok(())
}

fn deferred_runs_before_wait(cx: &mut Cx) -> Outcome {
    let (mut ring, ev) = deferring(cx)?;
    let mut other = cx.ring(8, 0)?;
    cx.sparse_files(&ring, 4);
    cx.sparse_files(&other, 4);
    let nop = sqe::nop();
    begin(cx, &mut ring, nop);
    cx.start(&mut ring, &[sqe::cancel(1, 0).ud(2), sqe::nop().ud(3)]);
    ended(cx, (&mut ring, &ev), "a nop that a cancellation does not find");

    let message = sqe::rw(IORING_OP_MSG_RING, other.fd, 0, 5, 77);
    begin(cx, &mut ring, message);
    cx.note_cqes("the other has the message", &mut other);
    ended(cx, (&mut ring, &ev), "message");

    let word = Word::new(7);
    cx.start(&mut other, &[wait_on(&word, 7).ud(9)]);
    begin(cx, &mut ring, wake_of(&word, 1));
    cx.note_cqes("the other is woken", &mut other);
    ended(cx, (&mut ring, &ev), "wake");

    files(cx, (&mut ring, &ev), &mut other)?;
    buffers(cx, (&mut ring, &ev))?;
    sets(cx, (&mut ring, &ev), &other)
}

fn files(cx: &mut Cx, (ring, ev): (&mut Ring, &OwnedFd), other: &mut Ring) -> Outcome {
    let (r, w) = cx.pipe()?;
    let fds = [w.as_raw_fd()];
    let update = sqe::rw(IORING_OP_FILES_UPDATE, -1, addr(&fds), 1, 0);
    begin(cx, ring, update);
    let write = sqe::write(0, b"x", u64::MAX).with(IOSQE_FIXED_FILE).ud(2);
    cx.start(ring, &[write]);
    polled(cx, "the slot was there", &r);
    ended(cx, (ring, ev), "update");

    // The message sends slot 0 to slot 1 of the other ring.
    let send = sqe::rw(IORING_OP_MSG_RING, other.fd, IORING_MSG_SEND_FD as usize, 0, 78);
    begin(cx, ring, send.set(|s| (s.addr3, s.file_index) = (0, 2)));
    cx.note_cqes("the other has a file", other);
    let write = sqe::write(1, b"x", u64::MAX).with(IOSQE_FIXED_FILE);
    cx.one(other, "and writes to it", write, 1);
    ended(cx, (ring, ev), "send");

    let mut ends = [-1; 2];
    begin(cx, ring, sqe::op(IORING_OP_PIPE, 0).set(|s| s.addr = addr_mut(&mut ends) as u64));
    let ends = std::hint::black_box(ends);
    cx.holds("both ends are there", ends.iter().all(|end| *end >= 0));
    ended(cx, (ring, ev), "pipe");
    for end in ends {
        os::close(end);
    }
    Ok(())
}

fn buffers(cx: &mut Cx, (ring, ev): (&mut Ring, &OwnedFd)) -> Outcome {
    let (r, w) = cx.pipe()?;
    let mut mem = [0u8; 16];
    let read = sqe::rw(IORING_OP_READ, r.as_raw_fd(), 0, 0, 0).with(IOSQE_BUFFER_SELECT);
    let read = read.set(|s| s.buf_index = GROUP).ud(2);
    begin(cx, ring, provide(&mut mem, 8, 0).set(|s| s.fd = 2));
    rustix::io::write(&w, b"x")?;
    cx.start(ring, &[read]);
    ended(cx, (ring, ev), "provide");

    begin(cx, ring, sqe::op(IORING_OP_REMOVE_BUFFERS, 1).set(|s| s.buf_index = GROUP));
    rustix::io::write(&w, b"x")?;
    cx.start(ring, &[read]);
    ended(cx, (ring, ev), "remove");

    begin(cx, ring, sqe::read(r.as_raw_fd(), &mut mem, 0));
    polled(cx, "it was read", &r);
    ended(cx, (ring, ev), "read");
    Ok(())
}

fn sets(cx: &mut Cx, (ring, ev): (&mut Ring, &OwnedFd), other: &Ring) -> Outcome {
    let (_r, w) = cx.pipe()?;
    let set = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?;
    let event = libc::epoll_event { events: libc::EPOLLOUT as u32, u64: 5 };
    let ctl = |fd: i32| {
        let add = libc::EPOLL_CTL_ADD as usize;
        sqe::rw(IORING_OP_EPOLL_CTL, set.as_raw_fd(), addr(&event), add, fd as u64)
    };
    begin(cx, ring, ctl(w.as_raw_fd()));
    polled(cx, "the set tells", &set);
    ended(cx, (ring, ev), "a pipe for a set");
    let set = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?;
    begin(cx, ring, ctl(other.fd).set(|s| s.fd = set.as_raw_fd()));
    polled(cx, "the set tells", &set);
    ended(cx, (ring, ev), "a ring for a set");
    Ok(())
}

fn deferred_cancels_before_wait(cx: &mut Cx) -> Outcome {
    let (mut ring, ev) = deferring(cx)?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 4];
    let clear = || rustix::io::read(&r, &mut [0; 8]).map(|n| n == 1);
    let read = sqe::read(r.as_raw_fd(), &mut buf, 0).ud(2);
    let poll = sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(2);
    let named = |op, ud| sqe::rw(op, -1, ud, 0, 0);
    let poll_remove = named(IORING_OP_POLL_REMOVE, 2);
    for (what, first, remove) in [
        ("a read is cancelled", read, sqe::cancel(2, 0)),
        ("a poll is cancelled", poll, sqe::cancel(2, 0)),
        ("a poll is removed", poll, poll_remove),
    ] {
        cx.start(&mut ring, &[first]);
        begin(cx, &mut ring, remove);
        rustix::io::write(&w, b"x")?;
        meanwhile();
        ended(cx, (&mut ring, &ev), what);
        cx.holds("the byte is there", clear()?);
    }
    let soon = sqe::millis(25);
    cx.start(&mut ring, &[sqe::timeout(&soon, 0, 0).ud(2)]);
    begin(cx, &mut ring, named(IORING_OP_TIMEOUT_REMOVE, 2));
    std::thread::sleep(Duration::from_millis(30));
    ended(cx, (&mut ring, &ev), "a timeout is removed in time");

    rustix::io::write(&w, b"x")?;
    begin(cx, &mut ring, poll);
    cx.holds("the byte is taken", clear()?);
    ended(cx, (&mut ring, &ev), "a poll tells of it");
    rings(cx, (&mut ring, &ev), w.as_fd().as_raw_fd())
}

/// Checks polls of rings.
fn rings(cx: &mut Cx, (ring, ev): (&mut Ring, &OwnedFd), ready: i32) -> Outcome {
    let mut other = cx.ring(8, 0)?;
    cx.start(&mut other, &[sqe::nop()]);
    begin(cx, ring, sqe::poll_add(other.fd, libc::POLLIN));
    cx.note_cqes("taken", &mut other);
    ended(cx, (ring, ev), "a poll of a ring");
    begin(cx, ring, sqe::poll_add(other.fd, libc::POLLIN));
    cx.start(&mut other, &[sqe::nop()]);
    meanwhile();
    ended(cx, (ring, ev), "a poll of a ring that waits");
    let chain = [
        sqe::poll_add(ready, libc::POLLOUT).with(IOSQE_ASYNC | IOSQE_IO_LINK).ud(1),
        sqe::rw(IORING_OP_MSG_RING, other.fd, 0, 5, 77).ud(2),
    ];
    cx.note_cqes("before", &mut other);
    cx.start(ring, &chain);
    meanwhile();
    cx.note_cqes("a message behind a poll that is ready", &mut other);
    ended(cx, (ring, ev), "chain");
    cx.note_cqes("a message behind a poll that is ready", &mut other);
    Ok(())
}

fn ready_cqes_before_cancel(cx: &mut Cx) -> Outcome {
    let _one = OneCpu::new()?;
    for (what, waits) in [("waits", true), ("does not wait", false)] {
        let mut ring = cx.ring(8, DEFER)?;
        let (one, two) = pair()?;
        let mut buf = [0; 8];
        cx.start(&mut ring, &[recv(one.as_raw_fd(), &mut buf).ud(1)]);
        let cancel = sqe::cancel(1, 0).with(IOSQE_ASYNC).ud(2);
        ring.push(cancel).push(send(two.as_raw_fd(), b"x").ud(3));
        if waits {
            ring.submit_wait(1);
        } else {
            ring.submit();
        }
        meanwhile();
        ring.enter(0, 0, IORING_ENTER_GETEVENTS);
        let mut got: Vec<_> = ring.pop_all().iter().map(|c| (c.user_data, c.res)).collect();
        got.sort_unstable();
        cx.note(what, format_args!("{got:?}"));
    }
    Ok(())
}
