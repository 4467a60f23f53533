//! POLL_ADD in its forms, and POLL_REMOVE.

use super::prelude::*;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd};

pub const CASES: &[Case] = &[
    legal!("poll", ready, [Op(IORING_OP_POLL_ADD)], "POLL_ADD of a ready file completes at once"),
    legal!("poll", waits, [Op(IORING_OP_POLL_ADD)], "POLL_ADD completes when the file becomes ready"),
    any_order!("poll", urgent, [Op(IORING_OP_POLL_ADD)], "data wake a poll for urgent data of a socket, and the poll reports them"),
    legal!("poll", hangup, [Op(IORING_OP_POLL_ADD)], "errors and hang-ups are reported unasked"),
    legal!("poll", kinds_of_files, [Op(IORING_OP_POLL_ADD)], "regular files are ready; rings and eventfds are polled"),
    legal!("poll", refusals, [Op(IORING_OP_POLL_ADD)], "bad fds, flags and words"),
    case!("poll", multishot, [Op(IORING_OP_POLL_ADD)], "a multishot poll reports each wake-up, with MORE"),
    legal!("poll", multishot_hangup, [Op(IORING_OP_POLL_ADD)], "a multishot poll goes on after a hang-up"),
    case!("poll", level, [Op(IORING_OP_POLL_ADD)], "the level-triggered form is refused, as on the kernel"),
    case!("poll", remove, [Op(IORING_OP_POLL_REMOVE)], "a poll is removed by its user_data"),
    legal!("poll", update_events, [Op(IORING_OP_POLL_REMOVE)], "a poll's events are changed"),
    legal!("poll", update_user_data, [Op(IORING_OP_POLL_REMOVE)], "a poll's user_data is changed"),
    legal!("poll", remove_refusals, [Op(IORING_OP_POLL_REMOVE)], "no match, bad flags and words"),
    case!("poll", the_ring_itself, [], "a ring's fd is readable when it holds completions"),
    legal!("poll", same_file_twice, [Op(IORING_OP_POLL_ADD)], "two polls of one file both complete"),
    legal!("poll", one_shot_is_once, [Op(IORING_OP_POLL_ADD)], "a one-shot poll completes once"),
    any_order!("poll", number_closed, [Op(IORING_OP_POLL_ADD)], "a poll keeps its file although the number is closed"),
    any_order!("poll", number_reused, [Op(IORING_OP_POLL_ADD)], "a poll keeps its file although the number means another file"),
    any_order!("poll", multishot_wake_events, [Op(IORING_OP_POLL_ADD)], "a multishot poll reports the events of its wake-up, not earlier ones"),
];

const IN: i32 = libc::POLLIN as i32;
const OUT: i32 = libc::POLLOUT as i32;
const MULTI: u32 = IORING_POLL_ADD_MULTI;

fn multi(fd: i32, events: i16) -> io_uring_sqe {
    sqe::poll_add(fd, events).set(|s| s.len = MULTI)
}

fn ready(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    cx.one(&mut ring, "room", sqe::poll_add(w.as_raw_fd(), libc::POLLOUT), OUT);
    rustix::io::write(&w, b"x")?;
    cx.one(&mut ring, "data", sqe::poll_add(r.as_raw_fd(), libc::POLLIN), IN);
    cx.one(
        &mut ring,
        "data or room",
        sqe::poll_add(r.as_raw_fd(), libc::POLLIN | libc::POLLOUT),
        IN,
    );
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[r.as_raw_fd()]), 0);
    cx.one(&mut ring, "registered", sqe::poll_add(0, libc::POLLIN).fixed(), IN);
    cx.one(&mut ring, "in a worker", sqe::poll_add(0, libc::POLLIN).fixed().with(IOSQE_ASYNC), IN);
    let (a, _b) = std::os::unix::net::UnixStream::pair()?;
    let all = libc::POLLIN | libc::POLLOUT | libc::POLLRDNORM | libc::POLLWRNORM;
    ring.push(sqe::poll_add(a.as_raw_fd(), all).ud(1)).submit_wait(1);
    let res = ring.take(1)?[0].res;
    cx.note("socket", format_args!("{res:#x}"));
    Ok(())
}

