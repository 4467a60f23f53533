//! Waiting requests: timeouts, pipes, sockets, futexes, children, and chains.

use super::Checked;
use super::checks::{Check, check};
use super::fixture::*;
use crate::os;
use crate::sqe::{self, SqeExt, addr, addr_mut, millis};
use libc::{ECANCELED, ETIME};
use rustix::event::{EventfdFlags, epoll, eventfd};
use softring_uapi::*;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

pub const CHECKS: &[Check] = &[
    check!(timeout),
    check!(timeout_removed),
    check!(links),
    check!(link_timeout),
    check!(drain),
    check!(pipes),
    check!(pipe_room),
    check!(pipe_spun),
    check!(poll),
    check!(cancel),
    check!(event, "eventfd2"),
    check!(epoll_ctl, "epoll_create1", "epoll_ctl", "epoll_wait"),
    check!(sockets, "socketpair"),
    check!(accept_connect),
    check!(provided_buffers, "socketpair"),
    check!(splice, "splice"),
    check!(futex),
    check!(any_futex),
    check!(waitid),
    check!(sleeper_in_pipe),
];

fn timeout(f: &Fixture) -> Checked {
    let (mut ring, began) = (f.ring(8, 0)?, Instant::now());
    expect(&mut ring, "timeout", sqe::timeout(&millis(5), 0, 0), -ETIME)?;
    same("not early", began.elapsed() >= Duration::from_millis(5), true)?;
    let second = millis(1000);
    let until = sqe::timeout(&second, 1, 0).ud(1);
    start(&mut ring, &[until, sqe::nop().ud(2)])?;
    reap(&mut ring, "by a count", &[(1, 0), (2, 0)])
}

fn timeout_removed(f: &Fixture) -> Checked {
    let mut ring = f.ring(8, 0)?;
    start(&mut ring, &[sqe::timeout(&millis(60_000), 0, 0).ud(1)])?;
    let remove = sqe::op(IORING_OP_TIMEOUT_REMOVE, -1).set(|s| s.addr = 1).ud(2);
    start(&mut ring, &[remove])?;
    reap(&mut ring, "removed", &[(1, -ECANCELED), (2, 0)])
}

fn links(f: &Fixture) -> Checked {
    let (file, mut ring, mut buf) = (f.file("links", b"")?, f.ring(8, 0)?, [0; 8]);
    let fd = file.as_raw_fd();
    let chain = [(sqe::write(fd, b"softring", 0).link(), 8), (sqe::read(fd, &mut buf, 0), 8)];
    batch(&mut ring, "a chain", &chain)?;
    same("data", &buf, b"softring")?;
    let broken = [(sqe::read(-1, &mut buf, 0).link(), -libc::EBADF), (sqe::nop(), -ECANCELED)];
    batch(&mut ring, "a broken chain", &broken)
}

fn link_timeout(f: &Fixture) -> Checked {
    let ((r, _w), mut ring, mut buf) = (pipe()?, f.ring(8, 0)?, [0; 8]);
    let read = sqe::read(r.as_raw_fd(), &mut buf, 0).link();
    let time = millis(5);
    let chain = [(read, -ECANCELED), (sqe::link_timeout(&time, 0), -ETIME)];
    batch(&mut ring, "a read that is timed", &chain)
}

fn drain(f: &Fixture) -> Checked {
    let ((r, mut w), mut ring, mut buf) = (pipe()?, f.ring(8, 0)?, [0; 8]);
    let read = sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1);
    start(&mut ring, &[read, sqe::nop().with(IOSQE_IO_DRAIN).ud(2)])?;
    same("nothing yet", ring.cq_ready(), 0)?;
    fine("write", w.write_all(b"x"))?;
    reap(&mut ring, "both", &[(1, 1), (2, 0)])
}

