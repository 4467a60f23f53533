//! Answers of waiting requests and of workers that random programs have found: each was once
//! different on softring.

use super::net::{pair, send};
use super::pbuf::{GROUP, provide, refill, reg, register};
use super::prelude::*;
use super::spurious_wakes::note_cqes;
use libc::{ECONNREFUSED, ECONNRESET, ENOTSOCK, MSG_WAITALL, SHUT_RD};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

pub const CASES: &[Case] = &[
    case!("fuzz_found_wait", poll_update_ready, [Op(IORING_OP_POLL_REMOVE)], "events that are ready at a poll update do not count as a wake-up"),
    any_order!("fuzz_found_wait", link_timeout_in_worker, [Op(IORING_OP_LINK_TIMEOUT)], "the linked timeout of a request that a worker arms starts with its first attempt"),
    case!("fuzz_found_wait", worker_chain_first, [Sqe(IOSQE_IO_LINK)], "a worker continues a chain before it takes other work"),
    any_order!("fuzz_found_wait", nop_without_file, [Op(IORING_OP_NOP)], "a NOP without a file still completes by task work"),
    any_order!("fuzz_found_wait", no_file_in_worker, [Sqe(IOSQE_IO_HARDLINK), Op(IORING_OP_EPOLL_WAIT)], "a request without a file is not issued by a worker"),
    legal!("fuzz_found_wait", tag_of_replaced_file, [Op(IORING_OP_MSG_RING)], "a message that replaces a registered file posts the tag at once"),
    any_order!("fuzz_found_wait", nowait_after_splice, [Op(IORING_OP_SPLICE), Op(IORING_OP_READ)], "a pipe can be read without waiting after a splice"),
    any_order!("fuzz_found_wait", full_write_in_worker, [Op(IORING_OP_WRITE), Sqe(IOSQE_IO_LINK)], "a worker that continues a chain writes all bytes to a blocking file"),
    case!("fuzz_found_wait", mask_without_wait, [Enter(IORING_ENTER_GETEVENTS)], "an enter that waits for nothing accepts any signal mask"),
    any_order!("fuzz_found_wait", multishot_accept_position, [Op(IORING_OP_ACCEPT)], "a multishot ACCEPT that goes on keeps its place in the wait queue"),
    any_order!("fuzz_found_wait", worker_waits_once, [Op(IORING_OP_ACCEPT), Op(IORING_OP_RECV)], "a worker waits once if the file does not support non-blocking attempts"),
    any_order!("fuzz_found_wait", send_after_peer_shutdown, [Op(IORING_OP_SEND)], "a waiting send goes to a worker when its peer sends no more"),
    legal!("fuzz_found_wait", bundle_after_peer_shutdown, [Op(IORING_OP_SEND)], "a waiting send bundle is cancelled when its peer sends no more"),
    any_order!("fuzz_found_wait", send_keeps_list_buffer, [Op(IORING_OP_SEND), Sqe(IOSQE_BUFFER_SELECT)], "a waiting send keeps its buffer of a list"),
    case!("fuzz_found_wait", cancelled_read_loses_buffer, [Op(IORING_OP_READ_MULTISHOT), Sqe(IOSQE_BUFFER_SELECT), Sqe(IOSQE_ASYNC)], "a cancelled read in a worker loses the buffer that it picked from a buffer ring"),
    any_order!("fuzz_found_wait", poll_remove_in_worker, [Op(IORING_OP_POLL_REMOVE)], "a POLL_REMOVE in a worker runs after the poll has reported ready events"),
    any_order!("fuzz_found_wait", linked_behind_short_write, [Op(IORING_OP_WRITE), Sqe(IOSQE_IO_HARDLINK)], "a request linked behind a short write does not run in a worker"),
    any_order!("fuzz_found_wait", recv_after_refused_connect, [Op(IORING_OP_RECV)], "after a refused connect a receive returns 0"),
    any_order!("fuzz_found_wait", wait_all_incremental_buffer, [Op(IORING_OP_RECV), Reg(IORING_REGISTER_PBUF_RING)], "with MSG_WAITALL each part uses up its bytes of an incremental buffer"),
    case!("fuzz_found_wait", reads_posted_after_batch, [Op(IORING_OP_READ_MULTISHOT)], "of many reads all but the first are posted after their batch"),
];

