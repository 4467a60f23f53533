//! Answers of sockets that random programs have found: each was once different on softring.

use super::net::{arrived, pair, recv, seen, send};
use super::net_msg::{hdr, part, take};
use super::pbuf::{GROUP, refill, reg, register};
use super::prelude::*;
use libc::{MSG_DONTWAIT, MSG_ERRQUEUE, MSG_OOB, MSG_WAITALL};
use softring_uapi::msghdr;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};

pub const CASES: &[Case] = &[
    any_order!("fuzz_found_net", accept_bad_address, [Op(IORING_OP_ACCEPT)], "an ACCEPT with a bad address pointer says whether more connections wait"),
    any_order!("fuzz_found_net", recvmsg_bad_header, [Op(IORING_OP_RECVMSG)], "a RECVMSG with a bad header says whether more bytes wait"),
    any_order!("fuzz_found_net", name_checked_late, [Op(IORING_OP_RECVMSG)], "the memory for a name is checked when the message has come"),
    any_order!("fuzz_found_net", receive_fault_after_part, [Op(IORING_OP_RECV)], "a receive that fails after a part does not say whether there is more"),
    legal!("fuzz_found_net", bundle_reaches_limit, [Op(IORING_OP_RECV)], "a bundle that reaches its limit takes the bytes at once"),
    any_order!("fuzz_found_net", bundle_in_partial_buffer, [Op(IORING_OP_RECV)], "a bundle continues in a partly used buffer"),
    any_order!("fuzz_found_net", bundle_in_worker, [Op(IORING_OP_RECV), Sqe(IOSQE_ASYNC)], "a worker receives a bundle in two steps of one buffer each"),
    legal!("fuzz_found_net", bundle_socket_before_memory, [Op(IORING_OP_SEND)], "a bundle checks the socket before its memory"),
    legal!("fuzz_found_net", send_bundle_in_worker, [Op(IORING_OP_SEND), Sqe(IOSQE_ASYNC)], "a send bundle in a worker only waits for room, and is then cancelled"),
    legal!("fuzz_found_net", connect_in_worker, [Op(IORING_OP_CONNECT)], "a worker does not wait for the connect of a non-blocking socket"),
    case!("fuzz_found_net", chain_cq_full, [Sqe(IOSQE_IO_HARDLINK)], "a chain goes on in task work if its worker finds the CQ full"),
    any_order!("fuzz_found_net", urgent_wakes_sender, [Op(IORING_OP_SEND)], "urgent data wake a send with POLL_FIRST"),
    legal!("fuzz_found_net", no_socket_in_worker, [Op(IORING_OP_RECVMSG)], "a worker polls for a multishot receive before it checks for a socket"),
    legal!("fuzz_found_net", multishot_read_in_worker, [Op(IORING_OP_READ_MULTISHOT)], "a worker only arms a multishot read if the file supports non-blocking attempts"),
    any_order!("fuzz_found_net", no_group_in_worker, [Op(IORING_OP_RECV)], "a worker treats a missing buffer group as an empty group"),
    any_order!("fuzz_found_net", bundle_of_error_queue, [Op(IORING_OP_RECV)], "a bundle that goes to a worker uses one buffer"),
    any_order!("fuzz_found_net", poll_first_dontwait, [Op(IORING_OP_SEND_ZC)], "POLL_FIRST with MSG_DONTWAIT fails before the buffer is checked"),
    any_order!("fuzz_found_net", recvmsg_wait_all_in_worker, [Op(IORING_OP_RECVMSG)], "a RECVMSG with MSG_WAITALL in a worker writes its header when all data have come"),
    legal!("fuzz_found_net", multishot_wake_without_data, [Op(IORING_OP_READ_MULTISHOT), Op(IORING_OP_RECV)], "a multishot request goes on after a wake-up without data"),
];

fn page() -> usize {
    os::page(libc::PROT_READ | libc::PROT_WRITE)
}

/// Registers a group of incremental buffers of these lengths, one behind the other in `mem`.
fn incremental(cx: &mut Cx, ring: &Ring, mem: &[u8], lengths: &[u32]) -> usize {
    buffers(cx, ring, mem, IOU_PBUF_RING_INC, lengths)
}

