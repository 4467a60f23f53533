//! SEND and RECV, one shot each.

use super::prelude::*;
use libc::{
    EDESTADDRREQ, EMSGSIZE, ENOTCONN, ENOTSOCK, MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, MSG_WAITALL,
};
use std::io::{Read, Write};
use softring_uapi::iovec;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};

pub const CASES: &[Case] = &[
    any_order!("net", tcp, [Op(IORING_OP_SEND), Op(IORING_OP_RECV)], "bytes go both ways, and CQEs say whether more bytes wait"),
    any_order!("net", unix, [Op(IORING_OP_SEND), Op(IORING_OP_RECV)], "streams and datagrams between unix sockets"),
    any_order!("net", udp, [Op(IORING_OP_SEND), Op(IORING_OP_RECV)], "datagrams are sent to an address and truncated"),
    any_order!("net", refusals, [Op(IORING_OP_SEND), Op(IORING_OP_RECV)], "bad flags, addresses, lengths and files"),
    any_order!("net", waits, [Op(IORING_OP_RECV)], "a receive waits for data, whatever O_NONBLOCK says"),
    any_order!("net", dont_wait, [Op(IORING_OP_RECV)], "MSG_DONTWAIT completes at once"),
    any_order!("net", send_waits, [Op(IORING_OP_SEND)], "a send waits for room"),
    any_order!("net", poll_first, [Op(IORING_OP_RECV), Op(IORING_OP_SEND)], "POLL_FIRST waits for readiness before the first attempt"),
    any_order!("net", chains, [Op(IORING_OP_RECV), Op(IORING_OP_SEND)], "results that break a chain"),
    any_order!("net", worker, [Op(IORING_OP_RECV), Op(IORING_OP_SEND)], "IOSQE_ASYNC gives the same results"),
    any_order!("net", peer_gone, [Op(IORING_OP_RECV), Op(IORING_OP_SEND)], "sends to a closed peer fail without SIGPIPE"),
    any_order!("net", vectorized, [Op(IORING_OP_SEND)], "IORING_SEND_VECTORIZED sends many parts"),
    case!("net", slots, [Op(IORING_OP_RECV), Op(IORING_OP_SEND)], "requests on registered sockets"),
];

pub(super) fn send(fd: i32, buf: &[u8]) -> io_uring_sqe {
    sqe::rw(IORING_OP_SEND, fd, addr(buf), buf.len(), 0)
}

pub(super) fn recv(fd: i32, buf: &mut [u8]) -> io_uring_sqe {
    sqe::rw(IORING_OP_RECV, fd, addr_mut(buf), buf.len(), 0)
}

/// Creates two ends of a TCP connection on the loopback.
pub(super) fn pair() -> Result<(TcpStream, TcpStream), Stop> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    let (two, _) = listener.accept()?;
    one.set_nodelay(true)?;
    two.set_nodelay(true)?;
    Ok((one, two))
}

pub(super) fn seen(buf: &[u8]) -> String {
    String::from_utf8_lossy(std::hint::black_box(buf)).into_owned()
}

/// Waits until the socket has `n` bytes to receive.
pub(super) fn arrived(fd: i32, n: usize) {
    let mut buf = vec![0u8; n];
    while os::peek(fd, &mut buf) < n as isize {
        std::thread::yield_now();
    }
}

fn tcp(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (mut one, mut two) = pair()?;
    let mut buf = [b'-'; 8];
    cx.one(&mut ring, "send", send(one.as_raw_fd(), b"abcdefghij"), 10);
    arrived(two.as_raw_fd(), 10);
    cx.one(&mut ring, "receive some", recv(two.as_raw_fd(), &mut buf), 8);
    cx.eq("data", seen(&buf), "abcdefgh".to_owned());
    cx.one(&mut ring, "the rest", recv(two.as_raw_fd(), &mut buf), 2);
    two.write_all(b"back")?;
    let peek = recv(one.as_raw_fd(), &mut buf).op_flags(MSG_PEEK as u32);
    cx.one(&mut ring, "peek", peek, 4);
    cx.one(&mut ring, "exactly", recv(one.as_raw_fd(), &mut buf[..4]), 4);
    one.write_all(b"last")?;
    drop(one);
    arrived(two.as_raw_fd(), 4);
    std::thread::sleep(std::time::Duration::from_millis(20));
    cx.one(&mut ring, "before the end", recv(two.as_raw_fd(), &mut buf), 4);
    cx.one(&mut ring, "the end", recv(two.as_raw_fd(), &mut buf), 0);
    cx.one(&mut ring, "still", recv(two.as_raw_fd(), &mut buf), 0);
    cx.one(&mut ring, "of no length", recv(two.as_raw_fd(), &mut buf[..0]), 0);
    let _ = two.read(&mut buf);
    Ok(())
}