fn worker_chain_first(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    cx.sparse_files(&ring, 2);
    let mut fds = [0i32; 2];
    let pipe = sqe::rw(IORING_OP_PIPE, 0, addr_mut(&mut fds), 0, 0);
    let sqes = [
        sqe::nop().with(IOSQE_IO_DRAIN).ud(1),
        sqe::nop().link().ud(2),
        sqe::poll_add(0, 0).fixed().ud(3),
        sqe::in_slot(pipe, 0).ud(4),
    ];
    cx.batch(&mut ring, "polled first", &sqes, &[(1, 0), (2, 0), (3, -EBADF), (4, 0)]);
    Ok(())
}

fn link_timeout_in_worker(cx: &mut Cx) -> Outcome {
    let limit = sqe::millis(10);
    for (what, first) in [("open chain", None), ("in a worker's chain", Some(sqe::nop()))] {
        let mut ring = cx.ring(8, 0)?;
        let mut mem = [0u8; 64];
        cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
        let (mut one, two) = UnixStream::pair()?;
        let many = sqe::op(IORING_OP_RECV, two.as_raw_fd()).with(IOSQE_BUFFER_SELECT).link().ud(1);
        let many = many.set(|s| (s.ioprio, s.buf_index) = (IORING_RECV_MULTISHOT, GROUP));
        let timeout = sqe::link_timeout(&limit, 0).ud(2);
        let sqes: Vec<_> = match first {
            None => vec![many, timeout.link()],
            Some(nop) => vec![nop.with(IOSQE_ASYNC | IOSQE_CQE_SKIP_SUCCESS).link(), many, timeout],
        };
        cx.start(&mut ring, &sqes);
        cx.quiet(&ring, what, 40);
        one.write_all(b"data")?;
        let want = [(1, 4), (1, -ECANCELED), (2, -ETIME)];
        let mut got = ring.take(3)?;
        got.sort_by_key(|c| (c.user_data, -c.res));
        cx.completions("when data have come", &got, &want);
    }
    Ok(())
}

fn nop_without_file(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let flags = IORING_NOP_FILE | IORING_NOP_TW;
    let late = sqe::nop().set(|s| s.fd = -1).op_flags(flags).ud(1);
    cx.start(&mut ring, &[late, sqe::nop().ud(2)]);
    cx.reap_in_order(&mut ring, "behind the batch", &[(2, 0), (1, -EBADF)]);
    Ok(())
}

fn no_file_in_worker(cx: &mut Cx) -> Outcome {
    use rustix::event::epoll::{CreateFlags, create};
    let mut ring = cx.ring(8, 0)?;
    let set = create(CreateFlags::CLOEXEC)?;
    let none = {
        let (r, _w) = cx.pipe()?;
        r.as_raw_fd()
    };
    let mut event = [0u8; 12];
    let wait = sqe::rw(IORING_OP_EPOLL_WAIT, set.as_raw_fd(), addr_mut(&mut event), 1, 0).ud(2);
    let accept = sqe::op(IORING_OP_ACCEPT, none).with(IOSQE_IO_HARDLINK).ud(1);
    cx.batch(&mut ring, "open chain", &[accept, wait.link()], &[(1, -EBADF)]);
    cx.quiet(&ring, "waits", 10);
    cx.batch(&mut ring, "cancelled", &[sqe::cancel(2, 0).ud(3)], &[(2, -ECANCELED), (3, 0)]);
    let first = sqe::op(IORING_OP_RECV, none).set(|s| s.ioprio = IORING_RECVSEND_POLL_FIRST);
    let chain = [sqe::nop().with(IOSQE_ASYNC).link().ud(1), first.ud(2)];
    cx.batch(&mut ring, "polled first", &chain, &[(1, 0), (2, -EBADF)]);
    Ok(())
}