fn buffers(cx: &mut Cx, ring: &Ring, mem: &[u8], flags: u16, lengths: &[u32]) -> usize {
    let at = page();
    cx.is("register", register(ring, &reg(at, 8, flags)), 0isize);
    let mut buf = addr(mem) as u64;
    for (i, len) in lengths.iter().enumerate() {
        os::store(at + 16 * i, &[buf]);
        os::store(at + 16 * i + 8, &[*len]);
        os::store(at + 16 * i + 12, &[i as u16]);
        buf += u64::from(*len);
    }
    os::store(at + 14, &[lengths.len() as u16]);
    at
}

/// Records length and offset of the group's first buffers.
fn left(cx: &mut Cx, at: usize, mem: &[u8]) {
    for i in 0..4 {
        let (low, len) = (os::load(at + 16 * i), os::load(at + 16 * i + 8));
        let from = low.wrapping_sub(addr(mem) as u32);
        cx.note("left", format_args!("{len} at {from}"));
    }
}

fn bundle(opcode: u8, fd: i32, len: usize, ioprio: u16) -> io_uring_sqe {
    let s = sqe::rw(opcode, fd, 0, len, 0).with(IOSQE_BUFFER_SELECT);
    s.set(|s| (s.buf_index, s.ioprio) = (GROUP, IORING_RECVSEND_BUNDLE | ioprio))
}

/// Creates a pair whose first socket has no room left to send.
fn full() -> Result<(UnixStream, UnixStream), Stop> {
    let (mut one, two) = UnixStream::pair()?;
    one.set_nonblocking(true)?;
    while one.write(&[b'f'; 4096]).is_ok() {}
    one.set_nonblocking(false)?;
    Ok((one, two))
}

fn accept_bad_address(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let at = listener.local_addr()?;
    let _peers = [TcpStream::connect(at)?, TcpStream::connect(at)?, TcpStream::connect(at)?];
    let accept = sqe::op(IORING_OP_ACCEPT, listener.as_raw_fd());
    let (mut name, negative) = ([0u8; 16], [-1i32]);
    let bad = accept.set(|s| (s.addr, s.off) = (addr_mut(&mut name) as u64, BAD as u64));
    let less = bad.set(|s| s.off = addr(&negative) as u64);
    cx.one(&mut ring, "two more wait", bad, -EFAULT);
    cx.one(&mut ring, "one more waits", less, -EINVAL);
    cx.one(&mut ring, "none", bad.with(IOSQE_ASYNC), -EFAULT);
    Ok(())
}

fn recvmsg_bad_header(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (mut one, two) = pair()?;
    one.write_all(b"0123456789")?;
    arrived(two.as_raw_fd(), 10);
    let buf = [b'-'; 4];
    let into = [part(&buf)];
    let mut h = msghdr { name: BAD as u64, namelen: 16, ..hdr(&into) };
    cx.one(&mut ring, "a name of no bytes", take(two.as_raw_fd(), &mut h), 4);
    let (one, two) = UnixStream::pair()?;
    (&one).write_all(b"0123456789")?;
    let mut h = hdr(&into);
    let words = [h.name, u64::from(h.namelen), h.iov, h.iovlen, 0, 0, 0];
    let file = cx.file("header", &words.map(u64::to_ne_bytes).concat())?;
    let at = os::mmap_fd(file.as_raw_fd(), 4096, libc::PROT_READ, libc::MAP_PRIVATE, 0);
    let header = sqe::rw(IORING_OP_RECVMSG, two.as_raw_fd(), at.cast_unsigned(), 1, 0);
    cx.one(&mut ring, "more is there", header, -EFAULT);
    cx.one(&mut ring, "the rest", take(two.as_raw_fd(), &mut h), 4);
    cx.one(&mut ring, "no more", header, -EFAULT);
    Ok(())
}