fn unix(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = UnixStream::pair()?;
    let mut buf = [b'-'; 4];
    cx.one(&mut ring, "send", send(one.as_raw_fd(), b"abcdefghij"), 10);
    cx.one(&mut ring, "receive some", recv(two.as_raw_fd(), &mut buf), 4);
    cx.one(&mut ring, "some more", recv(two.as_raw_fd(), &mut buf), 4);
    cx.one(&mut ring, "the rest", recv(two.as_raw_fd(), &mut buf), 2);
    cx.one(&mut ring, "an empty one", send(one.as_raw_fd(), b""), 0);
    cx.one(&mut ring, "more", send(one.as_raw_fd(), b"last"), 4);
    drop(one);
    cx.one(&mut ring, "before the end", recv(two.as_raw_fd(), &mut buf), 4);
    cx.one(&mut ring, "the end", recv(two.as_raw_fd(), &mut buf), 0);
    let (one, two) = UnixDatagram::pair()?;
    let fd = two.as_raw_fd();
    for text in [&b"first"[..], b"second", b"", b"third"] {
        cx.one(&mut ring, "datagram", send(one.as_raw_fd(), text), text.len() as i32);
    }
    let whole = recv(fd, &mut buf).op_flags(MSG_TRUNC as u32);
    cx.one(&mut ring, "cut", recv(fd, &mut buf), 4);
    cx.one(&mut ring, "cut, with its length", whole, 6);
    cx.one(&mut ring, "empty", recv(fd, &mut buf), 0);
    let all = recv(fd, &mut buf).op_flags(MSG_WAITALL as u32);
    let chain = [all.link().ud(1), sqe::nop().ud(2)];
    cx.batch(&mut ring, "cut, all wanted", &chain, &[(1, 4), (2, -ECANCELED)]);
    Ok(())
}

fn udp(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    let to = os::loopback(two.local_addr()?.port());
    let at = |s: &mut io_uring_sqe| (s.off, s.file_index) = (addr(&to) as u64, 16);
    let named = send(one.as_raw_fd(), b"hello").set(at);
    cx.each(&mut ring, &[
        ("to nobody", send(one.as_raw_fd(), b"hello"), -EDESTADDRREQ),
        ("to an address", named, 5),
        ("too short an address", named.set(|s| s.file_index = 4), -EINVAL),
        ("of no length", named.set(|s| s.file_index = 0), -EINVAL),
        ("too long", named.set(|s| s.file_index = 129), -EINVAL),
        ("a padding", named.set(|s| s.file_index = 16 | 1 << 16), -EINVAL),
        ("a bad one", named.set(|s| s.off = BAD as u64), -EFAULT),
        ("again", named, 5),
        ("and again", named, 5),
    ]);
    let mut buf = [b'-'; 8];
    let fd = two.as_raw_fd();
    cx.one(&mut ring, "receive", recv(fd, &mut buf), 5);
    cx.one(&mut ring, "into less", recv(fd, &mut buf[..2]), 2);
    let all = recv(fd, &mut buf).op_flags(MSG_WAITALL as u32);
    let chain = [all.link().ud(1), sqe::nop().ud(2)];
    cx.batch(&mut ring, "short, all wanted", &chain, &[(1, 5), (2, -ECANCELED)]);
    let big = vec![0u8; 70000];
    cx.one(&mut ring, "too big", send(one.as_raw_fd(), &big).set(at), -EMSGSIZE);
    Ok(())
}

