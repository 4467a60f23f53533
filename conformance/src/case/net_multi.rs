//! Receives into provided buffers, and multishot receives.

use super::net::{arrived, pair, recv, seen};
use super::net_msg::{hdr, part, take};
use super::pbuf::{GROUP, provide, refill, reg, register};
use super::prelude::*;
use libc::{ENOBUFS, MSG_DONTWAIT, MSG_WAITALL};
use softring_uapi::{iovec, msghdr};
use std::io::Write;
use std::net::UdpSocket;
use std::os::unix::net::{UnixDatagram, UnixStream};

pub const CASES: &[Case] = &[
    any_order!("net_multi", select_list, [Op(IORING_OP_RECV), Sqe(IOSQE_BUFFER_SELECT)], "a receive picks a buffer of a list when data come"),
    any_order!("net_multi", select_ring, [Op(IORING_OP_RECV), Sqe(IOSQE_BUFFER_SELECT)], "a receive picks a buffer of a ring when data come"),
    any_order!("net_multi", select_message, [Op(IORING_OP_RECVMSG), Sqe(IOSQE_BUFFER_SELECT)], "the vector of a message limits the bytes of the buffer"),
    case!("net_multi", refusals, [Op(IORING_OP_RECV), Op(IORING_OP_RECVMSG)], "no buffers, MSG_WAITALL, and an unneeded limit"),
    any_order!("net_multi", stream, [Op(IORING_OP_RECV)], "one multishot request receives until the stream ends"),
    any_order!("net_multi", no_buffers, [Op(IORING_OP_RECV)], "a multishot request ends without buffers, but only when data come"),
    any_order!("net_multi", datagrams, [Op(IORING_OP_RECV)], "a multishot request receives datagrams until an empty one"),
    any_order!("net_multi", length_limits, [Op(IORING_OP_RECV)], "limits for each receive, and for all together"),
    legal!("net_multi", cancel_dontwait_worker, [Op(IORING_OP_RECV)], "a multishot request is cancelled, does not wait, and runs in a worker"),
    any_order!("net_multi", retry_limit, [Op(IORING_OP_RECV)], "more data than one turn receives"),
    any_order!("net_multi", cq_overflow, [Op(IORING_OP_RECV)], "a multishot request ends when the CQ overflows"),
    any_order!("net_multi", message, [Op(IORING_OP_RECVMSG)], "the buffer holds header, name and payload"),
    any_order!("net_multi", message_control, [Op(IORING_OP_RECVMSG)], "the buffer holds control data"),
    any_order!("net_multi", message_sizes, [Op(IORING_OP_RECVMSG)], "only the sizes of the message header count, not its pointers"),
    any_order!("net_multi", message_vector, [Op(IORING_OP_RECVMSG)], "the vector's length limits only the first receive"),
    legal!("net_multi", message_refusals, [Op(IORING_OP_RECVMSG)], "buffers that are too small, sizes that are too large"),
];

fn select(fd: i32, len: usize) -> io_uring_sqe {
    let s = sqe::rw(IORING_OP_RECV, fd, 0, len, 0).with(IOSQE_BUFFER_SELECT);
    s.set(|s| s.buf_index = GROUP)
}

fn multi(fd: i32) -> io_uring_sqe {
    select(fd, 0).set(|s| s.ioprio = IORING_RECV_MULTISHOT)
}

fn data(buf: &[u8]) -> String {
    seen(buf)
}

fn select_from(cx: &mut Cx, ring: &mut Ring, fill: &dyn Fn(&mut Cx, &mut Ring)) -> Outcome {
    let (mut one, two) = pair()?;
    let fd = two.as_raw_fd();
    cx.note("no group", "");
    cx.one(ring, "no group", select(fd, 0).set(|s| s.buf_index = 99), -ENOBUFS);
    fill(cx, ring);
    one.write_all(b"0123456789abcdefghij")?;
    arrived(fd, 20);
    cx.one(ring, "as much as fits", select(fd, 0), 8);
    cx.one(ring, "as much as asked for", select(fd, 4), 4);
    cx.one(ring, "no more than there is", select(fd, 100), 8);
    cx.start(ring, &[select(fd, 0).ud(1)]);
    cx.quiet(ring, "waits", 20);
    one.write_all(b"x")?;
    cx.reap(ring, "came", &[(1, 1)]);
    cx.one(ring, "none left", select(fd, 0), -ENOBUFS);
    cx.one(ring, "and none taken", select(fd, 0).op_flags(MSG_DONTWAIT as u32), -ENOBUFS);
    fill(cx, ring);
    cx.one(ring, "not there", select(fd, 0).op_flags(MSG_DONTWAIT as u32), -EAGAIN);
    let all = select(fd, 8).op_flags(MSG_WAITALL as u32);
    cx.start(ring, &[all.ud(1)]);
    one.write_all(b"half")?;
    cx.quiet(ring, "waits for more", 20);
    one.write_all(b"full")?;
    cx.reap(ring, "all of it", &[(1, 8)]);
    drop(one);
    cx.one(ring, "the end takes none", select(fd, 0), 0);
    Ok(())
}