fn name_checked_late(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    let buf = [b'-'; 4];
    let (into, mut name) = ([part(&buf)], [b'-'; 16]);
    let at = page();
    let named = addr_mut(&mut name) as u64;
    os::store(at, &[named, 16, addr(&into) as u64, 1, 0, 0, 0]);
    let receive = sqe::rw(IORING_OP_RECVMSG, two.as_raw_fd(), at, 1, 0).ud(1);
    for room in [2u32, u32::MAX] {
        os::store(at + 8, &[16u32]);
        cx.start(&mut ring, &[receive]);
        cx.quiet(&ring, "waits", 5);
        os::store(at + 8, &[room]);
        one.send_to(b"data", two.local_addr()?)?;
        let cqes = ring.take(1)?;
        cx.note_answer("result", cqes[0].res);
        cx.note("length", os::load(at + 8));
        cx.eq("written", seen(&name[2..]), "-".repeat(14));
    }
    Ok(())
}

fn receive_fault_after_part(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (mut one, two) = UnixStream::pair()?;
    one.write_all(&[b'x'; 100])?;
    let at = os::border() - 100;
    let all = sqe::rw(IORING_OP_RECV, two.as_raw_fd(), at, 200, 0).op_flags(MSG_WAITALL as u32);
    cx.start(&mut ring, &[all.link().ud(1), sqe::nop().ud(2)]);
    cx.quiet(&ring, "waits for the rest", 5);
    one.write_all(&[b'x'; 10])?;
    cx.reap(&mut ring, "memory ends", &[(1, 100), (2, -ECANCELED)]);
    cx.one(&mut ring, "the rest", recv(two.as_raw_fd(), &mut [0; 20]), 10);
    Ok(())
}

fn bundle_reaches_limit(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mem = [0u8; 1024];
    let at = incremental(cx, &ring, &mem, &[10, 20, 30, 40]);
    let (one, two) = UnixDatagram::pair()?;
    one.send(&[b'x'; 90])?;
    let many = bundle(IORING_OP_RECV, two.as_raw_fd(), 0, IORING_RECV_MULTISHOT);
    cx.start(&mut ring, &[many.set(|s| s.file_index = 50).ud(1)]);
    cx.reap(&mut ring, "as much as it is to bring", &[(1, 50)]);
    left(cx, at, &mem);
    let (mut one, two) = UnixStream::pair()?;
    one.write_all(&[b'x'; 50])?;
    let many = many.set(|s| (s.fd, s.file_index) = (two.as_raw_fd(), 5));
    cx.start(&mut ring, &[many.ud(1)]);
    cx.reap(&mut ring, "of a stream", &[(1, 5)]);
    left(cx, at, &mem);
    Ok(())
}

fn bundle_in_partial_buffer(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mem = [0u8; 1024];
    let at = incremental(cx, &ring, &mem, &[10, 20, 30, 40]);
    let (mut one, two) = UnixStream::pair()?;
    one.write_all(&[b'x'; 45])?;
    cx.one(&mut ring, "one byte first", bundle(IORING_OP_RECV, two.as_raw_fd(), 1, 0), 45);
    left(cx, at, &mem);
    one.write_all(&[b'x'; 100])?;
    cx.one(&mut ring, "to the last", bundle(IORING_OP_RECV, two.as_raw_fd(), 1, 0), 55);
    left(cx, at, &mem);
    Ok(())
}

fn bundle_in_worker(cx: &mut Cx) -> Outcome {
    let mem = [0u8; 1024];
    for flags in [0, IOU_PBUF_RING_INC] {
        for waits in [false, true] {
            for (bundle, len) in [(false, 0), (false, 5), (true, 0), (true, 5)] {
                cx.note("case", format_args!("{flags} {waits} {bundle} {len}"));
                let ring = cx.ring(8, 0)?;
                let at = buffers(cx, &ring, &mem, flags, &[10, 20, 30, 40]);
                receive_in_worker(cx, ring, waits, bundle, len)?;
                left(cx, at, &mem);
            }
        }
    }
    Ok(())
}

fn receive_in_worker(cx: &mut Cx, mut ring: Ring, waits: bool, many: bool, len: usize) -> Outcome {
    let (mut one, two) = UnixStream::pair()?;
    let recv = bundle(IORING_OP_RECV, two.as_raw_fd(), len, 0).with(IOSQE_ASYNC).ud(1);
    if !waits {
        one.write_all(&[b'x'; 35])?;
    }
    cx.start(&mut ring, &[recv.set(|s| s.ioprio *= u16::from(many))]);
    if waits {
        std::thread::sleep(std::time::Duration::from_millis(5));
        one.write_all(&[b'x'; 35])?;
    }
    let got = ring.take(1)?[0];
    cx.note("received", format_args!("{} {:#x}", got.res, got.flags));
    let mut status = io_uring_buf_status { buf_group: GROUP.into(), ..Default::default() };
    let at = addr_mut(std::slice::from_mut(&mut status));
    cx.is("status", ring.register(IORING_REGISTER_PBUF_STATUS, at, 1), 0);
    cx.note("head", std::hint::black_box(&status).head);
    Ok(())
}