fn tag_of_replaced_file(cx: &mut Cx) -> Outcome {
    let ev = cx.eventfd(0)?;
    let (fds, tags) = ([ev.as_raw_fd()], [7u64]);
    for flags in [0, DEFER] {
        let (mut from, mut to) = (cx.ring(8, 0)?, cx.ring(8, flags)?);
        cx.is("files", from.register_slice(IORING_REGISTER_FILES, &fds), 0);
        let table = rsrc(1, 0, addr(&fds), addr(&tags));
        cx.is("tagged", to.register(IORING_REGISTER_FILES2, addr(&table), 32), 0);
        let msg = sqe::op(IORING_OP_MSG_RING, to.fd).set(|s| {
            (s.addr, s.off, s.file_index) = (1, 9, 1);
        });
        cx.one(&mut from, "sent", msg, 0);
        cx.holds("at once", to.cq_ready() > 0);
        cx.reap(&mut to, "told", &[(7, 0), (9, 0)]);
    }
    Ok(())
}

fn nowait_after_splice(cx: &mut Cx) -> Outcome {
    const RWF_NOWAIT: u32 = 8;
    let mut ring = cx.ring(8, 0)?;
    let ((r1, w1), (r2, w2)) = (cx.pipe()?, cx.pipe()?);
    rustix::io::write(&w1, b"data")?;
    let (from, to) = (r1.as_raw_fd(), w2.as_raw_fd());
    let splice = sqe::rw(IORING_OP_SPLICE, to, usize::MAX, 4, u64::MAX);
    let splice = splice.set(|s| s.file_index = from.cast_unsigned());
    let mut buf = [0u8; 8];
    let fd = r2.as_raw_fd();
    let now = |buf: &mut [u8]| sqe::read(fd, buf, 0).op_flags(RWF_NOWAIT);
    cx.each(&mut ring, &[
        ("spliced", splice, 4),
        ("read", now(&mut buf), 4),
        ("nothing to read", now(&mut buf), -EAGAIN),
        ("write", sqe::write(to, b"more", 0).op_flags(RWF_NOWAIT), 4),
        ("to itself", splice.set(|s| s.file_index = fd.cast_unsigned()), -EINVAL),
        ("read again", now(&mut buf), 4),
    ]);
    Ok(())
}

fn full_write_in_worker(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    os::fcntl(w.as_raw_fd(), libc::F_SETPIPE_SZ, 4096);
    let data = [b'x'; 8192];
    let write = sqe::write(w.as_raw_fd(), &data, 0).ud(1);
    cx.start(&mut ring, &[write.link()]);
    cx.quiet(&ring, "in an open chain", 20);
    rustix::io::read(&r, &mut [0u8; 4096])?;
    cx.reap(&mut ring, "all", &[(1, 8192)]);
    rustix::io::read(&r, &mut [0u8; 4096])?;
    cx.one(&mut ring, "by itself", write.with(IOSQE_ASYNC), 4096);
    Ok(())
}

fn mask_without_wait(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(8, 0)?;
    let mask = [0u64; 3];
    for (what, min, want) in [("for nothing", 0, 0), ("for one", 1, -EINVAL)] {
        let got = ring.enter_raw(0, min, IORING_ENTER_GETEVENTS, addr(&mask), 24);
        cx.is(what, got, want);
    }
    Ok(())
}

fn multishot_accept_position(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let accept = sqe::op(IORING_OP_ACCEPT, listener.as_raw_fd());
    let many = accept.set(|s| s.ioprio = IORING_ACCEPT_MULTISHOT);
    cx.start(&mut ring, &[many.ud(1), accept.ud(2)]);
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(TcpStream::connect(listener.local_addr()?)?);
        let got = ring.take(1)?[0];
        cx.eq("taken by", got.user_data, 1);
        drop(os::own(got.res));
        cx.quiet(&ring, "and by nobody else", 5);
    }
    cx.batch(&mut ring, "cancelled", &[sqe::cancel(1, 0).ud(3)], &[(1, -ECANCELED), (3, 0)]);
    clients.push(TcpStream::connect(listener.local_addr()?)?);
    let got = ring.take(1)?[0];
    cx.eq("taken by", got.user_data, 2);
    drop(os::own(got.res));
    Ok(())
}