fn refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = UnixStream::pair()?;
    let (file, (r, w)) = (cx.file("f", b"")?, cx.pipe()?);
    let mut buf = [0u8; 8];
    let s = send(one.as_raw_fd(), b"x");
    let g = recv(two.as_raw_fd(), &mut buf);
    let lone = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )?;
    let fixed = if cx.is_newest() { -EFAULT } else { -EINVAL };
    cx.each(&mut ring, &[
        ("send to a file", send(file.as_raw_fd(), b"x"), -ENOTSOCK),
        ("send to a pipe", send(w.as_raw_fd(), b"x"), -ENOTSOCK),
        ("receive from a pipe", g.set(|s| s.fd = r.as_raw_fd()), -ENOTSOCK),
        ("receive from a file", g.set(|s| s.fd = file.as_raw_fd()), -ENOTSOCK),
        ("send, closed", send(999, b"x"), -EBADF),
        ("receive, closed", g.set(|s| s.fd = 999), -EBADF),
        ("not connected, send", send(lone.as_raw_fd(), b"x"), -EPIPE),
        ("not connected, receive", g.set(|s| s.fd = lone.as_raw_fd()), -ENOTCONN),
        ("send, negative", s.set(|s| s.len = u32::MAX), -EINVAL),
        ("receive, negative", g.set(|s| s.len = u32::MAX), -EINVAL),
        ("send, a bad address", s.set(|s| s.addr = BAD as u64), -EFAULT),
        ("send, the kernel's", s.set(|s| s.addr = KERNEL as u64), -EFAULT),
        ("receive, the kernel's", g.set(|s| s.addr = KERNEL as u64), -EFAULT),
        ("receive, an offset", g.set(|s| s.off = 8), -EINVAL),
        ("receive, a file index", g.set(|s| s.file_index = 1), -EINVAL),
        ("send, unknown priority", s.set(|s| s.ioprio = 1 << 6), -EINVAL),
        ("send, multishot", s.set(|s| s.ioprio = IORING_RECV_MULTISHOT), -EINVAL),
        ("send, a fixed buffer", s.set(|s| s.ioprio = IORING_RECVSEND_FIXED_BUF), fixed),
        ("receive, unknown priority", g.set(|s| s.ioprio = 1 << 6), -EINVAL),
        ("receive, vectorized", g.set(|s| s.ioprio = IORING_SEND_VECTORIZED), -EINVAL),
        ("receive, many into none", g.set(|s| s.ioprio = IORING_RECV_MULTISHOT), -EINVAL),
    ]);
    let bundle = s.set(|s| s.ioprio = IORING_RECVSEND_BUNDLE).ud(1);
    cx.start(&mut ring, &[bundle]);
    cx.reap_in_order(&mut ring, "a bundle of no buffers", &[(1, 1), (1, 0)]);
    drop(two);
    Ok(())
}

fn waits(cx: &mut Cx) -> Outcome {
    for flags in [0, DEFER] {
        let mut ring = cx.ring(8, flags)?;
        let (mut one, two) = pair()?;
        let mut buf = [b'-'; 8];
        for nonblock in [false, true] {
            two.set_nonblocking(nonblock)?;
            cx.start(&mut ring, &[recv(two.as_raw_fd(), &mut buf).ud(1)]);
            cx.quiet(&ring, "waits", 20);
            one.write_all(b"now")?;
            cx.reap(&mut ring, "came", &[(1, 3)]);
        }
        cx.eq("data", seen(&buf[..3]), "now".to_owned());
        cx.start(&mut ring, &[recv(two.as_raw_fd(), &mut buf).ud(1)]);
        cx.batch(&mut ring, "cancelled", &[sqe::cancel(1, 0).ud(2)], &[(1, -ECANCELED), (2, 0)]);
        let ts = sqe::millis(20);
        let timed = [recv(two.as_raw_fd(), &mut buf).link().ud(1), sqe::link_timeout(&ts, 0).ud(2)];
        cx.batch(&mut ring, "too late", &timed, &[(1, -ECANCELED), (2, -ETIME)]);
        cx.start(&mut ring, &[recv(two.as_raw_fd(), &mut buf).ud(1)]);
        drop(one);
        cx.reap(&mut ring, "the peer goes", &[(1, 0)]);
    }
    Ok(())
}

