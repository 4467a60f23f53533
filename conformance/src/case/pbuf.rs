//! Provided buffers: lists and rings that requests pick from.

use super::prelude::*;
use libc::ENOBUFS;

pub const CASES: &[Case] = &[
    legal!("pbuf", provide_refusals, [Op(IORING_OP_PROVIDE_BUFFERS)], "bad counts, ids and ranges"),
    legal!("pbuf", remove, [Op(IORING_OP_REMOVE_BUFFERS)], "buffers are removed, at most as many as there are"),
    any_order!("pbuf", list, [Op(IORING_OP_PROVIDE_BUFFERS), Sqe(IOSQE_BUFFER_SELECT), Op(IORING_OP_READ)], "reads pick buffers of a list, in order"),
    any_order!("pbuf", each_opcode, [Sqe(IOSQE_BUFFER_SELECT)], "each opcode accepts or refuses buffer selection"),
    any_order!("pbuf", kept_while_waiting, [Sqe(IOSQE_BUFFER_SELECT)], "a waiting request keeps a buffer of a list, but not a buffer of a ring"),
    any_order!("pbuf", vector, [Op(IORING_OP_READV), Sqe(IOSQE_BUFFER_SELECT)], "a vector of one part limits the selected buffer"),
    any_order!("pbuf", files, [Sqe(IOSQE_BUFFER_SELECT)], "reads of a file with selected buffers, at its end, in a worker and in a chain"),
    case!("pbuf", ring_refusals, [
        Reg(IORING_REGISTER_PBUF_RING), Reg(IORING_UNREGISTER_PBUF_RING),
        Reg(IORING_REGISTER_PBUF_STATUS),
    ], "bad sizes, addresses, flags and groups"),
    any_order!("pbuf", ring, [
        Reg(IORING_REGISTER_PBUF_RING), Reg(IORING_UNREGISTER_PBUF_RING),
        Reg(IORING_REGISTER_PBUF_STATUS),
    ], "a buffer ring is used up in order, and refilled"),
    any_order!("pbuf", kernel_mapped_ring, [Reg(IORING_REGISTER_PBUF_RING)], "a buffer ring mapped from the ring's file"),
    any_order!("pbuf", incremental, [Reg(IORING_REGISTER_PBUF_RING)], "a buffer is used up in parts"),
    any_order!("pbuf", multishot, [Op(IORING_OP_READ_MULTISHOT)], "one multishot read reads until the buffers or the stream end"),
    legal!("pbuf", multishot_refusals, [Op(IORING_OP_READ_MULTISHOT)], "a multishot read without buffers, with an address, of a regular file"),
];

pub(super) const GROUP: u16 = 3;

pub(super) fn provide(buf: &mut [u8], each: u32, bid: u64) -> io_uring_sqe {
    let n = buf.len() as i32 / each as i32;
    sqe::rw(IORING_OP_PROVIDE_BUFFERS, n, addr_mut(buf), each as usize, bid)
        .set(|s| s.buf_index = GROUP)
}

fn select(fd: i32, len: usize) -> io_uring_sqe {
    sqe::rw(IORING_OP_READ, fd, 0, len, 0)
        .with(IOSQE_BUFFER_SELECT)
        .set(|s| s.buf_index = GROUP)
}

fn provide_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut mem = [0u8; 64];
    let good = provide(&mut mem, 8, 0);
    cx.each(&mut ring, &[
        ("none", good.set(|s| s.fd = 0), -libc::E2BIG),
        ("too many", good.set(|s| s.fd = 65537), -libc::E2BIG),
        ("negative", good.set(|s| s.fd = -1), -libc::E2BIG),
        ("no length", good.set(|s| s.len = 0), -EINVAL),
        ("id too big", good.set(|s| s.off = 65536), -libc::E2BIG),
        ("ids past the last", good.set(|s| s.off = 65530), -EINVAL),
        ("flags", good.op_flags(1), -EINVAL),
        ("a file index", good.set(|s| s.file_index = 1), -EINVAL),
        ("address that wraps", good.set(|s| s.addr = u64::MAX - 8), -EOVERFLOW),
        ("address of the kernel", good.set(|s| s.addr = KERNEL as u64), -EFAULT),
        ("all well", good, 0),
    ]);
    Ok(())
}