pub(super) fn bundle_socket_before_memory(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (at, mut mem) = (page(), [0u8; 16]);
    cx.is("register", register(&ring, &reg(at, 8, 0)), 0isize);
    let (one, _two) = UnixDatagram::pair()?;
    one.shutdown(Shutdown::Write)?;
    refill(at, 0, 8, &mut mem);
    os::store(at, &[1u64 << 63]);
    let send = bundle(IORING_OP_SEND, one.as_raw_fd(), 0, 0);
    let outside = if cx.is_newest() { -EFAULT } else { -EPIPE };
    cx.one(&mut ring, "two buffers", send, outside);
    refill(at, 2, 8, &mut mem[..8]);
    os::store(at + 32, &[1u64 << 63]);
    cx.one(&mut ring, "one", send, -EFAULT);
    Ok(())
}

/// Sends a bundle of three buffers of 8 bytes, of which `outside` lies outside the program's
/// memory.
pub(super) fn bundle_with_one_outside(cx: &mut Cx, outside: usize) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (at, mut mem) = (page(), [b'm'; 32]);
    cx.is("register", register(&ring, &reg(at, 4, 0)), 0isize);
    let (one, two) = UnixStream::pair()?;
    for i in 0..3 {
        let place = if i == outside { 1 << 63 } else { (addr_mut(&mut mem) + 8 * i) as u64 };
        os::store(at + 16 * i, &[place]);
        os::store(at + 16 * i + 8, &[8, i as u32]);
    }
    os::store(at + 14, &[3u16]);
    ring.push(bundle(IORING_OP_SEND, one.as_raw_fd(), 0, 0));
    cx.is(&format!("with {outside} outside"), ring.submit_wait(1), 1);
    for cqe in ring.pop_all() {
        cx.note("CQE", format_args!("{} {:#x}", cqe.res, cqe.flags));
    }
    two.set_nonblocking(true)?;
    let mut got = [0; 64];
    cx.note("came", (&two).read(&mut got).unwrap_or(0));
    Ok(())
}

fn send_bundle_in_worker(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, mut two) = full()?;
    let buf = [b'x'; 4];
    let send = send(one.as_raw_fd(), &buf).set(|s| s.ioprio = IORING_RECVSEND_BUNDLE);
    cx.start(&mut ring, &[send.with(IOSQE_ASYNC).link().ud(1), sqe::nop().ud(2)]);
    cx.quiet(&ring, "waits", 10);
    two.set_nonblocking(true)?;
    while two.read(&mut [0u8; 4096]).is_ok() {}
    cx.reap(&mut ring, "gives up", &[(1, -ECANCELED), (2, -ECANCELED)]);
    Ok(())
}

fn connect_in_worker(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let at = os::loopback(listener.local_addr()?.port());
    let rows = [("does not block", libc::SOCK_NONBLOCK, -libc::EINPROGRESS), ("blocks", 0, 0)];
    for (what, flags, want) in rows {
        let make = sqe::op(IORING_OP_SOCKET, libc::AF_INET);
        let kind = (libc::SOCK_STREAM | flags) as u64;
        let sock = cx.one_fd(&mut ring, "socket", make.set(|s| s.off = kind))?;
        let connect = sqe::rw(IORING_OP_CONNECT, sock.as_raw_fd(), addr(&at), 0, 16);
        let first = sqe::nop().with(IOSQE_ASYNC).link().ud(1);
        cx.batch(&mut ring, what, &[first, connect.ud(2)], &[(1, 0), (2, want)]);
    }
    Ok(())
}