fn select_list(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut mem = [b'-'; 32];
    let at = provide(&mut mem, 8, 40);
    let fill = |cx: &mut Cx, ring: &mut Ring| {
        cx.one(ring, "provide", at, 0);
    };
    select_from(cx, &mut ring, &fill)?;
    cx.eq("data", data(&mem), "halffull89ab----cdefghijx-------".to_owned());
    Ok(())
}

fn select_ring(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    cx.is("register", register(&ring, &reg(page, 4, 0)), 0isize);
    let mem = std::cell::RefCell::new([b'-'; 32]);
    let tail = std::cell::Cell::new(0);
    let fill = |_: &mut Cx, _: &mut Ring| {
        refill(page, tail.get(), 4, &mut *mem.borrow_mut());
        tail.set(tail.get() + 4);
    };
    select_from(cx, &mut ring, &fill)?;
    cx.eq("data", data(&*mem.borrow()), "halffull89ab----cdefghijx-------".to_owned());
    Ok(())
}

fn select_message(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (mut one, two) = UnixStream::pair()?;
    let mut mem = [b'-'; 32];
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 40), 0);
    one.write_all(b"0123456789abcdef")?;
    let size = |len| iovec { base: BAD as u64, len };
    let (small, two_parts) = ([size(3)], [size(3), size(3)]);
    for (what, parts, want) in [
        ("no vector", &two_parts[..0], 8),
        ("one part", &small[..], 3),
        ("two", &two_parts[..], -EINVAL),
    ] {
        let mut h = hdr(parts);
        let s = take(two.as_raw_fd(), &mut h).with(IOSQE_BUFFER_SELECT);
        cx.one(&mut ring, what, s.set(|s| s.buf_index = GROUP), want);
        cx.note("flags", std::hint::black_box(&h).flags);
    }
    cx.eq("data", data(&mem[..16]), "0123456789a-----".to_owned());
    Ok(())
}

fn refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (_one, two) = UnixStream::pair()?;
    let mut buf = [0u8; 8];
    let fd = two.as_raw_fd();
    let parts = [part(&buf)];
    let mut h = hdr(&parts);
    let msg = take(fd, &mut h);
    let many = |s: io_uring_sqe| s.set(|s| s.ioprio = IORING_RECV_MULTISHOT);
    let select = |s: io_uring_sqe| s.with(IOSQE_BUFFER_SELECT);
    let all = MSG_WAITALL as u32;
    let limit = |s: io_uring_sqe| s.set(|s| s.file_index = 5);
    cx.each(&mut ring, &[
        ("no buffers", many(recv(fd, &mut buf)), -EINVAL),
        ("all", multi(fd).op_flags(all), -EINVAL),
        ("a limit for one", limit(recv(fd, &mut buf)), -EINVAL),
        ("messages, no buffers", many(msg), -EINVAL),
        ("messages, all", many(select(msg)).op_flags(all), -EINVAL),
        ("messages, a limit", limit(many(select(msg))), -EINVAL),
        ("no group, so waits not", multi(fd), -ENOBUFS),
    ]);
    Ok(())
}

fn stream(cx: &mut Cx) -> Outcome {
    for flags in [0, DEFER] {
        let mut ring = cx.ring(8, flags)?;
        let (mut one, two) = pair()?;
        let mut mem = [b'-'; 80];
        cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
        cx.start(&mut ring, &[multi(two.as_raw_fd()).ud(1)]);
        cx.quiet(&ring, "waits", 20);
        for text in ["abc", "defgh"] {
            one.write_all(text.as_bytes())?;
            cx.reap_in_order(&mut ring, "came", &[(1, text.len() as i32)]);
        }
        one.write_all(b"0123456789")?;
        cx.reap_in_order(&mut ring, "two buffers", &[(1, 8), (1, 2)]);
        drop(one);
        cx.reap_in_order(&mut ring, "the end", &[(1, 0)]);
        cx.eq("data", data(&mem[..32]), "abc-----defgh---0123456789------".to_owned());
        let (mut one, two) = UnixStream::pair()?;
        one.write_all(b"0123456789")?;
        cx.start(&mut ring, &[multi(two.as_raw_fd()).link().ud(2), sqe::nop().ud(3)]);
        cx.reap_in_order(&mut ring, "at once", &[(2, 8), (2, 2)]);
        drop(one);
        cx.reap_in_order(&mut ring, "then the chain", &[(2, 0), (3, 0)]);
    }
    Ok(())
}