fn pipes(f: &Fixture) -> Checked {
    let ((r, mut w), mut ring, mut buf) = (pipe()?, f.ring(8, 0)?, [0; 8]);
    start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1)])?;
    fine("write", w.write_all(b"softring"))?;
    reap(&mut ring, "a read that waited", &[(1, 8)])?;
    same("data", &buf, b"softring")?;
    drop(w);
    expect(&mut ring, "the end", sqe::read(r.as_raw_fd(), &mut buf, 0), 0)
}

/// Checks that a pipe with room for a page is written no more than that: nobody reads, and a call
/// would wait.
fn pipe_room(f: &Fixture) -> Checked {
    const PAGE: usize = 4096;
    let ((mut r, w), mut ring) = (pipe()?, f.ring(8, 0)?);
    let write =
        |ring: &mut crate::Ring| one(ring, "write", sqe::write(w.as_raw_fd(), &[7; 2 * PAGE], 0));
    for _ in 0..8 {
        same("filling", write(&mut ring)?, 2 * PAGE as i32)?;
    }
    fine("read", r.read_exact(&mut [0; PAGE]))?;
    same("room for one", write(&mut ring)?, PAGE as i32)
}

/// Waits for a completion without entering.
fn spin(ring: &crate::Ring, n: u32) -> Checked {
    let began = Instant::now();
    while ring.cq_ready() < n {
        if began.elapsed() > Duration::from_secs(5) {
            return Err("no completion without entering".into());
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

fn pipe_spun(f: &Fixture) -> Checked {
    let ((r, mut w), mut ring, mut buf) = (pipe()?, f.ring(8, 0)?, [0; 8]);
    start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1)])?;
    fine("write", w.write_all(b"x"))?;
    spin(&ring, 1)?;
    reap(&mut ring, "seen", &[(1, 1)])
}

/// Checks a read that a child ends; the child writes, because the policy may refuse threads.
fn sleeper_in_pipe(f: &Fixture) -> Checked {
    let ((r, mut w), mut ring, mut buf) = (pipe()?, f.ring(8, 0)?, [0; 8]);
    start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1)])?;
    let child = os::spawn_child(|| {
        std::thread::sleep(Duration::from_millis(5));
        i32::from(w.write_all(b"later").is_err())
    });
    reap(&mut ring, "written while it slept", &[(1, 5)])?;
    same("the child", os::wait_for(child), 0)
}

fn poll(f: &Fixture) -> Checked {
    let ((r, mut w), mut ring) = (pipe()?, f.ring(8, 0)?);
    start(&mut ring, &[sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(1)])?;
    fine("write", w.write_all(b"x"))?;
    reap(&mut ring, "poll", &[(1, libc::POLLIN.into())])?;
    start(&mut ring, &[sqe::poll_add(w.as_raw_fd(), libc::POLLERR).ud(2)])?;
    let remove = sqe::op(IORING_OP_POLL_REMOVE, -1).set(|s| s.addr = 2).ud(3);
    start(&mut ring, &[remove])?;
    reap(&mut ring, "poll removed", &[(2, -ECANCELED), (3, 0)])
}

fn cancel(f: &Fixture) -> Checked {
    let ((r, _w), mut ring, mut buf) = (pipe()?, f.ring(8, 0)?, [0; 8]);
    start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1)])?;
    start(&mut ring, &[sqe::cancel(1, 0).ud(2)])?;
    reap(&mut ring, "cancelled", &[(1, -ECANCELED), (2, 0)])
}

fn event(f: &Fixture) -> Checked {
    let made = eventfd(0, EventfdFlags::CLOEXEC).map_err(|e| format!("eventfd: {e}"))?;
    let (mut ring, mut buf) = (f.ring(8, 0)?, [0; 8]);
    start(&mut ring, &[sqe::read(made.as_raw_fd(), &mut buf, 0).ud(1)])?;
    expect_two(&mut ring, sqe::write(made.as_raw_fd(), &7u64.to_ne_bytes(), 0).ud(2))?;
    same("its value", u64::from_ne_bytes(buf), 7)?;
    let told = [made.as_raw_fd()];
    same("register", ring.register_slice(IORING_REGISTER_EVENTFD, &told), 0)?;
    expect(&mut ring, "nop", sqe::nop(), 0)?;
    same("told", os::poll(made.as_raw_fd(), libc::POLLIN, 5000), libc::POLLIN.into())
}

