//! URING_CMD: queries and settings of sockets.

use super::prelude::*;
use libc::{AF_INET, AF_NETLINK, AF_UNIX, SO_KEEPALIVE, SO_RCVBUF};
use libc::{SOCK_DGRAM, SOCK_STREAM, SOL_SOCKET};
use std::io::Write as _;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;

pub const CASES: &[Case] = &[
    legal!("command", queue_sizes, [Op(IORING_OP_URING_CMD)], "SIOCINQ and SIOCOUTQ return bytes to read and to send"),
    legal!("command", queue_sizes_other_sockets, [Op(IORING_OP_URING_CMD)], "SIOCINQ and SIOCOUTQ of datagrams, listeners and families that do not support them"),
    legal!("command", getsockopt, [Op(IORING_OP_URING_CMD)], "socket options are read; the result is their length"),
    legal!("command", setsockopt, [Op(IORING_OP_URING_CMD)], "socket options are set"),
    legal!("command", modes, [Op(IORING_OP_URING_CMD)], "commands work in a worker, in a chain, on a registered socket and in a 128-byte SQE"),
    legal!("command", refusals, [Op(IORING_OP_URING_CMD)], "bad words and flags, unknown commands, other files"),
    legal!("command", nvme_on_other_files, [Op(IORING_OP_URING_CMD)], "NVMe commands fail on other files"),
];

fn command(fd: i32, what: u32) -> io_uring_sqe {
    sqe::op(IORING_OP_URING_CMD, fd).set(|s| s.off = what.into())
}

fn option(fd: i32, what: u32, level: i32, name: i32, at: usize, len: u32) -> io_uring_sqe {
    command(fd, what).set(|s| {
        s.addr = u64::from(level.cast_unsigned()) | u64::from(name.cast_unsigned()) << 32;
        (s.addr3, s.file_index) = (at as u64, len);
    })
}

fn get(fd: i32, name: i32, at: &mut i32, len: u32) -> io_uring_sqe {
    option(fd, SOCKET_URING_OP_GETSOCKOPT, SOL_SOCKET, name, addr_mut(at), len)
}

fn put(fd: i32, level: i32, name: i32, value: &i32) -> io_uring_sqe {
    option(fd, SOCKET_URING_OP_SETSOCKOPT, level, name, addr(value), 4)
}

fn pair() -> Result<(TcpStream, TcpStream), Stop> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    Ok((one, listener.accept()?.0))
}

fn queue_sizes(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (mut one, two) = pair()?;
    let (a, b) = (one.as_raw_fd(), two.as_raw_fd());
    cx.one(&mut ring, "nothing to read", command(b, SOCKET_URING_OP_SIOCINQ), 0);
    one.write_all(b"some bytes")?;
    os::poll(b, libc::POLLIN, 1000);
    cx.one(&mut ring, "to be read", command(b, SOCKET_URING_OP_SIOCINQ), 10);
    std::thread::sleep(std::time::Duration::from_millis(50));
    let to_send = command(a, SOCKET_URING_OP_SIOCOUTQ);
    cx.one(&mut ring, "all is sent", to_send, 0);
    super::disconnects::fill(&mut one)?;
    let submitted = ring.push(to_send).submit_wait(1);
    cx.is("the peer does not read", submitted, 1);
    let left = ring.take(1)?[0].res;
    cx.holds("there is more to send", left > 0);
    cx.holds("as much as ioctl(2) tells", left == os::outq(a));
    Ok(())
}

fn queue_sizes_other_sockets(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (inq, outq) = (SOCKET_URING_OP_SIOCINQ, SOCKET_URING_OP_SIOCOUTQ);
    let (udp, to) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    for n in [3, 5] {
        udp.send_to(&[0; 8][..n], to.local_addr()?)?;
    }
    os::poll(to.as_raw_fd(), libc::POLLIN, 1000);
    cx.one(&mut ring, "the first datagram", command(to.as_raw_fd(), inq), 3);
    cx.one(&mut ring, "sent", command(udp.as_raw_fd(), outq), 0);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    cx.one(&mut ring, "a listener", command(listener.as_raw_fd(), inq), -EINVAL);
    cx.one(&mut ring, "a listener", command(listener.as_raw_fd(), outq), -EINVAL);
    let (mut one, two) = UnixStream::pair()?;
    one.write_all(b"x")?;
    cx.one(&mut ring, "AF_UNIX", command(two.as_raw_fd(), inq), -EOPNOTSUPP);
    cx.one(&mut ring, "AF_UNIX", command(one.as_raw_fd(), outq), -EOPNOTSUPP);
    let make = |domain: i32, kind: i32| {
        sqe::op(IORING_OP_SOCKET, domain).set(|s| s.off = kind as u64)
    };
    let lone = cx.one_fd(&mut ring, "socket", make(AF_INET, SOCK_STREAM))?;
    cx.one(&mut ring, "not connected", command(lone.as_raw_fd(), inq), 0);
    let lone = cx.one_fd(&mut ring, "socket", make(AF_NETLINK, SOCK_DGRAM))?;
    cx.one(&mut ring, "AF_NETLINK", command(lone.as_raw_fd(), inq), -EOPNOTSUPP);
    let lone = cx.one_fd(&mut ring, "socket", make(AF_UNIX, SOCK_DGRAM))?;
    cx.one(&mut ring, "AF_UNIX datagrams", command(lone.as_raw_fd(), inq), -EOPNOTSUPP);
    Ok(())
}