fn no_buffers(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (mut one, two) = pair()?;
    let mut mem = [b'-'; 16];
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
    cx.start(&mut ring, &[multi(two.as_raw_fd()).link().ud(1), sqe::nop().ud(2)]);
    one.write_all(b"abc")?;
    cx.reap_in_order(&mut ring, "one", &[(1, 3)]);
    one.write_all(b"def")?;
    cx.reap_in_order(&mut ring, "two", &[(1, 3)]);
    cx.quiet(&ring, "waits without", 20);
    one.write_all(b"ghi")?;
    cx.reap_in_order(&mut ring, "needs one", &[(1, -ENOBUFS), (2, -ECANCELED)]);
    Ok(())
}

fn datagrams(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = UnixDatagram::pair()?;
    let mut mem = [b'-'; 80];
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
    one.send(b"first")?;
    one.send(b"the second")?;
    cx.start(&mut ring, &[multi(two.as_raw_fd()).ud(1)]);
    cx.reap_in_order(&mut ring, "there", &[(1, 5), (1, 8)]);
    one.send(b"third")?;
    cx.reap_in_order(&mut ring, "later", &[(1, 5)]);
    one.send(b"")?;
    cx.reap_in_order(&mut ring, "an empty one", &[(1, 0)]);
    Ok(())
}

fn length_limits(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (mut one, two) = UnixStream::pair()?;
    let mut mem = [b'-'; 80];
    let fd = two.as_raw_fd();
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
    one.write_all(b"0123456789")?;
    let each = multi(fd).set(|s| s.len = 4).ud(1);
    cx.start(&mut ring, &[each]);
    cx.reap_in_order(&mut ring, "four each", &[(1, 4), (1, 4), (1, 2)]);
    cx.batch(&mut ring, "cancel", &[sqe::cancel(1, 0).ud(2)], &[(1, -ECANCELED), (2, 0)]);
    one.write_all(b"0123456789abcdef")?;
    let limit = multi(fd).set(|s| (s.len, s.file_index) = (4, 10)).link().ud(1);
    cx.start(&mut ring, &[limit, sqe::nop().ud(2)]);
    cx.reap_in_order(&mut ring, "until ten", &[(1, 4), (1, 4), (1, 4), (2, 0)]);
    let endless = multi(fd).set(|s| s.file_index = 1 << 31);
    cx.one(&mut ring, "any byte uses up 2 GiB", endless, 4);
    one.write_all(b"x")?;
    let more = IORING_RECV_MULTISHOT | IORING_RECVSEND_BUNDLE;
    cx.one(&mut ring, "in a bundle, too", endless.set(|s| s.ioprio = more), 1);
    Ok(())
}

fn cancel_dontwait_worker(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (mut one, two) = pair()?;
    let mut mem = [b'-'; 80];
    let fd = two.as_raw_fd();
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
    one.write_all(b"abc")?;
    arrived(fd, 3);
    let not = multi(fd).op_flags(MSG_DONTWAIT as u32).ud(1);
    cx.start(&mut ring, &[not]);
    cx.reap_in_order(&mut ring, "not waiting", &[(1, 3), (1, -EAGAIN)]);
    cx.start(&mut ring, &[multi(fd).with(IOSQE_ASYNC).ud(1)]);
    one.write_all(b"def")?;
    cx.reap_in_order(&mut ring, "by a worker", &[(1, 3)]);
    cx.batch(&mut ring, "cancel", &[sqe::cancel(1, 0).ud(2)], &[(1, -ECANCELED), (2, 0)]);
    let skip = multi(fd).with(IOSQE_CQE_SKIP_SUCCESS).ud(1);
    cx.start(&mut ring, &[skip]);
    one.write_all(b"ghi")?;
    cx.reap_in_order(&mut ring, "unseen only at the end", &[(1, 3)]);
    drop(one);
    cx.quiet(&ring, "unseen", 20);
    Ok(())
}

