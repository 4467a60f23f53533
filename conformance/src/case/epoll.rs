//! EPOLL_CTL and EPOLL_WAIT: an epoll set changed and waited on by a ring.

use super::prelude::*;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLIN, EPOLLOUT};
use std::os::fd::OwnedFd;

pub const CASES: &[Case] = &[
    legal!("epoll", ctl, [Op(IORING_OP_EPOLL_CTL)], "files are added, changed and removed"),
    legal!("epoll", ctl_refusals, [Op(IORING_OP_EPOLL_CTL)], "bad sets, files, operations, pointers and words"),
    legal!("epoll", ctl_modes, [Op(IORING_OP_EPOLL_CTL)], "EPOLL_CTL works in a worker, in a chain and without a CQE"),
    legal!("epoll", ctl_ring, [Op(IORING_OP_EPOLL_CTL)], "an epoll set may hold a ring"),
    legal!("epoll", wait, [Op(IORING_OP_EPOLL_WAIT)], "EPOLL_WAIT returns ready events at once"),
    legal!("epoll", wait_later, [Op(IORING_OP_EPOLL_WAIT)], "EPOLL_WAIT waits for events; its result is their number"),
    legal!("epoll", wait_cancel, [Op(IORING_OP_EPOLL_WAIT), Op(IORING_OP_ASYNC_CANCEL)], "EPOLL_WAIT is cancelled, or ended by its linked timeout"),
    any_order!("epoll", wait_modes, [Op(IORING_OP_EPOLL_WAIT)], "EPOLL_WAIT works in a worker, in a chain and on a registered set"),
    legal!("epoll", wait_refusals, [Op(IORING_OP_EPOLL_WAIT)], "bad sets, counts, pointers and words"),
    legal!("epoll", polled, [Op(IORING_OP_POLL_ADD)], "a set wakes with POLLIN alone, and is also ready for POLLRDNORM"),
    legal!("epoll", edge, [Op(IORING_OP_EPOLL_WAIT)], "edge-triggered and one-shot members are reported once"),
];

fn set() -> Result<OwnedFd, Stop> {
    Ok(rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?)
}

fn event(events: i32, data: u64) -> libc::epoll_event {
    libc::epoll_event { events: events.cast_unsigned(), u64: data }
}

fn ctl_sqe(set: i32, op: i32, fd: i32, ev: &libc::epoll_event) -> io_uring_sqe {
    sqe::rw(IORING_OP_EPOLL_CTL, set, addr(ev), op as usize, fd as u64)
}

fn wait_sqe(set: i32, to: &mut [libc::epoll_event]) -> io_uring_sqe {
    sqe::rw(IORING_OP_EPOLL_WAIT, set, addr_mut(to), to.len(), 0)
}

/// Records the events, in the order of their data.
fn note_events(cx: &mut Cx, what: &str, events: &[libc::epoll_event]) {
    let mut all: Vec<_> = events.iter().map(|e| (e.u64, e.events)).collect();
    all.sort_unstable();
    cx.note(what, format_args!("{all:x?}"));
}

fn ctl(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (set, (r, _w)) = (set()?, cx.pipe()?);
    let (ep, fd) = (set.as_raw_fd(), r.as_raw_fd());
    let ev = event(EPOLLIN, 7);
    cx.each(&mut ring, &[
        ("not there yet", ctl_sqe(ep, EPOLL_CTL_MOD, fd, &ev), -ENOENT),
        ("to be removed", ctl_sqe(ep, EPOLL_CTL_DEL, fd, &ev), -ENOENT),
        ("add", ctl_sqe(ep, EPOLL_CTL_ADD, fd, &ev), 0),
        ("again", ctl_sqe(ep, EPOLL_CTL_ADD, fd, &ev), -EEXIST),
        ("change", ctl_sqe(ep, EPOLL_CTL_MOD, fd, &event(EPOLLIN | EPOLLOUT, 8)), 0),
        ("remove", ctl_sqe(ep, EPOLL_CTL_DEL, fd, &ev).set(|s| s.addr = BAD as u64), 0),
        ("gone", ctl_sqe(ep, EPOLL_CTL_MOD, fd, &ev), -ENOENT),
    ]);
    let mut ev = event(EPOLLIN, 9);
    ring.push(ctl_sqe(ep, EPOLL_CTL_ADD, fd, &ev).ud(1));
    cx.is("submit", ring.submit(), 1);
    ev.u64 = 10;
    cx.reap(&mut ring, "the event is read at submission", &[(1, 0)]);
    rustix::io::write(&_w, b"x")?;
    let mut got = [std::hint::black_box(ev); 2];
    cx.one(&mut ring, "told", wait_sqe(ep, &mut got), 1);
    note_events(cx, "as it was then", &got[..1]);
    Ok(())
}

