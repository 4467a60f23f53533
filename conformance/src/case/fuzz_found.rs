//! Answers that random programs have found: each was once different on softring.

use super::pbuf;
use super::prelude::*;
use rustix::event::epoll::CreateFlags;

const NOWAIT: u32 = 8;

pub const CASES: &[Case] = &[
    any_order!("fuzz_found", nowait_writes, [Op(IORING_OP_WRITE)], "RWF_NOWAIT on a file that cannot write without waiting"),
    legal!("fuzz_found", flags_before_position, [Op(IORING_OP_WRITE)], "unsupported flags are refused before an unsupported position"),
    legal!("fuzz_found", fixed_vector_to_eventfd, [Op(IORING_OP_WRITEV_FIXED)], "a vector of a registered buffer is not written to an eventfd"),
    legal!("fuzz_found", path_only, [Op(IORING_OP_WRITE_FIXED)], "an O_PATH descriptor fails before its buffer is checked"),
    legal!("fuzz_found", message_words, [Op(IORING_OP_MSG_RING)], "a message's command and slot are 32 bits wide"),
    legal!("fuzz_found", canceled_big_nop, [Op(IORING_OP_NOP)], "a 32-byte NOP that never ran ends with a 16-byte CQE"),
    case!("fuzz_found", cqe32_at_last_slot, [Op(IORING_OP_NOP)], "a 32-byte CQE at the last slot leaves a filler, and overflows"),
    legal!("fuzz_found", timeout_count_in_chain, [Op(IORING_OP_TIMEOUT)], "a timeout in a chain counts completions after its batch"),
    case!("fuzz_found", past_link_timeout, [Op(IORING_OP_LINK_TIMEOUT)], "a linked timeout in the past fires although its request ends at once"),
    any_order!("fuzz_found", direct_chain, [Op(IORING_OP_READ), Sqe(IOSQE_IO_LINK)], "chains of O_DIRECT requests go on, break, and keep hard links"),
    legal!("fuzz_found", error_order, [Op(IORING_OP_MSG_RING), Op(IORING_OP_FILES_UPDATE)], "requests with two errors return the first one of the kernel's order"),
    legal!("fuzz_found", epoll_set_read_waits, [Op(IORING_OP_READ), Op(IORING_OP_WRITE)], "a read of an epoll set waits before its position is checked"),
    legal!("fuzz_found", refused_with_buffer, [Sqe(IOSQE_BUFFER_SELECT)], "requests that are refused after a buffer was picked, and before"),
    legal!("fuzz_found", siginfo_at_memory_end, [Op(IORING_OP_WAITID)], "a siginfo_t at the end of memory is written word by word"),
    case!("fuzz_found", poll_of_full_ring, [], "a ring with a full submission queue is not writable"),
    case!("fuzz_found", file_operations_on_ring, [Op(IORING_OP_WRITE), Op(IORING_OP_FTRUNCATE), Op(IORING_OP_FALLOCATE)], "a ring cannot be written, truncated or synchronised"),
];

fn nowait_writes(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let word = 1u64.to_ne_bytes();
    let flags = rustix::event::EventfdFlags::NONBLOCK;
    let (waits, does_not) = (cx.eventfd(0)?, rustix::event::eventfd(0, flags)?);
    let (_r, w) = cx.pipe()?;
    let write = |fd: i32, buf: &[u8]| sqe::write(fd, buf, 0).op_flags(NOWAIT);
    cx.each(&mut ring, &[
        ("eventfd", write(waits.as_raw_fd(), &word), -EAGAIN),
        ("nothing", write(waits.as_raw_fd(), &[]), -EAGAIN),
        ("in a worker", write(waits.as_raw_fd(), &word).with(IOSQE_ASYNC), -EAGAIN),
        ("eventfd that does not wait", write(does_not.as_raw_fd(), &word), 8),
        ("pipe", write(w.as_raw_fd(), &word), 8),
    ]);
    let file = cx.file("f", b"")?;
    // The file system decides whether it can.
    for (what, buf) in [("file", &word[..]), ("file, nothing", &[])] {
        let cqe = ring.push(write(file.as_raw_fd(), buf)).submit_wait(1);
        cx.is("submit", cqe, 1);
        let res = ring.take(1)?[0].res;
        cx.note_answer(what, res);
    }
    Ok(())
}