fn dont_wait(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (mut one, two) = UnixStream::pair()?;
    let mut buf = [b'-'; 8];
    let get = recv(two.as_raw_fd(), &mut buf).op_flags(MSG_DONTWAIT as u32);
    cx.one(&mut ring, "nothing there", get, -EAGAIN);
    let first = get.set(|s| s.ioprio = IORING_RECVSEND_POLL_FIRST);
    cx.one(&mut ring, "polled first", first, -EAGAIN);
    cx.one(&mut ring, "by a worker", get.with(IOSQE_ASYNC), -EAGAIN);
    let chain = [get.link().ud(1), sqe::nop().ud(2)];
    cx.batch(&mut ring, "in a chain", &chain, &[(1, -EAGAIN), (2, -ECANCELED)]);
    one.write_all(b"abc")?;
    cx.one(&mut ring, "something there", get, 3);
    Ok(())
}

/// Fills a socket's send buffer.
pub(super) fn fill(mut s: &UnixStream) -> Result<usize, Stop> {
    s.set_nonblocking(true)?;
    let mut n = 0;
    while let Ok(more) = s.write(&[7u8; 4096]) {
        n += more;
    }
    s.set_nonblocking(false)?;
    Ok(n)
}

pub(super) fn drain(mut s: &UnixStream, mut n: usize) -> Result<(), Stop> {
    let mut buf = vec![0u8; 1 << 16];
    while n > 0 {
        let most = n.min(buf.len());
        n -= s.read(&mut buf[..most])?;
    }
    Ok(())
}

fn send_waits(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = UnixStream::pair()?;
    let full = fill(&one)?;
    let sqe = send(one.as_raw_fd(), b"abc");
    cx.one(&mut ring, "no room", sqe.op_flags(MSG_DONTWAIT as u32), -EAGAIN);
    cx.start(&mut ring, &[sqe.ud(1)]);
    cx.quiet(&ring, "waits", 20);
    drain(&two, full)?;
    cx.reap(&mut ring, "room", &[(1, 3)]);
    drain(&two, 3)
}

fn poll_first(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (mut one, two) = pair()?;
    let mut buf = [b'-'; 8];
    let file = cx.file("f", b"")?;
    let first = |s: io_uring_sqe| s.set(|s| s.ioprio = IORING_RECVSEND_POLL_FIRST);
    cx.one(&mut ring, "room at once", first(send(two.as_raw_fd(), b"x")), 1);
    one.write_all(b"there")?;
    cx.one(&mut ring, "there already", first(recv(two.as_raw_fd(), &mut buf)), 5);
    cx.start(&mut ring, &[first(recv(two.as_raw_fd(), &mut buf)).ud(1)]);
    cx.quiet(&ring, "waits", 20);
    one.write_all(b"later")?;
    cx.reap(&mut ring, "came", &[(1, 5)]);
    cx.one(&mut ring, "no socket", first(send(file.as_raw_fd(), b"x")), -ENOTSOCK);
    Ok(())
}

fn chains(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = pair()?;
    let mut buf = [b'-'; 8];
    let give = send(one.as_raw_fd(), b"abc");
    let take = recv(two.as_raw_fd(), &mut buf);
    let chain = |a: io_uring_sqe, b: io_uring_sqe| [a.link().ud(1), b.ud(2)];
    cx.batch(&mut ring, "send, receive", &chain(give, take), &[(1, 3), (2, 3)]);
    cx.batch(&mut ring, "short", &chain(give, take.link()), &[(1, 3), (2, 3)]);
    let skip = [give.with(IOSQE_CQE_SKIP_SUCCESS), take.ud(2)];
    cx.start(&mut ring, &skip);
    cx.reap(&mut ring, "unseen", &[(2, 3)]);
    let (lone, _) = UnixStream::pair()?;
    let broken = chain(send(lone.as_raw_fd(), b"x"), sqe::nop());
    cx.batch(&mut ring, "failed", &broken, &[(1, -EPIPE), (2, -ECANCELED)]);
    Ok(())
}