fn ctl_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (set, (r, _w), file) = (set()?, cx.pipe()?, cx.file("f", b"")?);
    let (ep, fd) = (set.as_raw_fd(), r.as_raw_fd());
    let ev = event(EPOLLIN, 7);
    let good = ctl_sqe(ep, EPOLL_CTL_ADD, fd, &ev);
    cx.each(&mut ring, &[
        ("no set", ctl_sqe(999, EPOLL_CTL_ADD, fd, &ev), -EBADF),
        ("-1", ctl_sqe(-1, EPOLL_CTL_ADD, fd, &ev), -EBADF),
        ("not a set", ctl_sqe(fd, EPOLL_CTL_ADD, fd, &ev), -EINVAL),
        ("no file", ctl_sqe(ep, EPOLL_CTL_ADD, 999, &ev), -EBADF),
        ("a regular file", ctl_sqe(ep, EPOLL_CTL_ADD, file.as_raw_fd(), &ev), -EPERM),
        ("itself", ctl_sqe(ep, EPOLL_CTL_ADD, ep, &ev), -EINVAL),
        ("unknown operation", ctl_sqe(ep, 4, fd, &ev), -EINVAL),
        ("a bad pointer", good.set(|s| s.addr = BAD as u64), -EFAULT),
        ("a buffer", good.set(|s| s.buf_index = 1), -EINVAL),
        ("a slot", good.set(|s| s.file_index = 1), -EINVAL),
        ("a priority", good.set(|s| s.ioprio = 1), -EINVAL),
        ("a buffer group", good.with(IOSQE_BUFFER_SELECT), -EOPNOTSUPP),
        ("flags are not looked at", good.op_flags(1), 0),
    ]);
    let high = ctl_sqe(ep, EPOLL_CTL_DEL, fd, &ev).set(|s| (s.off, s.addr3) = (s.off | 1 << 32, 5));
    cx.one(&mut ring, "nor the upper words", high, 0);
    cx.one(&mut ring, "nor IOSQE_FIXED_FILE", good.fixed(), 0);
    Ok(())
}

fn ctl_modes(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (set, (r, w)) = (set()?, cx.pipe()?);
    let (ep, fd) = (set.as_raw_fd(), r.as_raw_fd());
    let ev = event(EPOLLIN, 7);
    let (add, del) = (ctl_sqe(ep, EPOLL_CTL_ADD, fd, &ev), ctl_sqe(ep, EPOLL_CTL_DEL, fd, &ev));
    cx.one(&mut ring, "in a worker", add.with(IOSQE_ASYNC), 0);
    cx.batch(&mut ring, "a chain", &[del.link().ud(1), add.ud(2)], &[(1, 0), (2, 0)]);
    let broken = [add.link().ud(1), del.ud(2)];
    cx.batch(&mut ring, "a broken chain", &broken, &[(1, -EEXIST), (2, -ECANCELED)]);
    let quiet = add.set(|s| s.off = w.as_raw_fd() as u64).with(IOSQE_CQE_SKIP_SUCCESS);
    cx.start(&mut ring, &[quiet]);
    cx.quiet(&ring, "no CQE", 5);
    cx.one(&mut ring, "but a failure's", quiet, -EEXIST);
    Ok(())
}

fn ctl_ring(cx: &mut Cx) -> Outcome {
    let (mut ring, mut other) = (cx.ring(8, 0)?, cx.ring(8, 0)?);
    let set = set()?;
    let ep = set.as_raw_fd();
    let ev = event(EPOLLIN, 7);
    let add = ctl_sqe(ep, EPOLL_CTL_ADD, other.fd, &ev);
    cx.one(&mut ring, "a ring", add, 0);
    cx.one(&mut ring, "again", add, -EEXIST);
    let mut got = [event(0, 0); 2];
    cx.start(&mut ring, &[wait_sqe(ep, &mut got).ud(1)]);
    cx.quiet(&ring, "nothing there", 20);
    cx.start(&mut other, &[sqe::nop().ud(2)]);
    cx.reap(&mut ring, "a completion", &[(1, 1)]);
    cx.eq("told", std::hint::black_box(&got)[0].u64, 7);
    cx.one(&mut ring, "removed", ctl_sqe(ep, EPOLL_CTL_DEL, other.fd, &ev), 0);
    let own = ring.fd;
    cx.one(&mut ring, "itself", ctl_sqe(ep, EPOLL_CTL_ADD, own, &ev), 0);
    Ok(())
}

