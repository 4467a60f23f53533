//! Sockets before and after they are streams: SOCKET, BIND, LISTEN, ACCEPT, CONNECT, SHUTDOWN.

use super::prelude::*;
use crate::ring::Errno;
use libc::{AF_INET, AF_UNIX, EAFNOSUPPORT, ECONNREFUSED, ENOTCONN, ENOTSOCK, SOCK_STREAM};
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub const CASES: &[Case] = &[
    legal!("conn", socket, [Op(IORING_OP_SOCKET)], "SOCKET makes a socket as a descriptor or in a slot"),
    any_order!("conn", poll_first_in_worker, [Op(IORING_OP_ACCEPT)], "with POLL_FIRST a worker polls only for multishot requests"),
    any_order!("conn", bind_in_worker, [Op(IORING_OP_BIND)], "a bind that creates a file runs in a worker, and so does the rest of its chain"),
    legal!("conn", bind_listen, [Op(IORING_OP_BIND), Op(IORING_OP_LISTEN)], "BIND and LISTEN name a socket and accept connections"),
    legal!("conn", connect, [Op(IORING_OP_CONNECT)], "a blocking and a non-blocking socket connect"),
    legal!("conn", connect_waits, [Op(IORING_OP_CONNECT)], "a connect to a full listener waits until there is room, a cancel or a timeout"),
    legal!("conn", refused, [Op(IORING_OP_CONNECT)], "connects without a listener, with bad addresses, and on a file that is not a socket"),
    any_order!("conn", accept, [Op(IORING_OP_ACCEPT)], "ACCEPT returns connections with the peer's address"),
    any_order!("conn", accept_waits, [Op(IORING_OP_ACCEPT)], "ACCEPT waits on a blocking listener, and can be cancelled"),
    any_order!("conn", accept_two_rings, [Op(IORING_OP_ACCEPT)], "two threads that accept from a blocking listener leave its flags unchanged"),
    any_order!("conn", accept_refusals, [Op(IORING_OP_ACCEPT)], "bad flags, slots and files"),
    legal!("conn", accept_multishot, [Op(IORING_OP_ACCEPT)], "one multishot ACCEPT takes many connections"),
    any_order!("conn", accept_slots, [Op(IORING_OP_ACCEPT)], "connections go into slots until no slot is free"),
    legal!("conn", shutdown, [Op(IORING_OP_SHUTDOWN)], "SHUTDOWN ends one direction"),
];

fn make(domain: i32, kind: i32) -> io_uring_sqe {
    sqe::op(IORING_OP_SOCKET, domain).set(|s| s.off = kind as u64)
}

fn named(opcode: u8, fd: i32, at: &libc::sockaddr_in) -> io_uring_sqe {
    sqe::rw(opcode, fd, addr(at), 0, 16)
}

fn listener() -> Result<(TcpListener, libc::sockaddr_in), Stop> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let at = os::loopback(listener.local_addr()?.port());
    Ok((listener, at))
}

fn socket(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let good = make(AF_INET, SOCK_STREAM);
    drop(cx.one_fd(&mut ring, "tcp", good)?);
    drop(cx.one_fd(&mut ring, "flags", make(AF_UNIX, SOCK_STREAM | libc::SOCK_CLOEXEC))?);
    cx.sparse_files(&ring, 2);
    cx.each(&mut ring, &[
        ("into a slot", good.set(|s| s.file_index = 1), 0),
        ("into any slot", good.set(|s| s.file_index = IORING_FILE_INDEX_ALLOC), 1),
        ("no slot left", good.set(|s| s.file_index = IORING_FILE_INDEX_ALLOC), -libc::ENFILE),
        ("past the table", good.set(|s| s.file_index = 9), -EINVAL),
        ("no family", make(99, SOCK_STREAM), -EAFNOSUPPORT),
        ("no kind", make(AF_INET, 9), -libc::ESOCKTNOSUPPORT),
        ("unknown flags", make(AF_INET, SOCK_STREAM | 1 << 25), -EINVAL),
        ("an address", good.set(|s| s.addr = 8), -EINVAL),
        ("flags word", good.op_flags(1), -EINVAL),
        ("a buffer", good.set(|s| s.buf_index = 1), -EINVAL),
        ("a priority", good.set(|s| s.ioprio = 1), -EINVAL),
    ]);
    let closes = make(AF_INET, SOCK_STREAM | libc::SOCK_CLOEXEC).set(|s| s.file_index = 1);
    cx.one(&mut ring, "a slot that closes on exec", closes, -EINVAL);
    Ok(())
}