fn worker_waits_once(cx: &mut Cx) -> Outcome {
    use rustix::event::epoll::{CreateFlags, create};
    let mut ring = cx.ring(8, 0)?;
    let set = create(CreateFlags::CLOEXEC)?;
    for (what, fd) in [("epoll set", set.as_raw_fd()), ("ring", ring.fd)] {
        let accept = sqe::op(IORING_OP_ACCEPT, fd).set(|s| s.ioprio = IORING_ACCEPT_MULTISHOT);
        cx.one(&mut ring, &format!("accept, {what}"), accept.with(IOSQE_ASYNC), -ENOTSOCK);
        cx.one(&mut ring, &format!("accept at the end, {what}"), accept.link(), -ENOTSOCK);
        let recv = sqe::op(IORING_OP_RECV, fd).with(IOSQE_BUFFER_SELECT | IOSQE_ASYNC);
        let recv = recv.set(|s| s.ioprio = IORING_RECV_MULTISHOT);
        cx.one(&mut ring, &format!("recv, {what}"), recv, -ENOTSOCK);
        let bundle = recv.set(|s| s.ioprio |= IORING_RECVSEND_BUNDLE);
        cx.one(&mut ring, &format!("bundle, {what}"), bundle, -ENOTSOCK);
    }
    // An eventfd supports attempts that must not block.
    let at = os::page(libc::PROT_READ | libc::PROT_WRITE);
    cx.is("register", register(&ring, &reg(at, 8, 0)), 0isize);
    os::store(at + 14, &[1u16]);
    let ev = cx.eventfd(1)?;
    let bundle = sqe::op(IORING_OP_RECV, ev.as_raw_fd()).with(IOSQE_BUFFER_SELECT | IOSQE_ASYNC);
    let both = IORING_RECV_MULTISHOT | IORING_RECVSEND_BUNDLE;
    let bundle = bundle.set(|s| (s.buf_index, s.ioprio) = (GROUP, both));
    cx.one(&mut ring, "bundle of nothing, eventfd", bundle, -ENOTSOCK);
    Ok(())
}

/// Creates a pair whose first socket has no room left to send.
fn full() -> Result<(UnixStream, UnixStream), Stop> {
    let (mut one, two) = UnixStream::pair()?;
    one.set_nonblocking(true)?;
    while one.write(&[b'f'; 4096]).is_ok() {}
    one.set_nonblocking(false)?;
    Ok((one, two))
}

fn soon() {
    std::thread::sleep(std::time::Duration::from_millis(20));
}

fn send_after_peer_shutdown(cx: &mut Cx) -> Outcome {
    let data = [b'x'; 64];
    for how in ["before", "meanwhile"] {
        let mut ring = cx.ring(8, 0)?;
        let (one, two) = full()?;
        if how == "before" {
            two.shutdown(std::net::Shutdown::Write)?;
        }
        cx.start(&mut ring, &[send(one.as_raw_fd(), &data).ud(1)]);
        if how == "meanwhile" {
            one.shutdown(std::net::Shutdown::Read)?;
        }
        soon();
        cx.quiet(&ring, "waits", 5);
        // A send that waits inside the call gets ECONNRESET; a retried send would get EPIPE.
        drop(two);
        cx.reap(&mut ring, how, &[(1, -ECONNRESET)]);
    }
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = full()?;
    two.shutdown(std::net::Shutdown::Write)?;
    cx.start(&mut ring, &[send(one.as_raw_fd(), &data).ud(1)]);
    soon();
    let want = [(1, -libc::EINTR), (2, -libc::EALREADY)];
    cx.batch(&mut ring, "cancelled", &[sqe::cancel(1, 0).ud(2)], &want);
    Ok(())
}

fn bundle_after_peer_shutdown(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (at, mem) = (os::page(libc::PROT_READ | libc::PROT_WRITE), [b'x'; 64]);
    cx.is("register", register(&ring, &reg(at, 8, 0)), 0isize);
    os::store(at, &[addr(&mem) as u64, 64]);
    os::store(at + 14, &[1u16]);
    let (one, _two) = full()?;
    let bundle = sqe::op(IORING_OP_SEND, one.as_raw_fd()).with(IOSQE_BUFFER_SELECT).ud(1);
    let bundle = bundle.set(|s| (s.buf_index, s.ioprio) = (GROUP, IORING_RECVSEND_BUNDLE));
    cx.start(&mut ring, &[bundle]);
    cx.quiet(&ring, "waits", 10);
    let shut = sqe::op(IORING_OP_SHUTDOWN, one.as_raw_fd()).set(|s| s.len = SHUT_RD as u32);
    cx.batch(&mut ring, "gives up", &[shut.ud(2)], &[(1, -ECANCELED), (2, 0)]);
    Ok(())
}