fn getsockopt(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, _two) = pair()?;
    let fd = one.as_raw_fd();
    let mut value = -1;
    cx.one(&mut ring, "a length of 4", get(fd, libc::SO_TYPE, &mut value, 4), 4);
    cx.eq("SO_TYPE", std::hint::black_box(value), SOCK_STREAM);
    value = -1;
    cx.one(&mut ring, "a shorter one", get(fd, libc::SO_TYPE, &mut value, 2), 2);
    cx.eq("SO_TYPE", std::hint::black_box(value), -0x10000 + SOCK_STREAM);
    cx.one(&mut ring, "a longer one", get(fd, libc::SO_DOMAIN, &mut value, 400), 4);
    cx.eq("SO_DOMAIN", std::hint::black_box(value), AF_INET);
    let at = addr_mut(&mut value);
    let level = |level| option(fd, SOCKET_URING_OP_GETSOCKOPT, level, 1, at, 4);
    cx.each(&mut ring, &[
        ("no length", get(fd, libc::SO_TYPE, &mut 0, 0), 0),
        ("a negative length", get(fd, libc::SO_TYPE, &mut 0, u32::MAX), -EINVAL),
        ("an unknown option", get(fd, 9999, &mut 0, 4), -libc::ENOPROTOOPT),
        ("another level", level(libc::IPPROTO_TCP), -EOPNOTSUPP),
        ("no level", level(0), -EOPNOTSUPP),
        ("a bad pointer", get(fd, libc::SO_TYPE, &mut 0, 4).set(|s| s.addr3 = BAD as u64), -EFAULT),
    ]);
    Ok(())
}

fn setsockopt(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, _two) = pair()?;
    let fd = one.as_raw_fd();
    let (on, mut value) = (1, 0);
    cx.one(&mut ring, "SO_KEEPALIVE", put(fd, SOL_SOCKET, SO_KEEPALIVE, &on), 0);
    cx.one(&mut ring, "is set", get(fd, SO_KEEPALIVE, &mut value, 4), 4);
    cx.eq("to", std::hint::black_box(value), 1);
    cx.one(&mut ring, "SO_RCVBUF", put(fd, SOL_SOCKET, SO_RCVBUF, &8192), 0);
    cx.one(&mut ring, "is set", get(fd, SO_RCVBUF, &mut value, 4), 4);
    cx.eq("to twice that", std::hint::black_box(value), 16384);
    let good = put(fd, SOL_SOCKET, SO_KEEPALIVE, &on);
    cx.each(&mut ring, &[
        ("TCP_NODELAY", put(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, &on), 0),
        ("an unknown option", put(fd, SOL_SOCKET, 9999, &on), -libc::ENOPROTOOPT),
        ("an unknown level", put(fd, 9999, 1, &on), -libc::ENOPROTOOPT),
        ("a short value", good.set(|s| s.file_index = 2), -EINVAL),
        ("a negative length", good.set(|s| s.file_index = u32::MAX), -EINVAL),
        ("a bad pointer", good.set(|s| s.addr3 = BAD as u64), -EFAULT),
    ]);
    Ok(())
}

fn modes(cx: &mut Cx) -> Outcome {
    let (mut ring, mut big) = (cx.ring(8, 0)?, cx.ring(8, IORING_SETUP_SQE128)?);
    let mut wide = cx.ring(8, IORING_SETUP_CQE32)?;
    let (mut one, two) = pair()?;
    one.write_all(b"some bytes")?;
    let fd = two.as_raw_fd();
    os::poll(fd, libc::POLLIN, 1000);
    let ask = command(fd, SOCKET_URING_OP_SIOCINQ);
    cx.one(&mut ring, "in a worker", ask.with(IOSQE_ASYNC), 10);
    cx.batch(&mut ring, "a chain", &[ask.link().ud(1), ask.ud(2)], &[(1, 10), (2, 10)]);
    let bad = command(fd, 999);
    let broken = [bad.link().ud(1), ask.ud(2)];
    cx.batch(&mut ring, "a broken one", &broken, &[(1, -EOPNOTSUPP), (2, -ECANCELED)]);
    cx.one(&mut big, "128 bytes", ask, 10);
    cx.one(&mut wide, "a wide CQE", ask, 10);
    let mut value = 0;
    cx.one(&mut big, "an option", get(fd, libc::SO_TYPE, &mut value, 4), 4);
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[fd]), 0);
    cx.one(&mut ring, "registered", command(0, SOCKET_URING_OP_SIOCINQ).fixed(), 10);
    cx.start(&mut ring, &[ask.with(IOSQE_CQE_SKIP_SUCCESS)]);
    cx.quiet(&ring, "without a CQE", 5);
    Ok(())
}