fn poll_first_in_worker(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let accept = sqe::op(IORING_OP_ACCEPT, listener.as_raw_fd()).ud(2);
    let first = sqe::nop().ud(1).with(IOSQE_ASYNC).link();
    let one = accept.set(|s| s.ioprio = IORING_ACCEPT_POLL_FIRST);
    cx.start(&mut ring, &[first, one]);
    cx.reap(&mut ring, "one", &[(1, 0), (2, -EAGAIN)]);
    let many = one.set(|s| s.ioprio |= IORING_ACCEPT_MULTISHOT);
    cx.start(&mut ring, &[first, many]);
    cx.reap(&mut ring, "many", &[(1, 0)]);
    cx.quiet(&ring, "it waits", 10);
    let _peer = TcpStream::connect(listener.local_addr()?)?;
    let got = ring.take(1)?;
    cx.eq("accepts", (got[0].user_data, got[0].res >= 0), (2, true));
    drop(os::own(got[0].res));
    Ok(())
}

/// Checks that a worker commits the buffer that it picks at once, even of an incremental ring.
fn bind_in_worker(cx: &mut Cx) -> Outcome {
    use super::pbuf::{GROUP, reg, register};
    let mut ring = cx.ring(8, 0)?;
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    cx.is("register", register(&ring, &reg(page, 8, IOU_PBUF_RING_INC)), 0isize);
    let (one, _two) = super::net::pair()?;
    let mut mem = [0u8; 64];
    os::store(page, &[addr_mut(&mut mem) as u64, 64]);
    os::store(page + 14, &[1u16]);
    let recv = sqe::rw(IORING_OP_RECV, one.as_raw_fd(), 0, 8, 0).with(IOSQE_BUFFER_SELECT);
    let recv = recv.set(|s| s.buf_index = GROUP);
    let path = cx.path("a")?;
    for (ud, what, first) in [(1, "a name", &b"\0"[..]), (2, "a file", b"")] {
        let at = [&1u16.to_ne_bytes(), first, path.as_bytes()].concat();
        let fd = cx.one_fd(&mut ring, "socket", sqe::op(IORING_OP_SOCKET, 1).set(|s| s.off = 1))?;
        let bind = sqe::rw(IORING_OP_BIND, fd.as_raw_fd(), addr(&at[..]), 0, at.len() as u64);
        cx.start(&mut ring, &[bind.link().ud(ud), recv.ud(10 + ud)]);
        cx.reap(&mut ring, what, &[(ud, 0)]);
        cx.quiet(&ring, "the receive waits", 20);
        cx.note("left of the buffer", os::load(page + 8));
    }
    Ok(())
}

fn bind_listen(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let sock = cx.one_fd(&mut ring, "socket", make(AF_INET, SOCK_STREAM))?;
    let fd = sock.as_raw_fd();
    let at = os::loopback(0);
    let (bind, listen) = (named(IORING_OP_BIND, fd, &at), sqe::op(IORING_OP_LISTEN, fd));
    let file = cx.file("f", b"")?;
    cx.each(&mut ring, &[
        ("a length", bind.set(|s| s.len = 1), -EINVAL),
        ("too long", bind.set(|s| s.off = 129), -EINVAL),
        ("negative", bind.set(|s| s.off = u64::MAX), -EINVAL),
        ("bad pointer", bind.set(|s| s.addr = BAD as u64), -EFAULT),
        ("too short", bind.set(|s| s.off = 4), -EINVAL),
        ("no socket", named(IORING_OP_BIND, file.as_raw_fd(), &at), -ENOTSOCK),
        ("bind", bind, 0),
        ("again", bind, -EINVAL),
        ("listen to a file", sqe::op(IORING_OP_LISTEN, file.as_raw_fd()), -ENOTSOCK),
        ("an address", listen.set(|s| s.addr = 8), -EINVAL),
        ("an offset", listen.set(|s| s.off = 8), -EINVAL),
        ("listen", listen.set(|s| s.len = 4), 0),
        ("once more", listen.set(|s| s.len = 8), 0),
    ]);
    Ok(())
}

fn connect(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (listener, at) = listener()?;
    for kind in [0, libc::SOCK_NONBLOCK] {
        let sock = cx.one_fd(&mut ring, "socket", make(AF_INET, SOCK_STREAM | kind))?;
        cx.one(&mut ring, "connect", named(IORING_OP_CONNECT, sock.as_raw_fd(), &at), 0);
        cx.one(&mut ring, "again", named(IORING_OP_CONNECT, sock.as_raw_fd(), &at), -libc::EISCONN);
        let flags = os::fcntl(sock.as_raw_fd(), libc::F_GETFL, 0) & libc::O_NONBLOCK;
        cx.eq("O_NONBLOCK as it was", flags, kind);
        listener.accept()?;
    }
    let async_ = cx.one_fd(&mut ring, "socket", make(AF_INET, SOCK_STREAM))?;
    let sqe = named(IORING_OP_CONNECT, async_.as_raw_fd(), &at).with(IOSQE_ASYNC);
    cx.one(&mut ring, "by a worker", sqe, 0);
    Ok(())
}