fn send_keeps_list_buffer(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut mem = [b'x'; 16];
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
    let take = |n: i32| sqe::op(IORING_OP_REMOVE_BUFFERS, n).set(|s| s.buf_index = GROUP);
    let (one, mut two) = full()?;
    let pick = sqe::op(IORING_OP_SEND, one.as_raw_fd()).with(IOSQE_BUFFER_SELECT).ud(1);
    let pick = pick.set(|s| s.buf_index = GROUP);
    cx.start(&mut ring, &[pick]);
    cx.one(&mut ring, "one is left", take(2), 1);
    two.set_nonblocking(true)?;
    while two.read(&mut [0u8; 4096]).is_ok() {}
    cx.reap(&mut ring, "sent", &[(1, 8)]);
    cx.one(&mut ring, "provide again", provide(&mut mem, 8, 0), 0);
    let (one, _two) = full()?;
    cx.start(&mut ring, &[pick.set(|s| s.fd = one.as_raw_fd())]);
    cx.batch(&mut ring, "cancelled", &[sqe::cancel(1, 0).ud(2)], &[(1, -ECANCELED), (2, 0)]);
    cx.one(&mut ring, "that one is gone", take(2), 1);
    Ok(())
}

fn cancelled_read_loses_buffer(cx: &mut Cx) -> Outcome {
    let (mut mem, at) = ([b'x'; 16], os::page(libc::PROT_READ | libc::PROT_WRITE));
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?;
    let ((one, _two), (r, _w)) = (pair()?, cx.pipe()?);
    let files =
        [("epoll set", epoll.as_raw_fd()), ("socket", one.as_raw_fd()), ("pipe", r.as_raw_fd())];
    for (what, fd) in files {
        for (how, op) in [("", IORING_OP_READ), (" by many", IORING_OP_READ_MULTISHOT)] {
            for flags in [0, IOSQE_ASYNC] {
                let mut ring = cx.ring(8, 0)?;
                cx.is("register", register(&ring, &reg(at, 8, 0)), 0isize);
                refill(at, 0, 8, &mut mem);
                let read = sqe::op(op, fd).with(IOSQE_BUFFER_SELECT | flags).ud(1);
                cx.start(&mut ring, &[read.set(|s| s.buf_index = GROUP)]);
                cx.quiet(&ring, "waits", 10);
                cx.start(&mut ring, &[sqe::cancel(1, 0).ud(2)]);
                note_cqes(cx, &mut ring, &format!("{what}{how} {flags}"));
            }
        }
    }
    Ok(())
}

fn poll_remove_in_worker(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (_r, w) = cx.pipe()?;
    let poll = sqe::poll_add(w.as_raw_fd(), libc::POLLOUT).set(|s| s.len = IORING_POLL_ADD_MULTI);
    let remove = sqe::op(IORING_OP_POLL_REMOVE, -1).set(|s| s.addr = 1).with(IOSQE_ASYNC);
    // A worker that starts early finds the poll busy, which is rare.
    for _ in 0..20 {
        ring.push(poll.ud(1)).push(remove.ud(2)).submit();
        let mut got = ring.take(2)?;
        if got.iter().all(|c| c.res >= 0) {
            got.extend(ring.take(1)?);
            let want = [(1, libc::POLLOUT.into()), (2, 0), (1, -ECANCELED)];
            cx.completions("told, then removed", &got, &want);
            return Ok(());
        }
        ring.push(sqe::cancel(1, 0).ud(3)).submit();
        ring.take(2)?;
    }
    cx.holds("removed", false);
    Ok(())
}