fn flags_before_position(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"")?;
    let memory = rustix::fs::memfd_create("m", rustix::fs::MemfdFlags::CLOEXEC)?;
    for (name, fd) in [("file", file.as_raw_fd()), ("memory", memory.as_raw_fd())] {
        for flags in [0, 0x40, 0x80] {
            let what = format!("{name}, flags {flags:#x}");
            let write = sqe::write(fd, b"data", 1 << 63).op_flags(flags);
            ring.push(write).submit_wait(1);
            let res = ring.take(1)?[0].res;
            cx.note_answer(&what, res);
        }
    }
    Ok(())
}

fn fixed_vector_to_eventfd(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let ev = cx.eventfd(0)?;
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    os::store(page, &1u64.to_ne_bytes());
    let iov = [libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(page), iov_len: 8 }];
    cx.is("register", ring.register_slice(IORING_REGISTER_BUFFERS, &iov), 0);
    let parts = sqe::rw(IORING_OP_WRITEV_FIXED, ev.as_raw_fd(), addr(&iov), 1, 0);
    let whole = sqe::rw(IORING_OP_WRITE_FIXED, ev.as_raw_fd(), page, 8, 0);
    cx.each(&mut ring, &[
        ("parts", parts, -EINVAL),
        ("parts, at once", parts.op_flags(NOWAIT), -EAGAIN),
        ("the whole", whole, 8),
    ]);
    // An epoll set is never writable, so this write waits and is not refused for its parts.
    let set = rustix::event::epoll::create(CreateFlags::CLOEXEC)?;
    let waits = parts.set(|s| s.fd = set.as_raw_fd()).ud(1);
    cx.start(&mut ring, &[waits]);
    cx.quiet(&ring, "an epoll set", 10);
    cx.batch(&mut ring, "cancelled", &[sqe::cancel(1, 0).ud(2)], &[(1, -ECANCELED), (2, 0)]);
    Ok(())
}

fn path_only(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let path = cx.dir()?;
    let flags = rustix::fs::OFlags::PATH;
    let dir = rustix::fs::open(&path, flags, rustix::fs::Mode::empty())?;
    let write = sqe::rw(IORING_OP_WRITE_FIXED, dir.as_raw_fd(), 0, 0, 0);
    cx.one(&mut ring, "no such buffer", write, -EBADF);
    let nop = sqe::op(IORING_OP_NOP, dir.as_raw_fd()).op_flags(IORING_NOP_FILE);
    cx.one(&mut ring, "a nop's file", nop, -EBADF);
    let cancel = sqe::op(IORING_OP_ASYNC_CANCEL, dir.as_raw_fd());
    cx.one(&mut ring, "to cancel on it", cancel.op_flags(IORING_ASYNC_CANCEL_FD), -EBADF);
    Ok(())
}

fn message_words(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let high = 1 << 32;
    let msg = |addr: u64, addr3: u64| {
        sqe::op(IORING_OP_MSG_RING, ring.fd).ud(1).set(|s| (s.addr, s.addr3) = (addr, addr3))
    };
    let rows = [(high, 0), (0, high), (high | 9, 0)].map(|(addr, addr3)| msg(addr, addr3));
    cx.batch(&mut ring, "the command", &rows[..1], &[(0, 0), (1, 0)]);
    cx.batch(&mut ring, "the slot", &rows[1..2], &[(0, 0), (1, 0)]);
    cx.batch(&mut ring, "no command", &rows[2..], &[(1, -EINVAL)]);
    Ok(())
}

fn canceled_big_nop(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, IORING_SETUP_CQE_MIXED)?;
    let fails = sqe::nop().op_flags(IORING_NOP_INJECT_RESULT).set(|s| s.len = u32::MAX);
    let big = sqe::nop().op_flags(IORING_NOP_CQE32).ud(2);
    let chain = [fails.ud(1).with(IOSQE_IO_LINK), big];
    cx.batch(&mut ring, "canceled", &chain, &[(1, -1), (2, -ECANCELED)]);
    Ok(())
}