fn remove(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut mem = [0u8; 64];
    let take = |n: i32| sqe::op(IORING_OP_REMOVE_BUFFERS, n).set(|s| s.buf_index = GROUP);
    cx.each(&mut ring, &[
        ("no group", take(1), -ENOENT),
        ("none", take(0), -EINVAL),
        ("too many", take(65537), -EINVAL),
        ("an address", take(1).set(|s| s.addr = 8), -EINVAL),
        ("a length", take(1).set(|s| s.len = 8), -EINVAL),
        ("an offset", take(1).set(|s| s.off = 8), -EINVAL),
        ("flags", take(1).op_flags(8), -EINVAL),
        ("provide", provide(&mut mem, 8, 0), 0),
        ("some", take(3), 3),
        ("more than there are", take(65536), 5),
        ("none left", take(1), 0),
    ]);
    Ok(())
}

fn list(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let mut mem = [b'-'; 32];
    cx.one(&mut ring, "no group", select(r.as_raw_fd(), 0), -ENOBUFS);
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 40), 0);
    rustix::io::write(&w, b"0123456789abcdefghij")?;
    cx.each(&mut ring, &[
        ("as much as fits", select(r.as_raw_fd(), 0), 8),
        ("as much as asked for", select(r.as_raw_fd(), 4), 4),
        ("no more than fits", select(r.as_raw_fd(), 100), 8),
    ]);
    cx.eq("data", *std::hint::black_box(&mem), *b"0123456789ab----cdefghij--------");
    rustix::io::write(&w, b"last")?;
    cx.one(&mut ring, "the last", select(r.as_raw_fd(), 0), 4);
    cx.one(&mut ring, "used up", select(r.as_raw_fd(), 0), -ENOBUFS);
    let not = sqe::nop().with(IOSQE_BUFFER_SELECT);
    cx.one(&mut ring, "not for this opcode", not, -EOPNOTSUPP);
    Ok(())
}

fn each_opcode(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let mut mem = [0; 64];
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
    for (what, fd) in [("no file", -1), ("a pipe", r.as_raw_fd())] {
        // READ_MULTISHOT would wait for more.
        let waits = |op| fd >= 0 && op == IORING_OP_READ_MULTISHOT;
        for op in (0..cx.abi().ops).filter(|op| !waits(*op)) {
            rustix::io::write(&w, b"x")?;
            let any = sqe::op(op, fd).with(IOSQE_BUFFER_SELECT).set(|s| s.buf_index = GROUP);
            ring.push(any).submit_wait(1);
            let got = ring.take(1)?[0];
            let picked = crate::show::cqe_flags(got.flags);
            cx.note_answer(&format!("{what}, {} {picked}", OP_NAMES[usize::from(op)]), got.res);
        }
    }
    Ok(())
}

fn kept_while_waiting(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let (r2, w2) = cx.pipe()?;
    let mut mem = [b'-'; 8];
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 7), 0);
    cx.start(&mut ring, &[select(r.as_raw_fd(), 0).ud(1), select(r2.as_raw_fd(), 0).ud(2)]);
    rustix::io::write(&w2, b"second")?;
    cx.reap(&mut ring, "the first to wait has it", &[(2, -ENOBUFS)]);
    rustix::io::write(&w, b"first")?;
    cx.reap(&mut ring, "and uses it", &[(1, 5)]);
    cx.one(&mut ring, "provide again", provide(&mut mem, 8, 9), 0);
    cx.one(&mut ring, "a bad number", select(-1, 0), -EBADF);
    cx.one(&mut ring, "wrong way", select(w.as_raw_fd(), 0), -EBADF);
    cx.one(&mut ring, "which lost it", select(r2.as_raw_fd(), 0), -ENOBUFS);
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    let mut ring = cx.ring(8, 0)?;
    cx.is("a ring instead", register(&ring, &reg(page, 4, 0)), 0isize);
    let mut mem = [b'-'; 32];
    refill(page, 0, 4, &mut mem[..8]);
    cx.start(&mut ring, &[select(r.as_raw_fd(), 0).ud(1)]);
    cx.one(&mut ring, "who has data first", select(r2.as_raw_fd(), 0), 6);
    rustix::io::write(&w, b"first")?;
    cx.reap(&mut ring, "too late", &[(1, -ENOBUFS)]);
    refill(page, 1, 4, &mut mem[..8]);
    cx.each(&mut ring, &[
        ("wrong way", select(w.as_raw_fd(), 0), -EBADF),
        ("still there", select(r.as_raw_fd(), 0), 5),
    ]);
    Ok(())
}