fn retry_limit(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(256, 0)?;
    let (mut one, two) = UnixStream::pair()?;
    let mut mem = vec![b'-'; 8 * 200];
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
    let text: Vec<u8> = (0..8 * 150u32).map(|i| i as u8).collect();
    one.write_all(&text)?;
    cx.start(&mut ring, &[multi(two.as_raw_fd()).ud(1)]);
    let got = ring.take(150)?;
    cx.holds("all of eight bytes", got.iter().all(|c| c.res == 8));
    cx.holds("data", std::hint::black_box(&mem)[..8 * 150] == text);
    for _ in 0..3 {
        for _ in 0..60 {
            cx.one(&mut ring, "more buffers", provide(&mut mem[..8], 8, 0), 0);
            one.write_all(b"x")?;
            let got = ring.take(1)?;
            cx.eq("one by one", (got[0].res, got[0].flags & 2), (1, 2));
        }
    }
    Ok(())
}

fn cq_overflow(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(2, 0)?;
    let (mut one, two) = UnixStream::pair()?;
    let mut mem = [b'-'; 80];
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
    one.write_all(&[b'x'; 64])?;
    cx.start(&mut ring, &[multi(two.as_raw_fd()).ud(1)]);
    cx.reap_in_order(&mut ring, "as many as fit", &[(1, 8), (1, 8), (1, 8), (1, 8)]);
    let got = ring.take(1)?;
    cx.completions("and the last", &got, &[(1, 8)]);
    Ok(())
}

/// Returns the words before the name: `struct io_uring_recvmsg_out`.
fn out(buf: &[u8]) -> Vec<u32> {
    let word = |b: &[u8]| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]);
    std::hint::black_box(buf)[..16].chunks(4).map(word).collect()
}

fn multi_msg(fd: i32, h: &mut msghdr) -> io_uring_sqe {
    take(fd, h)
        .with(IOSQE_BUFFER_SELECT)
        .set(|s| (s.buf_index, s.ioprio) = (GROUP, IORING_RECV_MULTISHOT))
}

fn message(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    one.connect(two.local_addr()?)?;
    let mut mem = [b'-'; 64 * 6];
    cx.one(&mut ring, "provide", provide(&mut mem, 64, 0), 0);
    let mut h = msghdr { namelen: 20, name: 8, ..msghdr::default() };
    cx.start(&mut ring, &[multi_msg(two.as_raw_fd(), &mut h).ud(1)]);
    one.send(b"hello")?;
    cx.reap_in_order(&mut ring, "one", &[(1, 16 + 20 + 5)]);
    cx.eq("header", out(&mem), vec![16, 0, 5, 0]);
    let port = u16::from_be_bytes([mem[18], mem[19]]);
    cx.holds("its port", std::hint::black_box(port) == one.local_addr()?.port());
    cx.eq("payload", data(&mem[36..42]), "hello-".to_owned());
    one.send(&[b'y'; 60])?;
    cx.reap_in_order(&mut ring, "too long", &[(1, 64)]);
    cx.eq("header", out(&mem[64..]), vec![16, 0, 28, 0x20]);
    one.send(b"")?;
    cx.reap_in_order(&mut ring, "empty", &[(1, 36)]);
    cx.eq("header", out(&mem[128..]), vec![16, 0, 0, 0]);
    let mut h = msghdr::default();
    cx.start(&mut ring, &[multi_msg(two.as_raw_fd(), &mut h).ud(2)]);
    one.send(b"no name")?;
    cx.reap_in_order(&mut ring, "no name", &[(2, 16 + 7)]);
    cx.eq("header", out(&mem[192..]), vec![0, 0, 7, 0]);
    let get = multi_msg(two.as_raw_fd(), &mut h).op_flags(libc::MSG_TRUNC as u32).ud(3);
    cx.batch(&mut ring, "cancel", &[sqe::cancel(2, 0).ud(9)], &[(2, -ECANCELED), (9, 0)]);
    cx.start(&mut ring, &[get]);
    one.send(&[b'z'; 60])?;
    cx.reap_in_order(&mut ring, "with its length", &[(3, 64)]);
    cx.eq("header", out(&mem[256..]), vec![0, 0, 60, 0x20]);
    Ok(())
}