fn connect_waits(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (listener, at) = listener()?;
    rustix::net::listen(&listener, 0)?;
    let _first = TcpStream::connect(listener.local_addr()?)?;
    let sock = cx.one_fd(&mut ring, "socket", make(AF_INET, SOCK_STREAM))?;
    cx.start(&mut ring, &[named(IORING_OP_CONNECT, sock.as_raw_fd(), &at).ud(1)]);
    cx.quiet(&ring, "waits", 20);
    let cancel = sqe::op(IORING_OP_ASYNC_CANCEL, -1).set(|s| s.addr = 1).ud(2);
    cx.batch(&mut ring, "cancelled", &[cancel], &[(1, -ECANCELED), (2, 0)]);
    drop(sock);
    let sock = cx.one_fd(&mut ring, "socket", make(AF_INET, SOCK_STREAM))?;
    let soon = kernel_timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    let limit = sqe::rw(IORING_OP_LINK_TIMEOUT, -1, addr(&soon), 1, 0).ud(2);
    let limited = named(IORING_OP_CONNECT, sock.as_raw_fd(), &at).link().ud(1);
    let ends = [(1, -ECANCELED), (2, -libc::ETIME)];
    cx.batch(&mut ring, "too late", &[limited, limit], &ends);
    drop(sock);
    let sock = cx.one_fd(&mut ring, "socket", make(AF_INET, SOCK_STREAM))?;
    cx.start(&mut ring, &[named(IORING_OP_CONNECT, sock.as_raw_fd(), &at).ud(1)]);
    cx.quiet(&ring, "waits again", 20);
    let _accepted = listener.accept()?;
    cx.reap(&mut ring, "there is room", &[(1, 0)]);
    Ok(())
}

fn refused(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (listener, at) = listener()?;
    drop(listener);
    let file = cx.file("f", b"")?;
    let sock = cx.one_fd(&mut ring, "socket", make(AF_INET, SOCK_STREAM))?;
    let sqe = named(IORING_OP_CONNECT, sock.as_raw_fd(), &at);
    let chain = [sqe.link().ud(1), sqe::nop().ud(2)];
    cx.each(&mut ring, &[
        ("a length", sqe.set(|s| s.len = 1), -EINVAL),
        ("flags", sqe.op_flags(1), -EINVAL),
        ("bad pointer", sqe.set(|s| s.addr = BAD as u64), -EFAULT),
        ("too short", sqe.set(|s| s.off = 1), -EINVAL),
        ("too long", sqe.set(|s| s.off = 200), -EINVAL),
        ("no socket", named(IORING_OP_CONNECT, file.as_raw_fd(), &at), -ENOTSOCK),
        ("closed", named(IORING_OP_CONNECT, 999, &at), -EBADF),
        ("nobody there", sqe, -ECONNREFUSED),
    ]);
    cx.batch(&mut ring, "breaks a chain", &chain, &[(1, -ECONNREFUSED), (2, -ECANCELED)]);
    Ok(())
}

fn take(fd: i32) -> io_uring_sqe {
    sqe::op(IORING_OP_ACCEPT, fd)
}

fn accept(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (listener, _) = listener()?;
    let at = listener.local_addr()?;
    let client = TcpStream::connect(at)?;
    let mut peer = [0u8; 16];
    let len = [16u32];
    let named = sqe::rw(IORING_OP_ACCEPT, listener.as_raw_fd(), addr_mut(&mut peer), 0, 0)
        .set(|s| s.off = addr(&len) as u64);
    drop(cx.one_fd(&mut ring, "with an address", named)?);
    cx.eq("its length", std::hint::black_box(len)[0], 16);
    let port = u16::from_be_bytes([peer[2], peer[3]]);
    cx.holds("its port", port == client.local_addr()?.port());
    let _second = TcpStream::connect(at)?;
    let _third = TcpStream::connect(at)?;
    let flags = (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) as u32;
    let got = cx.one_fd(&mut ring, "with flags", take(listener.as_raw_fd()).op_flags(flags))?;
    let set = os::fcntl(got.as_raw_fd(), libc::F_GETFL, 0) & libc::O_NONBLOCK;
    cx.eq("nonblocking", set, libc::O_NONBLOCK);
    drop(cx.one_fd(&mut ring, "the last", take(listener.as_raw_fd()))?);
    let _fourth = TcpStream::connect(at)?;
    let worker = take(listener.as_raw_fd()).with(IOSQE_ASYNC);
    drop(cx.one_fd(&mut ring, "by a worker", worker)?);
    Ok(())
}