fn worker(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (mut one, two) = pair()?;
    let mut buf = [b'-'; 8];
    let take = recv(two.as_raw_fd(), &mut buf).with(IOSQE_ASYNC);
    cx.one(&mut ring, "send", send(one.as_raw_fd(), b"abc").with(IOSQE_ASYNC), 3);
    cx.one(&mut ring, "receive", take, 3);
    cx.start(&mut ring, &[take.ud(1)]);
    cx.quiet(&ring, "waits", 20);
    one.write_all(b"defg")?;
    cx.reap(&mut ring, "came", &[(1, 4)]);
    cx.start(&mut ring, &[take.ud(1)]);
    cx.quiet(&ring, "waits again", 20);
    cx.batch(&mut ring, "cancelled", &[sqe::cancel(1, 0).ud(2)], &[(1, -ECANCELED), (2, 0)]);
    Ok(())
}

fn peer_gone(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = UnixStream::pair()?;
    let mut buf = [b'-'; 8];
    os::catch(libc::SIGPIPE, 0);
    one.shutdown(std::net::Shutdown::Write)?;
    cx.each(&mut ring, &[
        ("shut down", send(one.as_raw_fd(), b"x"), -EPIPE),
        ("by a worker", send(one.as_raw_fd(), b"x").with(IOSQE_ASYNC), -EPIPE),
        ("its peer's end", recv(two.as_raw_fd(), &mut buf), 0),
    ]);
    drop(one);
    cx.one(&mut ring, "gone", send(two.as_raw_fd(), b"x"), -EPIPE);
    cx.eq("signals", os::caught(), 0);
    let (one, two) = pair()?;
    cx.start(&mut ring, &[recv(one.as_raw_fd(), &mut buf).ud(1)]);
    rustix::net::sockopt::set_socket_linger(&two, Some(std::time::Duration::ZERO))?;
    drop(two);
    cx.reap(&mut ring, "reset", &[(1, -libc::ECONNRESET)]);
    Ok(())
}

fn vectorized(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, mut two) = UnixStream::pair()?;
    let part = |s: &[u8]| iovec { base: addr(s) as u64, len: s.len() as u64 };
    let parts = [part(b"abc"), part(b""), part(b"defgh")];
    let vector = |n: u32| {
        let s = sqe::rw(IORING_OP_SEND, one.as_raw_fd(), addr(&parts), 0, 0);
        s.set(|s| (s.len, s.ioprio) = (n, IORING_SEND_VECTORIZED))
    };
    cx.each(&mut ring, &[
        ("three parts", vector(3), 8),
        ("one", vector(1), 3),
        ("none", vector(0), 0),
        ("too many", vector(1025), -EINVAL),
        ("a bad vector", vector(1).set(|s| s.addr = BAD as u64), -EFAULT),
        ("a name of no bytes", vector(1).set(|s| s.off = BAD as u64), 3),
    ]);
    let mut buf = [0u8; 14];
    two.read_exact(&mut buf)?;
    cx.eq("data", seen(&buf), "abcdefghabcabc".to_owned());
    let udp = std::net::UdpSocket::bind("127.0.0.1:0")?;
    udp.connect(udp.local_addr()?)?;
    let nameless = |s: io_uring_sqe| s.set(|s| (s.fd, s.off) = (udp.as_raw_fd(), BAD as u64));
    cx.one(&mut ring, "a datagram's name of no bytes", nameless(vector(1)), -EINVAL);
    cx.one(&mut ring, "and without parts", nameless(send(0, b"abc")), -EINVAL);
    let big = vec![3u8; 1_500_000];
    let parts = [part(&big), part(&big)];
    let all = vector(2).set(|s| s.addr = addr(&parts) as u64).op_flags(MSG_WAITALL as u32);
    cx.start(&mut ring, &[all.ud(1)]);
    let mut got = vec![0u8; 3_000_000];
    two.read_exact(&mut got)?;
    cx.reap(&mut ring, "over several waits", &[(1, 3_000_000)]);
    cx.holds("data", got.iter().all(|&b| b == 3));
    Ok(())
}

fn slots(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = pair()?;
    let fds = [one.as_raw_fd(), two.as_raw_fd()];
    let mut buf = [b'-'; 8];
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &fds), 0);
    cx.start(&mut ring, &[recv(1, &mut buf).fixed().ud(1)]);
    cx.quiet(&ring, "waits", 20);
    cx.one(&mut ring, "send", send(0, b"abc").fixed(), 3);
    cx.reap(&mut ring, "came", &[(1, 3)]);
    cx.one(&mut ring, "no such slot", send(5, b"abc").fixed(), -EBADF);
    Ok(())
}