fn waits(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    cx.start(&mut ring, &[sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(1)]);
    cx.quiet(&ring, "waits", 10);
    rustix::io::write(&w, b"x")?;
    cx.reap(&mut ring, "told", &[(1, IN)]);
    Ok(())
}

fn hangup(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    ring.push(sqe::poll_add(r.as_raw_fd(), 0).ud(1));
    ring.push(sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(2));
    cx.is("submit", ring.submit(), 2);
    cx.quiet(&ring, "wait", 10);
    drop(w);
    let hup = i32::from(libc::POLLHUP);
    cx.reap(&mut ring, "hang-up", &[(1, hup), (2, hup)]);
    let (r, w) = cx.pipe()?;
    drop(r);
    let err = i32::from(libc::POLLERR);
    cx.one(&mut ring, "error", sqe::poll_add(w.as_raw_fd(), libc::POLLOUT), OUT | err);
    let (a, b) = std::os::unix::net::UnixStream::pair()?;
    drop(b);
    ring.push(sqe::poll_add(a.as_raw_fd(), libc::POLLIN | libc::POLLRDHUP).ud(1)).submit_wait(1);
    let res = ring.take(1)?[0].res;
    cx.note("closed socket", format_args!("{res:#x}"));
    Ok(())
}

fn urgent(cx: &mut Cx) -> Outcome {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::{UnixDatagram, UnixStream};
    let mut ring = cx.ring(4, 0)?;
    let events = libc::POLLIN | libc::POLLPRI | libc::POLLRDNORM | libc::POLLRDBAND;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let poll = |fd| sqe::poll_add(fd, events).ud(1);
    cx.start(&mut ring, &[poll(listener.as_raw_fd())]);
    let one = TcpStream::connect(listener.local_addr()?)?;
    let res = ring.take(1)?[0].res;
    cx.note("a connection", format_args!("{res:#x}"));
    let (two, _) = listener.accept()?;
    let udp = UdpSocket::bind("127.0.0.1:0")?;
    udp.connect(udp.local_addr()?)?;
    let ((a, b), (c, d)) = (UnixStream::pair()?, UnixDatagram::pair()?);
    let (r, w) = cx.pipe()?;
    let rows: [(_, BorrowedFd<'_>, BorrowedFd<'_>); 5] = [
        ("TCP", one.as_fd(), two.as_fd()),
        ("UDP", udp.as_fd(), udp.as_fd()),
        ("a stream", a.as_fd(), b.as_fd()),
        ("datagrams", c.as_fd(), d.as_fd()),
        ("a pipe", r.as_fd(), w.as_fd()),
    ];
    for (what, to, from) in rows {
        let to = to.as_raw_fd();
        cx.start(&mut ring, &[poll(to)]);
        cx.quiet(&ring, what, 5);
        rustix::io::write(from, b"x")?;
        let woken = ring.take(1)?[0].res;
        cx.one(&mut ring, "once more, at once", poll(to), IN | i32::from(libc::POLLRDNORM));
        cx.note(what, format_args!("{woken:#x}"));
    }
    rustix::io::read(&a, &mut [0; 8])?;
    let some = sqe::poll_add(a.as_raw_fd(), libc::POLLPRI | libc::POLLRDNORM).ud(1);
    cx.start(&mut ring, &[some]);
    rustix::io::write(&b, b"x")?;
    let res = ring.take(1)?[0].res;
    cx.note("without POLLIN", format_args!("{res:#x}"));
    // A multishot poll reports first the present events, then later ones.
    cx.start(&mut ring, &[multi(a.as_raw_fd(), events)]);
    for _ in 0..2 {
        let res = ring.take(1)?[0].res;
        cx.note("many times", format_args!("{res:#x}"));
        rustix::io::write(&b, b"x")?;
    }
    let res = ring.take(1)?[0].res;
    cx.note("the third time", format_args!("{res:#x}"));
    cx.one(&mut ring, "remove", sqe::op(IORING_OP_POLL_REMOVE, -1), 0);
    cx.reap(&mut ring, "removed", &[(0, -ECANCELED)]);
    rustix::io::read(&a, &mut [0; 8])?;
    cx.start(&mut ring, &[poll(a.as_raw_fd())]);
    drop(b);
    let res = ring.take(1)?[0].res;
    cx.note("the end", format_args!("{res:#x}"));
    Ok(())
}