fn vector(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let mut mem = [b'-'; 16];
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 7), 0);
    rustix::io::write(&w, b"0123456789")?;
    let part = |len| libc::iovec { iov_base: std::ptr::null_mut(), iov_len: len };
    let parts = [part(5), part(2)];
    let fd = r.as_raw_fd();
    let readv = |n, at| select(fd, n).set(|s| (s.opcode, s.addr) = (IORING_OP_READV, at));
    let at = addr(&parts) as u64;
    cx.each(&mut ring, &[
        ("one part", readv(1, at), 5),
        ("two parts", readv(2, at), -EINVAL),
        ("no part", readv(0, at), -EINVAL),
        ("a bad one", readv(1, BAD as u64), -EFAULT),
        ("the rest", readv(1, at), 5),
    ]);
    Ok(())
}

fn files(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let fd = file.as_raw_fd();
    let mut mem = [b'-'; 48];
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
    cx.each(&mut ring, &[
        ("the start", select(fd, 0), 8),
        ("short at the end", select(fd, 0).set(|s| s.off = 8), 2),
        ("at the end", select(fd, 0).set(|s| s.off = 10), 0),
        ("by a worker", select(fd, 4).with(IOSQE_ASYNC), 4),
    ]);
    let chain = [select(fd, 4).link().ud(1), sqe::nop().ud(2)];
    cx.batch(&mut ring, "in a chain", &chain, &[(1, 4), (2, 0)]);
    let broken = [select(fd, 0).set(|s| s.off = 8).link().ud(1), sqe::nop().ud(2)];
    cx.batch(&mut ring, "short in a chain", &broken, &[(1, 2), (2, -ECANCELED)]);
    Ok(())
}

pub(super) fn reg(at: usize, entries: u32, flags: u16) -> io_uring_buf_reg {
    let ring_addr = at as u64;
    io_uring_buf_reg { ring_addr, ring_entries: entries, bgid: GROUP, flags, ..Default::default() }
}

pub(super) fn register(ring: &Ring, reg: &io_uring_buf_reg) -> isize {
    ring.register(IORING_REGISTER_PBUF_RING, addr(reg), 1)
}

pub(super) fn unregister(ring: &Ring) -> isize {
    ring.register(IORING_UNREGISTER_PBUF_RING, addr(&reg(0, 0, 0)), 1)
}

fn ring_refusals(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(8, 0)?;
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    for (what, reg, want) in [
        ("not a power of two", reg(page, 3, 0), -EINVAL),
        ("none", reg(page, 0, 0), -EINVAL),
        ("too many", reg(page, 65536, 0), -EINVAL),
        ("no address", reg(0, 8, 0), -EFAULT),
        ("address within a page", reg(page + 16, 8, 0), -EINVAL),
        ("nothing mapped", reg(BAD, 8, 0), -EINVAL),
        ("unknown flag", reg(page, 8, 4), -EINVAL),
        ("reserved", io_uring_buf_reg { resv: [0, 1, 0, 0, 0], ..reg(page, 8, 0) }, -EINVAL),
    ] {
        cx.note_answer(what, register(&ring, &reg));
        let _ = want;
    }
    cx.is("a NULL", ring.register(IORING_REGISTER_PBUF_RING, 0, 1), -EINVAL);
    cx.is("a bad pointer", ring.register(IORING_REGISTER_PBUF_RING, BAD, 1), -EFAULT);
    let two = ring.register(IORING_REGISTER_PBUF_RING, addr(&reg(page, 8, 0)), 2);
    cx.is("two of them", two, -EINVAL);
    cx.is("unregister none", unregister(&ring), -ENOENT as isize);
    cx.is("register", register(&ring, &reg(page, 8, 0)), 0isize);
    cx.is("again", register(&ring, &reg(page, 8, 0)), -EEXIST as isize);
    let flagged = reg(0, 0, 1);
    let call = |op, at| ring.register(op, at, 1);
    cx.is("unregister with flags", call(IORING_UNREGISTER_PBUF_RING, addr(&flagged)), -EINVAL);
    let status = |group| io_uring_buf_status { buf_group: group, ..Default::default() };
    cx.is("status", call(IORING_REGISTER_PBUF_STATUS, addr(&status(GROUP.into()))), 0);
    cx.is("status of none", call(IORING_REGISTER_PBUF_STATUS, addr(&status(99))), -ENOENT);
    let odd = io_uring_buf_status { resv: [1; 8], ..status(GROUP.into()) };
    cx.is("status, reserved", call(IORING_REGISTER_PBUF_STATUS, addr(&odd)), -EINVAL);
    cx.is("status, bad pointer", call(IORING_REGISTER_PBUF_STATUS, BAD), -EFAULT);
    cx.is("unregister", unregister(&ring), 0isize);
    Ok(())
}