fn chain_cq_full(cx: &mut Cx) -> Outcome {
    let flags = IORING_SETUP_CQSIZE;
    let params = io_uring_params { flags, cq_entries: 2, ..Default::default() };
    let mut ring = cx.ring_with(2, params)?;
    let null = std::fs::File::open("/dev/null")?;
    let recv = sqe::op(IORING_OP_RECV, null.as_raw_fd()).with(IOSQE_BUFFER_SELECT);
    let recv = recv.set(|s| s.ioprio = IORING_RECV_MULTISHOT).ud(2);
    let first = sqe::nop().with(IOSQE_ASYNC | IOSQE_IO_HARDLINK).ud(1);
    cx.start(&mut ring, &[first, recv]);
    cx.reap(&mut ring, "room", &[(1, 0), (2, -EBADFD)]);
    cx.start(&mut ring, &[sqe::nop().ud(3), sqe::nop().ud(4)]);
    cx.start(&mut ring, &[first, recv]);
    // The worker must find no room, even if the processors are busy.
    std::thread::sleep(std::time::Duration::from_millis(100));
    cx.reap(&mut ring, "before", &[(3, 0), (4, 0)]);
    ring.enter(0, 0, IORING_ENTER_GETEVENTS);
    cx.reap(&mut ring, "no room", &[(1, 0), (2, -libc::ENOTSOCK)]);
    Ok(())
}

fn urgent_wakes_sender(cx: &mut Cx) -> Outcome {
    super::net_msg::knows_urgent()?;
    let mut ring = cx.ring(8, 0)?;
    let (one, mut two) = full()?;
    let buf = [b'x'; 100];
    cx.one(&mut ring, "urgent", send(two.as_raw_fd(), &buf).op_flags(MSG_OOB as u32), 100);
    two.read_exact(&mut [0u8; 8192])?;
    let first = send(one.as_raw_fd(), &buf).set(|s| s.ioprio = IORING_RECVSEND_POLL_FIRST);
    cx.one(&mut ring, "sent", first, 100);
    Ok(())
}

fn no_socket_in_worker(cx: &mut Cx) -> Outcome {
    use rustix::event::{EventfdFlags, eventfd};
    let mut ring = cx.ring(8, 0)?;
    let ev = eventfd(0, EventfdFlags::empty())?;
    let mut h = hdr(&[]);
    let many = take(ev.as_raw_fd(), &mut h).with(IOSQE_BUFFER_SELECT | IOSQE_ASYNC).ud(1);
    let both = IORING_RECVSEND_POLL_FIRST | IORING_RECV_MULTISHOT;
    for ioprio in [IORING_RECV_MULTISHOT, both] {
        cx.start(&mut ring, &[many.set(|s| s.ioprio = ioprio)]);
        cx.quiet(&ring, "waits", 10);
        cx.batch(&mut ring, "cancelled", &[sqe::cancel(1, 0).ud(2)], &[(1, -ECANCELED), (2, 0)]);
    }
    Ok(())
}

fn multishot_read_in_worker(cx: &mut Cx) -> Outcome {
    use rustix::event::epoll::{CreateFlags, create};
    let mut ring = cx.ring(8, 0)?;
    let (_one, two) = UnixStream::pair()?;
    let null = std::fs::File::open("/dev/null")?;
    let read = |fd: i32| sqe::op(IORING_OP_READ_MULTISHOT, fd).with(IOSQE_BUFFER_SELECT).ud(2);
    let poll = sqe::poll_add(null.as_raw_fd(), libc::POLLIN).ud(1);
    // A worker runs a chain that goes on when the whole batch is submitted.
    let chain = [poll.link(), read(two.as_raw_fd()).link()];
    cx.batch(&mut ring, "behind a poll that is over at once", &chain, &[(1, 1)]);
    cx.quiet(&ring, "waits", 10);
    cx.batch(&mut ring, "cancelled", &[sqe::cancel(2, 0).ud(3)], &[(2, -ECANCELED), (3, 0)]);
    let set = create(CreateFlags::CLOEXEC)?;
    let many = read(set.as_raw_fd()).with(IOSQE_ASYNC);
    cx.one(&mut ring, "an epoll set", many, -libc::ENOBUFS);
    Ok(())
}