fn accept_waits(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (listener, _) = listener()?;
    let fd = listener.as_raw_fd();
    let now = take(fd).set(|s| s.ioprio = IORING_ACCEPT_DONTWAIT);
    cx.one(&mut ring, "nobody there", now, -EAGAIN);
    cx.start(&mut ring, &[take(fd).ud(1)]);
    cx.quiet(&ring, "waits", 20);
    let cancel = sqe::op(IORING_OP_ASYNC_CANCEL, -1).set(|s| s.addr = 1).ud(2);
    cx.batch(&mut ring, "cancelled", &[cancel], &[(1, -ECANCELED), (2, 0)]);
    let first = take(fd).set(|s| s.ioprio = IORING_ACCEPT_POLL_FIRST);
    cx.start(&mut ring, &[first.ud(3)]);
    let _client = TcpStream::connect(listener.local_addr()?)?;
    let got = ring.take(1).unwrap_or_default();
    cx.holds("polled first, then taken", got.iter().all(|c| c.user_data == 3 && c.res >= 0));
    got.iter().for_each(|c| drop(os::own(c.res)));
    cx.start(&mut ring, &[take(fd).ud(4)]);
    let client = std::net::TcpStream::connect(listener.local_addr()?)?;
    let got = ring.take(1).unwrap_or_default();
    cx.holds("taken when it came", got.iter().all(|c| c.user_data == 4 && c.res >= 0));
    got.iter().for_each(|c| drop(os::own(c.res)));
    drop(client);
    let same = TcpStream::from(std::os::fd::OwnedFd::from(listener));
    let long = Some(std::time::Duration::from_millis(200));
    same.set_read_timeout(long)?;
    let _client = TcpStream::connect(same.local_addr()?)?;
    drop(cx.one_fd(&mut ring, "with a timeout", take(fd))?);
    cx.eq("which is kept", same.read_timeout()?, long);
    Ok(())
}

/// Accepts connections until none is `left`; returns the number of connections and of failures.
fn take_some(entry: EntryPoint, fd: i32, left: &AtomicUsize) -> Result<(usize, usize), Errno> {
    let (mut ring, mut taken, mut failed) = (Ring::new(entry, 4, 0)?, 0, 0);
    while left.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_ok() {
        ring.push(take(fd)).submit_wait(1);
        match ring.take(1)?[0].res {
            fd if fd >= 0 => (taken, _) = (taken + 1, drop(os::own(fd))),
            _ => failed += 1,
        }
    }
    Ok((taken, failed))
}

/// Checks that a connection which wakes both rings is accepted once, and the other ring waits on.
fn accept_two_rings(cx: &mut Cx) -> Outcome {
    const ALL: usize = 80;
    for round in 0..8 {
        let (listener, _) = listener()?;
        let (fd, at, entry, left) =
            (listener.as_raw_fd(), listener.local_addr()?, cx.entry, AtomicUsize::new(ALL));
        let (ended, took) = std::thread::scope(|scope| {
            let takers = [(); 2].map(|()| scope.spawn(|| take_some(entry, fd, &left)));
            let ended = (0..ALL / 8).flat_map(|_| {
                let some = [(); 8].map(|()| TcpStream::connect(at));
                some.map(|c| c.and_then(|mut c| c.read(&mut [0])))
            });
            let ended = ended.filter(|end| matches!(end, Ok(0))).count();
            (ended, takers.map(|t| t.join().expect("a taker")))
        });
        let [one, two] = took;
        let (one, two) = (one?, two?);
        cx.eq("each is seen to end", ended, ALL);
        cx.eq("each is taken once", (one.0 + two.0, one.1 + two.1), (ALL, 0));
        let same = TcpStream::from(std::os::fd::OwnedFd::from(listener));
        cx.eq(&format!("SO_RCVTIMEO after round {round}"), same.read_timeout()?, None);
    }
    Ok(())
}