fn cqe32_at_last_slot(cx: &mut Cx) -> Outcome {
    let flags = IORING_SETUP_CQE_MIXED | IORING_SETUP_CQSIZE;
    let params = io_uring_params { flags, cq_entries: 4, ..Default::default() };
    let mut ring = cx.ring_with(4, params)?;
    let big = sqe::nop().op_flags(IORING_NOP_CQE32).ud(4);
    cx.start(&mut ring, &[sqe::nop(), sqe::nop(), sqe::nop(), big]);
    cx.is("the filler counts", ring.cq_tail(), 4);
    Ok(())
}

fn timeout_count_in_chain(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let long = sqe::millis(60_000);
    let count = sqe::timeout(&long, 2, 0).ud(9);
    cx.start(&mut ring, &[sqe::nop().ud(1).with(IOSQE_IO_LINK), count, sqe::nop().ud(2)]);
    cx.reap(&mut ring, "the batch", &[(1, 0), (2, 0)]);
    cx.quiet(&ring, "does not count", 5);
    cx.start(&mut ring, &[sqe::nop().ud(3), sqe::nop().ud(4)]);
    cx.reap(&mut ring, "counts", &[(3, 0), (4, 0), (9, 0)]);
    Ok(())
}

fn past_link_timeout(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (past, soon, long) = (sqe::millis(1), sqe::millis(0), sqe::millis(60_000));
    let abs = IORING_TIMEOUT_ABS;
    let head = sqe::nop().ud(1).with(IOSQE_IO_LINK);
    let rows = [
        ("over long ago", sqe::link_timeout(&past, abs), -ENOENT),
        ("no time at all", sqe::link_timeout(&soon, 0), -ENOENT),
        ("enough", sqe::link_timeout(&long, 0), -ECANCELED),
    ];
    for (what, timeout, want) in rows {
        cx.batch(&mut ring, what, &[head, timeout.ud(2)], &[(1, 0), (2, want)]);
        let closed = sqe::op(IORING_OP_POLL_ADD, -1).ud(1).with(IOSQE_IO_LINK);
        let chain = [closed, timeout.ud(2)];
        cx.batch(&mut ring, "never issued", &chain, &[(1, -EBADF), (2, -ECANCELED)]);
        let chain = [sqe::read(9999, &mut [], 0).ud(1).with(IOSQE_IO_LINK), timeout.ud(2)];
        cx.batch(&mut ring, "nor this", &chain, &[(1, -EBADF), (2, -ECANCELED)]);
        let chain = [head.with(IOSQE_ASYNC), timeout.ud(2)];
        cx.batch(&mut ring, "in a worker", &chain, &[(1, 0), (2, want)]);
        let timeout = timeout.ud(2).with(IOSQE_IO_LINK);
        let chain = [head, timeout, sqe::nop().ud(3)];
        cx.batch(&mut ring, "with a third", &chain, &[(1, 0), (2, want), (3, 0)]);
    }
    Ok(())
}

fn direct_chain(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let file = cx.direct_file("f", &[7; 8192])?;
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    let io = |op, off| sqe::rw(op, file.as_raw_fd(), page, 4096, off).with(IOSQE_IO_LINK);
    let (read, write) = (|off| io(IORING_OP_READ, off), |off| io(IORING_OP_WRITE, off));
    let last = sqe::nop().ud(3);
    let copy = [read(0).ud(1), write(8192).ud(2), last];
    cx.batch(&mut ring, "copy", &copy, &[(1, 4096), (2, 4096), (3, 0)]);
    let short = [read(1 << 20).ud(1), write(0).ud(2), last];
    cx.batch(&mut ring, "short", &short, &[(1, 0), (2, -ECANCELED), (3, -ECANCELED)]);
    let bad = [read(0).ud(1), write(1).ud(2), last];
    cx.batch(&mut ring, "refused", &bad, &[(1, 4096), (2, -EINVAL), (3, -ECANCELED)]);
    let hard = [read(1).ud(1).with(IOSQE_IO_HARDLINK), write(0).ud(2), last];
    cx.batch(&mut ring, "hard", &hard, &[(1, -EINVAL), (2, 4096), (3, 0)]);
    Ok(())
}