fn no_group_in_worker(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (_one, two) = UnixStream::pair()?;
    let recv = bundle(IORING_OP_RECV, two.as_raw_fd(), 0, 0);
    cx.one(&mut ring, "here", recv, -ENOENT);
    cx.one(&mut ring, "in a worker", recv.with(IOSQE_ASYNC), -libc::ENOBUFS);
    Ok(())
}

fn bundle_of_error_queue(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mem = [0u8; 1024];
    let at = incremental(cx, &ring, &mem, &[10, 20, 30, 40]);
    let (one, two) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    one.send_to(b"data", two.local_addr()?)?;
    arrived(two.as_raw_fd(), 4);
    let errors = bundle(IORING_OP_RECV, two.as_raw_fd(), 1, 0);
    cx.one(&mut ring, "none", errors.op_flags(MSG_ERRQUEUE as u32), -EAGAIN);
    left(cx, at, &mem);
    Ok(())
}

fn poll_first_dontwait(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    one.connect(two.local_addr()?)?;
    let zc = sqe::rw(IORING_OP_SEND_ZC, one.as_raw_fd(), 0, 0, 0).ud(1);
    let fixed = zc.set(|s| s.ioprio = IORING_RECVSEND_FIXED_BUF);
    let first = fixed.set(|s| s.ioprio |= IORING_RECVSEND_POLL_FIRST);
    let now = first.op_flags(MSG_DONTWAIT as u32);
    for (what, sqe, want) in [
        ("no buffer", fixed, -EFAULT),
        ("polled first", first, -EFAULT),
        ("not to wait", now, -EAGAIN),
        ("not to wait, by a worker", now.with(IOSQE_ASYNC), -EAGAIN),
    ] {
        cx.start(&mut ring, &[sqe]);
        cx.reap_in_order(&mut ring, what, &[(1, want), (1, 0)]);
    }
    Ok(())
}

fn multishot_wake_without_data(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (at, mut mem) = (page(), [0u8; 64]);
    cx.is("register", register(&ring, &reg(at, 8, 0)), 0isize);
    refill(at, 0, 8, &mut mem);
    let (one, two) = UnixDatagram::pair()?;
    let many = sqe::op(IORING_OP_READ_MULTISHOT, two.as_raw_fd()).with(IOSQE_BUFFER_SELECT);
    cx.start(&mut ring, &[many.set(|s| (s.off, s.buf_index) = (u64::MAX, GROUP)).ud(1)]);
    one.send(b"first")?;
    cx.reap(&mut ring, "read", &[(1, 5)]);
    // The socket is readable from now on, but a read would still block.
    two.shutdown(Shutdown::Read)?;
    cx.quiet(&ring, "nothing to read", 30);
    cx.batch(&mut ring, "cancelled", &[sqe::cancel(1, 0).ud(2)], &[(1, -ECANCELED), (2, 0)]);
    let (one, two) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    let errors = bundle(IORING_OP_RECV, two.as_raw_fd(), 0, IORING_RECV_MULTISHOT);
    cx.start(&mut ring, &[errors.op_flags(MSG_ERRQUEUE as u32).ud(1)]);
    one.send_to(b"data", two.local_addr()?)?;
    cx.quiet(&ring, "data are no error", 30);
    cx.batch(&mut ring, "cancelled", &[sqe::cancel(1, 0).ud(2)], &[(1, -ECANCELED), (2, 0)]);
    Ok(())
}

fn recvmsg_wait_all_in_worker(cx: &mut Cx) -> Outcome {
    let (mut ring, mem) = (cx.ring(8, 0)?, [0; 50]);
    let (one, mut two) = UnixStream::pair()?;
    two.write_all(b"part")?;
    let parts = [part(&mem)];
    let mut h = msghdr { flags: 7, ..hdr(&parts) };
    let all = take(one.as_raw_fd(), &mut h).op_flags(MSG_WAITALL as u32);
    // A worker runs a chain that its batch leaves open.
    ring.push(all.link().ud(1)).submit();
    std::thread::sleep(std::time::Duration::from_millis(30));
    cx.note("told of a part", std::hint::black_box(&h).flags);
    two.write_all(&[b'x'; 46])?;
    cx.reap(&mut ring, "all", &[(1, 50)]);
    cx.note("told of all", std::hint::black_box(&h).flags);
    Ok(())
}