fn message_vector(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = UnixDatagram::pair()?;
    let mut mem = [b'-'; 64 * 3];
    cx.one(&mut ring, "provide", provide(&mut mem, 64, 0), 0);
    let parts = [iovec { base: 0, len: 24 }];
    let mut h = hdr(&parts);
    cx.start(&mut ring, &[multi_msg(two.as_raw_fd(), &mut h).ud(1)]);
    for res in [24, 64, 16 + 40] {
        one.send(&[b'y'; 60][..if res == 56 { 40 } else { 60 }])?;
        cx.reap_in_order(&mut ring, "a message", &[(1, res)]);
    }
    Ok(())
}

fn message_control(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = UnixStream::pair()?;
    let (r, _w) = cx.pipe()?;
    let control = [20u32, 0, 1, 1, r.as_raw_fd().cast_unsigned(), 0];
    let parts = [part(b"x")];
    let sent = msghdr { control: addr(&control) as u64, controllen: 24, ..hdr(&parts) };
    let mut mem = [b'-'; 64 * 3];
    cx.one(&mut ring, "provide", provide(&mut mem, 64, 0), 0);
    let mut h = msghdr { controllen: 24, ..msghdr::default() };
    let get = multi_msg(two.as_raw_fd(), &mut h);
    cx.start(&mut ring, &[get.op_flags(libc::MSG_CMSG_CLOEXEC as u32).ud(1)]);
    let give = super::net_msg::give(one.as_raw_fd(), &sent).ud(2);
    cx.batch(&mut ring, "send", &[give], &[(1, 16 + 24 + 1), (2, 1)]);
    let words = out(&mem);
    cx.note("header", format_args!("{words:?}"));
    let fd = u32::from_ne_bytes([mem[32], mem[33], mem[34], mem[35]]);
    drop(cx.fd("the descriptor", std::hint::black_box(fd).cast_signed())?);
    (&one).write_all(b"plain")?;
    cx.reap_in_order(&mut ring, "without", &[(1, 16 + 24 + 5)]);
    cx.note("header", format_args!("{:?}", out(&mem[64..])));
    cx.eq("payload", data(&mem[64 + 40..][..6]), "plain-".to_owned());
    Ok(())
}

fn message_sizes(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    one.connect(two.local_addr()?)?;
    rustix::net::sockopt::set_ip_recvtos(&two, true)?;
    let mut mem = [b'-'; 128 * 4];
    cx.one(&mut ring, "provide", provide(&mut mem, 128, 0), 0);
    for (name, control, namelen, controllen) in
        [(0, 0, 28, 24), (BAD as u64, BAD as u64, 28, 24), (0, 0, 8, 0)]
    {
        let mut h = msghdr { name, namelen, control, controllen, ..msghdr::default() };
        let get = multi_msg(two.as_raw_fd(), &mut h).op_flags(libc::MSG_TRUNC as u32).ud(1);
        cx.start(&mut ring, &[get]);
        one.send(b"hello")?;
        let size = 16 + namelen as i32 + controllen as i32 + 5;
        let got = cx.reap_in_order(&mut ring, "one", &[(1, size)]);
        let at = got.first().map_or(0, |c| 128 * (c.flags >> 16) as usize);
        cx.note("header", format_args!("{:?}", out(&mem[at..])));
        let payload = at + size as usize - 5;
        cx.eq("payload", data(&mem[payload..][..6]), "hello-".to_owned());
        cx.batch(&mut ring, "cancel", &[sqe::cancel(1, 0).ud(2)], &[(1, -ECANCELED), (2, 0)]);
    }
    let mut h = msghdr { namelen: u32::MAX, ..msghdr::default() };
    cx.one(&mut ring, "a negative size", multi_msg(two.as_raw_fd(), &mut h), -EOVERFLOW);
    Ok(())
}

fn message_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = UnixStream::pair()?;
    let mut mem = [b'-'; 32];
    let fd = two.as_raw_fd();
    cx.one(&mut ring, "provide", provide(&mut mem, 16, 0), 0);
    (&one).write_all(b"data")?;
    let big = [0u8; 4];
    let large = msghdr { controllen: 1 << 31, ..msghdr::default() };
    let long = msghdr { name: addr(&big) as u64, namelen: 0x7fff_ffff, ..msghdr::default() };
    for (what, mut h, want) in [
        ("a name that does not fit", msghdr { namelen: 1, name: 8, ..msghdr::default() }, -EFAULT),
        ("huge control data", large, -EOVERFLOW),
        ("a huge name", long, -EOVERFLOW),
        ("no room for payload", msghdr::default(), 16),
    ] {
        let got = multi_msg(fd, &mut h);
        cx.one(&mut ring, what, got, want);
    }
    Ok(())
}