fn accept_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (listener, _) = listener()?;
    let good = take(listener.as_raw_fd());
    let stream = TcpStream::connect(listener.local_addr()?)?;
    let file = cx.file("f", b"")?;
    let multi = good.set(|s| s.ioprio = IORING_ACCEPT_MULTISHOT);
    cx.each(&mut ring, &[
        ("a length", good.set(|s| s.len = 1), -EINVAL),
        ("a buffer", good.set(|s| s.buf_index = 1), -EINVAL),
        ("unknown flags", good.op_flags(1), -EINVAL),
        ("unknown priority", good.set(|s| s.ioprio = 8), -EINVAL),
        ("many into one slot", multi.set(|s| s.file_index = 1), -EINVAL),
        ("no socket", take(file.as_raw_fd()), -ENOTSOCK),
        ("no listener", take(stream.as_raw_fd()), -EINVAL),
        ("closed", take(999), -EBADF),
        ("bad length pointer", good.set(|s| (s.addr, s.off) = (8, BAD as u64)), -EFAULT),
    ]);
    let closes = good.op_flags(libc::SOCK_CLOEXEC as u32).set(|s| s.file_index = 1);
    cx.one(&mut ring, "a slot that closes on exec", closes, -EINVAL);
    Ok(())
}

fn accept_multishot(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (listener, _) = listener()?;
    let at = listener.local_addr()?;
    let multi = take(listener.as_raw_fd()).set(|s| s.ioprio = IORING_ACCEPT_MULTISHOT).ud(9);
    let one = TcpStream::connect(at)?;
    cx.start(&mut ring, &[multi]);
    let two = TcpStream::connect(at)?;
    let mut got = ring.take(2).unwrap_or_default();
    let three = TcpStream::connect(at)?;
    got.extend(ring.take(1).unwrap_or_default());
    cx.eq("taken", got.iter().filter(|c| c.res >= 0 && c.user_data == 9).count(), 3);
    cx.holds("more to come", got.iter().all(|c| c.flags & IORING_CQE_F_MORE != 0));
    got.iter().for_each(|c| drop(os::own(c.res)));
    drop([one, two, three]);
    let cancel = sqe::op(IORING_OP_ASYNC_CANCEL, -1).set(|s| s.addr = 9).ud(2);
    cx.batch(&mut ring, "cancelled", &[cancel], &[(2, 0), (9, -ECANCELED)]);
    Ok(())
}

fn accept_slots(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (listener, _) = listener()?;
    let at = listener.local_addr()?;
    let fd = listener.as_raw_fd();
    let _clients: Vec<_> = (0..5).map(|_| TcpStream::connect(at)).collect();
    cx.one(&mut ring, "no table", take(fd).set(|s| s.file_index = 1), -ENXIO);
    cx.sparse_files(&ring, 3);
    cx.one(&mut ring, "the second slot", take(fd).set(|s| s.file_index = 2), 0);
    let multi = take(fd).set(|s| s.file_index = IORING_FILE_INDEX_ALLOC);
    let multi = multi.set(|s| s.ioprio = IORING_ACCEPT_MULTISHOT).ud(9);
    cx.start(&mut ring, &[multi]);
    let got = ring.take(3).unwrap_or_default();
    let res: Vec<_> = got.iter().map(|c| (c.res, c.flags & IORING_CQE_F_MORE)).collect();
    cx.eq("until none is free", res, vec![(2, 2), (0, 2), (-libc::ENFILE, 0)]);
    Ok(())
}

fn shutdown(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (listener, _) = listener()?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    let lone = cx.one_fd(&mut ring, "socket", make(AF_INET, SOCK_STREAM))?;
    let file = cx.file("f", b"")?;
    let (mut peer, _) = listener.accept()?;
    let end = |fd: i32, how: u32| sqe::op(IORING_OP_SHUTDOWN, fd).set(|s| s.len = how);
    let fd = stream.as_raw_fd();
    cx.each(&mut ring, &[
        ("no such way", end(fd, 3), -EINVAL),
        ("an offset", end(fd, 1).set(|s| s.off = 1), -EINVAL),
        ("an address", end(fd, 1).set(|s| s.addr = 1), -EINVAL),
        ("no socket", end(file.as_raw_fd(), 1), -ENOTSOCK),
        ("not connected", end(lone.as_raw_fd(), 1), -ENOTCONN),
        ("writing", end(fd, 1), 0),
        ("both", end(fd, 2), 0),
    ]);
    let mut buf = [0u8; 4];
    cx.eq("the peer's end", peer.read(&mut buf)?, 0);
    let chain = [end(lone.as_raw_fd(), 1).link().ud(1), sqe::nop().ud(2)];
    cx.batch(&mut ring, "a failure in a chain", &chain, &[(1, -ENOTCONN), (2, 0)]);
    Ok(())
}