fn poll_of_full_ring(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (input, output) = (i32::from(libc::POLLIN), i32::from(libc::POLLOUT));
    let poll = |ring: &Ring| os::poll(ring.fd, libc::POLLIN | libc::POLLOUT, 0);
    for n in 0..4u64 {
        cx.is("room", poll(&ring), output);
        ring.push(sqe::nop().ud(n));
    }
    cx.is("full", poll(&ring), 0);
    cx.is("submit", ring.submit(), 4);
    cx.is("room, and completions", poll(&ring), input | output);
    ring.pop_all();
    cx.is("empty", poll(&ring), output);
    let p = io_uring_params { flags: IORING_SETUP_CQSIZE, cq_entries: 1, ..Default::default() };
    let mut small = cx.ring_with(1, p)?;
    for _ in 0..2 {
        cx.start(&mut small, &[sqe::nop()]);
    }
    small.pop();
    cx.is("nothing but what overflowed", poll(&small), input | output);
    Ok(())
}

fn error_order(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (off, full) = (cx.ring(4, IORING_SETUP_R_DISABLED)?, [ring.fd]);
    let ev = cx.eventfd(0)?;
    let send = sqe::op(IORING_OP_MSG_RING, off.fd).set(|s| s.addr = IORING_MSG_SEND_FD);
    cx.one(&mut ring, "no file, for a disabled ring", send, -EBADFD);
    cx.is("files", ring.register_slice(IORING_REGISTER_FILES, &[ev.as_raw_fd()]), 0);
    let pick = u64::from(IORING_FILE_INDEX_ALLOC);
    let update = sqe::rw(IORING_OP_FILES_UPDATE, 0, addr(&full), 1, pick);
    cx.one(&mut ring, "a ring, for a full table", update, -libc::ENFILE);
    let (_reads, writes) = cx.pipe()?;
    let ends = sqe::rw(IORING_OP_SPLICE, writes.as_raw_fd(), usize::MAX, 8, 0);
    let ends = ends.set(|s| s.file_index = writes.as_raw_fd().cast_unsigned());
    cx.one(&mut ring, "a pipe's end for writing, at an offset", ends, -EBADF);
    let (epoll, buf) = (rustix::event::epoll::create(CreateFlags::CLOEXEC)?, [0u8; 8]);
    let past = sqe::rw(IORING_OP_WRITE, epoll.as_raw_fd(), addr(&buf), 8, i64::MAX as u64);
    cx.one(&mut ring, "not to wait, at no position", past.op_flags(NOWAIT), -EOPNOTSUPP);
    let none = sqe::rw(IORING_OP_WRITE, epoll.as_raw_fd(), addr(&buf), 0, 0);
    cx.one(&mut ring, "not to wait, for nothing", none.op_flags(NOWAIT), -EOPNOTSUPP);
    let file = cx.file("f", b"x")?;
    let nothing = sqe::rw(IORING_OP_WRITE, file.as_raw_fd(), addr(&buf), 0, 0);
    cx.one(&mut ring, "nothing, in one piece", nothing.op_flags(0x40), -EOPNOTSUPP);
    Ok(())
}

/// Checks that a read or write of an epoll set waits before its position is checked: the set can be
/// polled.
fn epoll_set_read_waits(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (epoll, buf) = (rustix::event::epoll::create(CreateFlags::CLOEXEC)?, [0u8; 8]);
    for op in [IORING_OP_READ, IORING_OP_WRITE] {
        let wild = sqe::rw(op, epoll.as_raw_fd(), addr(&buf), 8, u64::MAX - 1).ud(1);
        cx.is("submitted", ring.push(wild).submit(), 1);
        cx.is("it waits", ring.pop_all().len(), 0);
        let cancel = sqe::rw(IORING_OP_ASYNC_CANCEL, -1, 1, 0, 0).ud(2);
        cx.batch(&mut ring, "cancelled", &[cancel], &[(1, -ECANCELED), (2, 0)]);
    }
    Ok(())
}