fn expect_two(ring: &mut crate::Ring, write: io_uring_sqe) -> Checked {
    start(ring, &[write])?;
    reap(ring, "a read of an eventfd, and a write", &[(1, 8), (2, 8)])
}

fn epoll_ctl(f: &Fixture) -> Checked {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| format!("epoll: {e}"))?;
    let (r, mut w) = pipe()?;
    let mut ring = f.ring(8, 0)?;
    let event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 9 };
    let add = sqe::rw(IORING_OP_EPOLL_CTL, set.as_raw_fd(), addr(&event), 1, r.as_raw_fd() as u64);
    expect(&mut ring, "epoll_ctl", add, 0)?;
    fine("write", w.write_all(b"x"))?;
    same("told", os::events_now(&set), libc::EPOLLIN as u32)
}

fn sockets(f: &Fixture) -> Checked {
    let (a, b) = fine("socketpair", UnixStream::pair())?;
    let (mut ring, mut buf) = (f.ring(8, 0)?, [0; 8]);
    let recv = sqe::rw(IORING_OP_RECV, b.as_raw_fd(), addr_mut(&mut buf), 8, 0).ud(1);
    start(&mut ring, &[recv])?;
    let send = sqe::rw(IORING_OP_SEND, a.as_raw_fd(), addr(b"softring"), 8, 0).ud(2);
    start(&mut ring, &[send])?;
    reap(&mut ring, "recv and send", &[(1, 8), (2, 8)])?;
    same("data", &buf, b"softring")?;
    let shut = sqe::op(IORING_OP_SHUTDOWN, a.as_raw_fd()).set(|s| s.len = 1);
    expect(&mut ring, "shutdown", shut, 0)?;
    let recv = sqe::rw(IORING_OP_RECV, b.as_raw_fd(), addr_mut(&mut buf), 8, 0);
    expect(&mut ring, "the end", recv, 0)
}

fn accept_connect(f: &Fixture) -> Checked {
    let listener = fine("listen", TcpListener::bind("127.0.0.1:0"))?;
    let to = os::loopback(fine("a port", listener.local_addr())?.port());
    let mut ring = f.ring(8, 0)?;
    start(&mut ring, &[sqe::op(IORING_OP_ACCEPT, listener.as_raw_fd()).ud(1)])?;
    let kind = sqe::op(IORING_OP_SOCKET, libc::AF_INET).set(|s| s.off = libc::SOCK_STREAM as u64);
    start(&mut ring, &[kind.ud(2)])?;
    let made = ring.take(1).map_err(name)?;
    let client = made[0].res;
    same("a socket", (made[0].user_data, client >= 0), (2, true))?;
    let size = size_of_val(&to) as u64;
    start(&mut ring, &[sqe::rw(IORING_OP_CONNECT, client, addr(&to), 0, size).ud(3)])?;
    let mut done = ring.take(2).map_err(name)?;
    done.sort_by_key(|c| c.user_data);
    same("accepted and connected", (done[0].res >= 0, done[1].res), (true, 0))?;
    drop((os::own(client), os::own(done[0].res)));
    Ok(())
}