fn refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (_one, two) = pair()?;
    let fd = two.as_raw_fd();
    let good = command(fd, SOCKET_URING_OP_SIOCINQ);
    let (file, (r, _w), event) = (cx.file("f", b"")?, cx.pipe()?, cx.eventfd(0)?);
    let own = ring.fd;
    let many = command(fd, 999).op_flags(2).with(IOSQE_BUFFER_SELECT);
    // The command names no room for the address.
    let name = if cx.is_newest() { -EFAULT } else { -EOPNOTSUPP };
    cx.each(&mut ring, &[
        ("padding", good.set(|s| s.off |= 1 << 32), -EINVAL),
        ("an unknown flag", good.op_flags(4), -EINVAL),
        ("the internal flags", good.op_flags(1 << 31), -EINVAL),
        ("a fixed buffer", good.op_flags(IORING_URING_CMD_FIXED), 0),
        ("multishot", good.op_flags(IORING_URING_CMD_MULTISHOT), -EINVAL),
        ("both", good.op_flags(3).with(IOSQE_BUFFER_SELECT), -EINVAL),
        ("a buffer group", good.with(IOSQE_BUFFER_SELECT), -EINVAL),
        ("multishot with buffers", many, -EOPNOTSUPP),
        ("a priority", good.set(|s| s.ioprio = 1), -EINVAL),
        ("words not looked at", good.set(|s| (s.addr, s.len, s.addr3) = (1, 2, 3)), 0),
        ("an unknown command", command(fd, 999), -EOPNOTSUPP),
        ("a local name", command(fd, SOCKET_URING_OP_GETSOCKNAME), name),
        ("closed", command(999, 0), -EBADF),
        ("a file", command(file.as_raw_fd(), 0), -EOPNOTSUPP),
        ("a pipe", command(r.as_raw_fd(), 0), -EOPNOTSUPP),
        ("an eventfd", command(event.as_raw_fd(), 0), -EOPNOTSUPP),
        ("a ring", command(own, 0), -EOPNOTSUPP),
    ]);
    let null = std::fs::File::open("/dev/null")?;
    let zero = std::fs::File::open("/dev/zero")?;
    cx.one(&mut ring, "/dev/null", command(null.as_raw_fd(), 5), 0);
    cx.one(&mut ring, "/dev/zero", command(zero.as_raw_fd(), 5), -EOPNOTSUPP);
    Ok(())
}

fn nvme_on_other_files(cx: &mut Cx) -> Outcome {
    let ops = [
        NVME_URING_CMD_IO,
        NVME_URING_CMD_IO_VEC,
        NVME_URING_CMD_ADMIN,
        NVME_URING_CMD_ADMIN_VEC,
    ];
    let (_one, two) = pair()?;
    let (file, (r, _w)) = (cx.file("f", b"")?, cx.pipe()?);
    let (null, zero) = (std::fs::File::open("/dev/null")?, std::fs::File::open("/dev/zero")?);
    let big = IORING_SETUP_SQE128;
    for flags in [0, big | IORING_SETUP_CQE32, big | IORING_SETUP_CQE_MIXED] {
        let mut ring = cx.ring(8, flags)?;
        for op in ops {
            cx.each(&mut ring, &[
                ("a file", command(file.as_raw_fd(), op), -EOPNOTSUPP),
                ("a pipe", command(r.as_raw_fd(), op), -EOPNOTSUPP),
                ("a socket", command(two.as_raw_fd(), op), -EOPNOTSUPP),
                ("/dev/zero", command(zero.as_raw_fd(), op), -EOPNOTSUPP),
                ("in a worker", command(zero.as_raw_fd(), op).with(IOSQE_ASYNC), -EOPNOTSUPP),
            ]);
            let got = cx.one(&mut ring, "/dev/null", command(null.as_raw_fd(), op), 0);
            cx.note("big", format_args!("{:?}", got.big));
        }
    }
    Ok(())
}