fn kinds_of_files(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"")?;
    let dir = std::fs::File::open(cx.dir()?)?;
    let ev = cx.eventfd(1)?;
    let both = libc::POLLIN | libc::POLLOUT;
    for (what, fd) in
        [("file", file.as_raw_fd()), ("directory", dir.as_raw_fd()), ("eventfd", ev.as_raw_fd())]
    {
        cx.one(&mut ring, what, sqe::poll_add(fd, both), IN | OUT);
    }
    Ok(())
}

fn refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (_r, w) = cx.pipe()?;
    let good = sqe::poll_add(w.as_raw_fd(), libc::POLLOUT);
    cx.each(&mut ring, &[
        ("-1", sqe::poll_add(-1, libc::POLLIN), -EBADF),
        ("not open", sqe::poll_add(1234, libc::POLLIN), -EBADF),
        ("unknown flag", good.set(|s| s.len = 1 << 4), -EINVAL),
        ("update flag", good.set(|s| s.len = IORING_POLL_UPDATE_EVENTS), -EINVAL),
        ("an address", good.set(|s| s.addr = 1), -EINVAL),
        ("an offset", good.set(|s| s.off = 1), -EINVAL),
        ("a buffer index", good.set(|s| s.buf_index = 1), -EINVAL),
        ("a priority", good.set(|s| s.ioprio = 1), -EINVAL),
        (
            "multishot that skips success",
            multi(w.as_raw_fd(), 4).with(IOSQE_CQE_SKIP_SUCCESS),
            -EINVAL,
        ),
    ]);
    Ok(())
}

/// Waits for `n` completions and checks result and MORE of each.
fn shots(cx: &mut Cx, ring: &mut Ring, what: &str, want: &[(u64, i32, bool)]) -> Outcome {
    let got = ring.take(want.len())?;
    for (c, (ud, res, more)) in got.iter().zip(want) {
        cx.cqe(what, *c, *res);
        cx.is("user_data", c.user_data, *ud);
        cx.eq("more", c.flags & IORING_CQE_F_MORE != 0, *more);
    }
    Ok(())
}

fn multishot(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    cx.start(&mut ring, &[multi(r.as_raw_fd(), libc::POLLIN).ud(1)]);
    for _ in 0..3 {
        rustix::io::write(&w, b"x")?;
        shots(cx, &mut ring, "shot", &[(1, IN, true)])?;
        rustix::io::read(&r, &mut [0; 8])?;
    }
    cx.quiet(&ring, "no shot without an event", 10);
    cx.one(&mut ring, "remove", sqe::op(IORING_OP_POLL_REMOVE, -1).set(|s| s.addr = 1).ud(2), 0);
    shots(cx, &mut ring, "its end", &[(1, -ECANCELED, false)])?;
    rustix::io::write(&w, b"x")?;
    cx.quiet(&ring, "no shot after it", 10);
    Ok(())
}

fn multishot_hangup(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    cx.start(&mut ring, &[multi(r.as_raw_fd(), libc::POLLIN).ud(1)]);
    drop(w);
    let got = ring.take(1)?[0];
    cx.cqe("hang-up", got, libc::POLLHUP.into());
    let (r, w) = cx.pipe()?;
    rustix::io::write(&w, b"x")?;
    cx.start(&mut ring, &[multi(r.as_raw_fd(), libc::POLLIN).ud(2)]);
    shots(cx, &mut ring, "ready from the start", &[(2, IN, true)])?;
    cx.quiet(&ring, "told once for one event", 10);
    Ok(())
}