fn provided_buffers(f: &Fixture) -> Checked {
    let (mut a, b) = fine("socketpair", UnixStream::pair())?;
    let (mut ring, mut mem) = (f.ring(8, 0)?, [0u8; 64]);
    let give = sqe::rw(IORING_OP_PROVIDE_BUFFERS, 4, addr_mut(&mut mem), 16, 0);
    expect(&mut ring, "provide", give.set(|s| s.buf_index = 3), 0)?;
    let recv = sqe::op(IORING_OP_RECV, b.as_raw_fd()).with(IOSQE_BUFFER_SELECT);
    start(&mut ring, &[recv.set(|s| s.buf_index = 3).ud(1)])?;
    fine("write", a.write_all(b"softring"))?;
    let got = ring.take(1).map_err(name)?[0];
    same("received", (got.res, got.flags & IORING_CQE_F_BUFFER != 0), (8, true))?;
    let at = (got.flags >> IORING_CQE_BUFFER_SHIFT) as usize * 16;
    same("data", &mem[at..at + 8], b"softring")
}

fn splice(f: &Fixture) -> Checked {
    let ((r, mut w), (r2, w2), mut ring) = (pipe()?, pipe()?, f.ring(8, 0)?);
    fine("write", w.write_all(b"softring"))?;
    let splice = sqe::op(IORING_OP_SPLICE, w2.as_raw_fd()).set(|s| {
        (s.off, s.addr, s.len) = (u64::MAX, u64::MAX, 8);
        s.file_index = r.as_raw_fd().cast_unsigned();
    });
    expect(&mut ring, "splice", splice, 8)?;
    let mut buf = [0; 8];
    expect(&mut ring, "read", sqe::read(r2.as_raw_fd(), &mut buf, 0), 8)?;
    same("data", &buf, b"softring")
}

/// `FUTEX2_SIZE_U32`.
const U32: i32 = 2;

fn futex(f: &Fixture) -> Checked {
    let (mut ring, word) = (f.ring(8, 0)?, AtomicU32::new(7));
    let op = |op, val| sqe::rw(op, U32, addr(&word), 0, val).set(|s| s.addr3 = u32::MAX.into());
    expect(&mut ring, "another value", op(IORING_OP_FUTEX_WAIT, 8), -libc::EAGAIN)?;
    start(&mut ring, &[op(IORING_OP_FUTEX_WAIT, 7).ud(1)])?;
    start(&mut ring, &[op(IORING_OP_FUTEX_WAKE, 1).ud(2)])?;
    reap(&mut ring, "a wait and a wake", &[(1, 0), (2, 1)])
}

fn any_futex(f: &Fixture) -> Checked {
    let (mut ring, words) = (f.ring(8, 0)?, [const { AtomicU32::new(7) }; 2]);
    let both = words.each_ref().map(|word| [7, addr(word) as u64, U32 as u64]);
    let wait = sqe::rw(IORING_OP_FUTEX_WAITV, 0, addr(&both), 2, 0).ud(1);
    start(&mut ring, &[wait])?;
    let wake = sqe::rw(IORING_OP_FUTEX_WAKE, U32, addr(&words[1]), 0, 1);
    start(&mut ring, &[wake.set(|s| s.addr3 = u32::MAX.into()).ud(2)])?;
    reap(&mut ring, "a wait for any of two, and a wake", &[(1, 1), (2, 1)])
}

fn waitid(f: &Fixture) -> Checked {
    let ((r, w), mut ring, mut info) = (pipe()?, f.ring(8, 0)?, [0u32; 32]);
    let (held, end) = (w.as_raw_fd(), r.as_raw_fd());
    let pid = os::spawn_child(|| {
        os::close(held);
        os::poll(end, libc::POLLIN, -1);
        3
    });
    let wait = sqe::op(IORING_OP_WAITID, pid).set(|s| {
        (s.len, s.file_index) = (libc::P_PID, libc::WEXITED.cast_unsigned());
        s.off = addr_mut(&mut info) as u64;
    });
    start(&mut ring, &[wait.ud(1)])?;
    drop(w);
    reap(&mut ring, "a child's end", &[(1, 0)])?;
    same("its code", std::hint::black_box(info)[6], 3)
}