/// Creates a set with a pipe in it: its end to read, as `data`.
fn with_pipe(
    cx: &mut Cx,
    ring: &mut Ring,
    events: i32,
    data: u64,
) -> Result<[OwnedFd; 3], Stop> {
    let (set, (r, w)) = (set()?, cx.pipe()?);
    let ev = event(events, data);
    let add = ctl_sqe(set.as_raw_fd(), EPOLL_CTL_ADD, r.as_raw_fd(), &ev);
    cx.one(ring, "add", add, 0);
    Ok([set, r, w])
}

fn wait(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let [set, _r, w] = with_pipe(cx, &mut ring, EPOLLIN, 7)?;
    let ep = set.as_raw_fd();
    let ev = event(EPOLLOUT, 8);
    cx.one(&mut ring, "add", ctl_sqe(ep, EPOLL_CTL_ADD, w.as_raw_fd(), &ev), 0);
    let mut got = [event(0, 0); 4];
    cx.one(&mut ring, "room to write", wait_sqe(ep, &mut got), 1);
    note_events(cx, "told", &got[..1]);
    rustix::io::write(&w, b"x")?;
    cx.one(&mut ring, "both", wait_sqe(ep, &mut got), 2);
    note_events(cx, "told", &got[..2]);
    cx.one(&mut ring, "room for one", wait_sqe(ep, &mut got[..1]), 1);
    Ok(())
}

fn wait_later(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let [set, r, w] = with_pipe(cx, &mut ring, EPOLLIN, 7)?;
    let mut got = [event(0, 0); 4];
    for round in 0..3 {
        cx.start(&mut ring, &[wait_sqe(set.as_raw_fd(), &mut got).ud(round)]);
        cx.quiet(&ring, "waits", 10);
        rustix::io::write(&w, b"x")?;
        cx.reap(&mut ring, "ready", &[(round, 1)]);
        note_events(cx, "told", &std::hint::black_box(&got)[..1]);
        rustix::io::read(&r, &mut [0; 4])?;
    }
    let mut late = cx.ring(8, DEFER)?;
    cx.start(&mut late, &[wait_sqe(set.as_raw_fd(), &mut got).ud(9)]);
    rustix::io::write(&w, b"x")?;
    cx.quiet(&late, "deferred", 10);
    cx.reap(&mut late, "ready", &[(9, 1)]);
    Ok(())
}

fn wait_cancel(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let [set, _r, w] = with_pipe(cx, &mut ring, EPOLLIN, 7)?;
    let ep = set.as_raw_fd();
    let mut got = [event(0, 0); 4];
    cx.start(&mut ring, &[wait_sqe(ep, &mut got).ud(1)]);
    cx.batch(&mut ring, "cancel", &[sqe::cancel(1, 0).ud(2)], &[(1, -ECANCELED), (2, 0)]);
    cx.start(&mut ring, &[wait_sqe(ep, &mut got).ud(1)]);
    let by_fd = sqe::cancel(0, IORING_ASYNC_CANCEL_FD).set(|s| s.fd = ep).ud(2);
    cx.batch(&mut ring, "by its file", &[by_fd], &[(1, -ECANCELED), (2, 0)]);
    let ts = sqe::millis(10);
    let chain = [wait_sqe(ep, &mut got).link().ud(1), sqe::link_timeout(&ts, 0).ud(2)];
    cx.batch(&mut ring, "a linked timeout", &chain, &[(1, -ECANCELED), (2, -ETIME)]);
    rustix::io::write(&w, b"x")?;
    cx.batch(&mut ring, "in time", &chain, &[(1, 1), (2, -ECANCELED)]);
    Ok(())
}

