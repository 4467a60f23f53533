//! READ and WRITE on stream sockets.

use super::net::{arrived, drain, fill, pair, seen, send};
use super::prelude::*;
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

pub const CASES: &[Case] = &[
    any_order!("rw_streams", both_directions, [Op(IORING_OP_READ), Op(IORING_OP_WRITE)], "bytes go both ways, by one buffer, by parts and by a registered buffer"),
    any_order!("rw_streams", positions, [Op(IORING_OP_READ), Op(IORING_OP_WRITE)], "a stream has no positions: which ones are refused"),
    any_order!("rw_streams", waits, [Op(IORING_OP_READ)], "a read waits for data, whatever O_NONBLOCK and SO_RCVTIMEO say"),
    any_order!("rw_streams", room, [Op(IORING_OP_WRITE)], "a write waits for room"),
    any_order!("rw_streams", ends, [Op(IORING_OP_READ), Op(IORING_OP_WRITE)], "the end of a stream, and writes beyond it, which signal"),
    any_order!("rw_streams", reset, [Op(IORING_OP_READ)], "a reset is reported once"),
    case!("rw_streams", reset_before, [Op(IORING_OP_READ), Op(IORING_OP_WRITE), Op(IORING_OP_SEND)], "what is tried after a reset is told of it once, and writes signal"),
    any_order!("rw_streams", nothing, [Op(IORING_OP_READ), Op(IORING_OP_WRITE)], "transfers of nothing"),
    any_order!("rw_streams", bad_memory, [Op(IORING_OP_READ), Op(IORING_OP_WRITE)], "memory that is not there takes no data"),
    any_order!("rw_streams", low_water, [Op(IORING_OP_READ)], "a low-water mark makes a read wait for more"),
    any_order!("rw_streams", reused, [Op(IORING_OP_READ)], "a number that was a socket means another file"),
    any_order!("rw_streams", closed, [Op(IORING_OP_READ)], "a read goes on when its number is closed, and another socket gets the number"),
    any_order!("rw_streams", two_readers, [Op(IORING_OP_READ)], "of two reads that wait, each gets what comes for it"),
    any_order!("rw_streams", chains, [Op(IORING_OP_READ), Op(IORING_OP_WRITE)], "short results break a chain"),
    any_order!("rw_streams", cancelled, [Op(IORING_OP_READ)], "a read that waits is cancelled, and the next one waits again"),
];

/// One end of a connection; the type knows all calls that the cases make on a socket of TCP, too.
type End = UnixStream;