fn file_operations_on_ring(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let other = cx.ring(4, 0)?;
    let buf = [0xa5u8; 8];
    let iov = [libc::iovec { iov_base: buf.as_ptr().cast_mut().cast(), iov_len: 8 }];
    for fd in [ring.fd, other.fd] {
        let vector = |op| sqe::rw(op, fd, addr(&iov), 1, 0);
        cx.each(&mut ring, &[
            ("WRITE", sqe::rw(IORING_OP_WRITE, fd, addr(&buf), 8, 0), -EINVAL),
            ("WRITE of nothing", sqe::rw(IORING_OP_WRITE, fd, addr(&buf), 0, 0), -EINVAL),
            ("WRITEV", vector(IORING_OP_WRITEV), -EINVAL),
            ("in a worker", vector(IORING_OP_WRITEV).with(IOSQE_ASYNC), -EINVAL),
            ("READ_FIXED without a buffer", sqe::op(IORING_OP_READ_FIXED, fd), -EFAULT),
            ("WRITE_FIXED without a buffer", sqe::op(IORING_OP_WRITE_FIXED, fd), -EFAULT),
            ("not to wait", vector(IORING_OP_WRITEV).op_flags(NOWAIT), -EOPNOTSUPP),
            ("with unknown flags", vector(IORING_OP_WRITEV).op_flags(1 << 20), -EOPNOTSUPP),
            ("FTRUNCATE", sqe::op(IORING_OP_FTRUNCATE, fd), -EINVAL),
            ("FALLOCATE", sqe::op(IORING_OP_FALLOCATE, fd).set(|s| s.addr = 8), -libc::ENODEV),
            ("FSYNC", sqe::op(IORING_OP_FSYNC, fd), -EINVAL),
            ("SYNC_FILE_RANGE", sqe::op(IORING_OP_SYNC_FILE_RANGE, fd), -ESPIPE),
        ]);
    }
    Ok(())
}

fn refused_with_buffer(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    let mut mem = [b'-'; 16];
    cx.is("register", pbuf::register(&ring, &pbuf::reg(page, 4, 0)), 0isize);
    pbuf::refill(page, 0, 4, &mut mem);
    let null = std::fs::File::open("/dev/null")?;
    let read = sqe::rw(IORING_OP_READ, null.as_raw_fd(), 0, 0, 0).with(IOSQE_BUFFER_SELECT);
    let read = read.set(|s| s.buf_index = pbuf::GROUP);
    let cqe = cx.one(&mut ring, "RWF_HIPRI, of a device", read.op_flags(1), -EINVAL);
    cx.note("it names its buffer", format_args!("{:#x}", cqe.flags));
    cx.is("unregister", pbuf::unregister(&ring), 0isize);
    cx.is("register", pbuf::register(&ring, &pbuf::reg(page, 4, IOU_PBUF_RING_INC)), 0isize);
    pbuf::refill(page, 0, 4, &mut mem);
    let cqe = cx.one(&mut ring, "nothing, of a device", read, 0);
    cx.note("it has used its buffer", format_args!("{:#x}", cqe.flags));
    pbuf::refill(page, 2, 4, &mut mem);
    // The buffer is too small for the message's header, and the file is no socket.
    let (r, w) = cx.pipe()?;
    rustix::io::write(&w, b"x")?;
    let (hdr, op) = ([0u64; 7], IORING_OP_RECVMSG);
    let many = sqe::rw(op, r.as_raw_fd(), addr(&hdr), 1, 0).with(IOSQE_BUFFER_SELECT | IOSQE_ASYNC);
    let many = many.set(|s| (s.buf_index, s.ioprio) = (pbuf::GROUP, IORING_RECV_MULTISHOT));
    cx.one(&mut ring, "a message of a pipe", many, -libc::ENOTSOCK);
    Ok(())
}

fn siginfo_at_memory_end(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    for left in [1, 4, 8, 20, 24] {
        let at = os::border() - left;
        let wait = sqe::op(IORING_OP_WAITID, 0).set(|s| (s.off, s.file_index) = (at as u64, 4));
        os::store(at, &[0xa5u8; 32][..left]);
        cx.one(&mut ring, "no child", wait, -EFAULT);
        let tail: Vec<u32> = (0..left / 4).map(|i| os::load(at + 4 * i)).collect();
        cx.note("what is left", format_args!("{tail:x?}"));
    }
    Ok(())
}