fn level(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, _w) = cx.pipe()?;
    let poll = sqe::poll_add(r.as_raw_fd(), libc::POLLIN);
    let flags = |f: u32| poll.set(|s| s.len = f);
    cx.one(&mut ring, "level alone", flags(IORING_POLL_ADD_LEVEL), -EINVAL);
    cx.one(&mut ring, "level and multishot", flags(IORING_POLL_ADD_LEVEL | MULTI), -EINVAL);
    Ok(())
}

fn remove_sqe(user_data: u64) -> io_uring_sqe {
    sqe::op(IORING_OP_POLL_REMOVE, -1).set(|s| s.addr = user_data)
}

fn remove(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, _w) = cx.pipe()?;
    for ud in [1, 2, 2] {
        ring.push(sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(ud));
    }
    cx.is("submit", ring.submit(), 3);
    cx.start(&mut ring, &[remove_sqe(1).ud(10), remove_sqe(2).ud(11)]);
    let want = [(1, -ECANCELED), (2, -ECANCELED), (10, 0), (11, 0)];
    cx.reap(&mut ring, "one each", &want);
    cx.one(&mut ring, "again", remove_sqe(1), -ENOENT);
    cx.one(&mut ring, "the other", remove_sqe(2).ud(12), 0);
    cx.reap(&mut ring, "its end", &[(2, -ECANCELED)]);
    Ok(())
}

fn update_sqe(old: u64, flags: u32) -> io_uring_sqe {
    remove_sqe(old).set(|s| s.len = flags)
}

fn update_events(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let pri = sqe::poll_add(r.as_raw_fd(), libc::POLLPRI).ud(1);
    cx.start(&mut ring, &[pri]);
    rustix::io::write(&w, b"x")?;
    cx.quiet(&ring, "not asked for", 10);
    let events = update_sqe(1, IORING_POLL_UPDATE_EVENTS).op_flags(IN.cast_unsigned()).ud(2);
    cx.start(&mut ring, &[events]);
    cx.reap(&mut ring, "told", &[(1, IN), (2, 0)]);
    cx.one(&mut ring, "none left", events, -ENOENT);
    Ok(())
}

fn update_user_data(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    cx.start(&mut ring, &[sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(1)]);
    let rename = update_sqe(1, IORING_POLL_UPDATE_USER_DATA).set(|s| s.off = 77);
    cx.one(&mut ring, "update", rename.ud(2), 0);
    cx.one(&mut ring, "the old name", rename.ud(3), -ENOENT);
    let both = IORING_POLL_UPDATE_USER_DATA | IORING_POLL_UPDATE_EVENTS | MULTI;
    let both = update_sqe(77, both).set(|s| s.off = 88).op_flags(IN.cast_unsigned());
    cx.one(&mut ring, "both, and multishot", both.ud(4), 0);
    rustix::io::write(&w, b"x")?;
    // A one-shot poll stays one-shot: the update cannot make it multishot.
    shots(cx, &mut ring, "told", &[(88, IN, false)])?;
    Ok(())
}

fn remove_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let good = remove_sqe(1);
    cx.each(&mut ring, &[
        ("no match", good, -ENOENT),
        ("unknown flag", good.set(|s| s.len = 1 << 5), -EINVAL),
        ("multishot alone", good.set(|s| s.len = MULTI), -EINVAL),
        ("events without their flag", good.op_flags(1), -EINVAL),
        ("user_data without its flag", good.set(|s| s.off = 1), -EINVAL),
        ("a buffer index", good.set(|s| s.buf_index = 1), -EINVAL),
        ("a file index", good.set(|s| s.file_index = 1), -EINVAL),
        ("fixed file", good.fixed(), -ENOENT),
    ]);
    Ok(())
}

fn the_ring_itself(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    cx.is("empty", os::poll(ring.fd, libc::POLLIN, 0), 0);
    cx.is("room", os::poll(ring.fd, libc::POLLOUT, 0), OUT);
    cx.start(&mut ring, &[sqe::nop()]);
    cx.is("one", os::poll(ring.fd, libc::POLLIN, 0), IN);
    ring.pop_all();
    cx.is("empty again", os::poll(ring.fd, libc::POLLIN, 0), 0);
    let ts = sqe::millis(10);
    cx.start(&mut ring, &[sqe::timeout(&ts, 0, 0)]);
    cx.is("a late one wakes", os::poll(ring.fd, libc::POLLIN, 2000), IN);
    Ok(())
}