/// Writes entries from `tail` on, each of 8 bytes of `mem`; then moves the tail behind them.
pub(super) fn refill(at: usize, tail: u16, entries: u16, mem: &mut [u8]) {
    supply(at, tail, entries, mem, 8);
}

/// Same as [`refill`] with `each` bytes per entry.
pub(super) fn supply(at: usize, tail: u16, entries: u16, mem: &mut [u8], each: usize) {
    let n = mem.len() / each;
    for i in 0..n {
        let slot = usize::from(tail.wrapping_add(i as u16) & (entries - 1));
        os::store(at + slot * 16, &[(addr_mut(mem) + i * each) as u64]);
        os::store(at + slot * 16 + 8, &[each as u32]);
        os::store(at + slot * 16 + 12, &[100 + tail + i as u16]);
    }
    os::store(at + 14, &[tail + n as u16]);
}

fn head(cx: &mut Cx, ring: &Ring, want: u32) {
    let mut status = io_uring_buf_status { buf_group: GROUP.into(), ..Default::default() };
    let at = addr_mut(std::slice::from_mut(&mut status));
    cx.is("status", ring.register(IORING_REGISTER_PBUF_STATUS, at, 1), 0);
    cx.eq("head", std::hint::black_box(&status).head, want);
}

fn ring(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    let mut mem = [b'-'; 32];
    cx.is("register", register(&ring, &reg(page, 4, 0)), 0isize);
    cx.one(&mut ring, "empty", select(r.as_raw_fd(), 0), -ENOBUFS);
    refill(page, 0, 4, &mut mem);
    head(cx, &ring, 0);
    cx.start(&mut ring, &[select(r.as_raw_fd(), 0).ud(1)]);
    head(cx, &ring, 0);
    rustix::io::write(&w, b"0123456789abcdefgh")?;
    cx.reap(&mut ring, "waited", &[(1, 8)]);
    cx.each(&mut ring, &[
        ("as asked for", select(r.as_raw_fd(), 4), 4),
        ("what is there", select(r.as_raw_fd(), 0), 6),
    ]);
    head(cx, &ring, 3);
    cx.eq("data", *std::hint::black_box(&mem), *b"0123456789ab----cdefgh----------");
    cx.one(&mut ring, "not for a ring", provide(&mut mem, 8, 0), -EINVAL);
    let take = sqe::op(IORING_OP_REMOVE_BUFFERS, 1).set(|s| s.buf_index = GROUP);
    cx.one(&mut ring, "nor this", take, -EINVAL);
    refill(page, 4, 4, &mut mem[..16]);
    let file = cx.file("f", b"0123456789")?;
    cx.each(&mut ring, &[
        ("from a file", select(file.as_raw_fd(), 0), 8),
        ("by a worker", select(file.as_raw_fd(), 5).with(IOSQE_ASYNC), 5),
        ("at its end", select(file.as_raw_fd(), 0).set(|s| s.off = 10), 0),
        ("empty again", select(file.as_raw_fd(), 0), -ENOBUFS),
    ]);
    head(cx, &ring, 6);
    cx.is("unregister", unregister(&ring), 0isize);
    cx.one(&mut ring, "gone", select(file.as_raw_fd(), 0), -ENOBUFS);
    Ok(())
}

fn kernel_mapped_ring(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let file = cx.file("f", b"0123456789")?;
    cx.is("register", register(&ring, &reg(0, 8, IOU_PBUF_RING_MMAP)), 0isize);
    let offset = (IORING_OFF_PBUF_RING | u64::from(GROUP) << 16) as i64;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let at = os::mmap_fd(ring.fd, 4096, prot, libc::MAP_SHARED, offset);
    cx.holds("mapped", at > 0);
    let mut mem = [b'-'; 16];
    refill(at as usize, 0, 8, &mut mem);
    cx.each(&mut ring, &[
        ("first", select(file.as_raw_fd(), 0), 8),
        ("second", select(file.as_raw_fd(), 0).set(|s| s.off = 8), 2),
        ("none left", select(file.as_raw_fd(), 0), -ENOBUFS),
    ]);
    cx.is("unregister", unregister(&ring), 0isize);
    Ok(())
}