/// Returns the two ends of a connection of TCP and of one of Unix.
fn connections() -> Result<[(&'static str, End, End); 2], Stop> {
    let (one, two) = pair()?;
    let tcp = (OwnedFd::from(one).into(), OwnedFd::from(two).into());
    let (one, two) = UnixStream::pair()?;
    Ok([("tcp", tcp.0, tcp.1), ("unix", one, two)])
}

/// Sends `data`, and waits until it has arrived.
fn sent(from: &mut End, to: &End, data: &[u8]) -> Outcome {
    from.write_all(data)?;
    arrived(to.as_raw_fd(), data.len());
    Ok(())
}

/// Submits a request, waits for its result and records it.
fn noted(cx: &mut Cx, ring: &mut Ring, what: &str, sqe: io_uring_sqe) {
    ring.push(sqe.ud(1)).submit_wait(1);
    cx.note_cqes(what, ring);
}

/// Makes a request that names a vector.
fn vector(opcode: u8, end: &End, parts: &[iovec]) -> io_uring_sqe {
    sqe::rw(opcode, end.as_raw_fd(), addr(parts), parts.len(), 0)
}

fn part(of: &[u8]) -> iovec {
    iovec { base: addr(of) as u64, len: of.len() as u64 }
}

fn space(of: &mut [u8]) -> iovec {
    iovec { base: addr_mut(of) as u64, len: of.len() as u64 }
}

fn both_directions(cx: &mut Cx) -> Outcome {
    for setup in [0, DEFER] {
        for (name, mut one, two) in connections()? {
            let mut ring = cx.ring(8, setup)?;
            let (mut buf, mut other) = ([b'-'; 8], [b'-'; 8]);
            let all = space(&mut other);
            cx.is(name, ring.register(IORING_REGISTER_BUFFERS, addr(&all), 1), 0);
            let fd = two.as_raw_fd();
            sent(&mut one, &two, b"abcdefghijkl")?;
            cx.one(&mut ring, "less than there is", sqe::read(fd, &mut buf[..4], 0), 4);
            cx.eq("data", seen(&buf), "abcd----".to_owned());
            cx.one(&mut ring, "all that is left", sqe::read(fd, &mut buf, 0), 8);
            sent(&mut one, &two, b"0123456789")?;
            let (first, rest) = buf.split_at_mut(2);
            let parts = [space(first), space(&mut []), space(&mut other[..4]), space(rest)];
            cx.one(&mut ring, "parts", vector(IORING_OP_READV, &two, &parts), 10);
            cx.eq("data", (seen(&buf), seen(&other)), ("016789kl".into(), "2345----".into()));
            sent(&mut one, &two, b"xyz")?;
            let fixed = sqe::rw(IORING_OP_READ_FIXED, fd, addr_mut(&mut other), 8, 0);
            cx.one(&mut ring, "into a registered buffer", fixed, 3);
            cx.eq("data", seen(&other), "xyz5----".into());
            cx.one(&mut ring, "write", sqe::write(fd, b"ABC", 0), 3);
            let parts = [part(b"D"), part(b""), part(b"EF")];
            cx.one(&mut ring, "parts", vector(IORING_OP_WRITEV, &two, &parts), 3);
            let fixed = sqe::rw(IORING_OP_WRITE_FIXED, fd, addr(&other), 2, 0);
            cx.one(&mut ring, "from a registered buffer", fixed, 2);
            arrived(one.as_raw_fd(), 8);
            cx.one(&mut ring, "all", sqe::read(one.as_raw_fd(), &mut buf, sqe::HERE), 8);
            cx.eq("data", seen(&buf), "ABCDEFxy".into());
        }
    }
    Ok(())
}

fn positions(cx: &mut Cx) -> Outcome {
    for (name, mut one, two) in connections()? {
        let mut ring = cx.ring(8, 0)?;
        let mut buf = [0; 1];
        sent(&mut one, &two, b"0123456789")?;
        // At first nothing is known of the number.
        for _ in 0..2 {
            for off in [sqe::HERE, 0, 1, u64::MAX - 1, i64::MAX as u64, 1 << 63] {
                let (fd, what) = (two.as_raw_fd(), format!("{name}, {off:#x}"));
                noted(cx, &mut ring, &what, sqe::read(fd, &mut buf, off));
                noted(cx, &mut ring, &format!("{what}, write"), sqe::write(fd, b"x", off));
            }
        }
        cx.note("read", seen(&buf));
    }
    Ok(())
}

fn waits(cx: &mut Cx) -> Outcome {
    for (name, mut one, two) in connections()? {
        two.set_read_timeout(Some(Duration::from_millis(1)))?;
        for nonblocking in [false, true] {
            let mut ring = cx.ring(8, 0)?;
            two.set_nonblocking(nonblocking)?;
            let (mut buf, fd) = ([0; 8], two.as_raw_fd());
            for round in ["first", "second", "third"] {
                cx.start(&mut ring, &[sqe::read(fd, &mut buf, 0).ud(1)]);
                cx.quiet(&ring, "waits", 10);
                one.write_all(b"0123")?;
                cx.reap(&mut ring, &format!("{name}, {round}"), &[(1, 4)]);
                sent(&mut one, &two, b"45")?;
                cx.one(&mut ring, "at once", sqe::read(fd, &mut buf, 0), 2);
            }
            cx.eq("data", seen(&buf[..4]), "4523".into());
            let now = sqe::read(fd, &mut buf, 0).op_flags(RWF_NOWAIT);
            cx.one(&mut ring, "not to wait", now, -EAGAIN);
        }
    }
    Ok(())
}

fn room(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = UnixStream::pair()?;
    cx.one(&mut ring, "room at once", sqe::write(one.as_raw_fd(), b"ab", 0), 2);
    cx.one(&mut ring, "and again", sqe::write(one.as_raw_fd(), b"c", 0), 1);
    drain(&two, 3)?;
    for _ in 0..2 {
        let full = fill(&one)?;
        cx.start(&mut ring, &[sqe::write(one.as_raw_fd(), b"abc", 0).ud(1)]);
        cx.quiet(&ring, "waits", 20);
        drain(&two, full)?;
        cx.reap(&mut ring, "room", &[(1, 3)]);
        drain(&two, 3)?;
    }
    Ok(())
}

fn ends(cx: &mut Cx) -> Outcome {
    os::catch(libc::SIGPIPE, 0);
    for (name, one, two) in connections()? {
        let mut ring = cx.ring(8, 0)?;
        let (mut buf, fd) = ([0; 8], two.as_raw_fd());
        cx.start(&mut ring, &[sqe::read(fd, &mut buf, 0).ud(1)]);
        one.shutdown(Shutdown::Write)?;
        cx.reap(&mut ring, name, &[(1, 0)]);
        cx.one(&mut ring, "still", sqe::read(fd, &mut buf, 0), 0);
        cx.one(&mut ring, "the other direction", sqe::write(fd, b"x", 0), 1);
        two.shutdown(Shutdown::Write)?;
        let parts = [part(b"x")];
        for (what, write) in [
            ("write", sqe::write(fd, b"x", 0)),
            ("parts", vector(IORING_OP_WRITEV, &two, &parts)),
        ] {
            let before = os::caught();
            cx.one(&mut ring, what, write, -EPIPE);
            cx.is("signals", os::caught() - before, 1);
        }
    }
    Ok(())
}

fn reset(cx: &mut Cx) -> Outcome {
    for (name, mut one, two) in connections()? {
        let mut ring = cx.ring(8, 0)?;
        let (mut buf, fd) = ([0; 8], two.as_raw_fd());
        sent(&mut one, &two, b"x")?;
        cx.one(&mut ring, "before", sqe::read(fd, &mut buf, 0), 1);
        cx.start(&mut ring, &[sqe::read(fd, &mut buf, 0).ud(1)]);
        // What the peer has not read makes its close a reset.
        (&two).write_all(b"unread")?;
        arrived(one.as_raw_fd(), 6);
        drop(one);
        cx.reap(&mut ring, name, &[(1, -libc::ECONNRESET)]);
        cx.one(&mut ring, "then", sqe::read(fd, &mut buf, 0), 0);
    }
    Ok(())
}

fn reset_before(cx: &mut Cx) -> Outcome {
    os::catch(libc::SIGPIPE, 0);
    let mut buf = [0; 8];
    let requests = [
        ("read", sqe::read(-1, &mut buf, 0)),
        ("write", sqe::write(-1, b"x", 0)),
        ("send", send(-1, b"x")),
    ];
    for (what, sqe) in requests {
        for (name, mut one, two) in connections()? {
            let mut ring = cx.ring(8, 0)?;
            let fd = two.as_raw_fd();
            sent(&mut one, &two, b"x")?;
            cx.one(&mut ring, "before", sqe::read(fd, &mut buf, 0), 1);
            (&two).write_all(b"unread")?;
            arrived(one.as_raw_fd(), 6);
            drop(one);
            let ready = os::poll(fd, libc::POLLHUP, 5000);
            cx.holds("the peer is gone", ready & i32::from(libc::POLLHUP) != 0);
            let before = os::caught();
            noted(cx, &mut ring, &format!("{what}, {name}"), sqe.set(|s| s.fd = fd));
            noted(cx, &mut ring, "then", sqe.set(|s| s.fd = fd));
            cx.note("signals", os::caught() - before);
        }
    }
    Ok(())
}

fn nothing(cx: &mut Cx) -> Outcome {
    for (name, mut one, two) in connections()? {
        let mut ring = cx.ring(8, 0)?;
        let (mut buf, fd) = ([0; 8], two.as_raw_fd());
        let parts = [part(b""), part(b"")];
        for what in ["with data", "known"] {
            sent(&mut one, &two, b"x")?;
            noted(cx, &mut ring, &format!("{name}, {what}"), sqe::read(fd, &mut buf[..0], 0));
            noted(cx, &mut ring, "no parts", vector(IORING_OP_READV, &two, &parts[..0]));
            noted(cx, &mut ring, "empty parts", vector(IORING_OP_READV, &two, &parts));
            noted(cx, &mut ring, "write", sqe::write(fd, b"", 0));
            noted(cx, &mut ring, "write parts", vector(IORING_OP_WRITEV, &two, &parts));
            cx.one(&mut ring, "data", sqe::read(fd, &mut buf, 0), 1);
        }
    }
    Ok(())
}

fn bad_memory(cx: &mut Cx) -> Outcome {
    for (name, mut one, two) in connections()? {
        let mut ring = cx.ring(8, 0)?;
        let (mut buf, fd) = ([0; 8], two.as_raw_fd());
        sent(&mut one, &two, b"first")?;
        cx.one(&mut ring, name, sqe::read(fd, &mut buf, 0), 5);
        sent(&mut one, &two, b"second")?;
        for (what, at) in [("unmapped", BAD), ("the kernel's", KERNEL)] {
            noted(cx, &mut ring, what, sqe::rw(IORING_OP_READ, fd, at, 8, 0));
            noted(cx, &mut ring, "write", sqe::rw(IORING_OP_WRITE, fd, at, 8, 0));
        }
        cx.one(&mut ring, "it is still there", sqe::read(fd, &mut buf, 0), 6);
    }
    Ok(())
}

fn low_water(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = pair()?;
    let (mut one, two) = (OwnedFd::from(one).into(), OwnedFd::from(two).into());
    let (mut buf, fd) = ([0; 8], End::as_raw_fd(&two));
    sent(&mut one, &two, b"x")?;
    cx.one(&mut ring, "without", sqe::read(fd, &mut buf, 0), 1);
    cx.is("mark", os::set_socket(fd, libc::SO_RCVLOWAT, 4), 0);
    for _ in 0..2 {
        cx.start(&mut ring, &[sqe::read(fd, &mut buf, 0).ud(1)]);
        sent(&mut one, &two, b"01")?;
        cx.quiet(&ring, "too little", 10);
        one.write_all(b"23")?;
        cx.reap(&mut ring, "enough", &[(1, 4)]);
    }
    Ok(())
}

fn reused(cx: &mut Cx) -> Outcome {
    let file = cx.file("f", b"content")?;
    let (pipe, end) = cx.pipe()?;
    for (name, mut one, two) in connections()? {
        let mut ring = cx.ring(8, 0)?;
        let (mut buf, fd) = ([0; 8], two.as_raw_fd());
        for _ in 0..2 {
            sent(&mut one, &two, b"x")?;
            cx.one(&mut ring, name, sqe::read(fd, &mut buf, 0), 1);
        }
        cx.holds("a file", os::dup2(file.as_raw_fd(), fd) == fd);
        cx.one(&mut ring, "from the start", sqe::read(fd, &mut buf, 0), 7);
        cx.one(&mut ring, "and again", sqe::read(fd, &mut buf, 0), 7);
        cx.one(&mut ring, "from a position", sqe::read(fd, &mut buf, 3), 4);
        cx.holds("a pipe", os::dup2(pipe.as_raw_fd(), fd) == fd);
        cx.start(&mut ring, &[sqe::read(fd, &mut buf, 0).ud(1)]);
        cx.quiet(&ring, "waits", 5);
        rustix::io::write(&end, b"abc")?;
        cx.reap(&mut ring, "of the pipe", &[(1, 3)]);
    }
    Ok(())
}

fn closed(cx: &mut Cx) -> Outcome {
    for (name, mut one, two) in connections()? {
        let mut ring = cx.ring(8, 0)?;
        let (mut buf, mut next, fd) = ([0; 8], [0; 8], two.as_raw_fd());
        sent(&mut one, &two, b"x")?;
        cx.one(&mut ring, name, sqe::read(fd, &mut buf, 0), 1);
        cx.start(&mut ring, &[sqe::read(fd, &mut buf, 0).ud(1)]);
        let (mut other, new) = UnixStream::pair()?;
        cx.holds("another", os::dup2(new.as_raw_fd(), fd) == fd);
        cx.start(&mut ring, &[sqe::read(fd, &mut next, 0).ud(2)]);
        cx.quiet(&ring, "both wait", 5);
        other.write_all(b"new")?;
        cx.reap(&mut ring, "the new one", &[(2, 3)]);
        one.write_all(b"old")?;
        cx.reap(&mut ring, "the old one", &[(1, 3)]);
        cx.eq("data", (seen(&buf[..3]), seen(&next[..3])), ("old".into(), "new".into()));
        cx.close(two.into_raw_fd());
    }
    Ok(())
}

fn two_readers(cx: &mut Cx) -> Outcome {
    for (name, mut one, two) in connections()? {
        let mut ring = cx.ring(8, 0)?;
        let (mut a, mut b, fd) = ([0; 4], [0; 4], two.as_raw_fd());
        let reads = [sqe::read(fd, &mut a, 0).ud(1), sqe::read(fd, &mut b, 0).ud(1)];
        cx.start(&mut ring, &reads);
        cx.quiet(&ring, "both wait", 5);
        one.write_all(b"0123")?;
        cx.reap(&mut ring, name, &[(1, 4)]);
        cx.quiet(&ring, "one waits", 5);
        one.write_all(b"45")?;
        cx.reap(&mut ring, "the other", &[(1, 2)]);
    }
    Ok(())
}

fn chains(cx: &mut Cx) -> Outcome {
    for (name, mut one, two) in connections()? {
        let mut ring = cx.ring(8, 0)?;
        let (mut buf, fd) = ([0; 8], two.as_raw_fd());
        sent(&mut one, &two, b"0123456789")?;
        let whole = [sqe::read(fd, &mut buf, 0).link().ud(1), sqe::nop().ud(2)];
        cx.batch(&mut ring, name, &whole, &[(1, 8), (2, 0)]);
        let short = [sqe::read(fd, &mut buf, 0).link().ud(1), sqe::nop().ud(2)];
        cx.batch(&mut ring, "short", &short, &[(1, 2), (2, -ECANCELED)]);
        let after = [sqe::read(fd, &mut buf, 0).link().ud(1), sqe::write(fd, &buf, 0).ud(2)];
        cx.start(&mut ring, &after);
        cx.quiet(&ring, "waits", 5);
        one.write_all(b"abcdefgh")?;
        cx.reap(&mut ring, "echo", &[(1, 8), (2, 8)]);
        drain(&one, 8)?;
    }
    Ok(())
}

fn cancelled(cx: &mut Cx) -> Outcome {
    for (name, mut one, two) in connections()? {
        let mut ring = cx.ring(8, 0)?;
        let (mut buf, fd) = ([0; 8], two.as_raw_fd());
        for _ in 0..2 {
            cx.start(&mut ring, &[sqe::read(fd, &mut buf, 0).ud(1)]);
            cx.quiet(&ring, "waits", 2);
            cx.start(&mut ring, &[sqe::cancel(1, 0).ud(2)]);
            cx.reap(&mut ring, name, &[(1, -ECANCELED), (2, 0)]);
            let soon = sqe::millis(5);
            let late = sqe::link_timeout(&soon, 0).ud(4);
            let timed = [sqe::read(fd, &mut buf, 0).link().ud(3), late];
            cx.batch(&mut ring, "too late", &timed, &[(3, -ECANCELED), (4, -ETIME)]);
        }
        sent(&mut one, &two, b"0123")?;
        cx.one(&mut ring, "all is there", sqe::read(fd, &mut buf, 0), 4);
    }
    Ok(())
}