fn linked_behind_short_write(cx: &mut Cx) -> Outcome {
    use rustix::event::epoll::{CreateFlags, create};
    let mut ring = cx.ring(8, 0)?;
    let set = create(CreateFlags::CLOEXEC)?;
    let memory = rustix::fs::memfd_create("m", rustix::fs::MemfdFlags::CLOEXEC)?;
    let edge = os::border() - 4096;
    let mut event = [0u8; 12];
    let wait = sqe::rw(IORING_OP_EPOLL_WAIT, set.as_raw_fd(), addr_mut(&mut event), 1, 0).ud(2);
    let write = sqe::rw(IORING_OP_WRITE, memory.as_raw_fd(), edge, 8192, 0).ud(1);
    let sqes = [write.with(IOSQE_IO_HARDLINK), wait];
    cx.batch(&mut ring, "short", &sqes, &[(1, 4096)]);
    cx.quiet(&ring, "waits", 10);
    cx.batch(&mut ring, "cancelled", &[sqe::cancel(2, 0).ud(3)], &[(2, -ECANCELED), (3, 0)]);
    let whole = write.set(|s| s.len = 4096).with(IOSQE_IO_HARDLINK);
    cx.batch(&mut ring, "whole", &[whole, wait], &[(1, 4096), (2, -EAGAIN)]);
    Ok(())
}

fn recv_after_refused_connect(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let closed = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let at = os::loopback(closed);
    let make = sqe::op(IORING_OP_SOCKET, libc::AF_INET).set(|s| s.off = libc::SOCK_STREAM as u64);
    let sock = cx.one_fd(&mut ring, "socket", make)?;
    let connect = sqe::rw(IORING_OP_CONNECT, sock.as_raw_fd(), addr(&at), 0, 16);
    cx.one(&mut ring, "refused", connect, -ECONNREFUSED);
    cx.one(&mut ring, "nothing", sqe::op(IORING_OP_RECV, sock.as_raw_fd()), 0);
    Ok(())
}

fn wait_all_incremental_buffer(cx: &mut Cx) -> Outcome {
    for async_ in [0, IOSQE_ASYNC] {
        let mut ring = cx.ring(8, 0)?;
        let (at, mem) = (os::page(libc::PROT_READ | libc::PROT_WRITE), [0u8; 64]);
        let group = reg(at, 8, IOU_PBUF_RING_INC);
        cx.is("register", register(&ring, &group), 0isize);
        os::store(at, &[addr(&mem) as u64, 64]);
        os::store(at + 14, &[1u16]);
        let (mut one, two) = UnixStream::pair()?;
        let all = sqe::rw(IORING_OP_RECV, two.as_raw_fd(), 0, 16, 0).ud(1);
        let all = all.with(IOSQE_BUFFER_SELECT | async_).set(|s| s.buf_index = GROUP);
        cx.start(&mut ring, &[all.op_flags(MSG_WAITALL as u32)]);
        for len in [5, 6] {
            soon();
            one.write_all(&[b'x'; 16][..len])?;
            soon();
            cx.note("left", os::load(at + 8));
        }
        one.write_all(&[b'x'; 5])?;
        cx.reap(&mut ring, "all", &[(1, 16)]);
        cx.note("left", os::load(at + 8));
    }
    Ok(())
}

fn reads_posted_after_batch(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut mem = [0u8; 32];
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
    let (r, w) = cx.pipe()?;
    rustix::io::write(&w, &[b'x'; 24])?;
    let many = sqe::op(IORING_OP_READ_MULTISHOT, r.as_raw_fd()).with(IOSQE_BUFFER_SELECT).ud(1);
    let many = many.set(|s| (s.off, s.buf_index) = (u64::MAX, GROUP));
    cx.start(&mut ring, &[many, sqe::nop().ud(2)]);
    cx.reap_in_order(&mut ring, "read", &[(1, 8), (2, 0), (1, 8), (1, 8)]);
    Ok(())
}

fn poll_update_ready(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = std::os::unix::net::UnixDatagram::pair()?;
    let both = u32::from(libc::POLLRDNORM.cast_unsigned() | libc::POLLRDBAND.cast_unsigned());
    let multi = sqe::poll_add(two.as_raw_fd(), 0).set(|s| s.len = IORING_POLL_ADD_MULTI);
    cx.start(&mut ring, &[multi.ud(1)]);
    one.send(b"x")?;
    let update = sqe::op(IORING_OP_POLL_REMOVE, -1).op_flags(both);
    let update = update.set(|s| (s.addr, s.len) = (1, IORING_POLL_UPDATE_EVENTS));
    cx.one(&mut ring, "update", update.ud(2), 0);
    cx.reap(&mut ring, "there", &[(1, i32::from(libc::POLLRDNORM))]);
    one.send(b"x")?;
    cx.reap(&mut ring, "comes", &[(1, both.cast_signed())]);
    Ok(())
}