fn same_file_twice(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    for ud in 1..=3 {
        ring.push(sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(ud));
    }
    cx.is("submit", ring.submit(), 3);
    rustix::io::write(&w, b"x")?;
    cx.reap(&mut ring, "all", &[(1, IN), (2, IN), (3, IN)]);
    Ok(())
}

fn one_shot_is_once(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    cx.start(&mut ring, &[sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(1)]);
    rustix::io::write(&w, b"x")?;
    cx.reap(&mut ring, "told", &[(1, IN)]);
    rustix::io::write(&w, b"x")?;
    cx.quiet(&ring, "once", 10);
    Ok(())
}

/// Returns a poll of `fd` and a read of it, with their results once four bytes are there.
fn awaited(fd: i32, buf: &mut [u8; 4]) -> [(&'static str, io_uring_sqe, i32); 2] {
    [("poll", sqe::poll_add(fd, libc::POLLIN), IN), ("read", sqe::read(fd, buf, 0), 4)]
}

fn number_closed(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut buf = [0; 4];
    for at in 0..2 {
        let (r, w) = cx.pipe()?;
        let fd = r.into_raw_fd();
        let (what, sqe, want) = awaited(fd, &mut buf)[at];
        cx.start(&mut ring, &[sqe.ud(1)]);
        cx.close(fd);
        cx.is("not a broken pipe", os::poll(w.as_raw_fd(), libc::POLLOUT, 0), OUT);
        rustix::io::write(&w, b"data")?;
        cx.reap(&mut ring, what, &[(1, want)]);
        cx.is("now it is", os::poll(w.as_raw_fd(), 0, 1000), i32::from(libc::POLLERR));
    }
    Ok(())
}

fn number_reused(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (mut old, mut new) = ([0; 4], [0; 4]);
    for at in 0..2 {
        let (r, w) = cx.pipe()?;
        let (other, other_w) = cx.pipe()?;
        let fd = r.as_raw_fd();
        let (what, sqe, want) = awaited(fd, &mut old)[at];
        cx.start(&mut ring, &[sqe.ud(1)]);
        cx.holds("the number means another file", os::dup2(other.as_raw_fd(), fd) == fd);
        cx.start(&mut ring, &[awaited(fd, &mut new)[at].1.ud(2)]);
        rustix::io::write(&other_w, b"new!")?;
        cx.reap(&mut ring, what, &[(2, want)]);
        cx.quiet(&ring, "the old one waits", 20);
        rustix::io::write(&w, b"old!")?;
        cx.reap(&mut ring, what, &[(1, want)]);
    }
    cx.eq("old", *std::hint::black_box(&old), *b"old!");
    cx.eq("new", *std::hint::black_box(&new), *b"new!");
    Ok(())
}

fn multishot_wake_events(cx: &mut Cx) -> Outcome {
    let count = cx.eventfd(0)?;
    let (tcp, peer) = super::net::pair()?;
    let (unix, other) = std::os::unix::net::UnixStream::pair()?;
    let eight = 1u64.to_ne_bytes();
    for (what, fd, from) in [
        ("eventfd", count.as_raw_fd(), count.as_raw_fd()),
        ("tcp", tcp.as_raw_fd(), peer.as_raw_fd()),
        ("unix", unix.as_raw_fd(), other.as_raw_fd()),
    ] {
        let mut ring = cx.ring(8, 0)?;
        let poll = sqe::poll_add(fd, libc::POLLIN | libc::POLLOUT);
        cx.start(&mut ring, &[poll.set(|s| s.len = IORING_POLL_ADD_MULTI).ud(1)]);
        let room = libc::POLLOUT.into();
        cx.reap(&mut ring, &format!("{what} has room"), &[(1, room)]);
        let write = sqe::write(from, &eight, 0).ud(2);
        let data = [(1, libc::POLLIN.into()), (2, 8)];
        cx.batch(&mut ring, &format!("{what} has data, too"), &[write], &data);
    }
    Ok(())
}