fn incremental(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    let mut mem = [b'-'; 16];
    cx.is("register", register(&ring, &reg(page, 4, IOU_PBUF_RING_INC)), 0isize);
    refill(page, 0, 4, &mut mem);
    rustix::io::write(&w, b"0123456789abcdef")?;
    let rd = |n| select(r.as_raw_fd(), n);
    let mut part = |what: &str, n: usize, want: i32, flags: u32| {
        let cqe = cx.one(&mut ring, what, rd(n), want);
        cx.eq("flags", cqe.flags, flags);
    };
    const USED: u32 = IORING_CQE_F_BUFFER;
    const MORE: u32 = IORING_CQE_F_BUFFER | IORING_CQE_F_BUF_MORE;
    part("some of the first", 3, 3, MORE | 100 << 16);
    part("more of it", 3, 3, MORE | 100 << 16);
    part("the rest of it", 0, 2, USED | 100 << 16);
    part("all of the second", 0, 8, USED | 101 << 16);
    cx.eq("data", *std::hint::black_box(&mem), *b"0123456789abcdef");
    head(cx, &ring, 2);
    Ok(())
}

fn shots(fd: i32) -> io_uring_sqe {
    select(fd, 0).set(|s| s.opcode = IORING_OP_READ_MULTISHOT).ud(5)
}

fn multishot(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(16, 0)?;
    let (r, w) = cx.pipe()?;
    let mut mem = [b'-'; 32];
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
    cx.start(&mut ring, &[shots(r.as_raw_fd())]);
    cx.is("nothing yet", ring.cq_ready(), 0);
    rustix::io::write(&w, b"one")?;
    cx.reap(&mut ring, "the first", &[(5, 3)]);
    rustix::io::write(&w, b"two and a bit")?;
    cx.reap_in_order(&mut ring, "two of them", &[(5, 8), (5, 5)]);
    rustix::io::write(&w, b"fourfourfive")?;
    cx.reap_in_order(&mut ring, "buffers end", &[(5, 8), (5, -ENOBUFS)]);
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
    cx.start(&mut ring, &[shots(r.as_raw_fd())]);
    cx.reap(&mut ring, "what was left", &[(5, 4)]);
    drop(w);
    cx.reap(&mut ring, "the stream ends", &[(5, 0)]);
    let (r, _w) = cx.pipe()?;
    cx.start(&mut ring, &[shots(r.as_raw_fd())]);
    let cancel = sqe::op(IORING_OP_ASYNC_CANCEL, -1).set(|s| s.addr = 5).ud(6);
    cx.batch(&mut ring, "cancelled", &[cancel], &[(5, -ECANCELED), (6, 0)]);
    let (r, w) = cx.pipe()?;
    cx.start(&mut ring, &[shots(r.as_raw_fd()).with(IOSQE_CQE_SKIP_SUCCESS)]);
    rustix::io::write(&w, b"six")?;
    cx.reap(&mut ring, "what comes is told", &[(5, 3)]);
    drop(w);
    std::thread::sleep(std::time::Duration::from_millis(5));
    cx.batch(&mut ring, "its end is not", &[sqe::nop().ud(7)], &[(7, 0)]);
    Ok(())
}

fn multishot_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let (r, _w) = cx.pipe()?;
    let fd = r.as_raw_fd();
    let mut mem = [b'-'; 32];
    cx.one(&mut ring, "no group", shots(fd), -ENOBUFS);
    cx.one(&mut ring, "provide", provide(&mut mem, 8, 0), 0);
    cx.each(&mut ring, &[
        ("no selection", shots(fd).set(|s| s.flags = 0), -EINVAL),
        ("an address", shots(fd).set(|s| s.addr = 8), -EINVAL),
        ("a length", shots(fd).set(|s| s.len = 8), -EINVAL),
        ("a file", shots(file.as_raw_fd()), -EBADFD),
        ("a bad number", shots(-1), -EBADF),
    ]);
    Ok(())
}