fn wait_modes(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let [set, r, w] = with_pipe(cx, &mut ring, EPOLLIN, 7)?;
    let ep = set.as_raw_fd();
    let mut got = [event(0, 0); 4];
    cx.start(&mut ring, &[wait_sqe(ep, &mut got).ud(1).with(IOSQE_ASYNC)]);
    cx.quiet(&ring, "in a worker", 20);
    rustix::io::write(&w, b"x")?;
    cx.reap(&mut ring, "ready", &[(1, 1)]);
    let mut buf = [0; 4];
    let read = sqe::read(r.as_raw_fd(), &mut buf, 0).ud(2);
    let chain = [wait_sqe(ep, &mut got).link().ud(1), read];
    cx.batch(&mut ring, "a chain", &chain, &[(1, 1), (2, 1)]);
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[ep]), 0);
    cx.start(&mut ring, &[wait_sqe(0, &mut got).fixed().ud(1)]);
    rustix::io::write(&w, b"x")?;
    cx.reap(&mut ring, "registered", &[(1, 1)]);
    rustix::io::read(&r, &mut [0; 4])?;
    // The set's fd is closed, but the request holds the file.
    cx.start(&mut ring, &[wait_sqe(ep, &mut got).ud(1)]);
    drop(set);
    rustix::io::write(&w, b"x")?;
    cx.reap(&mut ring, "closed meanwhile", &[(1, 1)]);
    Ok(())
}

fn wait_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let [set, r, w] = with_pipe(cx, &mut ring, EPOLLIN, 7)?;
    let (ep, file) = (set.as_raw_fd(), cx.file("f", b"")?);
    rustix::io::write(&w, b"x")?;
    let mut got = [event(0, 0); 4];
    let good = wait_sqe(ep, &mut got);
    cx.each(&mut ring, &[
        ("closed", wait_sqe(999, &mut got), -EBADF),
        ("a pipe", wait_sqe(r.as_raw_fd(), &mut got), -EINVAL),
        ("a file", wait_sqe(file.as_raw_fd(), &mut got), -EINVAL),
        ("no room", good.set(|s| s.len = 0), -EINVAL),
        ("a negative count", good.set(|s| s.len = u32::MAX), -EINVAL),
        ("too many", good.set(|s| s.len = 1 << 30), -EINVAL),
        ("a bad pointer", good.set(|s| s.addr = BAD as u64), -EFAULT),
        ("the kernel's memory", good.set(|s| s.addr = KERNEL as u64), -EFAULT),
        ("an offset", good.set(|s| s.off = 1), -EINVAL),
        ("flags", good.op_flags(1), -EINVAL),
        ("a buffer", good.set(|s| s.buf_index = 1), -EINVAL),
        ("a slot", good.set(|s| s.file_index = 1), -EINVAL),
        ("a priority", good.set(|s| s.ioprio = 1), -EINVAL),
        ("a buffer group", good.with(IOSQE_BUFFER_SELECT), -EOPNOTSUPP),
        ("addr3 is not looked at", good.set(|s| s.addr3 = 1), 1),
    ]);
    Ok(())
}

fn edge(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    for (what, how) in [("edge", libc::EPOLLET), ("one shot", libc::EPOLLONESHOT)] {
        let [set, _r, w] = with_pipe(cx, &mut ring, EPOLLIN | how, 7)?;
        let mut got = [event(0, 0); 4];
        let sqe = wait_sqe(set.as_raw_fd(), &mut got);
        rustix::io::write(&w, b"x")?;
        cx.one(&mut ring, what, sqe, 1);
        cx.start(&mut ring, &[sqe.ud(1)]);
        cx.quiet(&ring, "not again", 20);
        rustix::io::write(&w, b"x")?;
        std::thread::sleep(std::time::Duration::from_millis(20));
        let n = ring.pop_all().len();
        cx.note("told", n);
        if n == 0 {
            cx.batch(&mut ring, "cancel", &[sqe::cancel(1, 0).ud(2)], &[(1, -ECANCELED), (2, 0)]);
        }
    }
    Ok(())
}

fn polled(cx: &mut Cx) -> Outcome {
    let count = cx.eventfd(0)?;
    let set = os::edge_set(count.as_raw_fd());
    let both = libc::POLLIN | libc::POLLRDNORM;
    let poll = sqe::poll_add(set.as_raw_fd(), both);
    let mut ring = cx.ring(8, 0)?;
    let multi = poll.set(|s| s.len = IORING_POLL_ADD_MULTI);
    cx.start(&mut ring, &[poll.ud(1), multi.ud(2)]);
    rustix::io::write(&count, &1u64.to_ne_bytes())?;
    let woke = libc::POLLIN.into();
    cx.reap(&mut ring, "woken", &[(1, woke), (2, woke)]);
    cx.one(&mut ring, "ready", poll.ud(3), both.into());
    Ok(())
}
